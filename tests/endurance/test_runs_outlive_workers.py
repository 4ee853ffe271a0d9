"""Runs whose toolsets keep state, on each durable engine, while the processes that work on them are killed with SIGKILL.

What is to be seen again is begun with the seed that a failure prints: `SEED=… make endurance ARGS='-k outlives'`.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ..fork.engines.killing import Moment, at_any_time, forking, run_with_kills, run_with_kills_on_temporal

Figures = Callable[[str], Counter[str]]

KILLS = int(os.environ.get('KILLS', '300'))
IN_A_RUN = 10
WAY = 'capability'
"""The only way to make an agent durable with which state is recorded."""


@pytest.mark.anyio
# The engines warn of what is not our concern.
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('engine', ['Temporal', 'DBOS', 'Prefect'])
async def test_run_outlives_the_processes_that_work_on_it(
    engine: str,
    full: bool,
    figures: Figures,
    postgres: str,
    tmp_path: Path,
    progress: Callable[[int, int], None],
) -> None:
    if not full:
        pytest.skip('the tests of the engines do this')
    # Imported here, as it imports much that the tests before this one would measure.
    from ..fork.engines.servers import prefect_server, temporal_server

    row = figures(f'Runs on {engine} whose processes are killed')
    seed = int(os.environ.get('SEED') or random.randrange(1_000_000))
    print(f'SEED={seed}')
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(temporal_server()) if engine == 'Temporal' else None
        if engine == 'Prefect':
            stack.enter_context(prefect_server())
        start = stack.enter_context(forking(engine.lower(), WAY))

        async def run(folder: Path, kills: int, moment: Moment) -> int:
            if client:
                killed, _ = await run_with_kills_on_temporal(start, WAY, client, folder, kills, moment)
                return killed
            address = f'{postgres}/{folder.name}'
            return await asyncio.to_thread(run_with_kills, start, engine.lower(), address, folder, kills, moment)

        # Nobody kills the first run.
        await run(_folder(tmp_path), 0, at_any_time(seed))
        row.update(runs=1)
        killed = 0
        while killed < KILLS:
            seed += 1
            now = await run(_folder(tmp_path), min(IN_A_RUN, KILLS - killed), at_any_time(seed))
            killed += now
            row.update(runs=1, faults=now)
            progress(killed + 1, KILLS)


def _folder(parent: Path) -> Path:
    """Make a folder whose name no other run has."""
    folder = parent / uuid.uuid4().hex
    folder.mkdir()
    return folder
