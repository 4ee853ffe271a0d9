"""Bring a change from the tree of one line to that of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from series import tree
from series.base import borrow
from series.errors import GitError, SeriesError, quoted
from series.folders import lock
from series.git import Git, words
from series.line import Line, find_lines
from series.merge import index_conflicts, stopped
from series.message import patch_subject
from series.progress import Report

_PICK = ('cherry-pick', '--no-gpg-sign')


@dataclass(frozen=True)
class Carried:
    """What became of the fixups of a tree in another one."""

    line: Line
    """The line that they were carried to."""
    carried: Sequence[str]
    """The subjects of those that it has now."""
    contained: Sequence[str]
    """Those of which it had everything already."""
    foreign: Sequence[str]
    """Those of patches that the line doesn't have."""


def carry(line: Line, to: Line, report: Report) -> Carried:
    """Cherry-pick the fixups that stand in the tree of a line to the tree of another one, where they fix the patches of the same subjects.

    The first one that conflicts waits there, as git leaves it, and those after it wait for that: `git cherry-pick` goes on,
    skips it, or gives up. What is in the other tree already isn't carried again, so the command can be repeated.

    Args:
        line: The line that the change is from. Its tree isn't touched.
        to: The line that gets it.
    """
    if line.name == to.name:
        raise SeriesError(
            f'The change is in the tree of {line.name} already.',
            'Name another line with `--to LINE` (`ARGS="--to LINE"`).',
        )
    command = line.make('carry')
    with lock(line.root, line.name, command), lock(to.root, to.name, command):
        for each in (line, to):
            tree.refuse_unready(each, command)
        source, git = Git(line.tree), Git(to.tree)
        fixups = _fixups(line)
        own, known = _patches(source), _patches(git)
        _refuse_unknown([*fixups.values()], own | known, line)
        picked = {commit: subject for commit, subject in fixups.items() if patch_subject(subject) in known}
        report(f'Carrying {len(picked)} fixups to {to.name}')
        # So that there is something to merge: the fixups, and what they were made on.
        borrow(source, git)
        before = git.run('rev-parse', 'HEAD')
        if picked:
            _pick(git, [*picked], line, to)
        carried = git.lines('log', '--reverse', '--format=%s', f'{before}..HEAD')
        contained = Counter(picked.values()) - Counter(carried)
        foreign = [subject for subject in fixups.values() if patch_subject(subject) not in known]
        return Carried(to, carried, [*contained.elements()], foreign)


def _patches(git: Git) -> set[str]:
    """Return the subjects of the patches in a tree."""
    subjects = git.lines('log', '--format=%s', f'{tree.BASE}..HEAD')
    return {subject for subject in subjects if patch_subject(subject) == subject}


def _pick(git: Git, commits: Sequence[str], line: Line, to: Line) -> None:
    """Cherry-pick commits, without those that change nothing here."""
    before = git.run('rev-parse', 'HEAD')
    git.run('update-ref', tree.CARRYING, before)
    done = git.attempt(*_PICK, *commits)
    while done.returncode and git.holds('CHERRY_PICK_HEAD'):
        # Tests and pages that this line leaves to the other one
        if missing := [entry[3:] for entry in git.lines('status', '--porcelain') if entry.startswith('DU ')]:
            git.run('rm', '--quiet', '--', *missing)
        if index_conflicts(git):
            break
        how = '--continue' if git.attempt('diff', '--quiet', 'HEAD').returncode else '--skip'
        done = git.attempt('cherry-pick', how)
    if done.returncode and not index_conflicts(git):
        tree.recover(to)
        raise GitError([*_PICK, *commits], git.folder, done.returncode, words(done))
    git.run('update-ref', '-d', tree.CARRYING)
    if done.returncode:
        folder, count = to.show(to.tree), len(git.lines('rev-list', f'{before}..HEAD'))
        go_on = (
            f'`git -C {folder} cherry-pick --continue`; leave it out with `git -C {folder} cherry-pick --skip`; or give all of it '
            f'up with `git -C {folder} cherry-pick --abort`. {_fold(to)}'
        )
        problem = (
            f'`{git.run("log", "-1", "--format=%s", "CHERRY_PICK_HEAD")}` of {line.name} conflicts with the tree `{folder}`. '
            f'{count} of {len(commits)} fixups are in the tree.'
        )
        raise stopped(git, to, problem, go_on, to.tree)


def _fold(line: Line) -> str:
    return (
        f'At the end, fold the fixups into their patches with `git -C {line.show(line.tree)} rebase --interactive --autosquash '
        f'{tree.BASE}`, and run `{line.make("extract")}`'
    )


def show_carried(carried: Carried) -> str:
    """Say what became of fixups, and what to do next."""
    listed = [
        f'- {subject}{what}'
        for subjects, what in (
            (carried.carried, ''),
            (carried.contained, ' (nothing of it was missing)'),
            (carried.foreign, ' (left out, since there is no such patch)'),
        )
        for subject in subjects
    ]
    todo = [f'{_fold(carried.line)}.'] if carried.carried else []
    return '\n'.join([f'The fixups in `{carried.line.show(carried.line.tree)}`:', *listed, *todo])


def _refuse_unknown(fixups: Sequence[str], known: Collection[str], line: Line) -> None:
    """Refuse fixups that no rebase will fold in, as no patch has their subject."""
    wrong = [subject for subject in fixups if patch_subject(subject) not in known]
    if wrong:
        folder = line.show(line.tree)
        raise SeriesError(
            f'The tree `{folder}` has fixups whose subjects fit no patch, of either line; nothing was carried.',
            f'Correct each with `git -C {folder} rebase --interactive {tree.BASE}` and `reword`, then run `{line.make("carry")}` again.',
            '\n'.join(wrong),
        )


def other_line(root: Path, line: Line, to: str | None) -> Line:
    """Return the line that a change goes to: the named one, or the only other one."""
    lines = [other for other in find_lines(root) if other.name != line.name]
    others = [other for other in lines if to in (None, other.name)]
    if len(others) == 1:
        return others[0]
    names = quoted(other.name for other in lines) or 'none'
    raise SeriesError(
        f'{f"`{to}` is no line" if to else "There is not one line"} besides {line.name}.',
        f'Name the one to carry to with `--to LINE` (`ARGS="--to LINE"`); there is {names}.',
    )


def _fixups(line: Line) -> dict[str, str]:
    """Return the commits of a tree that wait to be folded into a patch, with their subjects, in order."""
    git, folder = Git(line.tree), line.show(line.tree)
    commits = [entry.split(' ', 1) for entry in git.lines('log', '--reverse', '--format=%H %s', f'{tree.BASE}..HEAD')]
    fixups = {
        commit: subject
        for commit, subject in commits
        if patch_subject(subject) != subject and git.attempt('diff', '--quiet', f'{commit}^', commit).returncode
    }
    if not fixups:
        raise SeriesError(
            f'There is nothing to carry: the tree `{folder}` has no fixups.',
            f'Commit the change with `git -C {folder} commit --fixup COMMIT`, where COMMIT is that of the patch, and run '
            f'`{line.make("carry")}` before you fold it in with `git rebase --autosquash`.',
        )
    return fixups
