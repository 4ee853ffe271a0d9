"""Settings of the tests of the built fork."""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# These tests run without this repository on the path.
sys.path.append(str(Path(__file__).parents[2]))
from series.postgres import NoPostgresError, postgres_server

with warnings.catch_warnings():
    # Warnings are errors in these tests, but what the base's dependencies say while they are imported is not our concern.
    warnings.simplefilter('ignore')
    import pydantic_ai

# What a line that still has the earlier core doesn't do yet, and what it describes in other words.
if not hasattr(pydantic_ai.RunContext, 'instance_of'):
    collect_ignore = [
        'test_b02_state_that_is_hidden.py',
        'test_b07_copies_of_templates.py',
        'test_b12_what_worked_on_the_base.py',
        'test_b13_in_use_by_turns.py',
        'test_b14_cancelled_at_any_step.py',
        'test_b16_equal_run_ids.py',
        'test_b18_handing_over_again.py',
        'test_b18_shared_factories.py',
        'test_b31_exceptions_of_users.py',
        'test_b31_mocks_and_patches.py',
        'test_b32_instance_of_a_run.py',
        'test_b32_what_a_capability_makes.py',
        'test_describe_lifecycle.py',
        'test_limits.py',
    ]
else:
    collect_ignore = ['test_describe_lifecycle_of_earlier_core.py']

PROFILES = {
    # The same examples each time, few enough for a minute.
    'ci': settings(derandomize=True, max_examples=800, print_blob=True),
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
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'ci'))


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
