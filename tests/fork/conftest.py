"""Settings of the tests of the built fork."""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import warnings
from collections.abc import Generator, Iterator
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import cast
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

# These tests run without this repository on the path.
sys.path.append(str(Path(__file__).parents[2]))
from examples.postgres import NoPostgresError, postgres_server

with warnings.catch_warnings():
    # Warnings are errors in these tests, but what the base's dependencies say while they are imported is not our concern.
    warnings.simplefilter('ignore')
    import pydantic_ai

PROFILES = {
    # The same examples each time, few enough for some seconds.
    'short': settings(derandomize=True, max_examples=200, print_blob=True),
    # Others each time: `HYPOTHESIS_PROFILE=thorough`, and `--hypothesis-seed=N` to see the same again.
    'thorough': settings(max_examples=5_000, print_blob=True),
}
for name, profile in PROFILES.items():
    settings.register_profile(
        name,
        profile,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'short'))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take what CI gives where two versions of Python share the variants of the tests."""
    for name, run in (('--one-in', 'run about one'), ('--but-one-in', 'run all but about one')):
        parser.addoption(
            name, type=int, metavar='N', help=f'of each N variants of a test, {run}; the first of a test always'
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave variants of tests out, the same each time."""
    one_in, but_one_in = (cast('int | None', config.getoption(name)) for name in ('--one-in', '--but-one-in'))
    left: set[pytest.Item] = set()
    for _, variants in groupby(list(items), lambda item: item.nodeid.partition('[')[0]):
        _, *others = variants
        for item in others:
            number = crc32(item.nodeid.encode())
            if (one_in and number % one_in) or (but_one_in and not number % but_one_in):
                left.add(item)
    if left:
        config.hook.pytest_deselected(items=[*left])
        items[:] = [item for item in items if item not in left]


def pytest_collection_finish() -> None:
    """Keep what is there before the tests out of each collection of garbage, of which they ask for thousands."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Keep what the tests of a file leave out of it as well, once nothing holds their fixtures any more."""
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        pytest_collection_finish()
    return result


def pytest_report_header() -> str:
    """Say what is tested."""
    return f'pydantic-ai-slim: {version("pydantic-ai-slim")}'


def pytest_sessionstart() -> None:
    """Refuse to test a source folder instead of the installed package."""
    package = Path(pydantic_ai.__file__).parent
    if package.parent != Path(sysconfig.get_path('purelib')):
        raise pytest.UsageError(
            f'`pydantic_ai` is imported from `{package}`, which is not where packages are installed. '
            'These tests are for the built wheel: take that folder off the import path.'
        )


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only: the base needs it."""
    return 'asyncio'


@pytest.fixture(scope='session')
def postgres() -> Iterator[str]:
    """Start a PostgreSQL for the session, and give its address, without a database."""
    try:
        with postgres_server() as url:
            yield url
    except NoPostgresError as error:
        if os.environ.get('CI'):
            raise
        pytest.skip(str(error))


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """Switch it off: it would take most of the time when so much is alive."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
