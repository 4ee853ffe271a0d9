"""Ask the package index about releases, as uv is configured for the user."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import tomllib
from packaging.requirements import Requirement
from packaging.version import Version

from series.environments import uv
from series.errors import DownloadError, NoReleaseError, OfflineError
from series.git import words
from series.network import unreachable


@dataclass(frozen=True)
class Release:
    """A release that the index has."""

    package: str
    version: Version
    published: date | None
    """The day of its upload in UTC, or `None` where the index doesn't tell."""


def find_release(requirement: str) -> Release:
    """Find the newest release that a requirement allows, a pre-release only where the requirement names one.

    Raises:
        NoReleaseError: The index has none.
        DownloadError: The index can't be asked.
    """
    package = Requirement(requirement).name
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / 'requirements.in'
        asked.write_text(requirement, 'utf-8')
        # A lock is the one answer of uv's that holds the time of an upload. It is to be for every Python from one on that
        # no release excludes.
        done = uv(
            *('pip', 'compile', '--quiet', '--no-deps', '--universal', '--python-version', '3.99'),
            *('--no-header', '--format', 'pylock.toml', str(asked)),
        )
    if done.returncode:
        said = words(done)
        if 'network was disabled' not in said and (
            'there is no version of' in said or 'there are no versions of' in said
        ):
            raise NoReleaseError(
                f'The index has no release `{requirement}`.',
                'Correct the version; `uv` looks where its configuration and `UV_INDEX` say.',
                said,
            )
        if unreachable(said):
            raise OfflineError(f'what it knows of `{requirement}`', said)
        raise DownloadError(
            f'uv could not ask the index for `{requirement}`.',
            "These are uv's words; check the connection and uv's configuration, then run the same command again.",
            said,
        )
    (found,) = tomllib.loads(done.stdout.decode())['packages']
    version = Version(found['version'])
    # A fork, from a folder or an index of the user's own. When its base was published it doesn't tell.
    return Release(package, Version(version.public), None if version.local else _published(found))


def _published(found: dict[str, Any]) -> date | None:
    """Return the day on which the first wheel was uploaded, or the source archive where there is no wheel."""
    files: list[dict[str, Any]] = found.get('wheels') or [found.get('sdist', {})]
    times: list[datetime] = [file['upload-time'] for file in files if 'upload-time' in file]
    return min(times).astimezone(timezone.utc).date() if times else None
