"""The command line, with scripts that print fixed results."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from demo.__main__ import find_sides, main
from demo.environments import Side
from demo.errors import MissingEnvironmentError
from series.line import find_line
from tests.demo.conftest import WriteScript
from tests.demo.facts import count_facts, environment_facts, printing

BASE, FORK = (
    printing(environment_facts(scenarios=1), count_facts(second)) for second in ('second search', 'first search')
)


@pytest.fixture
def pythons(tmp_path: Path) -> list[str]:
    """Two interpreters that a script can tell apart by their names."""
    paths = [tmp_path / name for name in ('base', 'fork')]
    for path in paths:
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -X name={path.name} "$@"\n', encoding='utf-8')
        path.chmod(0o755)
    return [f'--{path.name}={path}' for path in paths]


def by_name(base: str, fork: str) -> str:
    """Return the text of a script that runs one text on the base and another one on the fork."""
    return f'import sys\nexec({{"base": {base!r}, "fork": {fork!r}}}[sys._xoptions["name"]])'


def test_main_base_leaks_and_fork_does_not_exits_with_0(
    write_script: WriteScript, pythons: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(by_name(BASE, FORK))
    assert main(pythons) == 0
    out, errors = capsys.readouterr()
    assert out.endswith('In all 1 scenarios the base leaks and the fork does not.\n')
    assert errors == ''


@pytest.mark.parametrize(
    ('base', 'fork', 'words'),
    [
        (BASE, BASE, 'In `count` base and fork behave alike: both leak.\n'),
        (FORK, FORK, 'In `count` base and fork behave alike: both are isolated.\n'),
        (FORK, BASE, 'In `count` the fork leaks and the base does not.\n'),
    ],
)
def test_main_otherwise_exits_with_1_and_says_so(
    write_script: WriteScript, pythons: list[str], capsys: pytest.CaptureFixture[str], base: str, fork: str, words: str
) -> None:
    write_script(by_name(base, fork))
    assert main(pythons) == 1
    assert capsys.readouterr().out.endswith(words)


def test_main_script_that_fails_exits_with_1_and_its_words(
    write_script: WriteScript, pythons: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(by_name(BASE, 'raise SystemExit("[bold]broken")'))
    assert main(pythons) == 1
    out, errors = capsys.readouterr()
    assert out == ''
    assert errors.startswith('error: `demo/scenarios.py` failed in the environment of the fork. It printed nothing.\n')
    assert errors.endswith('    [bold]broken\n')


def test_main_missing_interpreter_exits_with_1_and_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f'--base={sys.executable}', f'--fork={tmp_path / "none"}']) == 1
    assert '`make fork`' in capsys.readouterr().err


def test_main_unknown_line_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['0.0.0']) == 1
    assert capsys.readouterr().err.startswith('error: There is no line `0.0.0`')


def test_main_unknown_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(['--nonsense'])
    assert caught.value.code == 2
    assert 'usage: python -m demo' in capsys.readouterr().err


def test_find_sides_interpreters_that_are_given_need_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python = Path(sys.executable)
    assert find_sides(None, python, python) == [Side('base', python), Side('fork', python)]


def test_find_sides_default_is_in_the_build_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = find_line(Path(__file__).parents[2])
    folder = tmp_path / 'patches' / newest.name
    folder.mkdir(parents=True)
    (folder / 'line.toml').write_bytes((newest.folder / 'line.toml').read_bytes())
    (folder / 'series').write_text('')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        MissingEnvironmentError, match=rf'`build/envs/fork-{re.escape(newest.name)}/bin/python` does not exist'
    ) as caught:
        find_sides(None, Path(sys.executable), None)
    assert f'`make fork LINE={newest.name}`' in caught.value.remedy
