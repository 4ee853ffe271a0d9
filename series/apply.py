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

_AM = (
    'am',
    '--quiet',
    '--patch-format=mbox',
    # `[x]` in front of a subject is part of it.
    '--keep-non-patch',
    '--keep-cr',
    '--no-scissors',
    '--no-gpg-sign',
    '--whitespace=nowarn',
    # With the fixed committer this makes commit ids depend on nothing but the patches.
    '--committer-date-is-author-date',
)


def apply(line: Line, report: Report) -> str:
    """Make the tree of a line and return the id of its last commit; the same input gives the same id.

    The tree is made in a temporary folder. Then it takes the place of the one before, which must hold no work.

    Raises:
        UnfinishedError: The tree there is in the middle of an `am`, a rebase or the like.
        DirtyTreeError: The tree there has changes that no commit holds.
        LostWorkError: The tree there has commits that `patches/` does not hold.
        DownloadError: The base can't be got, or isn't the pinned one.
        PatchError: A patch doesn't apply. The tree is then the one that it waits in to be resolved.
    """
    if line.tree.exists():
        tree.refuse_missing(line)
        tree.refuse_unfinished(line)
        tree.refuse_dirty(line)
        tree.refuse_lost(line)
    base = base_repository(line, report)
    report('Checking the base out')
    with tempfile.TemporaryDirectory(dir=line.tree.parent, prefix='.apply-') as folder:
        git = clone(base, Path(folder) / 'tree', 'HEAD')
        git.run('update-ref', tree.BASE, 'HEAD')
        git.run('config', tree.PATCHES, line.patches_digest())
        failure = _apply_all(git, line, report)
        if line.tree.exists():
            line.tree.rename(Path(folder) / 'before')
        git.folder.rename(line.tree)
    if failure:
        raise failure
    return Git(line.tree).run('rev-parse', 'HEAD')


def apply_one(git: Git, patch: Path) -> None:
    """Commit a patch to a repository, or leave the repository as it was.

    Raises:
        PatchError: It doesn't apply; the error has no remedy yet.
    """
    done = git.attempt(*_AM, '--no-3way', str(patch.resolve()))
    if done.returncode:
        git.attempt('am', '--abort')
        # The rest of what `git am` says is what to do next, which is another thing here.
        said = '\n'.join(line for line in words(done).splitlines() if line.startswith(('error:', 'fatal:')))
        files = re.findall(r'^error: (?:patch failed: )?(.+?):(?:\d+$| )', said, re.MULTILINE)
        raise PatchError('', '', said or words(done), patch=patch, files=sorted(set(files)))


def _apply_all(git: Git, line: Line, report: Report) -> PatchError | None:
    """Commit the patches in order; at one that doesn't apply, stop so that it can be resolved, and return the error."""
    patches = line.patches
    for number, patch in enumerate(patches, 1):
        report(f'Applying `{patch.name}`', number - 1, len(patches))
        try:
            apply_one(git, patch)
        except PatchError as error:
            git.run('update-ref', tree.APPLIED, 'HEAD')
            git.run('config', tree.STOPPED, patch.name)
            return _stop(git, line, error, patches[number - 1 :])
    git.run('update-ref', tree.APPLIED, 'HEAD')
    return None


def _stop(git: Git, line: Line, error: PatchError, rest: list[Path]) -> PatchError:
    """Start an `am` of the patches from the failing one on, with conflict marks where git finds what they were made on."""
    done = git.attempt(*_AM, '--3way', *(str(patch.resolve()) for patch in rest))
    folder = line.show(line.tree)
    fit = f': it does not fit {", ".join(f"`{file}`" for file in error.files)}' if error.files else ''
    problem = f'The patch `{line.show(error.patch)}` does not apply to the base with the patches before it{fit}.'
    go_on = f'`git -C {folder} add` them, and run `git -C {folder} am --continue` and then `make extract`'
    give_up = f'To give up, delete `{folder}`.'
    if not done.returncode:
        remedy = (
            f'Git could merge it and the patches after it, and the tree `{folder}` holds the result. Read its commits, '
            f'then write them to `{line.show(line.folder)}` with `make extract`. {give_up}'
        )
    elif git.run('ls-files', '--unmerged'):
        remedy = f'It waits in `{folder}`, with conflict marks. Edit the marked files, {go_on}. {give_up}'
    else:
        remedy = (
            f'It waits in `{folder}`. Put what fits into the files and the rest beside them with `git -C {folder} am '
            f'--show-current-patch=diff | git -C {folder} apply --reject`; edit the files, {go_on}. {give_up}'
        )
    return PatchError(problem, remedy, error.words, patch=error.patch, files=error.files)
