"""Bring a change from the tree of one line to that of another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from series import tree
from series.base import borrow, clone
from series.errors import ApplyError, CarryError
from series.folders import lock, scratch, sweep, write
from series.git import Git, words
from series.line import Line, find_lines
from series.merge import AM, Outcome, attempt, conflicts, unmerged, waiting_mails
from series.message import nearest_patch, patch_subject, read_message
from series.patches import write_patches
from series.progress import Report
from series.under_way import LEFT, UnderWay

_COMMAND = 'make carry ARGS=--continue'


@dataclass(frozen=True)
class Carried:
    """What became of the fixups of a tree in another one."""

    line: Line
    """The line that they were carried to."""
    carried: Sequence[str]
    """The subjects of those that it has now."""
    contained: Sequence[str]
    """Those of which it had everything already."""
    skipped: Sequence[str]
    """Those that the user has left out."""
    foreign: Sequence[str]
    """Those of patches that the line doesn't have."""


@dataclass(frozen=True)
class _Carry(UnderWay):
    """A carry that is under way to the tree of a line. It holds the mails of the fixups that wait."""

    FOLDER = Path('.git') / 'series-carry'
    FILE = 'carry.json'
    GO_ON = (
        f'`{_COMMAND}`; leave it out with `make carry ARGS=--skip`; or give all of it up with `make carry ARGS=--abort`'
    )

    source: str
    """The name of the line that the change is from."""
    before: str
    """The tree's commit before anything was carried."""
    at: str
    """The tree's commit when the fixup that waits was begun."""
    waiting: Sequence[str]
    """The names of the fixups that aren't carried yet; the first one may wait in the tree."""
    moving: bool
    """Whether a command is moving the tree to that commit, or beginning with the fixup, so that either may be there in part."""
    done: dict[str, list[str]]
    """The subjects of the others, by what became of them: the names of `Carried`."""

    def subject(self, name: str) -> str:
        return read_message(self.folder / name).subject

    def note(self, **changes: Any) -> _Carry:
        """Keep what has changed, and return it all."""
        self.keep(**changes)
        return _read_state(self.line)


def carry(line: Line, to: Line, report: Report) -> Carried:
    """Commit the fixups that stand in the tree of a line to the tree of another one, where they fix the patches of the same subjects.

    They are merged in a folder that is thrown away, and then the tree moves on to them in one step. The first one that
    conflicts waits in the tree, as `git am` leaves it, and those after it wait for that.

    Args:
        line: The line that the change is from. Its tree isn't touched.
        to: The line that gets it.
        report: Is told of each step.

    Raises:
        CarryError: There is nothing to carry, a carry is under way, or it is the same line.
        NoTreeError: One of the lines has no tree.
        UnfinishedError: One of the trees is in the middle of an `am`, a rebase or the like.
        DirtyTreeError: One of the trees has changes that no commit holds.
        ElsewhereError: Something else than the series is checked out in one of them.
        ApplyError: A fixup conflicts and waits in the tree.
    """
    if line.name == to.name:
        raise CarryError(
            f'The change is in the tree of {line.name} already.',
            'Name another line with `--to LINE` (`ARGS="--to LINE"`).',
        )
    command = line.make('carry')
    with (
        lock(line.root, line.name, command),
        lock(to.root, to.name, command),
        scratch(to.root, to.tree.parent, 'carry') as folder,
    ):
        if _Carry.is_in(to.tree):
            return _go_on(_restore(_read_killed(line, to)), folder, report)
        for each in (line, to):
            tree.refuse_missing(each)
            tree.mend(each)
            tree.refuse_unfinished(each, command)
            tree.refuse_dirty(each)
            tree.refuse_elsewhere(each, command)
        source, git = Git(line.tree), Git(to.tree)
        fixups = _fixups(line)
        own, known = (
            {
                subject
                for subject in each.lines('log', '--format=%s', f'{tree.BASE}..HEAD')
                if patch_subject(subject) == subject
            }
            for each in (source, git)
        )
        _refuse_unknown([subject for _, subject in fixups], own | known, line)
        (mails := folder / 'state').mkdir()
        foreign: list[str] = []
        waiting: list[str] = []
        for number, (commit, subject) in enumerate(fixups, 1):
            if patch_subject(subject) not in known:
                foreign.append(subject)
                continue
            (mail,) = write_patches(source, folder / commit, f'{commit}^!')
            waiting.append(shutil.copyfile(mail, mails / f'{number:04}{mail.name[4:]}').name)
        # So that a fixup can be merged from the files that it was made on.
        borrow(source, git)
        head = git.run('rev-parse', 'HEAD')
        state = _Carry(to, line.name, head, head, waiting, True, {'foreign': foreign})
        write(mails / _Carry.FILE, json.dumps({name: value for name, value in vars(state).items() if name != 'line'}))
        if state.folder.exists():  # of a carry that ended while it was being removed
            shutil.rmtree(state.folder)
        mails.rename(state.folder)
        return _go_on(state, folder, report)


def continue_carry(root: Path, to: str | None, report: Report, *, skip: bool = False) -> Carried:
    """Go on with a carry that stopped.

    Args:
        root: The checkout of this repository.
        to: The name of the line that the change goes to; may be left out when one carry is under way.
        report: Is told of each step.
        skip: Leave the fixup that waits out.

    Raises:
        CarryError: None is under way.
        ApplyError: The fixup that waits isn't resolved, or another one conflicts.
        DirtyTreeError: The tree has changes that no commit holds.
        ElsewhereError: Something else than the series is checked out there.
    """
    line = _under_way(root, to).line
    with lock(root, line.name, _COMMAND), scratch(root, line.tree.parent, 'carry') as folder:
        state = _under_way(root, line.name)
        if state.moving:
            if not _conflicts(state):
                return _go_on(_restore(state), folder, report)
            state = state.note(moving=False)
        if _waits(state):
            name = state.waiting[0]
            report(f'Going on with `{state.subject(name)}`')
            if not skip:
                mail = state.folder / name
                state.refuse_marks(f'`{state.subject(name)}`', mail, mail)
            done = state.git.attempt('am', '--skip' if skip else '--continue')
            if done.returncode:
                raise _unresolved(state, words(done))
        tree.refuse_unfinished(line, _COMMAND)
        tree.refuse_dirty(line)
        tree.refuse_elsewhere(line, _COMMAND)
        if state.waiting:
            moved = state.git.run('rev-parse', 'HEAD') != state.at
            if moved or skip:
                state = _put(state, 'carried' if moved else 'skipped')
            else:
                raise CarryError(
                    f'The fixup `{state.subject(state.waiting[0])}` is not in the tree `{line.show(line.tree)}`, and does not '
                    f'wait there any more.',
                    'Leave it out with `make carry ARGS=--skip`, or give up with `make carry ARGS=--abort`.',
                )
        return _go_on(state, folder, report)


def abort_carry(root: Path, to: str | None) -> Line:
    """Put a tree back to where it was before a carry, and return its line.

    Raises:
        CarryError: None is under way.
    """
    line = _under_way(root, to).line
    with lock(root, line.name, 'make carry ARGS=--abort'):
        state = _under_way(root, line.name)
        state.git.unlock()
        if tree.unfinished(state.git):
            state.git.attempt('am', '--quit')
        state.git.run('checkout', '--quiet', '--force', '-B', tree.BRANCH, state.before)
        state.end()
    return line


def _refuse_unknown(fixups: Sequence[str], known: Collection[str], line: Line) -> None:
    """Refuse fixups that no rebase will fold in, as no patch has their subject.

    Raises:
        CarryError: There are some; all of them are named.
    """
    wrong = [subject for subject in fixups if patch_subject(subject) not in known]
    if wrong:
        listed = [f'{subject}{nearest_patch(subject, known)}' for subject in wrong]
        folder = line.show(line.tree)
        raise CarryError(
            f'The tree `{folder}` has fixups whose subjects fit no patch, of either line; nothing was carried.',
            f'Correct each with `git -C {folder} rebase --interactive {tree.BASE}` and `reword`, then run `{line.make("carry")}` again.',
            '\n'.join(listed),
        )


def other_line(root: Path, line: Line, to: str | None) -> Line:
    """Return the line that a change goes to: the named one, or the only other one.

    Raises:
        CarryError: There is no such line, or there are several.
    """
    others = [other for other in find_lines(root) if other.name != line.name and to in (None, other.name)]
    if len(others) == 1:
        return others[0]
    names = ', '.join(f'`{other.name}`' for other in find_lines(root) if other.name != line.name)
    what = (
        f'`{to}` is no line besides {line.name}.'
        if to
        else f'{line.name} has {"several" if others else "no"} lines beside it.'
    )
    raise CarryError(
        what, f'Name one of {names} with `--to LINE` (`ARGS="--to LINE"`).' if names else 'There is none to carry to.'
    )


def _fixups(line: Line) -> list[tuple[str, str]]:
    """Return the commits of a tree that wait to be folded into a patch, with their subjects, in order.

    Raises:
        CarryError: There is none.
    """
    git, folder = Git(line.tree), line.show(line.tree)
    commits = [entry.split(' ', 1) for entry in git.lines('log', '--reverse', '--format=%H %s', f'{tree.BASE}..HEAD')]
    fixups = [
        (commit, subject)
        for commit, subject in commits
        # Git refuses a mail that changes nothing.
        if patch_subject(subject) != subject and git.attempt('diff', '--quiet', f'{commit}^', commit).returncode
    ]
    if not fixups:
        raise CarryError(
            f'There is nothing to carry: the tree `{folder}` has no fixups.',
            f'Commit the change with `git -C {folder} commit --fixup COMMIT`, where COMMIT is that of the patch, and run '
            f'`{line.make("carry")}` before you fold it in with `git rebase --autosquash`.',
        )
    return fixups


def _go_on(state: _Carry, folder: Path, report: Report) -> Carried:
    """Carry what waits, up to the first fixup that conflicts."""
    merged = clone(state.line.tree, folder / 'tree', 'HEAD')
    git, head = state.git, merged.run('rev-parse', 'HEAD')
    done = {name: list(subjects) for name, subjects in state.done.items()}
    waiting = list(state.waiting)
    stopped = False
    while waiting and not stopped:
        subject = state.subject(waiting[0])
        report(f'Carrying `{subject}`')
        outcome = attempt(merged, state.folder / waiting[0]).outcome
        if not (stopped := outcome is Outcome.CONFLICTS):
            done.setdefault('contained' if outcome is Outcome.CONTAINED else 'carried', []).append(subject)
            waiting.pop(0)
    borrow(merged, git)
    state = state.note(done=done, waiting=waiting, at=merged.run('rev-parse', 'HEAD'), moving=True)
    if state.at != head:
        git.run('checkout', '--quiet', '-B', tree.BRANCH, state.at)
    if stopped:
        raise _stop(state)
    state.end()
    return Carried(state.line, *(tuple(done.get(name, ())) for name in ('carried', 'contained', 'skipped', 'foreign')))


def _stop(state: _Carry) -> ApplyError:
    """Begin with the fixup that conflicts in the tree itself, and make the error that says so."""
    done = state.git.attempt(*AM, '--3way', str(state.folder / state.waiting[0]))
    return _unresolved(state.note(moving=False), words(done))


def _unresolved(state: _Carry, said: str = '') -> ApplyError:
    """Make the error of a fixup that waits in the tree."""
    git, line, name = state.git, state.line, state.waiting[0]
    places = list(conflicts(git))
    count, left = len(state.done.get('carried', ())), len(state.waiting) - 1
    stand = f'{count} {"fixup is" if count == 1 else "fixups are"} in the tree, {left} {"waits" if left == 1 else "wait"} after it.'
    return ApplyError(
        f'`{state.subject(name)}` of {state.source} conflicts with the tree `{line.show(line.tree)}`. {stand}',
        state.remedy(places),
        '\n'.join(places) or said,
        patch=state.folder / name,
        files=sorted(unmerged(git)),
    )


def _waits(state: _Carry) -> bool:
    """Say whether the first of the fixups that wait is the one that an `am` in the tree stopped at."""
    mails = waiting_mails(state.git)
    if not state.waiting or not mails:
        return False
    return read_message(mails[0]).subject == state.subject(state.waiting[0])


def _restore(state: _Carry) -> _Carry:
    """Put the tree to where a command that was killed was moving it."""
    git = state.git
    git.unlock()
    if tree.unfinished(git):
        git.run('am', '--quit')
    # In case that the user has added to it.
    left = git.attempt('stash', 'create').stdout.decode().strip()
    if left:
        git.run('update-ref', LEFT, left)
    git.run('checkout', '--quiet', '--force', '-B', tree.BRANCH, state.at)
    return state


def _put(state: _Carry, outcome: str) -> _Carry:
    """Note what became of the fixup that waited."""
    name, *rest = state.waiting
    done = state.done | {outcome: [*state.done.get(outcome, ()), state.subject(name)]}
    return state.note(done=done, waiting=rest, at=state.git.run('rev-parse', 'HEAD'))


def _conflicts(state: _Carry) -> bool:
    """Say whether git has come to the conflict of the fixup that waits, which the user may be resolving."""
    return _waits(state) and bool(unmerged(state.git))


def _read_killed(line: Line, to: Line) -> _Carry:
    """Return the carry between two lines that was killed while it moved the tree, for the same command to go on with.

    Raises:
        CarryError: A carry waits for the user, or is from another line.
        ApplyError: The fixup was in the tree already, and conflicts.
    """
    state = _read_state(to)
    if state.moving and state.source == line.name:
        if _conflicts(state):
            raise _unresolved(state.note(moving=False))
        return state
    raise CarryError(
        f'A carry from {state.source} to {to.name} is under way in `{to.show(to.tree)}`.',
        f'Go on with `{_COMMAND}`, or give it up with `make carry ARGS=--abort`.',
    )


def _under_way(root: Path, to: str | None) -> _Carry:
    """Find the carry that is under way.

    Raises:
        CarryError: There is none, or there are several and none is named.
    """
    found = [line for line in find_lines(root) if to in (None, line.name) and _Carry.is_in(line.tree)]
    if not found:
        sweep(root)
        raise CarryError(f'No carry{f" to {to}" if to else ""} is under way.', 'Start one with `make carry LINE=...`.')
    if len(found) > 1:
        names = ', '.join(f'`{line.name}`' for line in found)
        raise CarryError(f'Carries to several lines are under way: {names}.', 'Name one with `ARGS="... --to LINE"`.')
    (line,) = found
    return _read_state(line)


def _read_state(line: Line) -> _Carry:
    return _Carry(line, **_Carry.kept_in(line.tree))
