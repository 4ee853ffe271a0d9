"""Ask the package index about releases, as uv is configured for the user."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import tomllib
from packaging.requirements import Requirement
from packaging.version import Version

from series.environments import uv
from series.errors import DownloadError, NoReleaseError, OfflineError
from series.git import words
from series.network import missing_certificates, unreachable


@dataclass(frozen=True)
class Release:
    """A release that the index has."""

    package: str
    version: Version
    published: date | None
    """The day of its upload in UTC, or `None` where the index doesn't tell."""
    archive: str = ''
    """Where its source archive is, if it has one: an address, or a path."""
    digest: str = ''
    """What the index says of that archive: `sha256:…`."""


def find_release(requirement: str) -> Release:
    """Find the newest release that a requirement allows, a pre-release only where the requirement names one.

    Raises:
        NoReleaseError: The index has none.
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
    archive = found.get('sdist', {})
    return Release(
        package,
        Version(version.public),
        None if version.local else _published(found),
        archive.get('url') or archive.get('path', ''),
        f'sha256:{archive["hashes"]["sha256"]}' if archive else '',
    )


def fetch_archive(folder: Path, release: Release) -> Path:
    """Download the source archive of a release that nothing pins yet.

    Not with pip, which would run the build backend in it, to read its metadata.
    """
    url = release.archive if '://' in release.archive else Path(release.archive).resolve().as_uri()
    folder.mkdir(parents=True)
    try:
        with urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise DownloadError(
            f'The source archive of `{release.package}` {release.version} could not be got from `{url}`.',
            f'{missing_certificates()}Check the connection, then run the same command again.',
            str(error),
        ) from None
    if (found := f'sha256:{hashlib.sha256(content).hexdigest()}') != release.digest:
        raise DownloadError(
            f'The source archive of `{release.package}` {release.version} is not what the index says:\n'
            f'expected {release.digest}\n'
            f'found    {found}',
            'Do not trust the package index that it is from.',
        )
    (target := folder / PurePosixPath(urlsplit(url).path).name).write_bytes(content)
    return target


def _published(found: dict[str, Any]) -> date | None:
    """Return the day on which the first wheel was uploaded, or the source archive where there is no wheel."""
    files: list[dict[str, Any]] = found.get('wheels') or [found.get('sdist', {})]
    times: list[datetime] = [file['upload-time'] for file in files if 'upload-time' in file]
    return min(times).astimezone(timezone.utc).date() if times else None
