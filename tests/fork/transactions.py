"""Toolsets that work in a transaction of a real database, one for each thing that a sub-agent can get in its place.

>>> path = new_database(Path(folder))
>>> agent = Agent(scripted(['write']), toolsets=[Isolated(path)])
>>> asyncio.run(run_as('one', agent))
'done'
>>> committed(path)
['one']
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from pydantic_ai import AbstractToolset, RunContext, ToolsetTool
from typing_extensions import Self

from .toolsets import tool_of


class Transaction(AbstractToolset[Any]):
    """Runs statements in a transaction, which it commits or rolls back with the run."""

    stateful = True

    def __init__(self, path: Path):
        self.path = path
        self.connection: sqlite3.Connection | None = None

    @property
    def id(self) -> str | None:
        return None

    def copy(self) -> Self:
        return type(self)(self.path)

    async def __aenter__(self) -> Self:
        self.connection = sqlite3.connect(self.path, isolation_level=None, timeout=0, check_same_thread=False)
        self.connection.execute('BEGIN')
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        assert self.connection is not None
        self.connection.execute('COMMIT' if args[0] is None else 'ROLLBACK')
        self.connection.close()
        self.connection = None
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: tool_of(self, name) for name in ('write', 'read')}

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        assert self.connection is not None
        if name == 'write':
            self.connection.execute('INSERT INTO notes VALUES (?)', [tool_args['value']])
        return [value for (value,) in self.connection.execute('SELECT * FROM notes')]


class Shared(Transaction):
    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self


class Isolated(Transaction):
    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(self.path)


class Nested(Transaction):
    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return Savepoint(self.path, self.connection)


class Savepoint(Nested):
    """A part of a transaction that is undone on its own."""

    def __init__(self, path: Path, connection: sqlite3.Connection | None = None):
        self.path = path
        self.connection = connection

    async def __aenter__(self) -> Self:
        assert self.connection is not None
        self.connection.execute('SAVEPOINT s')
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        assert self.connection is not None
        if args[0] is not None:
            self.connection.execute('ROLLBACK TO s')
        self.connection.execute('RELEASE s')
        return None


def new_database(folder: Path) -> Path:
    """Make a database with a table of notes."""
    path = folder / 'notes.db'
    connection = sqlite3.connect(path)
    connection.execute('PRAGMA journal_mode=WAL')
    connection.execute('CREATE TABLE notes (value TEXT)')
    connection.commit()
    connection.close()
    return path


def committed(path: Path) -> list[str]:
    """Return the notes that were committed."""
    connection = sqlite3.connect(path)
    try:
        return [value for (value,) in connection.execute('SELECT * FROM notes')]
    finally:
        connection.close()


# The child writes before the parent does, since SQLite lets only one transaction at a time write.
TRANSACTIONS: dict[str, tuple[type[Transaction], dict[tuple[bool, bool, bool], list[str]]]] = {
    'shared': (
        Shared,
        {
            (True, True, False): ['child', 'parent'],
            (False, True, False): ['child', 'parent'],
            (False, False, False): [],
            (True, True, True): [],
        },
    ),
    'isolated': (
        Isolated,
        {
            (True, True, False): ['child', 'parent'],
            (False, True, False): ['parent'],
            (False, False, False): [],
            (True, True, True): ['child'],
        },
    ),
    'savepoint': (
        Nested,
        {
            (True, True, False): ['child', 'parent'],
            (False, True, False): ['parent'],
            (False, False, False): [],
            (True, True, True): [],
        },
    ),
}
"""What is committed, if the child succeeds or not, the parent survives that or not, and the parent fails later or not."""
