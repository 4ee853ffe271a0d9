"""Tests of `make downstream-suites`, with a project that is made up and environments that differ in a variable."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

from series.errors import SeriesError
from series.line import Line, find_lines
from tests import suites
from tests.suites import Suite, load_suites, run_suite, write_page

ROOT = Path(__file__).parents[2]

TESTS = """\
import os
from pathlib import Path

SIDE = os.environ['SIDE']


def test_alike():
    pass


def test_fails_on_both():
    assert False


def test_differs():
    assert SIDE == 'base'


def test_fails_at_first():
    first = Path(__file__).parents[4] / f'began-{SIDE}'
    began, _ = first.exists(), first.touch()
    assert began or SIDE == 'base'
"""


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A line whose builds are in a folder of the test, with a project `made-up` that works with it."""
    line = find_lines(ROOT)[0]

    def built_wheel(line: Line) -> Path:
        return tmp_path / 'fork.whl'

    def lock(suite: Suite, line: Line, folder: Path) -> list[str]:
        return ['made_up==1.5', f'pydantic-ai-slim=={line.base}']

    def download(folder: Path, requirement: str, *options: str) -> Path:
        assert requirement == 'made-up===1.5'
        folder.mkdir(parents=True)
        with tarfile.open(archive := folder / 'made_up-1.5.tar.gz', 'w:gz') as content:
            info = tarfile.TarInfo('made_up-1.5/tests/test_made_up.py')
            info.size = len(TESTS.encode())
            content.addfile(info, io.BytesIO(TESTS.encode()))
        return archive

    def make_environment(folder: Path, python: Path, requirements: object) -> Path:
        folder.mkdir()
        inside = folder / 'python'
        side = folder.name.removeprefix('env-')
        inside.write_text(f'#!/bin/sh\nSIDE={side} exec {sys.executable} "$@"\n')
        inside.chmod(0o755)
        return inside

    monkeypatch.setattr(Line, 'root', tmp_path)
    monkeypatch.setattr(suites, 'built_wheel', built_wheel)
    monkeypatch.setattr(suites, '_lock', lock)
    monkeypatch.setattr(suites, 'download', download)
    monkeypatch.setattr(suites, 'make_environment', make_environment)
    return line


def ignore(step: str, done: int = 0, of: int | None = None) -> None:
    """Hear of a step."""


@pytest.mark.slow
def test_suites_compares_test_by_test_and_runs_again_what_differs(line: Line, tmp_path: Path) -> None:
    ran = run_suite(Suite('made-up', ()), line, ignore)
    assert ran.version == '1.5' and ran.comparison is not None
    found = ran.comparison
    assert [test.test for test in found.differences] == ['tests.test_made_up::test_differs']
    assert [test.test for test in found.failing] == ['tests.test_made_up::test_fails_on_both']
    assert [test.test for test in found.flaky] == ['tests.test_made_up::test_fails_at_first']
    write_page([ran], tmp_path / 'page.md')
    page = (tmp_path / 'page.md').read_text()
    assert f'| made-up | 1.5 | {line.name} | 4 | 1 | 1 |' in page
    assert '`tests.test_made_up::test_differs` is passed on the base, and failed on the fork.' in page


def test_suites_names_a_project_that_does_not_work_with_a_base(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(suite: Suite, line: Line, folder: Path) -> None:
        return None

    monkeypatch.setattr(suites, '_lock', lock)
    write_page([run_suite(Suite('made-up', ()), line, ignore)], tmp_path / 'page.md')
    page = (tmp_path / 'page.md').read_text()
    assert f'| made-up | none works with it | {line.name} | | | |' in page
    assert 'No test differs between base and fork.' in page


def test_suites_shows_what_pytest_says_where_it_cannot_run(line: Line) -> None:
    with pytest.raises(SeriesError, match='unrecognized arguments: --no-such-option'):
        run_suite(Suite('made-up', (), ('--no-such-option',)), line, ignore)


def test_suites_are_listed_once_and_in_order() -> None:
    listed = [suite.name for suite in load_suites(ROOT / 'tests' / 'suites.toml')]
    assert listed == sorted(set(listed))
