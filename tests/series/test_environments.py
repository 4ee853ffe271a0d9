"""`line_python` chooses an interpreter that can run a line, whichever runs the tool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from series import environments
from series.environments import find_python, line_python
from series.line import Line
from tests.series.upstream import refusal

OWN = f'{sys.version_info.major}.{sys.version_info.minor}'


@pytest.mark.parametrize('versions', [(OWN,), ('3.0', OWN, '3.99')])
def test_line_python_is_the_running_one_where_the_line_supports_it(versions: Sequence[str], line: Line) -> None:
    assert line_python(replace(line, python=versions)) == Path(sys.executable)


def test_line_python_is_otherwise_the_newest_that_the_line_supports(line: Line) -> None:
    others = [version for version in ('3.10', '3.11', '3.12', '3.13') if version != OWN and find_python(version)]
    if not others:
        pytest.skip(f'This machine has no Python but {OWN}.')
    found = line_python(replace(line, python=others))
    said = subprocess.run([found, '--version'], check=True, capture_output=True, text=True).stdout
    assert said.startswith(f'Python {others[-1]}.')


@pytest.mark.slow
def test_line_python_without_any_names_the_versions_and_how_to_get_one(line: Line) -> None:
    assert refusal(line_python, replace(line, python=('3.97', '3.98', '3.99'))) == (
        f'The line 1.0.0 needs Python 3.97, 3.98 or 3.99, and this machine has none of them: the tool runs on {OWN}.\n'
        f'Install one, for example with `{environments.find_uv()} python install 3.99`, then run the same command again.'
    )


def test_line_python_newer_than_the_line_knows_may_do(line: Line) -> None:
    assert line_python(replace(line, python=('3.0',))) == Path(sys.executable)
