"""`carry` brings a change to the tree of another line, or leaves that as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

import pytest

from series.cli import main
from series.errors import ApplyError, GitError, SeriesError
from series.folders import lock
from series.git import Git
from series.line import Line, find_line
from series.verbs.carry import Carried, carry, other_line
from series.verbs.extract import extract
from tests.series.upstream import (
    BASE,
    LATER,
    PACKAGE,
    User,
    quiet,
    refusal,
    set_author,
    write_later_line,
    write_line,
    write_series,
)

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
SWAPPED = PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'b + a')
OTHER = LATER['pydantic_ai/tools.py'].replace('a + b', 'b + a').replace('"tools"', '"other"')
"""What the module is like on the line that a change is carried to."""

SWAP = 'Swap the summands'
LETTERS = ''.join(f'{letter}\n' for letter in 'abcdefghijklmnop')
FOLD = ('-c', 'sequence.editor=true', 'rebase', '--quiet', '--interactive', '--autosquash', 'refs/series/base')


@pytest.fixture(scope='session')
def checkout(releases: Path, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with two lines and their trees: two patches of the same subjects, and one of each line's own."""
    line = write_line(tmp_path_factory.mktemp('carry') / 'checkout', releases, unpacked)
    write_later_line(line, releases, tmp_path_factory.mktemp('later'))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {'NO_INDEX': '1', 'CONFIG_FILE': os.devnull, 'FIND_LINKS': str(releases)}.items():
            patch.setenv(f'PIP_{name}', value)
        set_author(patch)
        for name, text in ((line.name, SWAPPED), ('1.1.0', OTHER)):
            swap, letters = (SWAP, {TOOLS: text}), ('Add letters', {'tests/letters.txt': LETTERS})
            write_series(find_line(line.root, name), swap, letters, (f'Add {name}', {f'tests/{name}.txt': '1\n'}))
    return line.root


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


def state(line: Line) -> tuple[str, str, str]:
    """What a carry may not leave in halves."""
    tree = User(line.tree)
    return tree.git('rev-parse', 'HEAD'), tree.git('status', '--porcelain'), tree.git('branch', '--show-current')


def conflicting(user: User, line: Line, to: Line) -> None:
    """Commit three fixups, of which the second conflicts."""
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('"tools"', '"mine"')})
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A').replace('p', 'P')})
    with pytest.raises(ApplyError) as error:
        carry(line, to, quiet)
    assert error.value.problem == (
        '`fixup! Swap the summands` of 1.0.0 conflicts with the tree `build/1.1.0`. 1 of 3 fixups are in the tree.'
    )
    assert error.value.remedy == (
        'The patch at which git stopped waits in `build/1.1.0`, with conflict marks. Edit the marked files, `git -C build/1.1.0 add` or `rm` them, '
        'and run `git -C build/1.1.0 cherry-pick --continue`; leave it out with `git -C build/1.1.0 cherry-pick --skip`; or '
        'give all of it up with `git -C build/1.1.0 cherry-pick --abort`. At the end, fold the fixups into their patches with '
        '`git -C build/1.1.0 rebase --interactive --autosquash refs/series/base`, and run `make extract LINE=1.1.0`.'
    )
    assert error.value.words == f'{TOOLS}:5'
    assert error.value.files == (TOOLS,)


def test_carry_commits_a_fixup_to_the_other_tree_where_its_text_differs(line: Line, to: Line, user: User) -> None:
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    before = state(line)
    assert carry(line, to, quiet) == Carried(to, [f'fixup! {SWAP}'], [], [])
    assert text(to, TOOLS) == OTHER.replace('def add(', 'def plus(')
    assert subjects(to) == [SWAP, 'Add letters', 'Add 1.1.0', f'fixup! {SWAP}']
    assert state(to)[1:] == ('', 'series')
    assert state(line) == before
    User(to.tree).git(*FOLD)
    assert len(extract(to, quiet)) == 1


def test_carry_leaves_out_the_tests_that_the_other_line_leaves_to_this_one(line: Line, to: Line, user: User) -> None:
    tree = User(to.tree)
    (to.tree / 'tests/letters.txt').unlink()
    tree.git('commit', '--quiet', '--all', '--amend', '--message', 'Add 1.1.0')
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus('), 'tests/letters.txt': 'changed'})
    fixup(user, 'Add letters', {'tests/letters.txt': 'changed again'})
    assert carry(line, to, quiet) == Carried(to, [f'fixup! {SWAP}'], ['fixup! Add letters'], [])
    assert text(to, TOOLS) == OTHER.replace('def add(', 'def plus(')
    assert not (to.tree / 'tests/letters.txt').exists()
    assert state(to)[1:] == ('', 'series')


def test_carry_keeps_author_and_message(line: Line, to: Line, user: User) -> None:
    user.commit(f'fixup! {SWAP}\n\nThe reason.', {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    carry(line, to, quiet)
    shown = ('log', '-1', '--format=%an %ae %ad%n%B')
    assert User(to.tree).git(*shown) == user.git(*shown)


def test_carry_again_finds_nothing_missing(line: Line, to: Line, user: User) -> None:
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    carry(line, to, quiet)
    before = state(to)
    assert carry(line, to, quiet) == Carried(to, [], [f'fixup! {SWAP}'], [])
    assert state(to) == before


def test_carry_leaves_out_the_fixup_of_a_patch_that_the_other_line_does_not_have(
    line: Line, to: Line, user: User
) -> None:
    fixup(user, 'Add 1.0.0', {'tests/1.0.0.txt': '2\n'})
    fixup(user, 'fixup! Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    carried = carry(line, to, quiet)
    assert (carried.carried, carried.foreign) == (['fixup! fixup! Add letters'], ['fixup! Add 1.0.0'])
    assert text(to, 'tests/letters.txt') == LETTERS.replace('a', 'A')


def test_carry_leaves_out_a_fixup_without_changes(line: Line, to: Line, user: User) -> None:
    user.git('commit', '--quiet', '--allow-empty', '--message', f'fixup! {SWAP}')
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    assert carry(line, to, quiet) == Carried(to, ['fixup! Add letters'], [], [])


def test_carry_without_fixups_is_refused(line: Line, to: Line) -> None:
    before = state(to)
    assert refusal(carry, line, to, quiet) == (
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
    with pytest.raises(SeriesError, match='changes that are not committed'):
        carry(line, to, quiet)
    (tree.tree / 'tests' / 'new.txt').unlink()
    tree.git('checkout', '--quiet', '--detach', 'HEAD~1')
    with pytest.raises(SeriesError, match='is not on its branch `series`'):
        carry(line, to, quiet)
    tree.git('checkout', '--quiet', 'series')
    (tree.tree / '.git' / 'MERGE_HEAD').write_text(tree.git('rev-parse', 'HEAD'))
    with pytest.raises(SeriesError, match='is in the middle of a `git merge`'):
        carry(line, to, quiet)
    (tree.tree / '.git' / 'MERGE_HEAD').unlink()
    with (
        lock(line.root, tree.tree.name, 'make apply'),
        pytest.raises(SeriesError, match=r'`make apply` .* is at work on'),
    ):
        carry(line, to, quiet)
    shutil.rmtree(tree.tree)
    with pytest.raises(SeriesError, match='There is no tree'):
        carry(line, to, quiet)


def test_carry_stops_at_a_conflict_and_git_goes_on_once_it_is_resolved(line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    assert text(to, 'tests/letters.txt') == LETTERS.replace('a', 'A')
    (to.tree / TOOLS).write_text(OTHER.replace('"other"', '"both"'))
    tree = User(to.tree)
    tree.git('add', '--all')
    tree.git('-c', 'core.editor=true', 'cherry-pick', '--continue')
    assert text(to, TOOLS) == OTHER.replace('"other"', '"both"')
    assert text(to, 'tests/letters.txt') == LETTERS.replace('a', 'A').replace('p', 'P')
    assert subjects(to)[3:] == ['fixup! Add letters', f'fixup! {SWAP}', 'fixup! Add letters']
    assert state(to)[1:] == ('', 'series')


def test_carry_skips_what_waits_and_aborts_as_git_does(line: Line, to: Line, user: User) -> None:
    before = state(to)
    conflicting(user, line, to)
    User(to.tree).git('cherry-pick', '--abort')
    assert state(to) == before
    with pytest.raises(ApplyError):
        carry(line, to, quiet)
    User(to.tree).git('cherry-pick', '--skip')
    assert subjects(to)[3:] == ['fixup! Add letters'] * 2
    assert text(to, TOOLS) == OTHER
    assert state(to)[1:] == ('', 'series')


@pytest.mark.parametrize('committed', [False, True])
def test_carry_that_waits_refuses_another_one(committed: bool, line: Line, to: Line, user: User) -> None:
    conflicting(user, line, to)
    if committed:
        (to.tree / TOOLS).write_text(OTHER.replace('"other"', '"both"'))
        User(to.tree).git('commit', '--quiet', '--all', '--no-edit')
    with pytest.raises(SeriesError, match='is in the middle of a `git cherry-pick`'):
        carry(line, to, quiet)


def test_carry_runs_no_hooks_and_a_git_that_fails_leaves_the_tree(line: Line, to: Line, user: User) -> None:
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('def add(', 'def plus(')})
    (hook := to.tree / '.git/hooks/post-commit').parent.mkdir()
    for name in ('prepare-commit-msg', 'post-commit'):
        (hook.with_name(name)).write_text(f'#!/bin/sh\ntouch {to.tree}/ran\nexit 1\n')
        (hook.with_name(name)).chmod(0o755)
    before = state(to)
    User(to.tree).git('config', 'merge.renames', 'nonsense')
    with pytest.raises(GitError):
        carry(line, to, quiet)
    User(to.tree).git('config', '--unset', 'merge.renames')
    assert state(to) == before
    assert carry(line, to, quiet).carried == [f'fixup! {SWAP}']
    assert not (to.tree / 'ran').exists()


class Killed(BaseException):
    """What a test stops a command with."""


@pytest.mark.parametrize('at', ['start', 'half', 'stopped', 'picked'])
def test_carry_that_is_killed_anywhere_can_be_repeated(
    at: str, line: Line, to: Line, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, attempt = state(to), Git.attempt

    def killed(git: Git, *args: str, stdin: IO[bytes] | None = None) -> CompletedProcess[bytes]:
        if git.folder != to.tree.resolve() or 'cherry-pick' not in args:
            return attempt(git, *args, stdin=stdin)
        if at != 'start':
            attempt(git, *args)
        if at == 'half':
            # As git leaves it in the middle of the second, of which one file is written.
            (to.tree / '.git' / 'CHERRY_PICK_HEAD').unlink()
            User(to.tree).git('reset', '--quiet', '--hard')
            (to.tree / TOOLS).write_text('half')
            (to.tree / 'tests' / 'new.txt').write_text('mine')
            (to.tree / '.git' / 'index.lock').write_text('')
        raise Killed

    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    if at != 'picked':
        fixup(user, SWAP, {TOOLS: SWAPPED.replace('"tools"', '"mine"')})
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Git, 'attempt', killed)
        carry(line, to, quiet)
    if at == 'stopped':
        with pytest.raises(SeriesError, match='is in the middle of a `git cherry-pick`'):
            carry(line, to, quiet)
        User(to.tree).git('cherry-pick', '--abort')
        assert state(to) == before
    elif at == 'picked':
        assert carry(line, to, quiet).carried == ['fixup! Add letters']
        return
    with pytest.raises(ApplyError, match='1 of 2 fixups are in the tree'):
        carry(line, to, quiet)
    if at == 'half':
        assert User(to.tree).git('show', 'refs/series/left:tests/new.txt') == 'mine'
    assert not (to.tree / 'tests' / 'new.txt').exists()
    (to.tree / TOOLS).write_text(OTHER.replace('"other"', '"both"'))
    User(to.tree).git('add', '--all')
    User(to.tree).git('-c', 'core.editor=true', 'cherry-pick', '--continue')
    assert subjects(to)[3:] == ['fixup! Add letters', f'fixup! {SWAP}']


def test_carry_to_the_same_or_an_unknown_line_is_refused(line: Line, to: Line) -> None:
    with pytest.raises(SeriesError, match=r'^The change is in the tree of 1\.0\.0 already\.'):
        carry(line, line, quiet)
    assert other_line(line.root, line, None) == to
    assert refusal(other_line, line.root, line, '7.0.0') == (
        '`7.0.0` is no line besides 1.0.0.\nName the one to carry to with `--to LINE` (`ARGS="--to LINE"`); there is `1.1.0`.'
    )


def test_carry_says_what_to_do_next(
    line: Line, to: Line, user: User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(line.root)
    fixup(user, 'Add 1.0.0', {'tests/1.0.0.txt': '2\n'})
    fixup(user, SWAP, {TOOLS: SWAPPED.replace('"tools"', '"mine"')})
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    assert main(['carry', '1.0.0', '--to', '1.1.0']) == 1
    User(to.tree).git('cherry-pick', '--abort')
    user.git('reset', '--quiet', '--hard', 'HEAD~2')
    fixup(user, 'Add letters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    assert main(['carry', '1.0.0']) == 0
    assert capsys.readouterr().out == (
        'The fixups in `build/1.1.0`:\n'
        '- fixup! Add letters\n'
        '- fixup! Add 1.0.0 (left out, since there is no such patch)\n'
        'At the end, fold the fixups into their patches with `git -C build/1.1.0 rebase --interactive --autosquash refs/series/base`, '
        'and run `make extract LINE=1.1.0`.\n'
    )


def test_carry_of_a_fixup_that_fits_no_patch_is_refused(line: Line, to: Line, user: User) -> None:
    fixup(user, 'Add leters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    fixup(user, 'Nothing alike', {'tests/letters.txt': LETTERS.replace('b', 'B')})
    before = state(to)
    with pytest.raises(SeriesError) as error:
        carry(line, to, quiet)
    assert error.value.problem == (
        'The tree `build/1.0.0` has fixups whose subjects fit no patch, of either line; nothing was carried.'
    )
    assert error.value.words == 'fixup! Add leters\nfixup! Nothing alike'
    assert state(to) == before


def test_extract_of_a_fixup_that_fits_no_patch_is_refused(line: Line, user: User) -> None:
    fixup(user, 'Add leters', {'tests/letters.txt': LETTERS.replace('a', 'A')})
    with pytest.raises(SeriesError, match='`fixup! Add leters` fits no commit by its subject'):
        extract(line, quiet)
