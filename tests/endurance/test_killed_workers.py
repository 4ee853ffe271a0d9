"""Processes that are killed with SIGKILL in the middle of a run, so that no exit of theirs ever runs."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai import Agent

from ..fork.engines.crashing import crash_and_recover
from ..fork.line import WAYS_TO_MAKE_DURABLE
from ..fork.toolsets import run_as, scripted
from .orders import Orders, connections, ordered

Figures = Callable[[str], Counter[str]]


@pytest.mark.anyio
async def test_killed_worker_with_a_transaction_leaves_nothing_in_the_database(
    full: bool, figures: Figures, database: str
) -> None:
    row = figures('Processes killed in a transaction')
    for where in ['tool', 'model', 'exit'] * (5 if full else 1):
        name = f'worker-{uuid.uuid4()}'
        script = str(Path(__file__).with_name('order_worker.py'))
        worker = await asyncio.create_subprocess_exec(sys.executable, '-I', script, database, name, where, stdout=PIPE)
        try:
            assert worker.stdout
            assert (await worker.stdout.readline()).decode().strip() == where
            assert await connections(database, name) == 1
        finally:
            worker.kill()
            await worker.wait()
        deadline = time.monotonic() + 300
        while (open_ := await connections(database, name)) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        row.update(runs=1, faults=1, connections=open_)
        assert open_ == 0
        assert await ordered(database) == []

    agent = Agent(scripted(['order']), toolsets=[Orders(database, 'afterwards')])
    await run_as('tea', agent)
    assert await ordered(database) == ['tea']


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
def test_killed_worker_in_a_workflow_is_recovered_with_a_fresh_toolset(
    way: str, full: bool, figures: Figures, postgres: str, tmp_path: Path
) -> None:
    if not full:
        pytest.skip('the tests of the engines do this')
    crash_and_recover('dbos', way, f'{postgres}/{uuid.uuid4().hex}', tmp_path)

    figures('Workflows killed and recovered').update(runs=2, faults=1)
