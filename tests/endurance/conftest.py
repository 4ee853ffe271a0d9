"""Settings of these tests: how much they do, and the table of what they found."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import asyncpg
import pytest
from hypothesis import settings

# These tests, as those that they share their toolsets with, run without this repository on the path.
sys.path.append(str(Path(__file__).parents[2]))
from tests.fork.conftest import (
    anyio_backend,
    postgres,
    pytest_report_header,
    pytest_sessionstart,
    without_garbage_collection,
)

__all__ = ['anyio_backend', 'postgres', 'pytest_report_header', 'pytest_sessionstart', 'without_garbage_collection']

COLUMNS = {
    'runs': 'Runs',
    'faults': 'Faults injected',
    'entered': 'Entered',
    'exited': 'Exited',
    'crossed': 'Values crossed',
    'outside': 'Uses outside of entry and exit',
    'objects': 'Objects left',
    'kilobytes': 'KB left',
    'tasks': 'Tasks left',
    'pending': 'Tasks pending between runs',
    'descriptors': 'Descriptors left',
    'processes': 'Processes left',
    'connections': 'Connections left',
}
"""What tests count, and how the table calls it."""

LIMITS: dict[str, tuple[str, Callable[[Counter[str]], int]]] = {
    'exited': ('as entered', lambda row: row['entered']),
    'objects': ('1,000 and one for every second run', lambda row: 1_000 + row['runs'] // 2),
    'kilobytes': ('4,000 and one for every tenth run', lambda row: 4_000 + row['runs'] // 10),
    **{
        name: ('0', lambda row: 0)
        for name in ('crossed', 'outside', 'tasks', 'pending', 'descriptors', 'processes', 'connections')
    },
}
"""What is allowed: how the table says it, and how much it is in a row. No figure may be above, and `exited` not below either."""

Table = defaultdict[str, Counter[str]]
TABLE = pytest.StashKey[Table]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of these tests."""
    group = parser.getgroup('endurance')
    group.addoption(
        '--full', action='store_true', help='do all that `make endurance` does, rather than a short version'
    )
    group.addoption('--report', type=Path, metavar='FILE', help='write the table to a file, as Markdown')


def pytest_configure(config: pytest.Config) -> None:
    """Begin the table, and have many random examples made if all is to be done."""
    config.stash[TABLE] = defaultdict(Counter)
    if config.getoption('--full'):
        settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'thorough'))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Print the table, and write it to the file if all is well."""
    table = config.stash[TABLE]
    if not table:
        return
    terminalreporter.section('endurance')
    terminalreporter.write_line(as_markdown(table))
    report: Path | None = config.getoption('--report')
    if report and exitstatus == 0 and all_hold(table):
        cores = len(os.sched_getaffinity(0))
        where = f'What was found with pydantic-ai-slim {version("pydantic-ai-slim")} on Python {platform.python_version()}, {cores} cores'
        where += '' if config.getoption('--full') else ', the short version'
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(f'{in_a_sentence(table)}\n\n{fold(where, as_markdown(table))}\n', 'utf-8')


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail if a figure is beyond its limit, though no test says so."""
    table = session.config.stash[TABLE]
    if exitstatus == 0 and not all_hold(table):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def all_hold(table: Table) -> bool:
    """Say whether all figures are within their limits."""
    return all(holds(row, name) for row in table.values() for name in row)


def holds(row: Counter[str], name: str) -> bool:
    """Say whether a figure is within its limit. One without a limit is."""
    if name not in LIMITS:
        return True
    most = LIMITS[name][1](row)
    return row[name] == most if name == 'exited' else row[name] <= most


def in_a_sentence(table: Table) -> str:
    """Say what a table comes to whose figures are within their limits."""
    runs, faults = (sum(row[name] for row in table.values()) for name in ('runs', 'faults'))
    return (
        f'**In {runs:,} runs with {faults:,} faults, each toolset was exited as often as it was entered, '
        'no run saw what belongs to another, and no task, file, process or connection was left.**'
    )


def fold(title: str, text: str) -> str:
    """Put a text behind a title, on GitHub as on the site."""
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>'


def as_markdown(table: Table) -> str:
    """Lay a table out, the limits first. What a row doesn't count is a dash, and what has a limit says whether that holds."""
    columns = [name for name in COLUMNS if any(name in row for row in table.values())]
    cells = [['', *(COLUMNS[name] for name in columns)]]
    cells.append(['Limit', *(LIMITS[name][0] if name in LIMITS else '' for name in columns)])
    for title, row in table.items():
        marks = {name: ' ✓' if holds(row, name) else ' ✗' for name in LIMITS}
        cells.append([title, *(f'{row[name]:,}{marks.get(name, "")}' if name in row else '–' for name in columns)])
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns) + 1)]
    cells.insert(1, ['-' * widths[0], *('-' * (width - 1) + ':' for width in widths[1:])])
    return '\n'.join(
        f'| {line[0]:{widths[0]}} | ' + ' | '.join(map(str.rjust, line[1:], widths[1:])) + ' |' for line in cells
    )


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], Counter[str]]:
    """Give a function that returns a row of the table by its title, for a test to count in. `COLUMNS` says what."""
    return request.config.stash[TABLE].__getitem__


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Say whether to do all, rather than what fits into seconds."""
    return bool(request.config.getoption('--full'))


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Callable[[int, int], None]:
    """Give a function that says how many runs are done, of how many, if the last time is a while ago."""
    reporter = request.config.pluginmanager.get_plugin('terminalreporter')
    began = said = time.monotonic()

    def say(done: int, of: int) -> None:
        nonlocal said
        now = time.monotonic()
        if reporter and now - said > 30:
            said = now
            left = (now - began) / done * (of - done)
            reporter.write_line(f'\n{done:,} of {of:,} runs, {left / 60:.0f} minutes to go')

    return say


@pytest.fixture
def database(postgres: str) -> str:
    """Make a database with an empty table of orders, and give its URL."""

    async def make() -> None:
        connection = await asyncpg.connect(f'{postgres}/postgres')
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()
        connection = await asyncpg.connect(f'{postgres}/{name}')
        await connection.execute('CREATE TABLE orders (value text)')
        await connection.close()

    name = uuid.uuid4().hex
    asyncio.run(make())
    return f'{postgres}/{name}'
