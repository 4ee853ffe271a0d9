"""What CI checks besides the tests, `make test ARGS=--checks`, and what it leaves to `make nightly`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from downstream.__main__ import find_projects
from downstream.__main__ import plan as plan_downstream
from examples.__main__ import find_project_examples
from series.line import Line
from tests.side_by_side import Part

ROOT = Path(__file__).parents[1]

_VARIABLES: dict[str, str] = dict.fromkeys(('MAKEFLAGS', 'ARGS', 'LINE', 'NAME', 'PYTHON'), '')
"""The variables by which a `make` would take over the arguments of the one that it runs in."""


def plan_checks(lines: Sequence[Line]) -> list[Part]:
    """Plan what CI checks besides the tests, on forks that are built."""
    return [
        # By night, patch by patch
        *(_command(150, 'make', 'verify', f'LINE={line.name}', 'ARGS=--together') for line in lines),
        # The newest line only, whose text the others have; those by night
        *(_command(160, 'make', '--old-file=build', 'types', f'LINE={line.name}') for line in lines[-1:]),
    ]


def plan_nightly(lines: Sequence[Line]) -> list[Part]:
    """Plan what takes too long for CI, on forks that are built.

    Raises:
        SeriesError: One of them isn't, or a project's settings are wrong.
    """
    return [
        *(_command(1200, 'make', 'verify', f'LINE={line.name}') for line in lines),
        *(_command(160, 'make', '--old-file=build', 'types', f'LINE={line.name}') for line in lines[:-1]),
        # It waits for package managers most of the time, beside which others run.
        _command(500, 'make', '--old-file=wheels', 'pinning'),
        *plan_downstream(find_projects(), lines),
        *(_command(30, 'make', 'example', f'NAME={name}') for name in find_project_examples()),
    ]


def _command(seconds: int, *command: str) -> Part:
    """Plan a command. What is built stays as it is: `--old-file` keeps `make` from building it under others."""
    return Part(' '.join(command), command, ROOT, _VARIABLES, seconds)
