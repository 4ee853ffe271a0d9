"""Look at a tree before it is read or replaced, so that no work is lost, and keep its books."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from series.errors import GitError, SeriesError
from series.folders import write
from series.git import Git
from series.line import Line

BRANCH = 'series'
"""The branch of a tree that has the series."""

BASE = 'refs/series/base'
"""The tree's base commit, as it was made."""

APPLIED = 'refs/series/applied'
"""The last commit of the tree that `patches/` holds."""

PATCHES = 'series.patches'
"""The setting of the tree with the digest of the patches that it stands for."""

STOPPED = 'series.stopped'
"""The setting of the tree with the name of the patch at which `apply` stopped, or nothing."""

CARRYING = 'refs/series/carrying'
"""The tree's commit before a carry, while git is at it: not any more when it has stopped at a conflict."""

LEFT = 'refs/series/left'
"""What was in the work tree when a carry was killed, before the tree went back to where it was."""

_NOTE = Path('.git') / 'series-note.json'
"""What is being noted of the tree, while it is: a verb that is killed in between is finished by the next one."""

_OPERATIONS = {
    'rebase-merge': 'rebase',
    'rebase-apply': 'am',
    'MERGE_HEAD': 'merge',
    'CHERRY_PICK_HEAD': 'cherry-pick',
    'REVERT_HEAD': 'revert',
    # Several commits, of which one was committed by hand.
    'sequencer': 'cherry-pick',
}


def record(git: Git, patches: str, stopped: str = '', *, base: str = '', head: str = '') -> None:
    """Note which commits the patches of the line stand for.

    Args:
        patches: The digest of the patches, as they were when they were read or written.
        stopped: The name of the patch at which `apply` stopped, or nothing.
        base: The base commit, where the tree is to move to another one.
        head: The commit of the last patch, where the tree, which must be clean, is to move there.
    """
    before = git.run('rev-parse', 'HEAD')
    note = {
        'before': before if head else '',
        'head': head or before,
        'base': base,
        'patches': patches,
        'stopped': stopped,
    }
    write(git.folder / _NOTE, json.dumps(note))
    if head:
        try:
            git.run('checkout', '--quiet', '-B', BRANCH, head)
        except GitError:
            if not _changes(git):
                (git.folder / _NOTE).unlink()
            raise
    _write_down(git, note)


def recover(line: Line) -> None:
    """Finish what a verb was noting of a tree when it was killed, or was moving there."""
    git = Git(line.tree)
    if git.has(CARRYING):
        _undo_carry(git)
    if not (git.folder / _NOTE).exists():
        return
    # They are from the git that was killed with it: while the note is there, no other verb is at work.
    git.unlock()
    note: dict[str, str] = json.loads((git.folder / _NOTE).read_text('utf-8'))
    if note['before']:
        if git.run('rev-parse', 'HEAD') not in (note['before'], note['head']):
            # The user has gone on from there.
            (git.folder / _NOTE).unlink()
            return
        if changed := list(_changed_by_others(git, note['before'], note['head'])):
            raise SeriesError(
                f'The tree `{line.show(line.tree)}` was moving to other commits when `make apply` was interrupted, and '
                f'these files have been changed since.',
                f'Put what you need of them away, restore them with `git -C {line.show(line.tree)} restore FILE` or delete '
                f'them, then run the same command again.',
                '\n'.join(changed),
            )
        git.run('checkout', '--quiet', '--force', '-B', BRANCH, note['head'])
    _write_down(git, note)


def _undo_carry(git: Git) -> None:
    """Put a tree back to where it was before a carry that was killed, unless git has come to a conflict by then."""
    git.unlock()
    if not (git.holds('CHERRY_PICK_HEAD') and git.lines('ls-files', '--unmerged')):
        # In case that the user has added to it.
        git.run('add', '--all')
        git.run('update-ref', LEFT, git.run('stash', 'create') or 'HEAD')
        git.run('reset', '--quiet', '--hard')
        git.attempt('cherry-pick', '--quit')
        git.run('checkout', '--quiet', '--force', '-B', BRANCH, CARRYING)
    git.run('update-ref', '-d', CARRYING)


def _write_down(git: Git, note: dict[str, str]) -> None:
    if note['base']:
        git.run('update-ref', BASE, note['base'])
    git.run('update-ref', APPLIED, note['head'])
    git.run('config', PATCHES, note['patches'])
    git.run('config', STOPPED, note['stopped'])
    (git.folder / _NOTE).unlink()


def _changed_by_others(git: Git, before: str, head: str) -> Iterator[str]:
    """Yield which files have a content that no move from one commit to another can have left there, whole or in part."""
    status = git.run('status', '--porcelain', '-z', '--no-renames', '--untracked-files=all')
    for name in sorted({entry[3:] for entry in status.split('\0') if entry}):
        path = git.folder / name
        if path.exists():
            content = path.read_bytes()
            old, new = (git.attempt('cat-file', 'blob', f'{commit}:{name}') for commit in (before, head))
            if not (
                (not old.returncode and old.stdout == content)
                or (not new.returncode and new.stdout.startswith(content))
            ):
                yield name


def unfinished(git: Git) -> str | None:
    """Return the git command that a repository is in the middle of, if any."""
    operation = next((name for path, name in _OPERATIONS.items() if git.holds(path)), None)
    return 'rebase' if operation == 'am' and git.holds('rebase-apply/rebasing') else operation


def refuse_unsettled(line: Line, command: str) -> None:
    """Refuse a tree that isn't there, or that somebody is at work in. What a killed verb was noting of it is finished first.

    Args:
        line: The tree's line.
        command: What is to be run once the work is finished.
    """
    tree, git = line.show(line.tree), Git(line.tree)
    if not line.tree.exists():
        raise SeriesError(f'There is no tree `{tree}`.', f'Run `{line.make("apply")}` to make it.')
    if not git.has(BASE):
        raise SeriesError(
            f'The folder `{tree}` is not a tree that `make apply` made.',
            f'Move it away if you need it, delete it if not, then run `{line.make("apply")}`.',
        )
    recover(line)
    if operation := unfinished(git):
        raise SeriesError(
            f'The tree `{tree}` is in the middle of a `git {operation}`.',
            f'Finish it with `git -C {tree} {operation} --continue` and then `{command}`, or give '
            f'it up with `git -C {tree} {operation} --abort`.',
        )
    if changes := _changes(git):
        raise SeriesError(
            f'The tree `{tree}` has changes that are not committed.',
            f'Commit them with `git -C {tree} commit`, or put them away with `git -C {tree} restore` or '
            f'`git -C {tree} clean`, then run the same command again.',
            changes,
        )


def _changes(git: Git) -> str:
    return git.run('-c', 'core.quotePath=false', 'status', '--porcelain', '--untracked-files=all')


def refuse_lost(line: Line) -> None:
    """Refuse to move a tree away from commits that neither `patches/` nor another branch holds."""
    git, tree, folder = Git(line.tree), line.show(line.tree), line.show(line.folder)
    heads = ['HEAD', *([BRANCH] if git.has(BRANCH) else [])]
    if lost := git.run('log', '--format=%h %s', *heads, '--not', APPLIED, f'--exclude={BRANCH}', '--branches'):
        raise SeriesError(
            f'The tree `{tree}` has commits that neither `{folder}` nor another branch holds.',
            f'Write those of the branch `{BRANCH}` there with `{line.make("extract")}`, or keep them with `git -C {tree} branch NAME '
            f'COMMIT`; to throw them away, use `git -C {tree} checkout -B {BRANCH} {APPLIED}`. Then run `{line.make("apply")}` again.',
            lost,
        )


def refuse_unready(line: Line, command: str) -> None:
    """Refuse a tree as `refuse_unsettled()` does, and one in which something else than the series is checked out."""
    refuse_unsettled(line, command)
    git, tree = Git(line.tree), line.show(line.tree)
    if not git.has(BRANCH) or git.run('rev-parse', 'HEAD') != git.run('rev-parse', BRANCH):
        raise SeriesError(
            f'The tree `{tree}` is not on its branch `{BRANCH}`, which is what `{command}` writes.',
            f'Go back to it with `git -C {tree} checkout {BRANCH}`; or make what is checked out the series with '
            f'`git -C {tree} checkout -B {BRANCH}`. Then run `{command}` again.',
        )
