"""Write the tree's commits back to the patches of its line."""

from __future__ import annotations

import shutil
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path

from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import LineError
from pydantic_ai_slim.fork.line import list_patches, patch_name
from pydantic_ai_slim.fork.names import PACKAGE, PACKAGE_PATH
from series import tree
from series.base import clone, link
from series.errors import ApplyError, SeriesError, quoted
from series.folders import lock, replace_dir, scratch, write
from series.git import Git
from series.line import Line, digest_patches, pin_patched
from series.merge import apply_one
from series.message import patch_subject
from series.patches import without_index, write_again, write_patches
from series.progress import Report
from series.verbs.apply import copy_patches


def extract(line: Line, report: Report) -> list[str]:
    """Write the tree's commits to the line's patches and say what changed there.

    They are written to a temporary folder and applied to the base from there. If that gives the tree again, the folder
    takes the place of the one before. What else is in it stays, and so does the file of a patch of which nothing changed but
    the ids of the files that it is a difference of.

    Returns:
        `added`, `changed` or `deleted`, and the name, of each patch that isn't as it was.
    """
    command = line.make('extract')
    with lock(line.root, line.name, command), scratch(line.root, line.folder.parent, 'extract') as folder:
        tree.refuse_unready(line, command)
        _refuse_other_base(line)
        commits = refuse_no_series(line, command)
        git = Git(line.tree)
        report('Writing the patches')
        before = copy_patches(line, folder / 'before')
        digest = digest_patches(before)
        patches = write_again(git, folder / 'written', before)
        pins = pin_patched((line.folder / 'line.toml').read_text('utf-8'), patched_digest(git))
        if changes := _compare(before, patches):
            _refuse_lost(line, digest, commits, len(before))
            report('Applying what was written')
            check_patches(line, patches, folder / 'check', command)
            _swap(line, patches, pins, folder, digest)
        elif (line.folder / 'line.toml').read_text('utf-8') != pins:
            write(line.folder / 'line.toml', pins)
            changes = ['changed line.toml']
        tree.record(git, digest_patches(patches))
    return changes


def patched_digest(git: Git) -> str:
    """Compute what `line.toml` pins of the tree: the digest of the package with the patches."""
    files = git.files('HEAD', PACKAGE_PATH)
    return digest_files({f'{PACKAGE}/{name}': content for name, content in files.items()})


def _refuse_other_base(line: Line) -> None:
    """Refuse commits that stand on something else than the base, and a base that isn't the line's any more."""
    git, folder = Git(line.tree), line.show(line.tree)
    if git.lines('rev-list', '--max-parents=0', 'HEAD') != git.lines('rev-parse', tree.BASE):
        raise SeriesError(
            f'The first commit of the tree `{folder}` is not the base that `make apply` made there, so its patches would '
            f'not apply to the base.',
            f'Put your commits onto the base with `git -C {folder} rebase --onto {tree.BASE} FIRST`, where FIRST is the '
            f'commit before them, then run `{line.make("extract")}` again.',
        )
    message = git.run('log', '-1', '--format=%B', tree.BASE)
    if message.strip() != line.base_message.strip():
        raise SeriesError(
            f'The base of the tree `{folder}` is not the one that `{line.show(line.folder)}/line.toml` names now.',
            _start_over(line),
            f'the tree stands on:\n{message}\n`line.toml` names:\n{line.base_message}',
        )


_MARKED = (
    *('-c', 'core.quotePath=false', 'diff-tree', '-r', '--name-only', '--no-commit-id', '--no-textconv'),
    # Not a line of equals signs, which can be a heading.
    '-G^(<{7}|>{7}) ',
)
"""What lists the files in which a commit has the conflict marks of git's."""


def refuse_no_series(line: Line, command: str) -> int:
    """Refuse commits that would get lost or that are not ready, and return how many there are.

    Args:
        line: The line, whose tree is looked at.
        command: What is to write them, for the user to run again.
    """
    git, folder = Git(line.tree), line.show(line.tree)
    commits = git.lines('log', '--reverse', '--format=%H %s', f'{tree.BASE}..HEAD')
    if not commits:
        raise SeriesError(
            f'The tree `{folder}` has no commits after the base, so there is nothing to extract; every patch of '
            f'`{line.show(line.folder)}` would be deleted.',
            f'Commit your changes in `{folder}`, or make it again with `{line.make("apply")}`.',
        )
    faults: list[str] = []
    subjects = [commit.partition(' ')[2] for commit in commits]
    for commit in commits:
        revision, _, subject = commit.partition(' ')
        parents = git.run('log', '-1', '--format=%P', revision).split()
        if len(parents) > 1:
            faults.append(f'`{subject}` is a merge, which no patch can hold.')
        elif git.run('rev-parse', f'{revision}^{{tree}}') == git.run('rev-parse', f'{parents[0]}^{{tree}}'):
            faults.append(f'`{subject}` changes nothing.')
        elif marks := git.lines(*_MARKED, revision):
            faults.append(f'`{subject}` has conflict marks in {quoted(marks)}.')
        if subject.startswith(('fixup! ', 'squash! ', 'amend! ')):
            others = [other for other in subjects if patch_subject(other) == other]
            faults.append(
                f'`{subject}` still waits to be folded into the commit that it belongs to.'
                if patch_subject(subject) in others
                else f'`{subject}` fits no commit by its subject.'
            )
    if faults:
        listed = '\n'.join(f'- {fault}' for fault in faults)
        raise SeriesError(
            f'The commits of the tree `{folder}` are not a series:\n{listed}',
            f'Put them in order with `git -C {folder} rebase --interactive --autosquash {tree.BASE}`, then run '
            f'`{command}` again.',
        )
    return len(commits)


def _compare(old: list[Path], patches: list[Path]) -> list[str]:
    """Say in which way patches are other than the old ones."""
    before = {patch_name(patch): patch.read_bytes() for patch in old}
    after = {patch_name(patch): patch.read_bytes() for patch in patches}
    changes = [
        f'{"changed" if name in before else "added"} {name}'
        for name, content in after.items()
        if content != before.get(name)
    ]
    changes += [f'deleted {name}' for name in before if name not in after]
    return changes or ([] if [*before] == [*after] else ['changed the order'])


def _refuse_lost(line: Line, digest: str, commits: int, patches: int) -> None:
    """Refuse to overwrite or delete patches that the tree knows nothing of."""
    git, tree_folder, folder = Git(line.tree), line.show(line.tree), line.show(line.folder)
    if git.config(tree.PATCHES) != digest:
        raise _changed_since(line)
    stopped = git.config(tree.STOPPED)
    if stopped and commits < patches:
        raise SeriesError(
            f'`make apply` stopped at `{folder}/{stopped}`, and the tree `{tree_folder}` has only {commits} commits for '
            f'the {patches} patches of `{folder}`, so the rest of the series would be deleted.',
            f'Delete the tree and run `{line.make("apply")}` to get back to where it stopped. To drop a patch on purpose, '
            f'delete its file before that.',
        )


def _changed_since(line: Line) -> SeriesError:
    return SeriesError(
        f'Someone changed the patches in `{line.show(line.folder)}` after the tree `{line.show(line.tree)}` was made from '
        f'them, and the tree knows nothing of that.',
        _start_over(line),
    )


def _start_over(line: Line) -> str:
    folder = line.show(line.tree)
    return (
        f'Run `mv {folder} {folder}.mine`, `{line.make("apply")}` and `git -C {folder} fetch ../{line.tree.name}.mine`. Then '
        f'take over what you need with `git -C {folder} cherry-pick`, or everything with `git -C {folder} reset --hard '
        f'FETCH_HEAD` if it stands on the same base, and run `{line.make("extract")}` again.'
    )


def check_patches(line: Line, patches: list[Path], folder: Path, command: str) -> None:
    """Apply patches to the base, and refuse them unless that gives the tree and the same patches again.

    Args:
        line: The line, from whose tree they were written.
        patches: What was written.
        folder: A new folder to apply them in.
        command: What wrote them, for the user to run again.
    """
    remedy = (
        f'Reword or split that commit with `git -C {line.show(line.tree)} rebase --interactive {tree.BASE}`, then run '
        f'`{command}` again.'
    )
    git = clone(line.tree, folder, tree.BASE)
    for patch in patches:
        try:
            apply_one(git, patch)
        except ApplyError as error:
            raise SeriesError(
                f'The commit written as `{patch_name(patch)}` cannot be applied again from there.', remedy, error.words
            ) from None
    for patch, again in zip(patches, write_patches(git, folder / '.git' / 'again'), strict=True):
        before, after = (path.read_text('utf-8', 'replace').splitlines() for path in (patch, again))
        if without_index(patch) != without_index(again):
            raise SeriesError(
                f'The commit written as `{patch_name(patch)}` does not come back the same when it is applied from there, because '
                f'something in its message reads like a part of a mail.',
                remedy,
                '\n'.join(unified_diff(before, after, 'written', 'applied and written', lineterm='')),
            )


def _swap(line: Line, patches: list[Path], pins: str, folder: Path, digest: str) -> None:
    """Put patches and pins into the place of the line's, all at once."""
    new = folder / 'new'
    shutil.copytree(
        line.folder,
        new,
        copy_function=link,
        ignore=lambda _, names: [name for name in names if name == 'series' or name.endswith('.patch')],
    )
    write(new / 'line.toml', pins)
    written = patches[0].parent.parent
    shutil.copyfile(written / 'series', new / 'series')
    for patch in patches:
        name = patch.relative_to(written)
        before = line.folder / name
        same = before.exists() and before.read_bytes() == patch.read_bytes()
        (new / name).parent.mkdir(exist_ok=True)
        link(str(before if same else patch), str(new / name))
    for topic in {patch.parent.name for patch in line.patches}:
        with suppress(OSError):  # it has patches still
            (new / topic).rmdir()
    replace_dir(new, line.folder)
    # Only now nobody can change them any more.
    if _digest(new) != digest:
        replace_dir(new, line.folder)
        raise _changed_since(line)


def _digest(folder: Path) -> str:
    """Compute the digest of the patches of a folder, which is no patches' if someone changed their list to what they aren't."""
    try:
        return digest_patches(list_patches(folder))
    except LineError:
        return ''
