"""Settings of the tests of the cookbook."""

from __future__ import annotations

import asyncio
import uuid

import asyncpg
import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the packages that the examples use warn, and the fork not."""
    item.add_marker(pytest.mark.filterwarnings('ignore', 'error::pydantic_ai.exceptions.ToolsetStateWarning'))


@pytest.fixture
def database(postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a database for one test, name it to the examples, and give its URL."""
    name = uuid.uuid4().hex

    async def make() -> None:
        connection = await asyncpg.connect(f'{postgres}/postgres')
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()

    asyncio.run(make())
    monkeypatch.setenv('DATABASE_URL', f'{postgres}/{name}')
    return f'{postgres}/{name}'
