"""Commit patches, also to another base than their own, and say what came of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from series.errors import ApplyError
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


class Outcome(Enum):
    """What comes of a patch."""

    APPLIES = 'applies'
    MERGES = 'merges'
    CONTAINED = 'contained'
    CONFLICTS = 'conflicts'


@dataclass(frozen=True)
class Attempt:
    """What came of one patch, and what there is to know of it."""

    outcome: Outcome
    places: Sequence[str] = ()
    """Where it conflicts: each file, with the lines of its conflict marks or with what else is the matter."""
    words: str = ''
    """What git said of a conflict."""


def attempt(git: Git, patch: Path) -> Attempt:
    """Commit a patch to a repository, merged where it doesn't apply as it is.

    For a merge the repository must hold the files that the patch was made on. After a conflict, and when nothing of the
    patch is left, the repository is as it was.
    """
    try:
        apply_one(git, patch)
    except ApplyError as error:
        said = error.words
    else:
        return Attempt(Outcome.APPLIES)
    before = git.run('rev-parse', 'HEAD')
    done = git.attempt(*AM, '--3way', str(patch.resolve()))
    if done.returncode:
        places = list(conflicts(git)) or sorted(set(re.findall(r'^error: patch failed: (.+:\d+)$', said, re.MULTILINE)))
        git.attempt('am', '--abort')
        return Attempt(Outcome.CONFLICTS, places, said or words(done))
    return Attempt(Outcome.MERGES if git.run('rev-parse', 'HEAD') != before else Outcome.CONTAINED)


def apply_one(git: Git, patch: Path) -> None:
    """Commit a patch to a repository, or leave the repository as it was.

    Raises:
        ApplyError: It doesn't apply; the error has no remedy yet.
    """
    done = git.attempt(*AM, '--no-3way', str(patch.resolve()))
    if done.returncode:
        git.attempt('am', '--abort')
        # The rest of what `git am` says is what to do next, which is another thing here.
        said = '\n'.join(line for line in words(done).splitlines() if line.startswith(('error:', 'fatal:')))
        raise ApplyError('', '', said or words(done), patch=patch, files=misfits(said))


def misfits(said: str) -> list[str]:
    """Return the files that a patch doesn't fit, from what git said of it."""
    return sorted(set(re.findall(r'^error: (?:patch failed: )?(.+?):(?:\d+$| )', said, re.MULTILINE)))


def conflicts(git: Git) -> Iterator[str]:
    """Yield where a work tree has conflicts: each file, with the lines of its marks or with what else is the matter."""
    for path, held in index_conflicts(git).items():
        if '2' not in held:
            yield f'{path} (which the base does not have)'
        elif '3' not in held:
            yield f'{path} (which the patch deletes)'
        else:
            text = (git.folder / path).read_text('utf-8', 'replace').splitlines()
            marks = [str(number) for number, line in enumerate(text, 1) if line.startswith('<<<<<<< ')]
            yield f'{path}:{", ".join(marks)}' if marks else path


def index_conflicts(git: Git) -> dict[str, set[str]]:
    """Return the files that wait for a merge, with what git holds of each: `1` the origin, `2` ours, `3` the patch's."""
    stages: dict[str, set[str]] = {}
    for entry in git.lines('-c', 'core.quotePath=false', 'ls-files', '--unmerged'):
        about, _, path = entry.partition('\t')
        stages.setdefault(path, set()).add(about.split()[2])
    return stages


def remedy(line: Line, go_on: str, places: Collection[str]) -> str:
    """Say what to do about a patch that waits in the tree of a line.

    Args:
        go_on: The commands to run after that.
        places: Where there are conflict marks; without any, git couldn't even begin to merge.
    """
    folder = line.show(line.tree)
    if places:
        how = f'The patch at which git stopped waits in `{folder}`, with conflict marks. Edit the marked files, `git -C {folder} add` or `rm` them,'
    else:
        how = (
            f'The patch at which git stopped waits in `{folder}`. Put what fits into the files and the rest beside them with `git -C {folder} am '
            f'--show-current-patch=diff | git -C {folder} apply --reject`; edit the files, `git -C {folder} add` them,'
        )
    return f'{how} and run {go_on}.'


def stopped(git: Git, line: Line, problem: str, go_on: str, patch: Path) -> ApplyError:
    """Make the error of a commit that git waits with in the tree of a line, since it conflicts.

    Args:
        git: Where it waits.
        problem: What conflicts with what, and how far git got.
        go_on: The commands to run once the conflict is resolved.
        patch: What was being applied.
    """
    places = [*conflicts(git)]
    files = sorted(index_conflicts(git))
    return ApplyError(problem, remedy(line, go_on, places), '\n'.join(places), patch=patch, files=files)
