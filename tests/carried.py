"""The tests that the patches carry, which run on the built wheel as a part of the contract.

A patch of an older line carries only the tests in which it differs. Those of the newest line's patch of the same name run there as well.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic_ai_slim.fork.names import DIST_NAME, UPSTREAM_FOLDER
from series.base import base_repository, clone
from series.environments import built_wheel, overrides
from series.git import Git
from series.line import Line, find_line

_NEWEST_ONLY = 'tests/test_toolset_realtime.py'
"""Tests of what only the newest line's base has."""


def _say_nothing(step: str, done: int = 0, of: int | None = None) -> None:
    """Report no step."""


def write_carried(line: Line) -> list[str]:
    """Write the tests that a line's patches add into `build/carried/LINE`, beside upstream's settings for tests.

    The package isn't there, so they can only import the one that is installed.

    Returns:
        The files with tests.

    Raises:
        DownloadError: A base, whose settings these are, can't be got.
    """
    git, added = _with_tests(line, line.name, line.patches)
    if not line.is_newest:
        newest = find_line(line.root)
        names = {(patch.parent.name, patch.name) for patch in line.patches}
        twins = [patch for patch in newest.patches if (patch.parent.name, patch.name) in names]
        others, common = _with_tests(newest, f'{line.name}-common', twins, *(f'--exclude={path}' for path in added))
        for path in set(common).difference(added, [_NEWEST_ONLY]):
            shutil.copyfile(others.folder / path, git.folder / path)
            added.append(path)
    return sorted(str(git.folder / path) for path in added if Path(path).match('test_*.py'))


def _with_tests(line: Line, name: str, patches: Iterable[Path], *options: str) -> tuple[Git, list[str]]:
    """Check out the line's base without the package, apply what patches do to its tests, and return which files they add."""
    folder = line.root / 'build' / 'carried' / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    git = clone(base_repository(line, _say_nothing), folder, 'HEAD')
    for patch in patches:
        git.run('apply', '--whitespace=nowarn', *options, '--include=tests/*', str(patch.resolve()))
    shutil.rmtree(folder / UPSTREAM_FOLDER)
    # What upstream has too is for `make matrix`.
    return git, git.lines('ls-files', '--others', 'tests')


def requirements(line: Line) -> list[str | Path]:
    """Return what to install for them: what `make verify` does, of the newest releases, and the fork in the base's place."""
    needed = line.folder / 'tests.in'
    extras = re.search(rf'^{DIST_NAME}(\[.*?\])', needed.read_text('utf-8'), re.MULTILINE)
    return [*in_place_of_base(line, 'carried', extras[1] if extras else ''), *overrides(line), '--requirement', needed]


def in_place_of_base(line: Line, name: str, extras: str = '') -> list[str | Path]:
    """Return the options with which uv installs the built fork, with these extras, where a requirement asks for the base.

    An override takes the place of what uv is told to install as well, so it names the wheel and the extras.
    """
    override = line.root / 'build' / 'envs' / f'{name}-{line.base}.txt'
    override.parent.mkdir(parents=True, exist_ok=True)
    override.write_text(f'{DIST_NAME}{extras} @ {built_wheel(line).as_uri()}\n')
    return ['--override', override]
