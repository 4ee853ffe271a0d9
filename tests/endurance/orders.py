"""A toolset that writes into PostgreSQL, in a transaction that it commits or rolls back with the run."""

from __future__ import annotations

from typing import Any

import asyncpg
from pydantic_ai import FunctionToolset
from typing_extensions import Self


class Orders(FunctionToolset[Any]):
    """Holds a connection with a transaction."""

    stateful = True
    connection: asyncpg.Connection[Any]

    def __init__(self, url: str, name: str):
        super().__init__([self.order])
        self.url = url
        self.name = name
        """What the server knows the connection as."""

    def copy(self) -> Self:
        return type(self)(self.url, self.name)

    async def __aenter__(self) -> Self:
        self.connection = await asyncpg.connect(self.url, server_settings={'application_name': self.name})
        await self.connection.execute('BEGIN')
        return self

    async def __aexit__(self, *args: object) -> None:
        try:
            await self.connection.execute('COMMIT' if args[0] is None else 'ROLLBACK')
        finally:
            await self.connection.close()

    async def order(self, value: str) -> None:
        """Place an order."""
        await self.connection.execute('INSERT INTO orders VALUES ($1)', value)


async def ordered(url: str) -> list[str]:
    """Return what was committed."""
    connection = await asyncpg.connect(url)
    try:
        return [row['value'] for row in await connection.fetch('SELECT value FROM orders ORDER BY value')]
    finally:
        await connection.close()


async def connections(url: str, name: str) -> int:
    """Ask the server how many connections it has under a name."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval('SELECT count(*) FROM pg_stat_activity WHERE application_name = $1', name)
    finally:
        await connection.close()
