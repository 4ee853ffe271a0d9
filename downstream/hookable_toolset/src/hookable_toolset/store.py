"""Sessions: conversations that survive their process, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, ToolApproved, ToolDenied
from pydantic_ai.messages import ToolCallPart, UserContent
from typing_extensions import Self

from .context import AgentContext, ResumableState
from .hooks import Maybe, resolve

Ask = Callable[[ToolCallPart, 'dict[str, Any]'], Maybe['bool | ToolApproved | ToolDenied | None']]
"""Asks for the approval of a call, with the tool's metadata; `None` if there is no answer yet."""


class StaleSessionError(Exception):
    """A session that someone else has written since it was read."""


class SessionStore(AbstractContextManager['SessionStore']):
    """A file of sessions. Each write is one transaction, and is on the disk when it returns.

    Args:
        path: The file, which is made if it isn't there.
    """

    def __init__(self, path: str | Path):
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute('PRAGMA journal_mode = WAL')
        self._db.execute('PRAGMA synchronous = FULL')  # `NORMAL` may lose the last write when the power fails.
        self._db.execute(
            'CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, revision INTEGER NOT NULL, state TEXT NOT NULL)'
        )

    def __exit__(self, *args: object) -> None:
        """Close the file."""
        self._db.close()

    def load(self, name: str) -> tuple[int, ResumableState]:
        """Return the revision and the state of a session: 0, and an empty one, if there is none of that name.

        Raises:
            UserError: A newer version wrote the state.
        """
        row = self._db.execute('SELECT revision, state FROM sessions WHERE name = ?', [name]).fetchone()
        return (row[0], ResumableState.from_json(row[1])) if row else (0, ResumableState())

    def save(self, name: str, state: ResumableState, revision: int) -> int:
        """Write the state of a session.

        Args:
            name: The session.
            state: What takes the place of the state that is there.
            revision: That of the state which this one follows.

        Returns:
            The new revision.

        Raises:
            StaleSessionError: The session has another revision by now. Nothing is written.
        """
        with self._db:  # commits, or rolls back what raises
            self._db.execute('BEGIN IMMEDIATE')
            row = self._db.execute('SELECT revision FROM sessions WHERE name = ?', [name]).fetchone()
            if (current := row[0] if row else 0) != revision:
                raise StaleSessionError(
                    f'Session {name!r} was written by someone else: it is at revision {current}, and revision {revision} '
                    'was read. Open it again, and repeat what you did.'
                )
            self._db.execute('REPLACE INTO sessions VALUES (?, ?, ?)', [name, revision + 1, state.to_json()])
        return revision + 1


@dataclass
class Session:
    """A conversation in a store. What `run()` has returned, and each answer to a question, is stored."""

    store: SessionStore
    name: str
    context: AgentContext = field(default_factory=AgentContext)
    revision: int = 0

    @classmethod
    def open(cls, store: SessionStore, name: str, context: AgentContext | None = None) -> Self:
        """Open a session, or begin one with the context as it is."""
        session = cls(store, name, context or AgentContext())
        session.revision, state = store.load(name)
        if session.revision:
            session.context.with_state(state)
        return session

    def save(self) -> None:
        """Store the session as it is.

        Raises:
            StaleSessionError: Someone else has stored it since it was opened.
        """
        self.revision = self.store.save(self.name, self.context.export_state(), self.revision)

    async def run(
        self, agent: Agent[AgentContext, Any], prompt: str | list[UserContent] | None, ask: Ask, **options: Any
    ) -> Any:
        """Run an agent for one turn, in as many runs as there are questions.

        Whatever a run has done is stored before anybody is asked. So whoever opens the session after this process was
        killed finds it, with the question; `run(agent, None, ask)` then goes on.

        Args:
            agent: An agent whose output may be `DeferredToolRequests`.
            prompt: What the user says; `None` to go on with what is pending.
            ask: Asks for an approval.
            options: Further arguments of `agent.run()`.

        Returns:
            The output, which is `DeferredToolRequests` if something stays without an answer. `context.answers` takes the
            results of calls that are executed elsewhere.

        Raises:
            StaleSessionError: Someone else has stored the session since it was opened.
        """
        while True:
            left = self.context.unanswered()
            for call in left.approvals:
                answer = await resolve(ask(call, left.metadata.get(call.tool_call_id, {})))
                if answer is not None:
                    self.context.answers.approvals[call.tool_call_id] = answer
                    self.save()
            left = self.context.unanswered()
            if left.approvals or left.calls:
                return left
            result = await agent.run(
                prompt,
                deps=self.context,
                message_history=self.context.message_history,
                deferred_tool_results=self.context.answers if self.context.pending else None,
                **options,
            )
            self.context.record(result)
            self.save()
            if not isinstance(result.output, DeferredToolRequests):
                return result.output
            prompt = None
