"""Start a new line from an old one, for another release of upstream's."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from pydantic_ai_slim.fork.line import patch_name
from pydantic_ai_slim.fork.names import DIST_NAME
from series import pins, tree
from series.base import base_repository, borrow, clone
from series.errors import ApplyError, GitError, SeriesError, quoted
from series.folders import lock, replace_dir, scratch, sweep, write
from series.git import Git, words
from series.index import find_release
from series.line import Line, digest_patches, find_line, pin_patched
from series.merge import index_conflicts, stopped
from series.patches import write_series
from series.progress import Report
from series.verbs.apply import apply_series, copy_patches
from series.verbs.extract import check_patches, patched_digest, refuse_no_series

_OLD = 'refs/series/old'
"""The last commit of the old line's series, while a rebase is under way."""

_OLD_BASE = 'refs/series/old-base'

_REBASE = (
    *('rebase', '--quiet', '--committer-date-is-author-date', '--no-gpg-sign'),
    *('--onto', tree.BASE, _OLD_BASE, tree.BRANCH),
)

_COMMAND = 'make rebase ARGS=--continue'

_FOLDER = Path('.git') / 'series-rebase'
"""Where in the new tree all is that its line will have."""

_FILE = _FOLDER / 'rebase.json'


@dataclass(frozen=True)
class Rebased:
    """A new line, and what became of the patches of the old one."""

    line: Line
    dropped: Sequence[str]
    """The patches that it doesn't have."""
    notes: Sequence[str]
    """What the user should look at."""


@dataclass(frozen=True)
class _Rebase:
    """A rebase that is under way to a new line, whose folder doesn't exist yet. Its tree holds all that will be in there."""

    line: Line
    old: str
    """The fork's version on the old line."""
    subjects: Mapping[str, str]
    """The subjects of the old patches by their files' names, in order."""
    notes: Sequence[str]

    @property
    def folder(self) -> Path:
        return self.line.tree / _FOLDER

    @property
    def git(self) -> Git:
        return Git(self.line.tree)


def rebase(line: Line, version: str, report: Report) -> Rebased:
    """Start a line on another release with the patches of a line, and finish it unless one of them conflicts.

    `git rebase --onto` moves the patches to the new base, in a new tree. The first conflict waits there, as git leaves it.
    Nothing but the tree is made before all patches are in it.

    Args:
        line: The line to take the patches from. Its own tree is neither used nor touched.
        version: The release for the new one.
    """
    root = line.root
    _refuse_taken(root, pins.read_version(version))
    report(f'Looking for `{DIST_NAME}` {version}')
    release = find_release(f'{DIST_NAME}==={version}')
    _refuse_taken(root, str(release.version))  # `1.27` is `1.27.0`
    with (
        lock(root, str(release.version), 'make rebase'),
        scratch(root, line.tree.parent, 'rebase') as folder,
    ):
        _refuse_taken(root, str(release.version))
        pinned = pins.write_pins(line, release, folder / 'state', folder, report)
        patches = copy_patches(line, folder / 'state' / 'series')
        base = base_repository(pinned.line, report, pinned.wheel, pinned.archive)
        old = apply_series(line, folder / 'old', report, patches)
        report('Checking the new base out')
        git = clone(base, folder / 'tree', 'HEAD')
        borrow(old, git)
        git.run('update-ref', _OLD, old.run('rev-parse', 'HEAD'))
        git.run('update-ref', _OLD_BASE, old.run('rev-parse', tree.BASE))
        subjects = old.lines('log', '--reverse', '--format=%s', f'{tree.BASE}..HEAD')
        kept = {
            'old': line.version,
            'subjects': dict(zip((f'{patch_name(patch)}.patch' for patch in patches), subjects, strict=True)),
            'notes': pinned.notes,
        }
        (folder / 'state').rename(git.folder / _FOLDER)
        (git.folder / _FILE).write_text(json.dumps(kept), 'utf-8')
        report(f'Rebasing {len(patches)} patches')
        # So that git needn't check the old base out.
        git.run('checkout', '--quiet', '--detach')
        git.run('update-ref', f'refs/heads/{tree.BRANCH}', _OLD)
        done = git.attempt(*_REBASE)
        if done.returncode and not index_conflicts(git):
            raise GitError(_REBASE, git.folder, done.returncode, words(done))
        # All at once, so that there is either the whole of it to go on with, or nothing.
        git.folder.rename(pinned.line.tree)
    state = _read_state(pinned.line.tree)
    if done.returncode:
        raise _stopped(state)
    return _finish(state, report)


def finish_rebase(root: Path, version: str | None, report: Report) -> Rebased:
    """Make the line when git has come to the end of its rebase.

    Args:
        version: The release that the new line is for; may be left out when one rebase is under way.
    """
    state = _under_way(root, version)
    with lock(root, state.line.name, _COMMAND):
        tree.recover(state.line)
        return _finish(_read_state(state.line.tree), report)


def abort_rebase(root: Path, version: str | None) -> Line:
    """Remove all that a rebase has made, and return the line that there won't be."""
    line = _under_way(root, version).line
    with lock(root, line.name, 'make rebase ARGS=--abort'):
        if line.folder.exists():
            made = quoted(map(line.show, (line.folder, pins.build_folder(line), line.tree)))
            raise SeriesError(
                f'The line `{line.name}` is there already; only `CHANGELOG.md` may lack it.',
                f'Run `{_COMMAND}` for the rest. To be rid of the line, delete {made}.',
            )
        if pins.build_folder(line).exists():
            shutil.rmtree(pins.build_folder(line))
        # In one step: what is left when this is interrupted must not pass for a rebase that can go on.
        with scratch(root, line.tree.parent, 'rebase') as folder:
            line.tree.rename(folder / line.name)
        return line


def _refuse_taken(root: Path, version: str) -> None:
    """Refuse a line that is there already, or half of it."""
    line, folder, made = (
        root / path for path in (f'patches/{version}', f'build/{version}', f'pydantic_ai_slim/{version}')
    )
    show = f'build/{version}'
    if (folder / _FILE).exists():
        raise SeriesError(
            f'A rebase to {version} is under way in `{show}`.',
            f'Go on with `{_COMMAND}`, or give it up with `make rebase ARGS=--abort`.',
        )
    if line.exists():
        raise SeriesError(
            f'There is a line `{version}` already: `patches/{version}`.',
            f'Work on it with `make apply LINE={version}`; to start over, delete that folder, `pydantic_ai_slim/{version}` '
            f'and `{show}` first.',
        )
    for path in (folder, made):
        if path.exists():
            raise SeriesError(
                f'The folder `{path.relative_to(root)}` is in the way: there is no line `{version}`, but it will be made there.',
                'Move it away if you need it, delete it if not, then run the same command again.',
            )


def _stopped(state: _Rebase) -> ApplyError:
    """Make the error of a patch that waits in the tree."""
    git, line = state.git, state.line
    subject = git.run('log', '-1', '--format=%s', 'REBASE_HEAD')
    waiting = next((name for name, known in state.subjects.items() if known == subject), subject)
    folder, count = line.show(line.tree), len(git.lines('rev-list', f'{tree.BASE}..HEAD'))
    go_on = (
        f'`git -C {folder} rebase --continue`; if upstream has all of it, run `git -C {folder} rebase --skip`. When git is at the '
        f'end, `{_COMMAND}` makes the line; `make rebase ARGS=--abort` gives up'
    )
    problem = (
        f'The patch `{waiting}` of {state.old} conflicts with `{DIST_NAME}` {line.name}. {count} of {len(state.subjects)} patches '
        f'are in the tree.'
    )
    return stopped(git, line, problem, go_on, state.folder / 'series' / waiting)


# What is kept while a rebase is under way


def _under_way(root: Path, version: str | None) -> _Rebase:
    """Find the rebase that is under way."""
    found = sorted(path.parents[2] for path in (root / 'build').glob(f'{version or "*"}/{_FILE}'))
    if not found:
        sweep(root)  # the last one may have been killed while it was given up
        raise SeriesError(
            f'No rebase{f" to {version}" if version else ""} is under way.',
            'Start one with `make rebase LINE=... ONTO=...`.',
        )
    if len(found) > 1:
        raise SeriesError(
            f'Several rebases are under way: {", ".join(f"`build/{path.name}`" for path in found)}.',
            'Name one with `ONTO=...`.',
        )
    return _read_state(found[0])


def _read_state(folder: Path) -> _Rebase:
    kept = json.loads((folder / _FILE).read_text('utf-8'))
    line = Line.load(folder / _FOLDER / folder.name, folder=folder.parent.parent / 'patches' / folder.name)
    return _Rebase(line, **kept)


# The end


def _finish(state: _Rebase, report: Report) -> Rebased:
    """Make the new line of the commits in its tree.

    The line's folder is created in one step. What is written before and after that is the same each time, so this can
    be interrupted anywhere and run again.
    """
    line, git = state.line, state.git
    if not line.folder.exists():
        tree.refuse_unready(line, _COMMAND)
        _refuse_elsewhere(state)
        if git.lines('rev-list', f'{tree.BASE}..HEAD'):
            refuse_no_series(line, _COMMAND)
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
    subjects = git.lines('log', '--format=%s', f'{tree.BASE}..HEAD')
    dropped = [name for name, subject in state.subjects.items() if subject not in subjects]
    changelog = line.root / 'CHANGELOG.md'
    if changelog.exists():
        text = changelog.read_text('utf-8')
        if (changed := _changelog(text, state, dropped)) != text:
            write(changelog, changed)
    tree.record(git, digest_patches(made.patches))
    # What is left when this is interrupted doesn't count as under way.
    (line.tree / _FILE).unlink()
    shutil.rmtree(state.folder)
    for name in (_OLD, _OLD_BASE):
        git.run('update-ref', '-d', name)
    return Rebased(made, dropped, state.notes)


def _refuse_elsewhere(state: _Rebase) -> None:
    """Refuse to finish on another base, as after `git rebase --abort`."""
    git, folder = state.git, state.line.show(state.line.tree)
    if git.attempt('merge-base', '--is-ancestor', tree.BASE, 'HEAD').returncode:
        raise SeriesError(
            f'The tree `{folder}` is not on the base of {state.line.name}.',
            f'Begin again with `git -C {folder} rebase --onto {tree.BASE} {_OLD_BASE} {tree.BRANCH}`, or give up with `make rebase '
            f'ARGS=--abort`.',
        )


def _write_build(state: _Rebase, temporary: Path) -> None:
    """Put the folder of the build into its place, instead of what an interrupted attempt has left there."""
    target = pins.build_folder(state.line)
    shutil.copytree(state.folder / 'build', temporary)
    target.parent.mkdir(exist_ok=True)
    replace_dir(temporary, target)


def _changelog(text: str, state: _Rebase, dropped: Sequence[str]) -> str:
    """Add the new line to the changelog, in front of the older ones."""
    line = state.line
    if re.search(rf'(?m)^## {re.escape(line.name)}$', text):
        return text
    entry = f'## {line.name}\n\n### {line.version}\n\n- What {state.old} has, on pydantic-ai {line.name}.\n'
    if dropped:
        left = '; '.join(state.subjects[name] for name in dropped)
        entry += f'- Left out: {left}.\n'
    for heading in re.finditer(r'(?m)^## (\d[\w.]*)$', text):
        if Version(heading[1]) < Version(line.name):
            return f'{text[: heading.start()]}{entry}\n{text[heading.start() :]}'
    return f'{text.rstrip()}\n\n{entry}'
