"""What the tests of the chapters that use PostgreSQL share: a second connection, which sees what others see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg
from pydantic_ai import ModelMessage, RetryPromptPart, ToolReturnPart


class Watcher:
    """Looks at a database from outside."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]):
        self.connection = connection
        self.others = (
            'SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() '
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    async def column(self, sql: str) -> list[Any]:
        return [row[0] for row in await self.connection.fetch(sql)]

    async def count_connections(self) -> int:
        """Return how many other connections to the database there are."""
        [count] = await self.column(self.others)
        return count

    async def wait_until_alone(self) -> None:
        """Wait for other connections to end, which the server notices a moment after the client has closed them."""
        with anyio.fail_after(300):
            while await self.count_connections():
                await asyncio.sleep(0.01)

    async def wait_until_asleep(self) -> None:
        """Wait for another connection to call `pg_sleep()`."""
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        with anyio.fail_after(300):
            while await self.column(asleep) == [0]:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(url: str) -> AsyncGenerator[Watcher]:
    """Connect to a database."""
    connection = await asyncpg.connect(url)
    try:
        yield Watcher(connection)
    finally:
        await connection.close()


def told(messages: list[ModelMessage]) -> list[Any]:
    """Return what the model was told of its tool calls."""
    parts = [part for message in messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
