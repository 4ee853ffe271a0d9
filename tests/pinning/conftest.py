"""Each test runs for every line that has a wheel in `dist/`, or for the newest, and skips with a message where it can't; in CI it fails there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from series.environments import NoWheelError, built_wheel, find_python
from series.line import Line, find_line, find_lines
from tests.pinning.downstream import Downstream
from tests.pinning.index import Index, serve

ROOT = Path(__file__).parents[2]
MANAGERS = ROOT / 'build' / 'envs' / 'more' / 'bin'


def _is_built(line: Line) -> bool:
    try:
        return built_wheel(line).exists()
    except NoWheelError:
        return False


LINES = [line for line in find_lines(ROOT) if _is_built(line)]


def skip(reason: str) -> NoReturn:
    if os.environ.get('CI'):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope='session', params=[line.name for line in LINES] or ['no line'])
def line(request: pytest.FixtureRequest) -> Line:
    if not LINES:
        skip('No line has a wheel in `dist/`. Build them with `make build`, or run `make pinning`.')
    return find_line(ROOT, request.param)


@pytest.fixture(scope='session')
def managers() -> Path:
    if missing := [name for name in ('hatch', 'pip-compile', 'poetry', 'uv') if not (MANAGERS / name).exists()]:
        skip(f'`build/envs/more` has no {", ".join(missing)}. Run `make pinning`, which makes it.')
    return MANAGERS


@pytest.fixture(scope='session')
def python(line: Line) -> Path:
    """The newest interpreter that the line supports and this machine has."""
    found = [python for version in line.python if (python := find_python(version))]
    if not found:
        skip(f'This machine has no Python {" or ".join(line.python)}.')
    return found[-1]


@pytest.fixture(scope='session')
def companions(line: Line, managers: Path) -> Mapping[str, str]:
    """What is released together with the base, as far as the user's index has it for this line."""

    def has(requirement: str) -> bool:
        command = [str(managers / 'uv'), 'pip', 'compile', '--quiet', '--no-deps', '-']
        # Without an interpreter, uv would look for one of that version.
        command += ['--python', sys.executable, '--python-version', line.python[-1]]
        return not subprocess.run(command, input=requirement, text=True, capture_output=True, check=False).returncode

    if not has(f'pydantic-ai-slim==={line.base}'):
        skip(f'The package index cannot be reached, or has no `pydantic-ai-slim` {line.base}.')
    wanted = {name: f'{name}=={line.base}' for name in ('pydantic-ai', 'pydantic-evals')}
    return {name: requirement for name, requirement in wanted.items() if has(requirement)}


@pytest.fixture(scope='session')
def index() -> Generator[Index]:
    with serve(built_wheel(line) for line in LINES) as index:
        yield index


@pytest.fixture
def downstream(
    line: Line, managers: Path, python: Path, companions: Mapping[str, str], index: Index, tmp_path: Path
) -> Downstream:
    (folder := tmp_path / 'downstream').mkdir()
    return Downstream(folder, line, python, managers, index, companions)
