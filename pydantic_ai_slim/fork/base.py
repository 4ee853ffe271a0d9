"""Find the installed base, and check that it is what the line is pinned to and brings nothing else along."""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import BaseMismatchError
from pydantic_ai_slim.fork.line import PinnedLine
from pydantic_ai_slim.fork.names import DIST_NAME, PACKAGE


@dataclass(frozen=True)
class Base:
    """The installed base of a line, as it was when it was compared with the pin."""

    distribution: Distribution
    """Its metadata, from the folder that is part of the digest."""
    files: Mapping[str, bytes]
    """The content of the `base_files()` by their paths."""


def find_base(line: PinnedLine) -> Base:
    """Find the base of a line in the running environment and check that it is what the line is pinned to.

    Raises:
        BaseMismatchError: It is missing, there are several, it is of another version, or it has other content.
        FileNameError: As `digest_files()`.
    """
    try:
        found = distribution(DIST_NAME)
    except PackageNotFoundError:
        raise BaseMismatchError(
            f'The fork of {line.base} is built from the installed base, but `{DIST_NAME}` is not installed in the build '
            f'environment. Build without `--no-build-isolation`, or install `{DIST_NAME}==={line.base}` there first.'
        ) from None
    folder = Path(str(found.locate_file('')))
    info = base_info(folder)
    base = Distribution.at(info) if info else found
    if base.version != line.base:
        raise BaseMismatchError(
            f'The fork of {line.base} is built from the installed base, but the build environment holds `{DIST_NAME}` '
            f'{base.version}. Build without `--no-build-isolation`, or install `{DIST_NAME}==={line.base}` there first: '
            f'with three equals signs, since two accept the fork itself too.'
        )
    if odd := strangers(_record(base), base):
        raise BaseMismatchError(
            f'The installed `{DIST_NAME}` {line.base} in `{folder}` has brought along what the release does not have: '
            f'{", ".join(f"`{name}`" for name in odd)}. The package index serves another file under this version, and such a '
            f'file can run code in every Python that has it. Delete that environment, empty the cache of your installer, with '
            f'`pip cache remove pydantic_ai_slim` or `uv cache clean {DIST_NAME}`, and do not trust that package index.'
        )
    # Read once, so that what is built is what was compared.
    files = {name: path.read_bytes() for name, path in base_files(folder).items()}
    digest = digest_files(files)
    if digest != line.digest:
        raise BaseMismatchError(
            f'The content of the installed `{DIST_NAME}` {line.base} in `{folder}` is not what '
            f'`{line.folder / "line.toml"}` is pinned to:\n'
            f'expected {line.digest}\n'
            f'found    {digest}\n'
            f'Either the installed files were changed, or the package index serves another file under this version. Empty '
            f'the cache of your installer, with `pip cache remove pydantic_ai_slim` or `uv cache clean {DIST_NAME}`, and '
            f'build again; if the digests still differ, do not trust that package index.'
        )
    return Base(base, files)


def _record(base: Distribution) -> list[str]:
    """Return the paths of all files that an installer has made of the base's wheel.

    Raises:
        BaseMismatchError: It hasn't written them down, so nobody can tell what came along.
    """
    text = base.read_text('RECORD')
    if text is None:
        raise BaseMismatchError(
            f'The installed `{DIST_NAME}` {base.version} has no `RECORD` of the files that came with it, so nobody can tell '
            f'what it brought along. Build without `--no-build-isolation`, or install it with pip or uv.'
        )
    return [row[0] for row in csv.reader(text.splitlines()) if row]


def strangers(names: Iterable[str], base: Distribution) -> list[str]:
    """Return which files of the base no digest covers, in order: there should be none.

    What is in the folder with its metadata is no code, and its scripts are made of what is pinned there.

    Args:
        names: The paths of all its files, as in a wheel or in `RECORD`.
        base: Its metadata.
    """
    scripts = {script.name for script in base.entry_points.select(group='console_scripts')}

    def is_known(path: PurePosixPath) -> bool:
        inside = path.parts[0] == PACKAGE or (len(path.parts) > 1 and _is_info(path.parts[0]))
        return inside or (path.parent.name in ('bin', 'Scripts') and path.name.removesuffix('.exe') in scripts)

    return sorted(name for name in names if not is_known(PurePosixPath(posixpath.normpath(name.replace('\\', '/')))))


def content_digest(folder: Path) -> str:
    """Compute the digest of the content that the base distributes.

    It is the same for an unpacked wheel and for what any installer made of that wheel.

    Args:
        folder: As for `base_files()`.

    Returns:
        As `digest_files()`.

    Raises:
        BaseMismatchError: As `base_info()`.
        FileNameError: As `digest_files()`.
    """
    return digest_files({name: path.read_bytes() for name, path in base_files(folder).items()})


def base_files(folder: Path) -> dict[str, Path]:
    """Find the files that the base distributes.

    Args:
        folder: What holds `pydantic_ai/` and `pydantic_ai_slim-<version>.dist-info/`: an unpacked wheel, or the
            `site-packages` of an environment.

    Returns:
        The files by their paths relative to `folder`, in order, with slashes on every platform. Left out is what an
        installer or an interpreter adds: `RECORD`, `INSTALLER` and the like, and `__pycache__`.

    Raises:
        BaseMismatchError: As `base_info()`.
    """
    patterns = [f'{PACKAGE}/**/*']
    if info := base_info(folder):
        patterns += [f'{info.name}/{part}' for part in ('METADATA', 'entry_points.txt', 'licenses/**/*')]
    # A symlink counts as what it leads to: installers can link a package to their cache.
    found = {path.relative_to(folder): path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return {
        name: path
        for name, path in sorted((relative.as_posix(), path) for relative, path in found.items())
        if '/__pycache__/' not in name
    }


def base_info(folder: Path) -> Path | None:
    """Find the folder with the metadata of the base.

    Args:
        folder: As for `base_files()`.

    Returns:
        The folder, or `None` when there is none.

    Raises:
        BaseMismatchError: There are several. An installer makes one, under any spelling of the name, from a folder that a
            wheel brings along, and Python may read the metadata and the scripts from that.
    """
    found = sorted(path for path in folder.iterdir() if _is_info(path.name))
    if len(found) > 1:
        raise BaseMismatchError(
            f'There are several folders with the metadata of `{DIST_NAME}` in `{folder}`: '
            f'{", ".join(f"`{path.name}`" for path in found)}. The fork takes its metadata from one that is pinned. Build '
            f'without `--no-build-isolation`, or install `{DIST_NAME}` there again; if there are still several, the package '
            f'index serves another file than the release. Do not trust it then.'
        )
    return found[0] if found else None


def _is_info(name: str) -> bool:
    """Say whether Python, or anyone who goes by the name, would read the metadata of the base from a folder."""
    stem, dot, suffix = name.rpartition('.')
    if not dot or suffix.lower() not in ('dist-info', 'egg-info'):
        return False
    return DIST_NAME in {canonicalize_name(part) for part in (stem, stem.partition('-')[0], stem.rpartition('-')[0])}
