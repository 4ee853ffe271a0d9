"""B38: the state of a toolset is what its finished calls have left, whichever process makes the next one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from ..line import WAYS_TO_MAKE_DURABLE
from . import plain_steps
from .durable_worker import APPROVED, EXPECTED, QUEUE, check_journal
from .killing import (
    lines,
    run_with_kills,
    run_with_kills_on_temporal,
    soon_after_calls,
    starting,
    wait_for,
    working,
)

with_capability = pytest.mark.parametrize('way', ['capability'])

HISTORIES = Path(__file__).with_name('histories')


@with_capability
@pytest.mark.anyio
async def test_b38_run_on_temporal_goes_on_when_its_worker_is_killed(
    way: str, temporal: Any, tmp_path: Path, kills: int
):
    start = starting('temporal', way)

    _, history = await run_with_kills_on_temporal(start, way, temporal, tmp_path, kills, soon_after_calls(seed=1))

    await replay(f'durable_workflow:{way}', history.to_json(), tmp_path)


@with_capability
@pytest.mark.anyio
async def test_b38_state_goes_from_one_task_queue_of_temporal_to_another(way: str, temporal: Any, tmp_path: Path):
    """The worker on one queue calls the desk's tools, and that on the other calls all else and lists what there is."""
    address, journal = temporal.service_client.config.target_host, tmp_path / 'journal'
    journal.touch()
    way = f'{way} on queues'

    worker, other = starting('temporal', way), starting('temporal', way, 'desk')
    with working(worker, address, journal), working(other, address, journal):
        handle = await start(temporal, way)
        assert json.loads(await handle.result()) == EXPECTED

    check_journal(journal)
    history = await handle.fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    queues = {(task.task_queue.name, 'desk__call_tool' in task.activity_type.name) for task in scheduled}
    assert queues - {('', False)} == {(QUEUE, False), ('desk', True)}
    await replay(f'durable_workflow:{way}', history.to_json(), tmp_path)


@with_capability
@pytest.mark.anyio
async def test_b38_approval_comes_between_two_runs_on_temporal(way: str, temporal: Any, tmp_path: Path):
    """The worker of the first run is killed, and another one is there when somebody has approved."""
    address, journal = temporal.service_client.config.target_host, tmp_path / 'journal'
    journal.touch()
    way = f'{way} with approval'

    worker, handle = starting('temporal', way), await start(temporal, way)
    with working(worker, address, journal) as process:
        await asyncio.to_thread(wait_for, lambda: lines(journal) >= 2, process)
    await handle.signal('approve')
    with working(worker, address, journal):
        assert json.loads(await handle.result()) == APPROVED

    await replay(f'durable_workflow:{way}', (await handle.fetch_history()).to_json(), tmp_path)


async def start(client: Any, way: str) -> Any:
    """Start a workflow that makes an agent durable in some way."""
    name = way.title().replace(' ', '')
    return await client.start_workflow(f'{name}Workflow', id=uuid.uuid4().hex, task_queue=QUEUE)


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
@pytest.mark.anyio
async def test_b38_history_of_the_base_is_replayed(way: str, tmp_path: Path):
    await replay(f'plain_workflow:{way}', (HISTORIES / f'{way}.json').read_text(), tmp_path)


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
@pytest.mark.anyio
@pytest.mark.usefixtures('dbos')
async def test_b38_steps_of_dbos_without_state_are_those_of_the_base(way: str):
    assert await plain_steps.steps(way) == json.loads(plain_steps.STEPS.read_text())[way]


async def replay(what: str, history: str, folder: Path) -> None:
    """Replay a history in a process of its own, since workflows are imported by the names of their modules."""
    path = folder / 'history.json'
    path.write_text(history)
    environment = os.environ | {'JOURNAL': os.devnull}
    command = [sys.executable, '-W', 'ignore', '-m', 'replay_worker', *what.split(':'), str(path)]
    done = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parent, env=environment)
    assert await done.wait() == 0


@with_capability
def test_b38_run_on_dbos_goes_on_when_its_process_is_killed(way: str, database: str, tmp_path: Path, kills: int):
    run_with_kills(starting('dbos', way), 'dbos', database, tmp_path, kills, soon_after_calls(seed=1))


@with_capability
@pytest.mark.usefixtures('prefect')
def test_b38_run_on_prefect_goes_on_when_its_process_is_killed(way: str, tmp_path: Path, kills: int):
    run_with_kills(starting('prefect', way), 'prefect', '', tmp_path, kills, soon_after_calls(seed=1))
