"""A transaction on SQLite: a run's changes are committed if it succeeds, and rolled back if it fails."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
class OrderToolset(FunctionToolset[Any]):
    """Writes orders in one transaction per run. A sub-agent with the same toolset writes in it, too."""

    stateful = True
    connection: sqlite3.Connection

    def __init__(self, path: Path, *, patience: float = 30) -> None:
        """Make a toolset that opens the database when it's entered.

        Args:
            path: The file of the database.
            patience: For how many seconds a run waits for another one that writes.
        """
        super().__init__([self.order])
        self.path = path
        self.patience = patience

    def copy(self) -> Self:
        """Make a toolset with a connection of its own."""
        return type(self)(self.path, patience=self.patience)

    async def __aenter__(self) -> Self:
        """Begin the transaction as soon as no other run has one: SQLite lets one write at a time."""
        self.connection = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        try:
            with anyio.fail_after(self.patience):
                # SQLite's own way to wait would hold up the event loop, and with it the run that is waited for.
                while not self._begin():
                    await asyncio.sleep(0.01)
        except BaseException:
            self.connection.close()
            raise
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None = None, *args: object) -> None:
        """Commit if the run succeeded, and roll back if an exception ended it."""
        with closing(self.connection):
            self.connection.execute('COMMIT' if exc_type is None else 'ROLLBACK')

    async def order(self, item: str) -> str:
        """Order an item."""
        if item == 'desk':
            raise RuntimeError('The warehouse is down.')
        self.connection.execute('INSERT INTO orders VALUES (?)', [item])
        return f'{item} ordered'

    def _begin(self) -> bool:
        try:
            self.connection.execute('BEGIN IMMEDIATE')
        except sqlite3.OperationalError as error:
            if 'locked' in str(error):
                return False
            raise
        return True


# --8<-- [end:toolset]

LAMP_AND_DESK = 'Order a lamp and a desk.'
CHAIR = 'Order a chair.'
SCRIPT = scripts(
    {
        LAMP_AND_DESK: [call('order', item='lamp'), call('order', item='desk')],
        CHAIR: [call('order', item='chair')],
    }
)


async def main(model: Model | str) -> None:
    """Order in two runs, of which the first fails halfway, and show what is in the database."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'shop.sqlite'
        with closing(sqlite3.connect(path)) as connection:
            connection.execute('CREATE TABLE orders (item TEXT)')
            agent = Agent(model, toolsets=[OrderToolset(path)])
            for prompt in (LAMP_AND_DESK, CHAIR):
                print(prompt)
                try:
                    await agent.run(prompt)
                except RuntimeError as error:
                    print(f'  The run failed: {error}')
                items = [item for (item,) in connection.execute('SELECT item FROM orders')]
                print('  In the database:', ', '.join(items) or 'nothing')


if __name__ == '__main__':
    run_main(main, SCRIPT)
