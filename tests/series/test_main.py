"""The command line: what it prints, where to, and its exit codes."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from series.cli import main
from series.line import Line
from series.verbs.verify import Verified
from tests.series.upstream import ROOT, User, start

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the root of the line's checkout and returns exit code, output and errors."""
    monkeypatch.chdir(line.root)
    # What argparse prints depends on these.
    monkeypatch.setenv('COLUMNS', '80')
    monkeypatch.setenv('NO_COLOR', '1')

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as error:
            assert isinstance(error.code, int)
            code = error.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_main_release_says_what_it_wrote(run: Run, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := line.root / 'dist' / 'release').mkdir(parents=True)
    for name in ('b', 'a'):
        (folder / name).touch()
    monkeypatch.setattr('series.cli.release', lambda root, report: folder)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert run('release') == (0, '`dist/release` holds the release:\na\nb\n', '')
    assert run('release', line.name)[0] == 2


def test_main_apply_and_extract_say_what_they_did(run: Run, user: User) -> None:
    code, out, errors = run('apply')
    base = user.git('rev-parse', 'HEAD')
    assert (code, out, errors) == (
        0,
        f'`build/1.0.0` holds the base and 0 patches; its last commit is {base}.\n',
        '',
    )
    user.commit('Add one', {'tests/one.txt': '1\n'})
    assert run('extract', '1.0.0') == (
        0,
        '`patches/1.0.0` holds the commits of `build/1.0.0`:\nadded fixes/add-one\n',
        '',
    )
    assert run('extract') == (0, '`patches/1.0.0` holds the commits of `build/1.0.0` already.\n', '')


def test_main_branch_says_what_it_made(run: Run, user: User, tmp_path: Path) -> None:
    run('apply')
    user.commit('Add one\n\nIt is missing.\n\nForwarded: no', {'docs/one.md': '# One\n'})
    run('extract')
    clone = tmp_path / 'clone'
    user.git('clone', '--quiet', '--branch', 'series', '.', str(clone))
    User(clone).git('tag', 'v1.0.0', 'HEAD~')
    said = (
        f'`{clone}` is on the new branch `one`, which adds to `v1.0.0`:\n'
        '- Add one\n'
        'The title and the text of the pull request are in `build/pull-requests/1.0.0/add-one.md`.\n'
        'Add `docs/one.md` to the navigation of the docs there.\n'
        'Run `make format`, `make lint` and `make typecheck` there before you push.\n'
    )
    assert run('branch', 'add-one', '--clone', str(clone), '--name', 'one') == (0, said, '')


def test_main_verify_says_how_many_tests_pass_or_that_an_older_line_has_none(
    run: Run, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = [line.folder / 'fixes' / f'{name}.patch' for name in ('add-one', 'add-two')]
    found = [Verified(patch, tests) for patch, tests in zip(patches, (2, 0), strict=True)]
    monkeypatch.setattr('series.cli.verify', lambda *_, **__: found)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    first = '`patches/1.0.0/fixes/add-one.patch`: 2 tests pass\n'
    last = 'The 2 patches on 1.0.0 are in order.\n'
    assert run('verify') == (0, f'{first}`patches/1.0.0/fixes/add-two.patch`: 0 tests pass\n{last}', '')
    shutil.copytree(line.folder, newest := line.folder.with_name('1.1.0'))
    (newest / 'line.toml').write_text((newest / 'line.toml').read_text().replace('"1.0.0"', '"1.1.0"'))
    none = '`patches/1.0.0/fixes/add-two.patch`: carries no tests; an older line has only those in which it differs from 1.1.0\n'
    assert run('verify', '1.0.0') == (0, f'{first}{none}{last}', '')


def test_main_with_a_wrong_line_toml_prints_why_and_returns_1(run: Run, line: Line) -> None:
    (line.folder / 'line.toml').write_text('base =')
    code, out, errors = run('apply')
    assert (code, out) == (1, '')
    assert errors.startswith(f'error: `{line.folder / "line.toml"}` is not valid TOML: ')


def test_main_help_lists_the_verbs_and_exit_codes(run: Run) -> None:
    code, out, errors = run('--help')
    assert (code, errors) == (0, '')
    targets = set(re.findall(r'-m series (\w+)', (ROOT / 'Makefile').read_text()))
    assert set(re.findall(r'^    (\w+)', out, re.MULTILINE)) - {'VERB'} == targets
    assert out.endswith(
        'exit codes:\n'
        '  0      done\n'
        '  1      refused or failed; the message says why and what to do next\n'
        '  2      the command line is wrong\n'
        '  128+N  interrupted by the signal N: 130 after Ctrl-C\n'
    )


INTERRUPTED = """
import os, runpy, sys

def interrupt(event, arguments):
    if at and at[0] in (event, *arguments[:1]):
        at.clear()
        os.kill(os.getpid(), number)

at, number = [sys.argv.pop(1)], int(sys.argv.pop(1))
sys.addaudithook(interrupt)
runpy.run_module('series', run_name='__main__')
"""
"""Runs the tool, which gets a signal when it imports a module, or does something that Python names to those who watch it."""


@pytest.mark.parametrize('at', ['packaging.version', 'subprocess.Popen'])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_python_m_series_that_is_interrupted_says_so_even_while_it_imports(number: int, at: str, line: Line) -> None:
    done = ended(line, '-c', INTERRUPTED, at, str(int(number)), 'apply')
    assert done == (128 + number, '', 'error: Interrupted. Run the same command again.\n')
    assert not line.tree.exists()


def test_python_m_series_with_nohup_goes_on_when_the_terminal_is_closed(line: Line) -> None:
    ignoring = 'import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)'
    code, out, errors = ended(line, '-c', ignoring + INTERRUPTED, 'subprocess.Popen', str(int(signal.SIGHUP)), 'apply')
    assert (code, out[:20], errors) == (0, '`build/1.0.0` holds ', '')


def ended(line: Line, *command: str) -> tuple[int, str, str]:
    """Run Python with the tool on its path, and return exit code, output and errors."""
    process = start(line, *command)
    out, errors = process.communicate()
    return process.returncode, out, errors


def test_python_m_series_runs_in_a_process_of_its_own(line: Line) -> None:
    said = (
        'error: There is no line `9.9.9`: `patches/9.9.9/line.toml` does not exist.\n'
        'Name one of `1.0.0`, or none for the newest.\n'
    )
    assert ended(line, '-m', 'series', 'extract', '9.9.9') == (1, '', said)
