"""Settings of the tests of the cookbook."""

from __future__ import annotations

import asyncio
import os
import uuid

import asyncpg
import pytest

from examples.browser import BrowserToolset, find_chromium

from .processes import Processes


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the packages that the examples use warn, and the fork not."""
    item.add_marker(pytest.mark.filterwarnings('ignore', 'error::pydantic_ai.exceptions.ToolsetStateWarning'))


@pytest.fixture
def database(postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Empty a database for one test, name it to the examples, and give its URL."""
    url = f'{postgres}/postgres'

    async def clear() -> None:
        connection = await asyncpg.connect(url)
        # Making a database for each test would take longer, and removing the files of all of them even more.
        await connection.execute("""
            SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid();
            DROP SCHEMA public CASCADE;
            CREATE SCHEMA public;
        """)
        await connection.close()

    asyncio.run(clear())
    monkeypatch.setenv('DATABASE_URL', url)
    return url


@pytest.fixture(scope='session')
def chromium() -> None:
    """Skip what needs a Chromium where there is none."""

    async def start() -> None:
        async with BrowserToolset():
            pass

    if find_chromium() is None:
        try:
            asyncio.run(start())
        except RuntimeError as error:
            if os.environ.get('CI'):
                raise
            pytest.skip(str(error))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Give what finds the processes that the test starts, and those that they start."""
    mark = uuid.uuid4().hex
    # An MCP server gets few environment variables, this one among them.
    monkeypatch.setenv('PATH', f'{os.environ["PATH"]}{os.pathsep}/{mark}')
    return Processes(mark)
