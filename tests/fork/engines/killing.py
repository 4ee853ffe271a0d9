"""Kill the processes that work on a run whose toolsets keep state, and check that nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, cast

from .durable_worker import CALLS, EXPECTED, QUEUE, check_journal


class Process(Protocol):
    """What works on a run."""

    def poll(self) -> int | None:
        """Return something if it has ended."""

    def wait(self) -> Any:
        """Wait until it has ended."""

    def kill(self) -> None:
        """End it with SIGKILL."""


class _Forked:
    """A process that another one has forked."""

    def __init__(self, pid: int):
        self.pid = pid
        self._file = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._file)

    def poll(self) -> int | None:
        return 0 if select.select([self._file], [], [], 0)[0] else None

    def wait(self) -> None:
        select.select([self._file], [], [])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


Start = Callable[[str, Path], Process]
"""Starts a process, which gets the address of the engine and a journal, and prints to `output` beside that."""


def _start(engine: str, way: str, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
    command = [sys.executable, '-W', 'ignore', '-m', 'durable_worker', engine, way, *arguments]
    environment = os.environ | options.pop('variables', {})
    if engine == 'prefect':
        from prefect.settings import PREFECT_API_URL

        environment['PREFECT_API_URL'] = PREFECT_API_URL.value() or ''
    return subprocess.Popen(command, cwd=Path(__file__).parent, env=environment, **options)


def starting(engine: str, way: str, queue: str = QUEUE) -> Start:
    """Start each process again."""

    def start(address: str, journal: Path) -> Process:
        variables = {'JOURNAL': str(journal), 'QUEUE': queue}
        with journal.with_name('output').open('wb') as output:
            return _start(engine, way, address, variables=variables, stdin=subprocess.DEVNULL, stdout=output)

    return start


@contextmanager
def forking(engine: str, way: str) -> Iterator[Start]:
    """Import all once, and fork each process, which takes a tenth of the time."""

    def start(address: str, journal: Path) -> Process:
        assert parent.stdin and parent.stdout
        print(json.dumps([address, str(journal), str(journal.with_name('output'))]), file=parent.stdin, flush=True)
        return _Forked(int(parent.stdout.readline()))

    with _start(engine, way, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        yield start


@contextmanager
def working(start: Start, address: str, journal: Path) -> Iterator[Process]:
    """Have a process work on the run, and kill it at the end."""
    process = start(address, journal)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines(journal: Path) -> int:
    """Count the calls that have begun."""
    return sum(not line.startswith('recorded') for line in journal.read_text().splitlines())


def is_done(journal: Path) -> bool:
    """Say whether the process has printed what the run returns."""
    output = journal.with_name('output')
    return output.exists() and output.read_text().endswith('}\n')


def wait_for(condition: Callable[[], bool], process: Process) -> None:
    """Wait until something has happened, or the process has ended."""
    while not condition() and process.poll() is None:
        time.sleep(0.002)


Moment = Callable[[Path, Process], None]
"""Waits for the moment at which a process is killed, or for its end."""


def soon_after_calls(seed: int) -> Moment:
    """Some time after another call has begun, or two."""
    chance = random.Random(seed)

    def wait(journal: Path, process: Process) -> None:
        more = lines(journal) + chance.randrange(1, 3)
        wait_for(lambda: lines(journal) >= more, process)
        time.sleep(chance.random() / 20)

    return wait


def at_any_time(seed: int) -> Moment:
    """Within a second after the start of the process, or after some more calls have begun: rather sooner than later."""
    chance = random.Random(seed)

    def wait(journal: Path, process: Process) -> None:
        more = lines(journal) + chance.randrange(4)
        wait_for(lambda: lines(journal) >= more, process)
        until = time.monotonic() + chance.random() ** 2
        wait_for(lambda: time.monotonic() >= until or is_done(journal), process)

    return wait


def run_with_kills(start: Start, engine: str, address: str, folder: Path, kills: int, moment: Moment) -> int:
    """Kill the processes that work on a run of DBOS or Prefect, check what comes of it, and return how many were killed.

    Args:
        start: Starts them.
        engine: `dbos` or `prefect`.
        address: That of DBOS's database. A run of Prefect is found by its name, which is that of the folder.
        folder: An empty one, whose name no other run has.
        kills: How many times at most. A run that comes to its end before isn't killed any more.
        moment: When.
    """
    journal = folder / 'journal'
    journal.touch()
    address = folder.name if engine == 'prefect' else address
    begun, killed = journal.stat().st_mtime, 0
    while True:
        with working(start, address, journal) as process:
            if killed == kills:
                process.wait()
                break
            moment(journal, process)
            if process.poll() is not None or is_done(journal):
                process.wait()
                break
        killed += 1
        _note(journal, recorded_by_prefect(begun) if engine == 'prefect' else recorded_by_dbos(address))
    output = journal.with_name('output').read_text().splitlines()
    assert output and json.loads(output[-1]) == EXPECTED, output
    check_journal(journal)
    return killed


async def run_with_kills_on_temporal(
    start: Start, way: str, client: Any, folder: Path, kills: int, moment: Moment
) -> tuple[int, Any]:
    """The same with workers of Temporal, and return the history, too."""
    address = client.service_client.config.target_host
    journal = folder / 'journal'
    journal.touch()
    name = f'{way.title()}Workflow'
    handle = await client.start_workflow(name, id=uuid.uuid4().hex, task_queue=QUEUE, task_timeout=timedelta(seconds=2))
    result = asyncio.create_task(handle.result())
    killed = 0
    while not result.done() and killed < kills:
        with working(start, address, journal) as process:
            await asyncio.wait(
                [result, asyncio.create_task(asyncio.to_thread(moment, journal, process))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        killed += not result.done()
        _note(journal, recorded_by_temporal(await handle.fetch_history()))
    with working(start, address, journal):
        output = await result
    assert json.loads(output) == EXPECTED
    check_journal(journal)
    return killed, await handle.fetch_history()


def _note(journal: Path, recorded: Counter[str]) -> None:
    """Write down how many calls were recorded when a process was killed."""
    with journal.open('a') as file:
        file.writelines(f'recorded {toolset} {recorded[toolset]}\n' for toolset in CALLS)


def recorded_by_dbos(address: str) -> Counter[str]:
    """Count the calls to each toolset that are recorded."""
    import psycopg

    try:
        with psycopg.connect(address) as connection:
            rows = connection.execute('SELECT function_name FROM dbos.operation_outputs').fetchall()
    except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
        return Counter()  # no process has come to making them
    return Counter(toolset for (name,) in rows for toolset in CALLS if name.endswith(f'{toolset}.call_tool'))


def recorded_by_prefect(since: float) -> Counter[str]:
    """Count those that were recorded since some time, in the files that hold the results of tasks."""
    from prefect import results

    found: Counter[str] = Counter()
    for path in Path(os.environ['PREFECT_HOME'], 'storage').glob('*'):
        if path.stat().st_mtime < since:
            continue
        try:
            result = cast(Any, results).ResultRecord.deserialize(path.read_bytes()).result
        except ValueError:
            continue  # its process was killed in the middle
        if type(result).__name__ == 'CallWithState':
            found['desk' if isinstance(result.state, dict) else 'meter'] += 1
    return found


def recorded_by_temporal(history: Any) -> Counter[str]:
    """Count those that a history has."""
    names = {
        event.event_id: event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events
    }
    done = [event.activity_task_completed_event_attributes.scheduled_event_id for event in history.events]
    return Counter(
        toolset for event in done if event for toolset in CALLS if names[event].endswith(f'{toolset}__call_tool')
    )
