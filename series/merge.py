"""Try a patch on another base than its own, and say what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from series.apply import AM, apply_one
from series.errors import PatchError
from series.git import Git, words


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
    except PatchError as error:
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


def conflicts(git: Git) -> Iterator[str]:
    """Yield where a work tree has conflicts: each file, with the lines of its marks or with what else is the matter."""
    for path, held in unmerged(git).items():
        if '2' not in held:
            yield f'{path} (which the base does not have)'
        elif '3' not in held:
            yield f'{path} (which the patch deletes)'
        else:
            text = (git.folder / path).read_text('utf-8', 'replace').splitlines()
            marks = [str(number) for number, line in enumerate(text, 1) if line.startswith('<<<<<<< ')]
            yield f'{path}:{", ".join(marks)}' if marks else path


def unmerged(git: Git) -> dict[str, set[str]]:
    """Return the files that wait for a merge, with what git holds of each: `1` the origin, `2` ours, `3` the patch's."""
    stages: dict[str, set[str]] = {}
    for entry in git.lines('-c', 'core.quotePath=false', 'ls-files', '--unmerged'):
        about, _, path = entry.partition('\t')
        stages.setdefault(path, set()).add(about.split()[2])
    return stages
