"""Start a new line from an old one, for another release of upstream's."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from packaging.version import Version

from pydantic_ai_slim.fork.line import patch_name
from pydantic_ai_slim.fork.names import DIST_NAME, UPSTREAM_FOLDER
from series import pins, tree
from series.apply import apply_series, copy_patches
from series.base import base_repository, borrow, clone
from series.errors import ApplyError, RebaseError
from series.extract import check_patches, patched_digest, refuse_no_series
from series.folders import lock, put, scratch, sweep, write
from series.git import Git, words
from series.line import Line, find_line, pin_patched
from series.merge import AM, Attempt, Outcome, attempt, conflicts, unmerged, waiting_mails
from series.message import read_message
from series.patches import write_patches, write_series
from series.progress import Report
from series.under_way import LEFT, UnderWay

_OLD = 'refs/series/old'
"""The last commit of the old line's series, while a rebase is under way."""

_COMMAND = 'make rebase ARGS=--continue'


@dataclass(frozen=True)
class Rebased:
    """A new line, and what became of the patches of the old one."""

    line: Line
    unchanged: Sequence[str]
    changed: Sequence[str]
    dropped: Sequence[str]
    notes: Sequence[str]
    """What the user should look at."""


@dataclass(frozen=True)
class _Rebase(UnderWay):
    """A rebase that is under way to a new line, whose folder doesn't exist yet. Its tree holds all that will be in there."""

    FOLDER = Path('.git') / 'series-rebase'
    FILE = 'rebase.json'
    GO_ON = (
        f'`{_COMMAND}`; if upstream has all of it, run `make rebase ARGS=--skip`; or give up with '
        f'`make rebase ARGS=--abort`'
    )

    old: str
    """The fork's version on the old line."""
    subjects: Mapping[str, str]
    """The subjects of the old patches by their files' names, in order."""
    notes: Sequence[str]
    skipped: Sequence[str]
    """The names of the patches that the user has skipped."""
    going: Mapping[str, Any] | None
    """While git goes on with a patch that waited: its name, the tree's commit before that, and whether it is skipped."""


def rebase(line: Line, version: str, report: Report, released: date | None = None) -> Rebased:
    """Start a line on another release with the patches of a line, and finish it unless one of them conflicts.

    The patches are committed to a new tree in order, and merged where they don't apply. The first conflict waits there, as
    `git am` leaves it. Nothing but the tree is made before all patches are in it.

    Args:
        line: The line to take the patches from. Its own tree is neither used nor touched.
        version: The release for the new one.
        report: Is told of each step.
        released: The day of that release, which is asked of the index if it is left out.

    Raises:
        RebaseError: There is such a line already, or a rebase to it is under way.
        NoReleaseError: There is no such release, or it is no release of upstream's.
        DownloadError: Something can't be got from the index.
        ApplyError: A patch conflicts and waits in the tree of the new line; or a patch doesn't even apply to the old line.
        ExtractError: The commits are no series that can be applied again.
    """
    root = line.root
    _refuse_taken(root, pins.read_version(version))
    report(f'Looking for `{DIST_NAME}` {version}')
    release = pins.look_up(version)
    _refuse_taken(root, str(release.version))  # `1.27` is `1.27.0`
    release = pins.dated(release, released)
    with (
        lock(root, str(release.version), 'make rebase'),
        scratch(root, line.tree.parent, 'rebase') as folder,
    ):
        _refuse_taken(root, str(release.version))
        pinned = pins.write_pins(line, release, folder / 'state', folder, report)
        patches = copy_patches(line, folder / 'state' / 'series')
        base = base_repository(pinned.line, report, pinned.wheel, pinned.archive)
        old = apply_series(line, folder / 'old', report, patches)
        # A merge looks for the files that a patch was made on, and `extract` leaves patches be that only have others.
        for patch, written in zip(patches, write_patches(old, folder / 'written'), strict=True):
            written.replace(patch)
        report('Checking the new base out')
        git = clone(base, folder / 'tree', 'HEAD')
        git.run('update-ref', tree.BASE, 'HEAD')
        borrow(old, git)
        git.run('update-ref', _OLD, old.run('rev-parse', 'HEAD'))
        attempts = _merge_all(git, patches, report)
        (folder / 'state').rename(git.folder / _Rebase.FOLDER)
        subjects = old.lines('log', '--reverse', '--format=%s', f'{tree.BASE}..HEAD')
        kept = {
            'line': line.version,
            'subjects': dict(zip((f'{patch_name(patch)}.patch' for patch in patches), subjects, strict=True)),
            'notes': pinned.notes,
        }
        (git.folder / _Rebase.FOLDER / _Rebase.FILE).write_text(json.dumps(kept), 'utf-8')
        # All at once, so that there is either the whole of it to go on with, or nothing.
        git.folder.rename(pinned.line.tree)
    state = _read_state(pinned.line.tree)
    if attempts and attempts[-1].outcome is Outcome.CONFLICTS:
        raise _stopped(state, attempts)
    return _finish(state, report)


def continue_rebase(root: Path, version: str | None, report: Report, *, skip: bool = False) -> Rebased:
    """Go on with a rebase that stopped, and finish it unless another patch conflicts.

    Args:
        root: The checkout of this repository.
        version: The release that the new line is for; may be left out when one rebase is under way.
        report: Is told of each step.
        skip: Leave the patch that waits out. When none waits, it is those that are missing from the tree.

    Raises:
        RebaseError: None is under way; or patches of the old line are missing, and nobody has skipped them.
        ApplyError: The patch that waits isn't resolved, or another one conflicts.
        DirtyTreeError: The tree has changes that no commit holds.
        ElsewhereError: Something else than the series is checked out there.
        ExtractError: The commits are no series that can be applied again.
    """
    state = _under_way(root, version)
    with lock(root, state.line.name, _COMMAND):
        tree.mend(state.line)
        state, skip = _resume(_read_state(state.line.tree), skip)
        waiting = _waiting(state)
        if waiting is not None:
            report(f'Going on with `{waiting}`')
            if skip:
                state = _skip(state, [waiting])
            else:
                mail = waiting_mails(state.git)[0]
                state.refuse_marks(f'The patch `{waiting}`', mail, state.folder / 'series' / waiting)
            state.keep(going={'waiting': waiting, 'head': state.git.run('rev-parse', 'HEAD'), 'skip': skip})
            done = state.git.attempt('am', '--skip' if skip else '--continue')
            state.keep(going=None)
            if (now := _waiting(state)) is not None:
                if now != waiting:
                    raise _stopped(state)
                raise ApplyError(
                    f'The patch `{waiting}` waits in `{state.line.show(state.line.tree)}` and is not resolved.',
                    state.remedy(list(conflicts(state.git))),
                    words(done),
                    patch=state.folder / 'series' / waiting,
                    files=[],
                )
        elif skip:
            state = _skip(state, _missing(state))
        return _finish(state, report)


def _resume(state: _Rebase, skip: bool) -> tuple[_Rebase, bool]:
    """Finish what an earlier command was doing with the patch that waits, if it was killed while git did it.

    Returns:
        The state, and whether to skip the patch that waits now: one that the earlier command has skipped isn't the next one.

    Raises:
        ApplyError: Another patch conflicts by now.
    """
    git, going = state.git, state.going
    if not going:
        return state, skip
    git.unlock()
    waiting = _waiting(state)
    if waiting == going['waiting'] and git.run('rev-parse', 'HEAD') == going['head']:
        return state, skip
    if waiting is not None and not unmerged(git):
        # Git was in the middle of it. What it has left there is kept, in case that the user has added to it.
        if left := git.run('stash', 'create'):
            git.run('update-ref', LEFT, left)
        (folder := state.folder / 'rest').mkdir(exist_ok=True)
        rest = [shutil.copyfile(mail, folder / mail.name) for mail in waiting_mails(git)]
        git.run('am', '--quit')
        git.run('reset', '--quiet', '--hard')
        git.attempt(*AM, '--3way', *map(str, rest))
        waiting = _waiting(state)
    state.keep(going=None)
    if waiting is not None:
        raise _stopped(state)
    return state, skip and not going['skip']


def abort_rebase(root: Path, version: str | None) -> Line:
    """Remove all that a rebase has made, and return the line that there won't be.

    Raises:
        RebaseError: None is under way, or its line is there already.
    """
    state = _under_way(root, version)
    with lock(root, state.line.name, 'make rebase ARGS=--abort'):
        return _abort(state)


def _abort(state: _Rebase) -> Line:
    if state.line.folder.exists():
        raise RebaseError(
            f'The line `{state.line.name}` is there already; only `CHANGELOG.md` may lack it.',
            f'Run `{_COMMAND}` for the rest. To be rid of the line, delete '
            f'{", ".join(f"`{state.line.show(path)}`" for path in (state.line.folder, pins.build_folder(state.line), state.line.tree))}.',
        )
    if pins.build_folder(state.line).exists():
        shutil.rmtree(pins.build_folder(state.line))
    # In one step: what is left when this is interrupted must not pass for a rebase that can go on.
    with scratch(state.line.root, state.line.tree.parent, 'rebase') as folder:
        state.line.tree.rename(folder / state.line.name)
    return state.line


def _refuse_taken(root: Path, version: str) -> None:
    """Refuse a line that is there already, or half of it."""
    line, folder, made = (
        root / path for path in (f'patches/{version}', f'build/{version}', f'pydantic_ai_slim/{version}')
    )
    show = f'build/{version}'
    if _Rebase.is_in(folder):
        raise RebaseError(
            f'A rebase to {version} is under way in `{show}`.',
            f'Go on with `{_COMMAND}`, or give it up with `make rebase ARGS=--abort`.',
        )
    if line.exists():
        raise RebaseError(
            f'There is a line `{version}` already: `patches/{version}`.',
            f'Work on it with `make apply LINE={version}`; to begin it anew, delete that folder, `pydantic_ai_slim/{version}` '
            f'and `{show}` first.',
        )
    for path in (folder, made):
        if path.exists():
            raise RebaseError(
                f'The folder `{path.relative_to(root)}` is in the way: there is no line `{version}`, but it will be made there.',
                'Move it away if you need it, delete it if not, then run the same command again.',
            )


# The patches


def _merge_all(git: Git, patches: Sequence[Path], report: Report) -> list[Attempt]:
    """Commit patches in order; of the first that conflicts an `am` begins, with those after it."""
    attempts: list[Attempt] = []
    for number, patch in enumerate(patches):
        report(f'Applying `{patch_name(patch)}`', number, len(patches))
        attempts.append(made := attempt(git, patch))
        if made.outcome is Outcome.CONFLICTS:
            git.attempt(*AM, '--3way', *(str(rest.resolve()) for rest in patches[number:]))
            break
    return attempts


def _stopped(state: _Rebase, attempts: Sequence[Attempt] = ()) -> ApplyError:
    """Make the error of a patch that waits in the tree."""
    waiting = _waiting(state) or [*state.subjects][len(attempts) - 1]
    git, line = state.git, state.line
    places = list(conflicts(git))
    count = len(git.lines('rev-list', f'{tree.BASE}..HEAD'))
    merged = sum(made.outcome is Outcome.MERGES for made in attempts)
    stand = f'{count} of {len(state.subjects)} patches are in the tree' + (
        f', {merged} of them merged.' if merged else '.'
    )
    listed = '\n'.join(places) or (attempts[-1].words if attempts else '')
    return ApplyError(
        f'The patch `{waiting}` of {state.old} conflicts with `{DIST_NAME}` {line.name}. {stand}',
        state.remedy(places),
        listed,
        patch=state.folder / 'series' / waiting,
        files=sorted({re.sub(r':[\d, ]+$| \(.*\)$', '', place) for place in places}),
    )


def _waiting(state: _Rebase) -> str | None:
    """Return the name of the patch that an `am` in the tree stopped at, or `None`.

    The user may have given `git am` another set of patches, so it is looked for by its subject.
    """
    mails = waiting_mails(state.git)
    if not mails:
        return None
    subject = read_message(mails[0]).subject
    return next((name for name, known in state.subjects.items() if known == subject), subject)


def _missing(state: _Rebase) -> list[str]:
    """Return the names of the old patches that are in no commit of the tree, and that nobody has skipped."""
    present = set(state.git.lines('log', '--format=%s', f'{tree.BASE}..HEAD'))
    return [name for name, subject in state.subjects.items() if subject not in present and name not in state.skipped]


# What is kept while a rebase is under way


def _under_way(root: Path, version: str | None) -> _Rebase:
    """Find the rebase that is under way.

    Raises:
        RebaseError: There is none, or there are several and none is named.
    """
    found = sorted(
        path.parents[2] for path in (root / 'build').glob(f'{version or "*"}/{_Rebase.FOLDER}/{_Rebase.FILE}')
    )
    if not found:
        sweep(root)  # the last one may have been killed while it was given up
        raise RebaseError(
            f'No rebase{f" to {version}" if version else ""} is under way.',
            'Start one with `make rebase LINE=... ONTO=...`.',
        )
    if len(found) > 1:
        raise RebaseError(
            f'Several rebases are under way: {", ".join(f"`build/{path.name}`" for path in found)}.',
            'Name one with `ONTO=...`.',
        )
    return _read_state(found[0])


def _read_state(folder: Path) -> _Rebase:
    kept = _Rebase.kept_in(folder)
    return _Rebase(
        line=Line.load(folder / _Rebase.FOLDER / folder.name, folder=folder.parent.parent / 'patches' / folder.name),
        old=kept['line'],
        subjects=kept['subjects'],
        notes=kept['notes'],
        skipped=kept.get('skipped', []),
        going=kept.get('going'),
    )


def _skip(state: _Rebase, names: Iterable[str]) -> _Rebase:
    """Remember that patches are left out."""
    state.keep(skipped=[*state.skipped, *names])
    return _read_state(state.line.tree)


# The end


def _finish(state: _Rebase, report: Report) -> Rebased:
    """Make the new line of the commits in its tree.

    The line's folder is created in one step. What is written before and after that is the same each time, so this can
    be interrupted anywhere and run again.
    """
    line, git = state.line, state.git
    if not line.folder.exists():
        _refuse_missing(state)
        tree.refuse_unfinished(line, _COMMAND)
        tree.refuse_dirty(line)
        tree.refuse_elsewhere(line, _COMMAND)
        if git.lines('rev-list', f'{tree.BASE}..HEAD'):
            refuse_no_series(line, _COMMAND, [state.folder / 'series' / name for name in state.subjects])
        with scratch(line.root, line.folder.parent, 'rebase') as temporary:
            report('Writing the patches')
            folder = temporary / line.name
            shutil.copytree(state.folder / line.name, folder)
            write(folder / 'line.toml', pin_patched((folder / 'line.toml').read_text('utf-8'), patched_digest(git)))
            before = {subject: name for name, subject in state.subjects.items()}
            patches = write_series(git, temporary / 'written', before, state.folder / 'series' / 'series')
            report('Applying what was written')
            check_patches(line, patches, temporary / 'check', _COMMAND)
            shutil.copytree(temporary / 'written', folder, dirs_exist_ok=True)
            _write_build(state, temporary / 'build')
            folder.rename(line.folder)
    made = find_line(line.root, line.name)
    rebased = _compare(state, made)
    changelog = line.root / 'CHANGELOG.md'
    if changelog.exists():
        text = changelog.read_text('utf-8')
        if (changed := _changelog(text, state, rebased)) != text:
            write(changelog, changed)
    tree.record(git, made.patches_digest())
    state.end()
    git.run('update-ref', '-d', _OLD)
    return rebased


def _refuse_missing(state: _Rebase) -> None:
    """Refuse to finish while patches are missing that are not in the base, as after `git am --abort`."""
    missing = _missing(state)
    if not missing:
        return
    with scratch(state.line.root, state.line.tree.parent, 'rebase') as folder:
        git = clone(state.line.tree, folder / 'tree', 'HEAD')
        missing = [
            patch for patch in missing if attempt(git, state.folder / 'series' / patch).outcome is not Outcome.CONTAINED
        ]
    if missing:
        folder = state.line.show(state.line.tree)
        first = (_Rebase.FOLDER / 'series' / missing[0]).as_posix()
        raise RebaseError(
            f'The tree `{folder}` is without {", ".join(f"`{patch}`" for patch in missing)} of {state.old}.',
            f'Apply what is missing with `git -C {folder} am --3way {first}` and the like, and run `{_COMMAND}`; or leave it '
            f'out with `make rebase ARGS=--skip`.',
        )


def _write_build(state: _Rebase, temporary: Path) -> None:
    """Put the folder of the build into its place, instead of what an interrupted attempt has left there."""
    target = pins.build_folder(state.line)
    shutil.copytree(state.folder / 'build', temporary)
    target.parent.mkdir(exist_ok=True)
    put(temporary, target)


def _compare(state: _Rebase, made: Line) -> Rebased:
    """Say what became of each patch."""
    git = state.git
    old = git.lines('rev-list', f'--max-count={len(state.subjects)}', _OLD)[::-1]
    subjects = git.lines('log', '--reverse', '--format=%s', f'{tree.BASE}..HEAD')
    new = dict(zip(subjects, git.lines('rev-list', '--reverse', f'{tree.BASE}..HEAD'), strict=True))
    unchanged: list[str] = []
    changed: list[str] = []
    notes: list[str] = []
    for (name, subject), commit in zip(state.subjects.items(), old, strict=True):
        if subject not in new:
            continue
        before, after = _changes(git, commit), _changes(git, new[subject])
        (unchanged if before == after else changed).append(name)
        if any(_PACKAGE in line for line in before) and not any(_PACKAGE in line for line in after):
            notes.append(
                f'`{subject}` changes nothing in the package any more. If the base has its tests too, drop it.'
            )
    dropped = [name for name, subject in state.subjects.items() if subject not in new]
    return Rebased(made, unchanged, changed, dropped, [*notes, *state.notes])


_PACKAGE = f'+++ b/{UPSTREAM_FOLDER}/'


def _changes(git: Git, commit: str) -> list[str]:
    """Return the lines that a commit adds and removes in each file, wherever they are and whatever is around them."""
    options = (
        '-p',
        '--unified=0',
        '--no-color',
        '--no-ext-diff',
        '--no-textconv',
        '--src-prefix=a/',
        '--dst-prefix=b/',
    )
    return [line for line in git.lines('diff-tree', *options, commit) if line.startswith(('+', '-', 'Binary '))]


def _changelog(text: str, state: _Rebase, rebased: Rebased) -> str:
    """Add the new line to the changelog, in front of the older ones."""
    line = rebased.line
    if re.search(rf'(?m)^## {re.escape(line.name)}$', text):
        return text
    entry = f'## {line.name}\n\n### {line.version}\n\n- What {state.old} has, on pydantic-ai {line.name}.\n'
    if rebased.dropped:
        left = '; '.join(state.subjects[name] for name in rebased.dropped)
        entry += f'- Left out: {left}.\n'
    for heading in re.finditer(r'(?m)^## (\d[\w.]*)$', text):
        if Version(heading[1]) < Version(line.name):
            return f'{text[: heading.start()]}{entry}\n{text[heading.start() :]}'
    return f'{text.rstrip()}\n\n{entry}'
