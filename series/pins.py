"""Pin a new line: find out what it is made of, and write its `line.toml` and the files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from packaging.metadata import Metadata
from packaging.version import InvalidVersion, Version

from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import ForkError
from pydantic_ai_slim.fork.line import Archive
from pydantic_ai_slim.fork.names import DIST_NAME
from series.base import download, unpack_wheel
from series.errors import DownloadError, NoReleaseError
from series.index import Release, fetch_archive, find_release
from series.line import Line
from series.progress import Report

_ROOT = 'pydantic-ai'
"""The distribution whose source archive has upstream's settings."""

_TRIES = 10
"""How many releases are asked for such an archive."""

_LINE_TOML = """\
base = "{base}"         # the version of pydantic-ai-slim that the patches apply to
released = {released}   # the day on which the base was published
number = 1              # the fork's version is <base>+lifecycle.<number>; raised with each release of the fork
digest = "{digest}"  # content_digest() of the base
licences = "{licences}"  # digest_files() of the licences in the build folder
python = {python}
{url}
[settings]              # where upstream's settings for tests come from; no release ships tests
package = "{package}"
version = "{version}"
digest = "{archive}"  # of the source distribution

[caps]{caps}"""


@dataclass(frozen=True)
class Pinned:
    """A line that isn't in `patches/` yet."""

    line: Line
    wheel: Path
    """The base's wheel."""
    archive: Path
    """The source archive that the line names."""
    notes: Sequence[str]
    """What the user should look at."""


def read_version(text: str) -> str:
    """Return a version as the index spells it."""
    try:
        version = Version(text)
    except InvalidVersion:
        raise NoReleaseError(f'{text!r} is not a version.', 'Name a release of upstream, such as `1.27.0`.') from None
    if version.local:
        raise NoReleaseError(
            f'`{text}` is not a release of upstream, but of a fork.', f'Name the release itself: `{version.public}`.'
        )
    return str(version)


def write_pins(line: Line, release: Release, folder: Path, downloads: Path, report: Report) -> Pinned:
    """Find out what a new line is pinned to, and write it to a folder.

    Args:
        line: The old line, of which comments, caps and requirements are taken over.
        release: The base of the new line.
        folder: Gets `<version>/`, which is to be the line's folder, and `build/`, which its wheel is to be built from.
        downloads: Gets what is downloaded for that.
    """
    version = str(release.version)
    report(f'Getting `{DIST_NAME}` {version}')
    wheel = download(downloads / 'base', f'{DIST_NAME}==={version}', '--only-binary', ':all:')
    try:
        digest = unpack_wheel(wheel, downloads / 'unpacked')
    except ForkError as error:
        raise DownloadError(
            f'The wheel of `{DIST_NAME}` {version} is not one to pin.',
            'Do not trust the package index that it is from.',
            str(error),
        ) from None
    (info,) = (downloads / 'unpacked').glob(f'{DIST_NAME.replace("-", "_")}-*.dist-info')
    metadata = Metadata.from_email((info / 'METADATA').read_bytes(), validate=False)
    archive, archive_file = _find_settings(release, downloads / 'archives', report)

    (pins := folder / version).mkdir(parents=True)
    licences = _write_build_folder(line, version, metadata, info / 'licenses', folder / 'build')
    caps = re.split(r'^\[caps\]', (line.folder / 'line.toml').read_text('utf-8'), maxsplit=1, flags=re.MULTILINE)[1]
    text = _LINE_TOML.format(
        base=version,
        released=f'{release.published or date.today():%Y-%m-%d}',
        digest=digest,
        licences=licences,
        python=json.dumps(_pythons(metadata)),
        url=f'url = {json.dumps(line.url)}\n' if line.url else '',
        package=archive.package,
        version=archive.version,
        archive=archive.digest,
        caps=caps,
    )
    (pins / 'line.toml').write_text(text, 'utf-8')
    for path in sorted(line.folder.glob('*.in')):
        (pins / path.name).write_text(_renamed(path.read_text('utf-8'), line, version), 'utf-8')
    notes = [
        'Caps and requirements are those of the old line; nothing has tried whether the new base needs more or fewer.'
    ]
    if release.published is None:
        notes.append('The index does not tell the day of the release: `released` in `line.toml` is today; correct it.')
    new = Line.load(pins, folder=line.root / 'patches' / version)
    return Pinned(new, wheel, archive_file, notes)


def _find_settings(release: Release, folder: Path, report: Report) -> tuple[Archive, Path]:
    """Find the newest source archive up to a release, and return what to pin of it, and its file."""
    requirement = f'{_ROOT}<={release.version}'
    with suppress(NoReleaseError):
        for _ in range(_TRIES):
            found = find_release(requirement)
            if found.archive:
                report(f'Getting the settings of `{_ROOT}` {found.version}')
                archive = fetch_archive(folder, found)
                return Archive(_ROOT, str(found.version), found.digest), archive
            requirement = f'{_ROOT}<{found.version}'
    raise NoReleaseError(
        f'The index has no source archive of `{_ROOT}` up to {release.version} to take the settings for tests from.',
        "Check pip's and uv's configuration of the index, then run the same command again.",
    )


def _pythons(metadata: Metadata) -> list[str]:
    """Return the Python versions that a release says it supports."""
    prefix = 'Programming Language :: Python :: '
    named = [
        classifier.removeprefix(prefix) for classifier in metadata.classifiers or () if classifier.startswith(prefix)
    ]
    return sorted((name for name in named if re.fullmatch(r'\d+\.\d+', name)), key=Version)


def _write_build_folder(line: Line, version: str, metadata: Metadata, licences: Path, target: Path) -> str:
    """Write the folder that the new line's wheel is built from: the old line's, with the new version and the base's licences.

    Returns:
        The digest of the licences.
    """
    old = build_folder(line)
    target.mkdir()
    text = (old / 'pyproject.toml').read_text('utf-8')
    text = _renamed(text, line, version)
    text = re.sub(
        r'(?m)^core-metadata-version = "[^"]*"', f'core-metadata-version = "{metadata.metadata_version}"', text
    )
    files = {path.name: path.read_bytes() for path in sorted(licences.iterdir())}
    files['LICENSE.lifecycle'] = (line.root / 'LICENSE').read_bytes()
    text = re.sub(r'(?m)^license-files = .*$', f'license-files = {json.dumps([*files])}', text)
    (target / 'pyproject.toml').write_text(text, 'utf-8')
    for name, content in files.items():
        (target / name).write_bytes(content)
    return digest_files(files)


def _renamed(text: str, line: Line, version: str) -> str:
    """Return a text with the version of a new line in place of that of the old one."""
    return re.sub(rf'(?<![\d.]){re.escape(line.base)}(?!\.?\d)', version, text)


def build_folder(line: Line) -> Path:
    """Return the folder that the wheel of a line is built from."""
    return line.root / 'pydantic_ai_slim' / line.name
