"""Look at a tree before it is read or replaced, so that no work is lost."""

from __future__ import annotations

from series.errors import DirtyTreeError, ElsewhereError, LostWorkError, NoTreeError, UnfinishedError
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

_OPERATIONS = {
    'rebase-merge': 'rebase',
    'rebase-apply': 'am',
    'MERGE_HEAD': 'merge',
    'CHERRY_PICK_HEAD': 'cherry-pick',
    'REVERT_HEAD': 'revert',
}


def refuse_missing(line: Line) -> None:
    """Refuse to go on without a tree.

    Raises:
        NoTreeError: There is none, or the folder is something else.
    """
    tree = line.show(line.tree)
    if not line.tree.exists():
        raise NoTreeError(f'There is no tree `{tree}`.', f'Run `{line.make("apply")}` to make it.')
    if not Git(line.tree).has(BASE):
        raise NoTreeError(
            f'The folder `{tree}` is not a tree that `make apply` made.',
            f'Move it away if you need it, delete it if not, then run `{line.make("apply")}`.',
        )


def unfinished(git: Git) -> str | None:
    """Return the git command that a repository is in the middle of, if any."""
    operation = next((name for path, name in _OPERATIONS.items() if git.holds(path)), None)
    return 'rebase' if operation == 'am' and not git.holds('rebase-apply/applying') else operation


def refuse_unfinished(line: Line, command: str) -> None:
    """Refuse a tree in the middle of something.

    Args:
        line: The tree's line.
        command: What is to be run after that.

    Raises:
        UnfinishedError: It is.
    """
    if operation := unfinished(Git(line.tree)):
        tree = line.show(line.tree)
        raise UnfinishedError(
            f'The tree `{tree}` is in the middle of a `git {operation}`.',
            f'Finish it with `git -C {tree} {operation} --continue` and then `{command}`, or give '
            f'it up with `git -C {tree} {operation} --abort`.',
        )


def refuse_dirty(line: Line) -> None:
    """Refuse a tree with changes that no commit holds.

    Raises:
        DirtyTreeError: It has some, which may be files that git doesn't know yet.
    """
    changes = Git(line.tree).run('-c', 'core.quotePath=false', 'status', '--porcelain', '--untracked-files=all')
    if changes:
        tree = line.show(line.tree)
        raise DirtyTreeError(
            f'The tree `{tree}` has changes that are not committed.',
            f'Commit them with `git -C {tree} commit`, or put them away with `git -C {tree} restore` or '
            f'`git -C {tree} clean`, then run the same command again.',
            changes,
        )


def refuse_lost(line: Line) -> None:
    """Refuse to move a tree away from commits that neither `patches/` nor another branch holds.

    Raises:
        LostWorkError: It has some.
    """
    git, tree, folder = Git(line.tree), line.show(line.tree), line.show(line.folder)
    if git.has(BRANCH) and (lost := git.run('log', '--format=%h %s', BRANCH, '--not', APPLIED)):
        raise LostWorkError(
            f'The tree `{tree}` has commits that `{folder}` does not hold.',
            f'Write them there with `{line.make("extract")}`; to throw them away, use `git -C {tree} checkout -B {BRANCH} '
            f'{APPLIED}`. Then run `{line.make("apply")}` again.',
            lost,
        )
    if lost := git.run('log', '--format=%h %s', 'HEAD', '--not', APPLIED, '--branches'):
        raise LostWorkError(
            f'The tree `{tree}` has commits that neither `{folder}` nor a branch holds.',
            f'Make them the series with `git -C {tree} checkout -B {BRANCH}` and `{line.make("extract")}`, or keep '
            f'them with `git -C {tree} branch NAME`; to throw them away, use `git -C {tree} checkout {BRANCH}`. Then run '
            f'`{line.make("apply")}` again.',
            lost,
        )


def refuse_elsewhere(line: Line, command: str) -> None:
    """Refuse a tree in which something else than the series is checked out.

    Args:
        line: The tree's line.
        command: What is to write the series, for the user to run again.

    Raises:
        ElsewhereError: It is not on its branch `series`.
    """
    git, tree = Git(line.tree), line.show(line.tree)
    if not git.has(BRANCH) or git.run('rev-parse', 'HEAD') != git.run('rev-parse', BRANCH):
        raise ElsewhereError(
            f'The tree `{tree}` is not on its branch `{BRANCH}`, which is what `{command}` writes.',
            f'Go back to it with `git -C {tree} checkout {BRANCH}`; or make what is checked out the series with '
            f'`git -C {tree} checkout -B {BRANCH}`. Then run `{command}` again.',
        )
