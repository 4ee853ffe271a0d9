"""`python -m downstream` tests each project on each line, and says how each went."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from downstream import __main__ as downstream
from pydantic_ai_slim.fork.names import DIST_NAME
from series.line import Line

PYPROJECT = '[project]\nname = "first-user"\nversion = "1"\n[dependency-groups]\ntest = ["pytest"]\n'


def _own_python(line: Line) -> Path:
    return Path(sys.executable)


Write = Callable[[str, str, str], Path]


@pytest.fixture
def write(line: Line, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a project: its folder, the end of its `pyproject.toml`, and its only test."""
    monkeypatch.setattr(downstream, 'ROOT', line.root)

    def write(name: str, settings: str, test: str) -> Path:
        folder = line.root / 'downstream' / name
        (folder / 'tests').mkdir(parents=True)
        (folder / 'pyproject.toml').write_text(PYPROJECT + settings)
        (folder / 'tests' / 'test_it.py').write_text(test)
        return folder

    return write


@pytest.fixture
def made(line: Line, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What environments were made of. The tests run in that of the tool, since no index is there to make one from."""
    made: list[list[str]] = []

    def make_environment(folder: Path, python: Path, requirements: Sequence[str | Path]) -> Path:
        made.append([folder.name, *map(str, requirements)])
        return Path(sys.executable)

    monkeypatch.setattr(downstream, 'make_environment', make_environment)
    monkeypatch.setattr(downstream, 'project_python', _own_python)
    wheel = line.root / 'dist' / f'pydantic_ai_slim-{line.version}-py3-none-any.whl'
    wheel.parent.mkdir(exist_ok=True)
    wheel.write_bytes(b'')
    return made


def test_downstream_ends_in_a_line_per_project_and_fails_if_one_failed(
    write: Write, made: list[list[str]], line: Line, capfd: pytest.CaptureFixture[str]
) -> None:
    write('first_user', '', 'def test_it(): pass')
    write('second_user', '', 'def test_it(): assert False')
    newer = write('third_user', '', 'def test_it(): pass') / 'pyproject.toml'
    newer.write_text(newer.read_text().replace('version', f'dependencies = ["{DIST_NAME}>{line.base}"]\nversion'))

    assert downstream.main([]) == 1

    said = capfd.readouterr().out
    results = [told for told in said.splitlines() if told.startswith('- ')]
    assert results == [
        f'- first_user on {line.version}: passed',
        f'- second_user on {line.version}: FAILED. It said last:',
    ]
    assert 'FAILED tests/test_it.py::test_it' in said.partition(results[1])[2]
    assert downstream.main(['--name', 'first-user']) == 0


def test_downstream_installs_the_wheel_the_project_and_its_tests_needs(
    write: Write, made: list[list[str]], line: Line
) -> None:
    folder = write('first_user', '', 'def test_it(): pass')

    assert downstream.main([]) == 0

    wheel = str(line.root / 'dist' / f'pydantic_ai_slim-{line.version}-py3-none-any.whl')
    assert made == [
        [
            f'downstream-first_user-fork-{line.name}',
            wheel,
            '--no-sources',
            str(folder),
            '--group',
            f'{folder / "pyproject.toml"}:test',
            '--reinstall-package',
            'first-user',
        ]
    ]


def test_downstream_runs_on_the_base_as_well_where_the_project_asks_for_it(
    write: Write, made: list[list[str]], line: Line, capfd: pytest.CaptureFixture[str]
) -> None:
    write('first_user', '[tool.downstream]\non = ["fork", "base"]\n', 'def test_it(): pass')

    assert downstream.main([]) == 0

    assert capfd.readouterr().out.splitlines()[-2:] == [
        f'- first_user on {line.version}: passed',
        f'- first_user on the base {line.base}: passed',
    ]
    # Two are made at once, so either may be the first.
    assert [f'downstream-first_user-base-{line.name}', f'pydantic-ai-slim==={line.base}'] in [each[:2] for each in made]


def test_downstream_passes_what_it_does_not_know_to_pytest(
    write: Write, made: list[list[str]], line: Line, capfd: pytest.CaptureFixture[str]
) -> None:
    write('first_user', '', 'def test_it(): assert False\ndef test_that(): pass')

    assert downstream.main(['-k', 'that']) == 0
    assert downstream.main(['-k', 'neither']) == 1

    assert capfd.readouterr().out.splitlines()[-1] == f'- first_user on {line.version}: no test was selected'


@pytest.mark.parametrize('on', ['["upstream"]', '[]', '"fork"', '[["fork"]]'])
def test_downstream_refuses_what_it_does_not_know_to_run_on(
    on: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write('first_user', f'[tool.downstream]\non = {on}\n', 'def test_it(): pass')

    assert downstream.main([]) == 1

    said = capsys.readouterr().err
    assert said.startswith(
        'error: `downstream/first_user/pyproject.toml` says in `[tool.downstream]` what is not known'
    )
    assert 'Write `on = ["fork"]`, `on = ["base"]` or `on = ["fork", "base"]`.' in said


def test_downstream_refuses_a_project_without_the_group_of_its_tests(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write('first_user', '', 'def test_it(): pass')
    (folder / 'pyproject.toml').write_text('[project]\nname = "first-user"\n')

    assert downstream.main([]) == 1

    assert capsys.readouterr().err == (
        'error: `downstream/first_user/pyproject.toml` lacks a `[project]` with a `name`, or the dependency group `test`.\n'
        'Add what is missing; the group lists what the tests need, pytest among it.\n'
    )


def test_downstream_unknown_project_is_refused_with_those_there_are(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write('first_user', '', 'def test_it(): pass')

    assert downstream.main(['--name', 'third']) == 1

    assert capsys.readouterr().err == (
        'error: There is no project `downstream/third` with a `pyproject.toml`.\n'
        'There are: `first_user`. Name one of them with `make downstream NAME=…`.\n'
    )


def test_downstream_without_the_wheel_says_how_to_build_it(
    write: Write, line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(downstream, 'project_python', _own_python)
    write('first_user', '', 'def test_it(): pass')

    assert downstream.main([]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f'error: The fork {line.version} is not built: ')
    assert f'Build it with `make build LINE={line.name}`' in said
