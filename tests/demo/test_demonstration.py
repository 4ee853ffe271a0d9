"""The demonstration itself, on the base and on the built fork."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from demo.__main__ import main
from demo.environments import SCRIPT
from demo.results import read_environment, read_scenario
from demo.verdict import State, judge
from series.environments import MODEL, make_environments
from series.folders import lock
from series.line import Line, find_line

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.environments


@pytest.fixture(scope='module')
def line() -> Line:
    return find_line(ROOT)


@pytest.fixture(scope='module')
def pythons(line: Line) -> list[Path]:
    """The interpreters of `make environments`, brought up to date with the wheel in `dist/`."""
    # Once for all workers of pytest-xdist: making them again would take them away from the tests of another.
    session = os.environ.get('PYTEST_XDIST_TESTRUNUID', str(os.getpid()))
    envs = line.root / 'build' / 'envs'
    made_in = envs / '.demonstration'
    with lock(line.root, 'demonstration', 'making what the demonstration runs in', lambda _: None):
        if not made_in.exists() or made_in.read_text() != session:
            make_environments(line, MODEL)
            made_in.write_text(session)
    return [envs / f'{side}-{line.name}' / 'bin' / 'python' for side in ('base', 'fork')]


def test_demonstration_base_leaks_and_fork_does_not(
    line: Line, pythons: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main([line.name]) == 0
    out, errors = capsys.readouterr()
    assert f'base {line.base}' in out
    assert f'fork {line.version}' in out
    assert out.count('leaks: ') == out.count('isolated: ') == 4
    assert out.endswith('In all 4 scenarios the base leaks and the fork does not.\n')
    assert errors == ''


def test_demonstration_scenarios_print_results_only_and_no_warning(pythons: list[Path]) -> None:
    states: list[list[State]] = []
    for python in pythons:
        done = subprocess.run([python, '-I', SCRIPT], capture_output=True, text=True, check=True)
        first, *rest = done.stdout.splitlines()
        assert read_environment(first).scenarios == len(rest)
        states.append([judge(read_scenario(each)).state for each in rest])
        assert done.stderr == ''
    assert states == [[State.LEAKS] * 4, [State.ISOLATED] * 4]


@pytest.mark.slow
def test_demonstration_model_that_does_not_do_as_asked_gets_no_verdict(
    line: Line, pythons: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert (
        main([line.name, '--model=test']) == 1
    )  # pydantic-ai's own, which calls every tool once with made-up arguments
    out = capsys.readouterr().out
    assert out.count('unclear: ') >= 4
    assert 'A real model may not do as asked' in out


@pytest.mark.slow
def test_demonstration_model_without_its_package_is_refused(
    pythons: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    fork = pythons[1]
    assert main([f'--base={fork}', f'--fork={fork}', '--model=anthropic:claude-haiku-4-5']) == 1
    errors = capsys.readouterr().err
    assert errors.startswith('error: The model `anthropic:claude-haiku-4-5` cannot be used in the environment of the ')
    assert 'pip install --python build/envs/fork-' in errors
    assert '"pydantic-ai-slim[anthropic]"' in errors


def test_demonstration_runs_the_model_of_the_readme_with_no_package_missing(
    line: Line, pythons: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv('OPENAI_API_KEY', raising=False)
    assert main([line.name, '--model=openai:gpt-5-mini']) == 1
    errors = capsys.readouterr().err
    assert 'OPENAI_API_KEY' in errors
    assert 'pip install' not in errors
