"""B38: the programs of the docs go from launch to recovery as they stand there, each by one command."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from ..test_docs import EXAMPLES

pytestmark = pytest.mark.anyio

BEGINS_AGAIN = ['request 0', 'request 1', 'request 2', 'request 2', 'request 3', "['tea', 'milk', 'sugar']"]
"""What is printed where the process of request 2 is killed."""


async def run_program(name: str, folder: Path, **variables: str) -> list[str]:
    """Run an example of the docs in a folder with the toolset that it imports, and return the lines that it prints."""
    for example in 'durable_notes', name:
        code = EXAMPLES[example].code
        if sqlite3.sqlite_version_info < (3, 42) and 'DATABASE' in variables:
            code = code.replace('sqlite:///notes.sqlite', variables['DATABASE'])
        (folder / f'{example}.py').write_text(code)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ['PATH']])
    environment: Any = {**os.environ, 'PATH': path, **variables}
    process = await asyncio.create_subprocess_exec(
        sys.executable, f'{name}.py', cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    # A program that does nothing but `WorkflowEnvironment.start_local()` crashes so in a third of its runs, at the very end
    allowed = (0, -signal.SIGSEGV, -signal.SIGABRT) if name == 'temporal_chat' else (0,)
    assert process.returncode in allowed
    return printed.decode().splitlines()


async def test_b38_program_for_dbos_recovers(database: str, tmp_path: Path) -> None:
    """Where Python has an SQLite that is too old for DBOS, PostgreSQL stands for it."""
    assert await run_program('durable_dbos', tmp_path, DATABASE=database) == BEGINS_AGAIN


async def test_b38_program_for_prefect_recovers(tmp_path: Path) -> None:
    """Its server is one that Prefect starts."""
    printed = await run_program(
        'durable_prefect',
        tmp_path,
        PREFECT_HOME=str(tmp_path / 'home'),
        PREFECT_API_URL='',
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS='180',
    )

    assert printed == BEGINS_AGAIN


async def test_b38_program_for_temporal_keeps_all_notes(tmp_path: Path) -> None:
    *killed, last = await run_program('temporal_chat', tmp_path)

    assert last == "25 notes, from 'note 1' to 'note 25'"
    assert any(line.startswith('killed after') for line in killed)
