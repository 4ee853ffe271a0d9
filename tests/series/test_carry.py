"""`carry` brings a change to the tree of another line, or leaves that as it was."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

import pytest

from pydantic_ai_slim.fork.base import content_digest
from series import carry as module
from series.__main__ import main
from series.apply import apply
from series.carry import Carried, abort_carry, carry, continue_carry, other_line
from series.errors import (
    ApplyError,
    BusyError,
    CarryError,
    DirtyTreeError,
    ElsewhereError,
    ExtractError,
    NoTreeError,
    UnfinishedError,
)
from series.extract import extract
from series.folders import lock
from series.git import Git
from series.line import Line, find_line
from tests.series.upstream import BASE, LATER, PACKAGE, User, quiet, write_line

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
SWAPPED = PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'b + a')
OTHER = LATER['pydantic_ai/tools.py'].replace('a + b', 'b + a').replace('"tools"', '"other"')
"""What the module is like on the line that a change is carried to."""

SWAP = 'Swap the summands'
LETTERS = ''.join(f'{letter}\n' for letter in 'abcdefghijklmnop')
CONTINUE, SKIP, ABORT = (f'make carry ARGS=--{what}' for what in ('continue', 'skip', 'abort'))
AUTHOR = {'NAME': 'A. Author', 'EMAIL': 'author@example.com', 'DATE': '2025-02-01T12:00:00+0100'}


@pytest.fixture(scope='session')
def checkout(releases: Path, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with two lines and their trees: two patches of the same subjects, and one of each line's own."""
    line = write_line(tmp_path_factory.mktemp('carry') / 'checkout', releases, unpacked)
    later = tmp_path_factory.mktemp('later')
    with zipfile.ZipFile(releases / 'pydantic_ai_slim-1.1.0-py3-none-any.whl') as wheel:
        wheel.extractall(later)
    (folder := line.folder.with_name('1.1.0')).mkdir()
    pins = (line.folder / 'line.toml').read_text()
    (folder / 'line.toml').write_text(
        pins.replace('base = "1.0.0"', 'base = "1.1.0"').replace(line.digest, content_digest(later))
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {'NO_INDEX': '1', 'CONFIG_FILE': os.devnull, 'FIND_LINKS': str(releases)}.items():
            patch.setenv(f'PIP_{name}', value)
        set_author(patch)
        for name, text in ((line.name, SWAPPED), ('1.1.0', OTHER)):
            made = find_line(line.root, name)
            apply(made, quiet)
            tree = User(made.tree)
            tree.commit(SWAP, {TOOLS: text})
            tree.commit('Add letters', {'tests/letters.txt': LETTERS})
            tree.commit(f'Add {name}', {f'tests/{name}.txt': '1\n'})
            extract(made, quiet)
    return line.root


def set_author(patch: pytest.MonkeyPatch) -> None:
    for name, value in AUTHOR.items():
        patch.setenv(f'GIT_AUTHOR_{name}', value)
        patch.setenv(f'GIT_COMMITTER_{name}', value)


@pytest.fixture
def line(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """The line that a change is carried from, in a copy of the checkout."""
    set_author(monkeypatch)
    return find_line(Path(shutil.copytree(checkout, tmp_path / 'checkout', symlinks=True)), BASE)


@pytest.fixture
def to(line: Line) -> Line:
    """The line that it is carried to."""
    return find_line(line.root, '1.1.0')


@pytest.fixture
def user(line: Line) -> User:
    return User(line.tree)


def fixup(user: User, subject: str, files: dict[str, str | bytes]) -> None:
    user.commit(f'fixup! {subject}', files)


def text(line: Line, path: str) -> str:
    return (line.tree / path).read_text()


def subjects(line: Line) -> list[str]:
    return User(line.tree).subjects()


def state(line: Line) -> tuple[str, str, str, bool]:
    """What a carry may not leave in halves."""
    tree = User(line.tree)
    kept = (line.tree / '.git' / 'series-carry').exists()
    return tree.git('rev-parse', 'HEAD'), tree.git('status', '--porcelain'), tree.git('branch', '--show-current'), kept


def conflicting(user: User, line: Line, to: Line) -> None:
    """Commit three fixups, of which the second conflicts."""
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('"tools"', '"mine"')})
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A').replace('p', 'P')})
    with pytest.raises(ApplyError) as error:
        carry(line, to, quiet)
    assert error.value.problem == (
        '`fixup! Swap the summands` of 1.0.0 conflicts with the tree `build/1.1.0`. 1 fixup is in the tree, 1 waits after it.'
    )
    assert error.value.remedy == (
        'It waits in `build/1.1.0`, with conflict marks. Edit the marked files, `git -C build/1.1.0 add` or `rm` them, '
        f'and run `{CONTINUE}`; leave it out with `{SKIP}`; or give all of it up with `{ABORT}`.'
    )
    assert error.value.words == f'{TOOLS}:5'
    assert error.value.files == (TOOLS,)


def test_carry_commits_a_fixup_to_the_other_tree_where_its_text_differs(line: Line, to: Line, user: User) -> None:
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    before = state(line)
    assert carry(line, to, quiet) == Carried(to, (f'fixup! {SWAP}',), (), (), ())
    assert text(to, TOOLS) == OTHER.replace('def add(', 'def plus(')
    assert subjects(to) == [SWAP, 'Add letters', 'Add 1.1.0', f'fixup! {SWAP}']
    assert state(to)[1:] == ('', 'series', False)
    assert state(line) == before
    User(to.tree).git(
        '-c', 'sequence.editor=true', 'rebase', '--quiet', '--interactive', '--autosquash', 'refs/series/base'
    )
    assert len(extract(to, quiet)) == 1


def test_carry_keeps_author_and_message(line: Line, to: Line, user: User) -> None:
    user.commit(f'fixup! {SWAP}\n\nThe reason.', {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    carry(line, to, quiet)
    shown = ('log', '-1', '--format=%an %ae %ad%n%B')
    assert User(to.tree).git(*shown) == user.git(*shown)


def test_carry_again_finds_nothing_missing(line: Line, to: Line, user: User) -> None:
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    carry(line, to, quiet)
    before = state(to)
    assert carry(line, to, quiet) == Carried(to, (), (f'fixup! {SWAP}',), (), ())
    assert state(to) == before


def test_carry_leaves_out_the_fixup_of_a_patch_that_the_other_line_does_not_have(
    line: Line, to: Line, user: User
) -> None:
    fixup(user, 'Add 1.0.0', {'tests/1.0.0.txt': '2\n'})
    fixup(user, 'fixup! Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    carried = carry(line, to, quiet)
    assert (carried.carried, carried.foreign) == (('fixup! fixup! Add letters',), ('fixup! Add 1.0.0',))
    assert text(to, 'tests/letters.txt') == LETTERS.replace('a', 'A')


def test_carry_leaves_out_a_fixup_without_changes(line: Line, to: Line, user: User) -> None:
    user.git('commit', '--quiet', '--allow-empty', '--message', f'fixup! {SWAP}')
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    assert carry(line, to, quiet) == Carried(to, ('fixup! Add letters',), (), (), ())


def test_carry_without_fixups_is_refused(line: Line, to: Line) -> None:
    before = state(to)
    with pytest.raises(CarryError) as error:
        carry(line, to, quiet)
    assert str(error.value) == (
        'There is nothing to carry: the tree `build/1.0.0` has no fixups.\n'
        'Commit the change with `git -C build/1.0.0 commit --fixup COMMIT`, where COMMIT is that of the patch, and run '
        '`make carry LINE=1.0.0` before you fold it in with `git rebase --autosquash`.'
    )
    assert state(to) == before


@pytest.mark.parametrize('which', ['line', 'to'])
def test_carry_refuses_trees_that_are_not_as_a_verb_leaves_them(which: str, line: Line, to: Line, user: User) -> None:
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    tree = User((line if which == 'line' else to).tree)
    (tree.tree / 'tests' / 'new.txt').write_text('mine\n')
    with pytest.raises(DirtyTreeError):
        carry(line, to, quiet)
    (tree.tree / 'tests' / 'new.txt').unlink()
    tree.git('checkout', '--quiet', '--detach', 'HEAD~1')
    with pytest.raises(ElsewhereError):
        carry(line, to, quiet)
    tree.git('checkout', '--quiet', 'series')
    (tree.tree / '.git' / 'MERGE_HEAD').write_text(tree.git('rev-parse', 'HEAD'))
    with pytest.raises(UnfinishedError):
        carry(line, to, quiet)
    (tree.tree / '.git' / 'MERGE_HEAD').unlink()
    with lock(line.root, tree.tree.name, 'make apply'), pytest.raises(BusyError):
        carry(line, to, quiet)
    shutil.rmtree(tree.tree)
    with pytest.raises(NoTreeError):
        carry(line, to, quiet)


def test_carry_stops_at_a_conflict_and_goes_on_once_it_is_resolved(line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    assert text(to, 'tests/letters.txt') == LETTERS.replace('a', 'A')
    with pytest.raises(ApplyError) as error:
        continue_carry(line.root, None, quiet)
    assert 'conflicts with the tree' in error.value.problem
    User(to.tree).git('add', '--all')
    with pytest.raises(ApplyError) as error:
        continue_carry(line.root, None, quiet)
    assert error.value.problem == (
        '`fixup! Swap the summands` waits in `build/1.1.0`, and what is added for it still has conflict marks.'
    )
    (to.tree / TOOLS).write_text(OTHER.replace('"other"', '"both"'))
    User(to.tree).git('add', '--all')
    carried = continue_carry(line.root, None, quiet)
    assert carried == Carried(to, ('fixup! Add letters', f'fixup! {SWAP}', 'fixup! Add letters'), (), (), ())
    assert text(to, TOOLS) == OTHER.replace('"other"', '"both"')
    assert text(to, 'tests/letters.txt') == LETTERS.replace('a', 'A').replace('p', 'P')
    assert subjects(to)[3:] == ['fixup! Add letters', f'fixup! {SWAP}', 'fixup! Add letters']
    assert state(to)[1:] == ('', 'series', False)


def test_carry_goes_on_after_the_user_has_finished_the_am(line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    (to.tree / TOOLS).write_text(OTHER.replace('"other"', '"both"'))
    User(to.tree).git('add', '--all')
    User(to.tree).git('am', '--continue')
    assert len(continue_carry(line.root, '1.1.0', quiet).carried) == 3


def test_carry_after_the_user_has_aborted_the_am_wants_to_be_told(line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    User(to.tree).git('am', '--abort')
    with pytest.raises(CarryError) as error:
        continue_carry(line.root, None, quiet)
    assert str(error.value) == (
        'The fixup `fixup! Swap the summands` is not in the tree `build/1.1.0`, and does not wait there any more.\n'
        f'Leave it out with `{SKIP}`, or give up with `{ABORT}`.'
    )
    assert continue_carry(line.root, None, quiet, skip=True).skipped == (f'fixup! {SWAP}',)


def test_carry_skips_what_waits(line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    carried = continue_carry(line.root, None, quiet, skip=True)
    assert carried == Carried(to, ('fixup! Add letters',) * 2, (), (f'fixup! {SWAP}',), ())
    assert text(to, TOOLS) == OTHER
    assert state(to)[1:] == ('', 'series', False)


def test_carry_aborts_to_where_the_tree_was(line: Line, to: Line, user: User) -> None:
    before = state(to)
    conflicting(user, line, to)
    assert abort_carry(line.root, None) == to
    assert state(to) == before
    with pytest.raises(CarryError, match=r'^No carry is under way\.'):
        abort_carry(line.root, None)


def test_carry_that_waits_refuses_another_one(line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    with pytest.raises(CarryError) as error:
        carry(line, to, quiet)
    assert str(error.value) == (
        'A carry from 1.0.0 to 1.1.0 is under way in `build/1.1.0`.\n'
        f'Go on with `{CONTINUE}`, or give it up with `{ABORT}`.'
    )


class Killed(BaseException):
    """What a test stops a command with."""


@pytest.mark.parametrize('again', ['carry', 'continue', 'abort'])
@pytest.mark.parametrize('at', ['start', 'move', 'moved', 'stop', 'stopped'])
def test_carry_that_is_killed_anywhere_can_be_repeated(
    at: str, again: str, line: Line, to: Line, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(to)
    run, attempt = Git.run, Git.attempt

    def killed_start(*args: object) -> Carried:
        raise Killed

    def killed_run(git: Git, *args: str, stdin: IO[bytes] | None = None) -> str:
        if git.folder == to.tree.resolve() and args[:2] == ('checkout', '--quiet'):
            if at == 'moved':
                run(git, *args)
            else:
                # Half of the files are there.
                (to.tree / 'tests/letters.txt').write_text(LETTERS.replace('a', 'A'))
                (to.tree / '.git' / 'index.lock').write_text('')
            raise Killed
        return run(git, *args, stdin=stdin)

    def killed_attempt(git: Git, *args: str, stdin: IO[bytes] | None = None) -> CompletedProcess[bytes]:
        if git.folder == to.tree.resolve() and args[0] == 'am':
            if at == 'stopped':
                attempt(git, *args)
            else:
                (to.tree / TOOLS).write_text('half')
            raise Killed
        return attempt(git, *args, stdin=stdin)

    with monkeypatch.context() as patch:
        if at == 'start':
            patch.setattr(module, '_go_on', killed_start)
        elif at in ('move', 'moved'):
            patch.setattr(Git, 'run', killed_run)
        else:
            patch.setattr(Git, 'attempt', killed_attempt)
        fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
        fixup(user, SWAP, {TOOLS: SWAPPED.replace('"tools"', '"mine"')})
        with pytest.raises(Killed):
            carry(line, to, quiet)
    if again == 'abort':
        abort_carry(line.root, None)
        assert state(to) == before
        return
    with pytest.raises(ApplyError) as error:
        if again == 'carry':
            carry(line, to, quiet)
        else:
            continue_carry(line.root, None, quiet)
    assert '1 fixup is in the tree, 0 wait after it.' in error.value.problem
    (to.tree / TOOLS).write_text(OTHER.replace('"other"', '"both"'))
    User(to.tree).git('add', '--all')
    assert continue_carry(line.root, None, quiet).carried == ('fixup! Add letters', f'fixup! {SWAP}')
    assert subjects(to)[3:] == ['fixup! Add letters', f'fixup! {SWAP}']
    assert state(to)[1:] == ('', 'series', False)


def test_carry_to_the_same_or_an_unknown_line_is_refused(line: Line, to: Line) -> None:
    with pytest.raises(CarryError, match=r'^The change is in the tree of 1\.0\.0 already\.'):
        carry(line, line, quiet)
    assert other_line(line.root, line, None) == to
    with pytest.raises(CarryError) as error:
        other_line(line.root, line, '7.0.0')
    assert str(error.value) == (
        '`7.0.0` is no line besides 1.0.0.\nName one of `1.1.0` with `--to LINE` (`ARGS="--to LINE"`).'
    )
    shutil.rmtree(to.folder)
    with pytest.raises(CarryError) as error:
        other_line(line.root, line, None)
    assert str(error.value) == '1.0.0 has no lines beside it.\nThere is none to carry to.'


def test_carry_says_what_to_do_next(
    line: Line, to: Line, user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(line.root)
    fixup(user, 'Add 1.0.0', {'tests/1.0.0.txt': '2\n'})
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('"tools"', '"mine"')})
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    assert main(['carry', '1.0.0']) == 1
    assert main(['carry', '--abort']) == 0
    assert main(['carry', '1.0.0', '--to', '1.1.0']) == 1
    assert main(['carry', '--skip']) == 0
    assert main(['carry', '--continue']) == 1
    shown = capsys.readouterr()
    assert shown.out == (
        'The carry is given up; `build/1.1.0` is as it was.\n'
        'The fixups in `build/1.1.0`:\n'
        '- fixup! Add letters\n'
        '- fixup! Swap the summands (skipped)\n'
        '- fixup! Add 1.0.0 (left out, since there is no such patch)\n'
        'Fold them into their patches with `git -C build/1.1.0 rebase --interactive --autosquash refs/series/base`, and '
        'run `make extract LINE=1.1.0`.\n'
    )
    assert 'error: No carry is under way.\nStart one with `make carry LINE=...`.\n' in shown.err


def test_carry_of_a_fixup_that_fits_no_patch_names_the_nearest_and_is_refused(line: Line, to: Line, user: User) -> None:
    fixup(user, 'Add leters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    fixup(user, 'Swap', {'tests/letters.txt': LETTERS.replace('c', 'C')})
    fixup(user, 'Nothing alike', {'tests/letters.txt': LETTERS.replace('b', 'B')})
    before = state(to)
    with pytest.raises(CarryError) as error:
        carry(line, to, quiet)
    assert error.value.problem == (
        'The tree `build/1.0.0` has fixups whose subjects fit no patch, of either line; nothing was carried.'
    )
    assert error.value.words == (
        'fixup! Add leters (the nearest is `Add letters`)\nfixup! Swap (the nearest is `Swap the summands`)\n'
        'fixup! Nothing alike'
    )
    assert state(to) == before


def test_extract_of_a_fixup_that_fits_no_patch_names_the_nearest(line: Line, user: User) -> None:
    fixup(user, 'Add leters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    with pytest.raises(
        ExtractError, match=r'`fixup! Add leters` fits no commit by its subject \(the nearest is `Add letters`\)'
    ):
        extract(line, quiet)
