"""Make the tree of a line: the base as the first commit, then one commit per patch."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic_ai_slim.fork.line import patch_name
from series import tree
from series.base import base_repository, clone
from series.errors import ApplyError, quoted
from series.folders import lock, scratch
from series.git import Git
from series.line import Line, digest_patches
from series.merge import AM, apply_one, index_conflicts, remedy
from series.progress import Report


def apply(line: Line, report: Report) -> str:
    """Make the tree of a line and return the id of its last commit; the same input gives the same id.

    The commits are made in a temporary folder. Then it becomes the tree, or a tree that is there already moves on to
    them. What that one has besides, such as ignored files and other branches, stays, and its reflog holds where it was.
    """
    with lock(line.root, line.name, line.make('apply')), scratch(line.root, line.tree.parent, 'apply') as folder:
        if line.tree.exists():
            tree.refuse_unsettled(line, line.make('extract'))
            tree.refuse_lost(line)
        patches = copy_patches(line, folder / 'patches')
        digest = digest_patches(patches)
        base = base_repository(line, report)
        report('Checking the base out')
        git = clone(base, folder / 'tree', 'HEAD')
        error = _apply_all(git, patches, report)
        stopped = f'{patch_name(error.patch)}.patch' if error else ''
        if line.tree.exists():
            made, git = git, Git(line.tree)
            git.run('fetch', '--quiet', '--no-tags', '--no-write-fetch-head', str(made.folder), 'HEAD')
            commits = {'base': made.run('rev-parse', tree.BASE), 'head': made.run('rev-parse', 'HEAD')}
            tree.record(git, digest, stopped, **commits)
        else:
            tree.record(git, digest, stopped)
            git.folder.rename(line.tree)
            git = Git(line.tree)
        if error:
            raise _stop(git, line, error, patches)
        return git.run('rev-parse', 'HEAD')


def copy_patches(line: Line, folder: Path) -> list[Path]:
    """Copy the patches of a line and their list as they are now, so that who reads them twice reads the same.

    Returns:
        The copies, in order.
    """
    folder.mkdir(parents=True)
    patches = line.patches
    if (listed := line.folder / 'series').exists():
        shutil.copyfile(listed, folder / 'series')
    for patch in patches:
        (copy := folder / patch.relative_to(line.folder)).parent.mkdir(exist_ok=True)
        shutil.copyfile(patch, copy)
    return [folder / patch.relative_to(line.folder) for patch in patches]


def apply_series(line: Line, folder: Path, report: Report, patches: list[Path] | None = None) -> Git:
    """Make a repository in a new folder with the base and the patches of a line, apart from its tree.

    Args:
        patches: Copies of its patches; by default those that it has.
    """
    base = base_repository(line, report)
    report(f'Applying the patches to {line.name}')
    git = clone(base, folder, 'HEAD')
    if error := _apply_all(git, line.patches if patches is None else patches, report):
        raise ApplyError(
            f'The patch `{line.show(line.folder)}/{patch_name(error.patch)}.patch` does not apply to its own line.',
            f'Resolve it there first, with `{line.make("apply")}`.',
            error.words,
            patch=error.patch,
            files=error.files,
        )
    return git


def _apply_all(git: Git, patches: list[Path], report: Report) -> ApplyError | None:
    """Commit patches in order, up to the first that doesn't apply, and return the error of that one."""
    for number, patch in enumerate(patches):
        report(f'Applying `{patch_name(patch)}`', number, len(patches))
        try:
            apply_one(git, patch)
        except ApplyError as error:
            return error
    return None


def _stop(git: Git, line: Line, error: ApplyError, patches: list[Path]) -> ApplyError:
    """Begin an `am` of the patches from the failing one on, with conflict marks where git finds what they were made on."""
    rest = patches[patches.index(error.patch) :]
    done = git.attempt(*AM, '--3way', *(str(patch.resolve()) for patch in rest))
    folder = line.show(line.tree)
    fit = f': it does not fit {quoted(error.files)}' if error.files else ''
    patch = line.folder / f'{patch_name(error.patch)}.patch'
    problem = f'The patch `{line.show(patch)}` does not apply to the base with the patches before it{fit}.'
    if not done.returncode:
        go_on = (
            f'Git could merge it and the patches after it, and the tree `{folder}` holds the result. Read its commits, '
            f'then write them to `{line.show(line.folder)}` with `{line.make("extract")}`; or give up with '
            f'`git -C {folder} checkout -B {tree.BRANCH} {tree.APPLIED}`.'
        )
        return ApplyError(problem, go_on, error.words, patch=patch, files=error.files)
    go_on = f'`git -C {folder} am --continue` and then `{line.make("extract")}`; or give up with `git -C {folder} am --abort`'
    return ApplyError(problem, remedy(line, go_on, index_conflicts(git)), error.words, patch=patch, files=error.files)
