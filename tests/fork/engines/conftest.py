"""The engines: a PostgreSQL with DBOS on it, and Prefect's own server."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..line import IS_1
from .servers import home, prefect_server, temporal_server

with warnings.catch_warnings():
    # Warnings are errors in these tests, but what the engines say while they are imported is not our concern.
    warnings.simplefilter('ignore')
    import pydantic_ai.durable_exec.dbos as _dbos
    import pydantic_ai.durable_exec.prefect as _prefect
    import pydantic_ai.durable_exec.temporal as _temporal
    from dbos import DBOS

if TYPE_CHECKING:
    _ = _dbos, _prefect, _temporal

# What the capabilities of the engines are for. The line of 1.x has wrapping agents alone.
collect_ignore_glob = ['test_b37*', 'test_b38*', 'test_b41*'] if IS_1 else []


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Leave alone what the engines' own clients leave open at the end of the process."""
    warnings.filterwarnings('ignore', 'unclosed <socket', ResourceWarning)


def pytest_unconfigure() -> None:
    """Clean up."""
    home.cleanup()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the engines warn, and the fork not."""
    item.add_marker(pytest.mark.filterwarnings('ignore', 'error::pydantic_ai.exceptions.ToolsetStateWarning'))


@pytest.fixture
def database(postgres: str) -> str:
    """Give the address of a database that no other test uses. DBOS makes it when it isn't there."""
    return f'{postgres}/{uuid.uuid4().hex}'


@pytest.fixture
def dbos(database: str) -> Iterator[None]:
    """Set DBOS up for one test, which calls `DBOS.launch()` as soon as its agents are wrapped."""
    DBOS(config={'name': 'fork', 'system_database_url': database, 'log_level': 'ERROR'})
    yield
    DBOS.destroy(destroy_registry=True)


@pytest.fixture(scope='session')
def prefect() -> Iterator[None]:
    """Start Prefect's server."""
    with prefect_server():
        yield


@pytest.fixture
async def temporal() -> AsyncIterator[Any]:
    """Start Temporal's server, and give a client."""
    async with temporal_server() as client:
        yield client


@pytest.fixture
def kills() -> int:
    """How many times each test kills the process that works on its run."""
    return int(os.environ.get('KILLS', '3'))
