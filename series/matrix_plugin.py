"""What pytest is given to run upstream's tests for `matrix`: it notes each outcome as it is known, and begins where it stopped.

It runs in an environment of upstream's tests, which has nothing else of ours; so it imports nothing of ours either, and
`series.matrix` copies it beside the results. It is told what to do by the variables that begin with `SERIES_MATRIX_`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_OURS = 'series'
"""The name of the property of a test that holds what base and fork know it by."""


class Notes:
    """Notes outcomes, in the one process that hears of all of them.

    Args:
        folder: Where to; `outcomes.jsonl` has a line for each test, `tests.json` names all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.phases: dict[str, list[pytest.TestReport]] = {}
        self.file = (folder / 'outcomes.jsonl').open('a', encoding='utf-8')

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test when its last phase is over."""
        phases = self.phases.setdefault(report.nodeid, [])
        phases.append(report)
        crashed = report.when not in ('setup', 'call', 'teardown')  # as xdist has it when the process is gone
        if crashed or report.when == 'teardown':
            del self.phases[report.nodeid]
            known = str(dict(report.user_properties).get(_OURS, ''))
            if not known:
                names = json.loads((self.folder / 'tests.json').read_text('utf-8'))
                known = next((known for known, _, name in names if name == report.nodeid), report.nodeid)
            self._note(known, 'crashed' if crashed else _outcome(phases), phases)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that can't be imported, or that is skipped as a whole, as if it were a test."""
        if report.outcome != 'passed':
            self._note(report.nodeid, 'error' if report.failed else 'skipped', [report])

    def _note(self, known: str, outcome: str, reports: list[Any]) -> None:
        said = next((report for report in reports if report.outcome != 'passed'), None)
        note = {
            'test': known,
            'outcome': outcome,
            'seconds': round(sum(getattr(report, 'duration', 0) for report in reports), 3),
            'message': _message(said),
            'words': said.longreprtext[-20_000:] if said and said.outcome == 'failed' else '',
        }
        self.file.write(json.dumps(note) + '\n')
        self.file.flush()


def _outcome(phases: list[pytest.TestReport]) -> str:
    found = 'passed'
    for report in phases:
        if hasattr(report, 'wasxfail') and report.outcome != 'failed':
            found = 'xfailed' if report.outcome == 'skipped' else 'xpassed'
        elif report.outcome == 'skipped':
            found = 'skipped'
        elif report.outcome == 'failed':
            found = 'failed' if report.when == 'call' else 'error' if found == 'passed' else f'{found}, then error'
    return found


def _message(report: Any) -> str:
    """Return in a line why a test isn't passed."""
    if report is None:
        return ''
    longrepr: Any = report.longrepr
    if report.outcome == 'skipped' and not hasattr(report, 'wasxfail'):
        # Where, in which line, and why.
        return str(longrepr[2]).partition('\n')[0][:500]
    if reason := getattr(report, 'wasxfail', ''):
        return str(reason)[:500]
    crash = getattr(longrepr, 'reprcrash', None)
    text = str(crash.message) if crash else report.longreprtext.strip().rpartition('\n')[2]
    return text.partition('\n')[0][:500]


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin to note."""
    if hasattr(config, 'workerinput'):
        return
    config.pluginmanager.register(Notes(Path(os.environ['SERIES_MATRIX_FOLDER'])))
    alive = os.environ.get('SERIES_MATRIX_ALIVE')
    if alive is not None:
        threading.Thread(target=_end_with, args=[int(alive)], daemon=True).start()


def _end_with(alive: int) -> None:
    """End all processes of this run when the one that started it is gone, however it went."""
    os.read(alive, 1)
    os.killpg(0, signal.SIGKILL)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Name all tests for base and fork alike, and leave out those whose outcome is known."""
    numbers: Counter[str] = Counter()
    for item in items:
        known = _known_as(item)
        numbers[known] += 1
        item.user_properties.append((_OURS, f'{known}#{numbers[known]}' if numbers[known] > 1 else known))
        # xdist adds the group to what it is called.
        item.stash[_NAME] = item.nodeid
    yield
    folder = Path(os.environ['SERIES_MATRIX_FOLDER'])
    if os.environ.get('PYTEST_XDIST_WORKER', 'gw0') == 'gw0':
        # What it is known as, what pytest is asked for it by, and what reports of it say.
        names = [(_property(item), item.stash[_NAME], item.nodeid) for item in items]
        written = folder / f'tests.json.{os.getpid()}'
        written.write_text(json.dumps(names), 'utf-8')
        written.replace(folder / 'tests.json')
    done = set(json.loads((folder / 'done.json').read_text('utf-8')))
    items[:] = [item for item in items if _property(item) not in done]
    _use_postgres(os.environ.get('SERIES_MATRIX_POSTGRES'))
    _use_temporal(os.environ.get('SERIES_MATRIX_TEMPORAL'))


_NAME = pytest.StashKey[str]()


def _property(item: pytest.Item) -> str:
    return str(dict(item.user_properties)[_OURS])


def _known_as(item: pytest.Item) -> str:
    """Return what a test is called on either side.

    Upstream calls the examples in its docs by their lines, which differ between base and fork as soon as something is
    written above. What an example says takes the line's place.
    """
    for value in getattr(getattr(item, 'callspec', None), 'params', {}).values():
        source, line = getattr(value, 'source', None), getattr(value, 'start_line', None)
        if isinstance(source, str) and f':{line}' in item.nodeid:
            digest = hashlib.sha256(source.encode()).hexdigest()[:8]
            return item.nodeid.replace(f':{line}', f':{digest}', 1)
    return item.nodeid


def _use_postgres(url: str | None) -> None:
    """Have DBOS keep its tables in PostgreSQL, as it does in production, where upstream's tests name a file of SQLite."""
    dbos = sys.modules.get('dbos')
    if not url or dbos is None:
        return
    begin = dbos.DBOS.__init__

    def begin_on_postgres(self: Any, *, config: dict[str, Any], **options: Any) -> None:
        file = str(config.get('system_database_url'))
        if file.startswith('sqlite'):
            # For each file one database, of this process: nothing is found there that another one has left to be recovered.
            digest = hashlib.sha256(file.encode()).hexdigest()[:16]
            config = {**config, 'system_database_url': f'{url}/dbos_{os.getpid()}_{digest}'}
        begin(self, config=config, **options)

    dbos.DBOS.__init__ = begin_on_postgres


def _use_temporal(program: str | None) -> None:
    """Have Temporal start the server that is on this machine, instead of downloading one."""
    testing = sys.modules.get('temporalio.testing')
    if program and testing is not None:
        start = testing.WorkflowEnvironment.start_local
        testing.WorkflowEnvironment.start_local = staticmethod(
            functools.partial(start, dev_server_existing_path=program)
        )
