"""Say how the series of a line stands to a release of upstream's, without touching the line."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from pydantic_ai_slim.fork.line import patch_name
from pydantic_ai_slim.fork.names import DIST_NAME, UPSTREAM_FOLDER
from series import tree
from series.base import clone, download, wheel_files
from series.folders import scratch
from series.git import Git
from series.index import find_release
from series.line import Line
from series.merge import Attempt, Outcome, attempt, index_conflicts
from series.patches import write_patches
from series.progress import Report
from series.verbs.apply import apply_series


@dataclass(frozen=True)
class Status:
    """How the series of a line stands to a release."""

    line: Line
    release: str
    attempts: Sequence[Attempt]
    """What came of each patch; nothing where the release is the line's own base, or older."""


def status(lines: Sequence[Line], report: Report, onto: str | None = None) -> list[Status]:
    """Try the patches of lines on a release, in folders that are thrown away.

    Args:
        onto: The release; by default the newest that the index has.
    """
    report(f'Looking for `{DIST_NAME}`')
    found = find_release(f'{DIST_NAME}==={onto}' if onto else DIST_NAME)
    release = str(found.version)
    with tempfile.TemporaryDirectory() as folder:
        behind = [line for line in lines if onto or Version(line.base) < Version(release)]
        attempts: dict[str, list[Attempt]] = {}
        if behind:
            report(f'Getting `{DIST_NAME}` {release}')
            wheel = download(Path(folder), f'{DIST_NAME}==={release}', '--only-binary', ':all:')
            attempts = {line.name: _try(line, wheel, release, report) for line in behind}
    return [Status(line, release, attempts.get(line.name, [])) for line in lines]


def _try(line: Line, wheel: Path, release: str, report: Report) -> list[Attempt]:
    """Try each patch of a line on a release, on top of those before it.

    No release ships tests, so only the package is the release's; all else is still the old base's. What conflicts is taken
    as the patch has it, so that the patches after it find what they stand on.
    """
    attempts: list[Attempt] = []
    with scratch(line.root, line.cache.parent, 'status') as folder:
        old = apply_series(line, folder / 'old', report)
        git = clone(old.folder, folder / 'new', tree.BASE)
        _replace_package(git, wheel, release)
        commits = old.lines('rev-list', '--reverse', f'{tree.BASE}..HEAD')
        # As they are now: a merge looks for the files that a patch was made on.
        patches = write_patches(old, folder / 'patches')
        for number, (listed, patch, commit) in enumerate(zip(line.patches, patches, commits, strict=True)):
            report(f'Trying `{patch_name(listed)}` of {line.name} on {release}', number, len(commits))
            if _is_contained(git, patch):
                attempts.append(Attempt(Outcome.CONTAINED))
                continue
            attempts.append(made := attempt(git, patch))
            if made.outcome is Outcome.CONFLICTS:
                _commit_theirs(git, commit)
    return attempts


def _replace_package(git: Git, wheel: Path, release: str) -> None:
    """Commit the package of a release in the place of the one that is there."""
    shutil.rmtree(git.folder / UPSTREAM_FOLDER)
    for name, content in wheel_files(wheel):
        path = git.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # What upstream's settings ignore is in the release all the same.
    git.run('add', '--all', '--force', UPSTREAM_FOLDER)
    git.run('commit', '--quiet', '--allow-empty', '--message', release)


def _is_contained(git: Git, patch: Path) -> bool:
    """Say whether what a patch changes in the package is there already."""
    if f'\n+++ b/{UPSTREAM_FOLDER}/'.encode() not in patch.read_bytes():
        return False
    back = git.attempt('apply', '--reverse', '--check', f'--include={UPSTREAM_FOLDER}/*', str(patch.resolve()))
    return back.returncode == 0


def _commit_theirs(git: Git, commit: str) -> None:
    """Commit the change of a commit, and where it conflicts, what that commit has there."""
    options = ('-c', 'merge.renames=true', 'cherry-pick', '--strategy-option=theirs', '--keep-redundant-commits')
    if git.attempt(*options, commit).returncode == 0:
        return
    for path, stages in index_conflicts(git).items():
        if '3' in stages:
            git.run('checkout', '--quiet', '--theirs', '--', path)
            git.run('add', '--force', '--', path)
        else:
            git.run('rm', '--quiet', '--force', '--', path)
    git.run('commit', '--quiet', '--allow-empty', '--reuse-message', commit)
