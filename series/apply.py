"""Make the tree of a line: the base as the first commit, then one commit per patch."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from series import tree
from series.base import Report, base_repository, clone
from series.errors import PatchError
from series.git import Git, words
from series.line import Line

AM = (
    'am',
    '--quiet',
    '--patch-format=mbox',
    # `[x]` in front of a subject is part of it.
    '--keep-non-patch',
    '--keep-cr',
    # The configuration of the tree, in which a patch that doesn't apply waits, is the user's to change.
    '--no-scissors',
    '--no-gpg-sign',
    '--whitespace=nowarn',
    # With the fixed committer this makes commit ids depend on nothing but the patches.
    '--committer-date-is-author-date',
)
"""How a patch is committed; `--3way` or `--no-3way` comes on top."""


def apply(line: Line, report: Report) -> str:
    """Make the tree of a line and return the id of its last commit; the same input gives the same id.

    The commits are made in a temporary folder. Then it becomes the tree, or a tree that is there already moves on to
    them. What that one has besides, such as ignored files and other branches, stays.

    Raises:
        NoTreeError: In the place of the tree is something else.
        UnfinishedError: The tree is in the middle of an `am`, a rebase or the like.
        DirtyTreeError: The tree has changes that no commit holds.
        LostWorkError: The tree has commits that neither `patches/` nor another branch holds.
        DownloadError: The base can't be got, or isn't the pinned one.
        PatchError: A patch doesn't apply; it waits in the tree to be resolved.
    """
    if line.tree.exists():
        tree.refuse_missing(line)
        tree.refuse_unfinished(line, line.make('extract'))
        tree.refuse_dirty(line)
        tree.refuse_lost(line)
    base = base_repository(line, report)
    report('Checking the base out')
    with tempfile.TemporaryDirectory(dir=line.tree.parent, prefix='.apply-') as folder:
        git = clone(base, Path(folder) / 'tree', 'HEAD')
        git.run('update-ref', tree.BASE, 'HEAD')
        error = _apply_all(git, line.patches, report)
        git.run('update-ref', tree.APPLIED, 'HEAD')
        if line.tree.exists():
            _move_on(Git(line.tree), git)
        else:
            git.folder.rename(line.tree)
    git = Git(line.tree)
    git.run('config', tree.PATCHES, line.patches_digest())
    git.run('config', tree.STOPPED, error.patch.name if error else '')
    if error:
        raise _stop(git, line, error)
    return git.run('rev-parse', 'HEAD')


def apply_one(git: Git, patch: Path) -> None:
    """Commit a patch to a repository, or leave the repository as it was.

    Raises:
        PatchError: It doesn't apply; the error has no remedy yet.
    """
    done = git.attempt(*AM, '--no-3way', str(patch.resolve()))
    if done.returncode:
        git.attempt('am', '--abort')
        # The rest of what `git am` says is what to do next, which is another thing here.
        said = '\n'.join(line for line in words(done).splitlines() if line.startswith(('error:', 'fatal:')))
        raise PatchError('', '', said or words(done), patch=patch, files=misfits(said))


def misfits(said: str) -> list[str]:
    """Return the files that a patch doesn't fit, from what git said of it."""
    return sorted(set(re.findall(r'^error: (?:patch failed: )?(.+?):(?:\d+$| )', said, re.MULTILINE)))


def apply_series(line: Line, folder: Path, report: Report) -> Git:
    """Make a repository in a new folder with the base and the patches of a line, apart from its tree.

    Raises:
        DownloadError: The base can't be got, or isn't the pinned one.
        PatchError: A patch doesn't apply.
    """
    base = base_repository(line, report)
    report(f'Applying the patches to {line.name}')
    git = clone(base, folder, 'HEAD')
    git.run('update-ref', tree.BASE, 'HEAD')
    if error := _apply_all(git, line.patches, report):
        raise PatchError(
            f'The patch `{line.show(error.patch)}` does not apply to its own line.',
            f'Resolve it there first, with `{line.make("apply")}`.',
            error.words,
            patch=error.patch,
            files=error.files,
        )
    return git


def _apply_all(git: Git, patches: list[Path], report: Report) -> PatchError | None:
    """Commit patches in order, up to the first that doesn't apply, and return the error of that one."""
    for number, patch in enumerate(patches):
        report(f'Applying `{patch.name}`', number, len(patches))
        try:
            apply_one(git, patch)
        except PatchError as error:
            return error
    return None


def _move_on(git: Git, made: Git) -> None:
    """Put a tree, which must be clean, onto the commits of another."""
    refs = [f'+{ref}:{ref}' for ref in (tree.BASE, tree.APPLIED)]
    git.run('fetch', '--quiet', '--no-tags', '--no-write-fetch-head', str(made.folder), *refs)
    git.run('checkout', '--quiet', '-B', tree.BRANCH, tree.APPLIED)


def _stop(git: Git, line: Line, error: PatchError) -> PatchError:
    """Begin an `am` of the patches from the failing one on, with conflict marks where git finds what they were made on."""
    rest = line.patches[line.patches.index(error.patch) :]
    done = git.attempt(*AM, '--3way', *(str(patch.resolve()) for patch in rest))
    folder = line.show(line.tree)
    fit = f': it does not fit {", ".join(f"`{file}`" for file in error.files)}' if error.files else ''
    problem = f'The patch `{line.show(error.patch)}` does not apply to the base with the patches before it{fit}.'
    if not done.returncode:
        remedy = (
            f'Git could merge it and the patches after it, and the tree `{folder}` holds the result. Read its commits, '
            f'then write them to `{line.show(line.folder)}` with `{line.make("extract")}`; or give up with '
            f'`git -C {folder} checkout -B {tree.BRANCH} {tree.APPLIED}`.'
        )
        return PatchError(problem, remedy, error.words, patch=error.patch, files=error.files)
    waiting = rest[int((git.folder / '.git' / 'rebase-apply' / 'next').read_text()) - 1]
    what = 'It' if waiting == error.patch else f'Git could merge it, but not `{waiting.name}`, which'
    if git.run('ls-files', '--unmerged'):
        how = f'{what} waits in `{folder}`, with conflict marks. Edit the marked files,'
    else:
        how = (
            f'{what} waits in `{folder}`. Put what fits into the files and the rest beside them with `git -C {folder} am '
            f'--show-current-patch=diff | git -C {folder} apply --reject`; edit the files,'
        )
    remedy = (
        f'{how} `git -C {folder} add` them, and run `git -C {folder} am --continue` and then '
        f'`{line.make("extract")}`; or give up with `git -C {folder} am --abort`.'
    )
    return PatchError(problem, remedy, error.words, patch=error.patch, files=error.files)
