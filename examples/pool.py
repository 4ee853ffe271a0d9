"""A shared pool: any number of runs query PostgreSQL on the same few connections."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import asyncpg
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, database, run_main, script


# --8<-- [start:toolset]
class PoolToolset(FunctionToolset[Any]):
    """Queries a PostgreSQL database on connections that all runs share.

    It isn't `stateful`, so there is one instance, which `async with agent` and each run enter and exit, at the same time
    even. The first to enter it opens the pool, and the last to exit it closes the pool.
    """

    def __init__(self, dsn: str, *, max_size: int = 10) -> None:
        """Make a toolset that connects when it's entered.

        Args:
            dsn: The URL of the database.
            max_size: How many connections there are at most. Queries wait for one that is free.
        """
        super().__init__([self.query])
        self.dsn = dsn
        self.max_size = max_size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._users = 0
        self._lock = anyio.Lock()

    async def __aenter__(self) -> Self:
        """Open the pool if nobody has."""
        async with self._lock:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(self.dsn, min_size=1, max_size=self.max_size)
            self._users += 1
        return self

    async def __aexit__(self, *args: object) -> None:
        """Close the pool if nobody uses it any more."""
        # A run that has been cancelled isn't a user any more, either.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._users -= 1
                if self._pool is not None and not self._users:
                    pool, self._pool = self._pool, None
                    await pool.close()

    async def query(self, sql: str) -> list[dict[str, Any]]:
        """Run a query, and return its rows.

        Args:
            sql: A single SQL statement that only reads.
        """
        if self._pool is None:
            raise RuntimeError(f'The pool of {self.label} is closed. Enter it with `async with`, as runs do.')
        async with self._pool.acquire() as connection:
            try:
                async with connection.transaction(readonly=True):
                    return [dict(row) for row in await connection.fetch(sql)]
            except asyncpg.PostgresError as error:
                raise ModelRetry(str(error)) from error


# --8<-- [end:toolset]


# --8<-- [start:agent]
async def ask_at_once(question: str, times: int, *, dsn: str, model: Model | str) -> list[str]:
    """Ask a question in several runs at once, on three connections."""
    agent = Agent(model, toolsets=[PoolToolset(dsn, max_size=3)])
    async with agent:
        results = await asyncio.gather(*(agent.run(question) for _ in range(times)))
    return [result.output for result in results]


# --8<-- [end:agent]

QUESTION = 'What is the process ID of the connection that answers this?'
SCRIPT = script(call('query', sql='SELECT pg_backend_pid()'))


async def main(model: Model | str) -> None:
    """Ask 20 times which connection answers, and count them."""
    with database() as url:
        answers = await ask_at_once(QUESTION, 20, dsn=url, model=model)
    print(f'{len(answers)} runs on {len(set(answers))} connections')


if __name__ == '__main__':
    run_main(main, SCRIPT)
