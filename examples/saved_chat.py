"""A chat that is saved: its tasks survive a process that is killed, as far as they were reported as done."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelMessagesTypeAdapter, RunContext, toolsets
from pydantic_ai.models import Model

from examples.support import call, run_main, scripts
from examples.tasks import TasksToolset

Telephone = Callable[[str], Awaitable[str]]
"""Calls someone up, and returns what they say."""


# --8<-- [start:toolset]
class SavedTasksToolset(TasksToolset):
    """A list of tasks that can go on in another process."""

    @property
    def id(self) -> str:
        """What the state is stored under. It must not change as long as there are chats with it."""
        return 'tasks'

    async def export_state(self) -> dict[str, bool]:
        """Return what `restore_state()` needs, as JSON."""
        return self.tasks

    async def restore_state(self, state: dict[str, bool]) -> None:
        """Go on with the list of another process. This is called on a copy that was entered."""
        self.tasks = state


# --8<-- [end:toolset]


# --8<-- [start:store]
class ChatStore:
    """Keeps chats in a file: the messages of each turn, and the state of the toolsets after the last one."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it."""
        self.connection = sqlite3.connect(path)
        with self.connection:
            self.connection.execute(
                'CREATE TABLE IF NOT EXISTS turns (chat, number, messages, PRIMARY KEY (chat, number))'
            )
            self.connection.execute('CREATE TABLE IF NOT EXISTS states (chat PRIMARY KEY, state)')

    def load(self, chat: str) -> tuple[int, list[ModelMessage], dict[str, Any] | None]:
        """Return how many turns a chat has had, their messages, and the state of the toolsets, if there is one."""
        with self.connection:
            self.connection.execute('BEGIN')  # what is read belongs together
            turns = self.connection.execute(
                'SELECT messages FROM turns WHERE chat = ? ORDER BY number', [chat]
            ).fetchall()
            states = self.connection.execute('SELECT state FROM states WHERE chat = ?', [chat]).fetchall()
        messages = [each for [turn] in turns for each in ModelMessagesTypeAdapter.validate_json(turn)]
        return len(turns), messages, json.loads(states[0][0]) if states else None

    def save(self, chat: str, number: int, messages: bytes, state: dict[str, Any]) -> None:
        """Store a turn with the state after it: both or nothing.

        Raises:
            sqlite3.IntegrityError: Another process has stored a turn with this number meanwhile.
        """
        with self.connection:
            self.connection.execute('INSERT INTO turns VALUES (?, ?, ?)', [chat, number, messages])
            self.connection.execute('REPLACE INTO states VALUES (?, ?)', [chat, json.dumps(state)])


# --8<-- [end:store]


# --8<-- [start:answer]
@dataclass
class Office:
    """What the tools work with, besides the tasks."""

    telephone: Telephone


tasks = SavedTasksToolset()
agent = Agent('openai:gpt-5-mini', name='agent', deps_type=Office, toolsets=[tasks], defer_model_check=True)


@agent.tool
async def call_up(ctx: RunContext[Office], who: str) -> str:
    """Call someone up, and return what they say."""
    return await ctx.deps.telephone(who)


async def answer(store: ChatStore, chat: str, prompt: str, telephone: Telephone) -> str:
    """Answer a message. When this returns, the answer and what was done for it are stored."""
    turns, messages, state = store.load(chat)
    async with toolsets.ToolsetScope(tasks, state=state) as scope:
        result = await agent.run(prompt, toolsets=[scope], message_history=messages, deps=Office(telephone))
        state = await scope.export()
    store.save(chat, turns + 1, result.new_messages_json(), state)
    return result.output


# --8<-- [end:answer]


def serve(connection: Connection, path: Path, model: str | None) -> None:
    """Answer the messages that come through a connection, until nobody asks any more. This is what a process does."""

    async def telephone(who: str) -> str:
        connection.send({'calls': who})
        return await asyncio.to_thread(connection.recv)

    async def serve_all() -> None:
        store = ChatStore(path)
        with agent.override(model=model or SCRIPT), closing(store.connection):
            while prompt := await asyncio.to_thread(connection.recv):
                connection.send({'answer': await answer(store, CHAT, prompt, telephone)})

    asyncio.run(serve_all())


@dataclass
class Server:
    """A process that answers messages, seen from outside."""

    process: BaseProcess
    connection: Connection

    async def ask(self, sent: str) -> dict[str, str]:
        """Send a message, or what is said on the telephone, and return the answer or whom it calls up.

        Raises:
            EOFError: The process has ended.
        """
        self.connection.send(sent)
        return await asyncio.to_thread(self.connection.recv)

    def kill(self) -> None:
        """End the process where it is."""
        self.process.kill()
        self.process.join()


@asynccontextmanager
async def start(path: Path, model: str | None = None) -> AsyncGenerator[Server]:
    """Start a process that answers messages until the end of the block."""
    ours, theirs = get_context('spawn').Pipe()
    process = get_context('spawn').Process(target=serve, args=(theirs, path, model))
    process.start()
    theirs.close()
    try:
        yield Server(process, ours)
    finally:
        with ours:
            if process.is_alive():
                ours.send('')
        await asyncio.to_thread(process.join)


CHAT = 'our trip'
FIRST = 'Put these on the list: book a flight, book a hotel.'
SECOND = 'The flight is booked.'
THIRD = 'Put this on the list: rent a car. Then call up the hotel, and if it has a room, tick it off.'
SCRIPT = scripts(
    {
        FIRST: [
            call('add_task', task='book a flight'),
            call('add_task', task='book a hotel'),
            '{results}',
            call('finish_task', task='book a flight'),
            '{results}',
            call('add_task', task='rent a car'),
            call('call_up', who='the hotel'),
            call('finish_task', task='book a hotel'),
        ]
    }
)


async def say(server: Server, sent: str) -> dict[str, str]:
    """Say something, print what comes back, and return it."""
    said = await server.ask(sent)
    print(f'{sent}\n  {said.get("answer") or "It calls up " + said["calls"]}')
    return said


async def main(model: Model | str) -> None:
    """Have a chat with a process that is killed at the third message, then go on with another process."""
    name = model if isinstance(model, str) else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'chats.db'
        async with start(path, name) as server:
            for prompt in FIRST, SECOND, THIRD:
                said = await say(server, prompt)
            if 'calls' in said:
                server.kill()
                print('  The process is killed, and another one started.')
        async with start(path, name) as server:
            said = await say(server, THIRD)
            while 'calls' in said:
                said = await say(server, 'We have a room.')


if __name__ == '__main__':
    run_main(main, SCRIPT)
