"""Chats that survive their process, in the store of `hookable_toolset`, which is installed by `toolset-first[sessions]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage

from toolset_first.errors import ToolsetFirstError

FILE = '.toolset-first.db'
"""The file in the project's folder; `files` and attachments leave out what begins with a dot."""


@dataclass
class StoredChat:
    """The history of a chat, as it is stored."""

    store: Any
    name: str
    revision: int
    state: Any

    @property
    def history(self) -> list[ModelMessage]:
        """What was said so far."""
        return self.state.message_history

    async def save(self, messages: Sequence[ModelMessage]) -> None:
        """Store the history in place of what was there.

        Raises:
            ToolsetFirstError: Another process has gone on with the chat meanwhile.
        """
        from hookable_toolset import StaleSessionError

        self.state.message_history = list(messages)
        try:
            self.revision = await self.store.save(self.name, self.state, self.revision)
        except StaleSessionError as error:
            raise ToolsetFirstError(f'This turn is not stored. {error}') from error


@asynccontextmanager
async def stored_chat(folder: Path, name: str) -> AsyncIterator[StoredChat]:
    """Open a chat of a project, or begin one.

    Raises:
        ToolsetFirstError: `hookable_toolset` is not installed.
    """
    try:
        from hookable_toolset import SessionStore
    except ImportError as error:
        raise ToolsetFirstError(
            f'`--session` needs `hookable-toolset`, which keeps sessions: {error}. Install `toolset-first[sessions]` with it, '
            'as the README shows.'
        ) from error
    async with SessionStore(folder / FILE) as store:
        yield StoredChat(store, name, *await store.load(name))
