"""Get the base and its settings, check them against their pinned digests, and keep them as a commit."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata

from pydantic_ai_slim.fork.base import base_info, content_digest, strangers
from pydantic_ai_slim.fork.errors import BaseMismatchError, ForkError
from pydantic_ai_slim.fork.line import Archive
from pydantic_ai_slim.fork.names import DIST_NAME, UPSTREAM_FOLDER
from series import network
from series.errors import DownloadError, NoReleaseError, OfflineError, quoted
from series.folders import lock, scratch
from series.git import EMAIL, NAME, Git, words
from series.line import Line
from series.progress import Report
from series.tree import BASE, BRANCH

_SETTINGS = {'.gitignore', 'LICENSE', 'pyproject.toml'}
"""What of the source archive goes into the base: upstream's settings for running and checking tests."""


def base_repository(line: Line, report: Report, wheel: Path | None = None, archive: Path | None = None) -> Path:
    """Return a bare repository whose only commit is the base of a line.

    It is made once and kept in `build/cache`, under a name that holds what it was made of. Its package is compared with that
    of the wheel each time.

    Args:
        wheel: The base's wheel, if it is at hand and was checked; otherwise it is downloaded.
        archive: The source archive that the line names, likewise.
    """
    key = hashlib.sha256(f'{line.base_message}{line.released}{sorted(_SETTINGS)}'.encode()).hexdigest()[:16]
    repository = line.cache / f'base-{line.name}-{key}.git'
    if wheel and not (kept := _kept_wheel(line)).exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wheel, kept.with_suffix('.new'))
        kept.with_suffix('.new').replace(kept)
    wheel = base_wheel(line, report)
    if repository.exists():
        _check_repository(line, repository, wheel)
        return repository
    with lock(line.root, repository.name, f'making the base of {line.name}', report):
        # Somebody else may have made it in the meantime.
        if repository.exists():
            return repository
        with scratch(line.root, line.cache, 'base') as folder:
            report(f'Getting the settings of `{line.settings.package}` {line.settings.version}')
            files = [*wheel_files(wheel), *_settings(archive or _archive(line.settings, folder))]
            report('Making the base commit')
            made = folder / 'base.git'
            _commit(made, line, files)
            made.rename(repository)
    return repository


def _kept_wheel(line: Line) -> Path:
    return line.cache / f'base-wheel-{line.name}' / f'{DIST_NAME.replace("-", "_")}-{line.base}-py3-none-any.whl'


def _check_repository(line: Line, repository: Path, wheel: Path) -> None:
    """Check that the package in the repository of a base is that of its wheel, which was checked."""
    found = Git(repository).files('HEAD', UPSTREAM_FOLDER)
    if found != {path.removeprefix(f'{UPSTREAM_FOLDER}/'): content for path, content in wheel_files(wheel)}:
        raise DownloadError(
            f'The package in `{line.show(repository)}` is not what `{line.show(line.folder)}/line.toml` is pinned to.',
            f'Find out who changed it; then delete `{line.show(repository)}`, and run the same command again.',
        )


def base_wheel(line: Line, report: Report) -> Path:
    """Return the base's wheel, downloaded once and kept in `build/cache`; all that is in it is checked each time."""
    kept = _kept_wheel(line)
    if not kept.exists():
        with (
            lock(line.root, kept.parent.name, f'getting the base of {line.name}', report),
            scratch(line.root, line.cache, 'base') as folder,
        ):
            report(f'Getting `{DIST_NAME}` {line.base}')
            wheel = download_base(line, folder)
            kept.parent.mkdir(exist_ok=True)
            wheel.replace(kept)
    check_wheel(line, kept)
    return kept


def download_base(line: Line, folder: Path) -> Path:
    """Download the base's wheel into a folder, and check all that is in it.

    Raises:
        DownloadError: It can't be got, or isn't the pinned one.
    """
    wheel = download(folder / 'base', f'{DIST_NAME}==={line.base}', '--only-binary', ':all:')
    check_wheel(line, wheel)
    return wheel


def check_wheel(line: Line, wheel: Path) -> None:
    """Check that a wheel is what upstream has released as the base of a line, and has nothing else in it."""
    remedy = (
        f'Delete `{line.show(line.cache)}`, and do not trust the package index that it is from if it says so again.'
    )
    with tempfile.TemporaryDirectory(prefix='wheel-') as name:
        try:
            found = unpack_wheel(wheel, Path(name))
        except ForkError as error:
            raise DownloadError(
                f'The wheel of `{DIST_NAME}` {line.base} is not what upstream has released.', remedy, str(error)
            ) from None
    if found != line.digest:
        raise DownloadError(
            f'The content of `{DIST_NAME}` {line.base} is not what `{line.show(line.folder)}/line.toml` is pinned to:\n'
            f'expected {line.digest}\n'
            f'found    {found}',
            f'{remedy} Find out who changed it first; to pin this one, write its digest into `line.toml`.',
        )


def unpack_wheel(wheel: Path, folder: Path) -> str:
    """Unpack the wheel of a base into a folder, and return its digest, which covers all that it has."""
    with zipfile.ZipFile(wheel) as content:
        names = [name for name in content.namelist() if not name.endswith('/')]
        content.extractall(folder)
    digest = content_digest(folder)
    info = base_info(folder)
    odd = names if info is None else strangers(names, Distribution.at(info))
    # Not in what an installer makes of a wheel, but never in a wheel.
    odd += [name for name in names if '__pycache__' in name]
    if odd:
        raise BaseMismatchError(f'It also has {quoted(sorted(odd))}, which could run code in every Python that has it.')
    return digest


def _archive(archive: Archive, folder: Path) -> Path:
    """Download a pinned source archive.

    pip compares its digest before it runs the archive's build backend, which it does to read the metadata. Without build
    isolation it takes that backend from the tool's own environment, where it is locked.
    """
    pinned = f'{archive.package}==={archive.version} --hash={archive.digest}'
    return download(folder / 'archive', pinned, '--no-binary', ':all:', '--no-build-isolation')


def download(folder: Path, requirement: str, *options: str) -> Path:
    """Download one release with pip, so that the user's configuration of it holds, and return its file.

    The requirement has three equals signs, since `==2.68.0` also accepts `2.68.0+lifecycle.1`, the fork.

    Raises:
        DownloadError: It can't be got.
    """
    (target := folder / 'download').mkdir(parents=True)
    requirements = folder / 'requirements.txt'
    requirements.write_text(requirement, 'utf-8')
    command = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '--disable-pip-version-check']
    # It is not installed here, so this Python needn't be one that the release supports.
    command += ['--progress-bar', 'off', '--ignore-requires-python', *options]
    command += ['--dest', str(target), '--requirement', str(requirements)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=network.environment(), check=False
    )
    files = list(target.iterdir())
    if done.returncode and network.unreachable(words(done)):
        raise OfflineError(f'`{requirement.split()[0]}`', words(done))
    if done.returncode or len(files) != 1:
        unlisted = b'No matching distribution found' in done.stderr
        raise (NoReleaseError if unlisted else DownloadError)(
            f'pip could not download `{requirement.split()[0]}`.',
            "These are pip's words; check the connection and pip's configuration (`pip config list`), then run the same command again.",
            words(done),
        )
    return files[0]


def wheel_files(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and bytes of the base as upstream's repository lays them out."""
    with zipfile.ZipFile(wheel) as content:
        for info in content.infolist():
            path = PurePosixPath(info.filename)
            if path.parts[0] == 'pydantic_ai':
                yield f'{UPSTREAM_FOLDER}/{path}', content.read(info)
            elif path.parts[0].endswith('.dist-info') and path.parts[1] == 'licenses':
                yield f'{UPSTREAM_FOLDER}/{path.relative_to(*path.parts[:2])}', content.read(info)


def wheel_metadata(wheel: Path) -> Metadata:
    """Read what a wheel says of itself."""
    with zipfile.ZipFile(wheel) as content:
        (path,) = (path for path in content.namelist() if path.endswith('.dist-info/METADATA'))
        return Metadata.from_email(content.read(path), validate=False)


def _settings(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and bytes of what the base takes from a source archive."""
    with tarfile.open(archive) as content:
        for info in content:
            path = info.name.partition('/')[2]
            if path in _SETTINGS and (file := content.extractfile(info)):
                yield path, file.read()


def _commit(repository: Path, line: Line, files: Iterable[tuple[str, bytes]]) -> None:
    """Make a bare repository with one commit that holds the files.

    `git fast-import` writes a pack, so no file touches the disk on its own. Nothing is compressed: most of it is pictures
    and recorded answers, and a tree links to the pack instead of copying it.
    """
    repository.mkdir()
    git = Git(repository)
    git.run('init', '--quiet', '--bare', '--template=', f'--initial-branch={BRANCH}')
    message = line.base_message.encode()
    who = f'{NAME} <{EMAIL}> {line.released:%Y-%m-%d}T00:00:00+0000'
    with tempfile.TemporaryFile(dir=repository.parent) as stream:
        stream.write(f'commit refs/heads/{BRANCH}\nauthor {who}\ncommitter {who}\ndata {len(message)}\n'.encode())
        stream.write(message)
        for path, content in files:
            stream.write(f'M 100644 inline {path}\ndata {len(content)}\n'.encode())
            stream.write(content)
            stream.write(b'\n')
        stream.write(b'done\n')
        stream.seek(0)
        git.run(
            *('-c', 'core.compression=0', '-c', 'fastimport.unpackLimit=0'),
            *('fast-import', '--quiet', '--done', '--depth=0', '--date-format=rfc2822'),
            stdin=stream,
        )


def clone(repository: Path, folder: Path, revision: str) -> Git:
    """Make a repository in a new folder whose branch `series`, and base, is a revision of another one, and check it out.

    The objects are linked, not copied, so it costs little more than the checkout. It stands on its own, even when the
    other is deleted.
    """
    source, git = Git(repository), Git(folder)
    objects = Path(source.run('rev-parse', '--path-format=absolute', '--git-path', 'objects'))
    folder.mkdir()
    git.run('init', '--quiet', '--template=', f'--initial-branch={BRANCH}')
    for name, value in _CONFIG.items():
        git.run('config', name, value)
    shutil.copytree(objects, folder / '.git' / 'objects', copy_function=link, dirs_exist_ok=True)
    git.run('-c', 'checkout.workers=0', 'reset', '--quiet', '--hard', source.run('rev-parse', revision))
    git.run('update-ref', BASE, 'HEAD')
    return git


_CONFIG = {
    # The user works in the tree with an own configuration, of which these would change files or slow git down.
    'core.autocrlf': 'false',
    'core.fsmonitor': 'false',
    'gc.auto': '0',
    'diff.noprefix': 'false',
}


def link(source: str, target: str) -> None:
    """Link a file, or copy it where the file system has no links."""
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def borrow(source: Git, target: Git) -> None:
    """Give a repository all objects of another one, so that it can merge what was made there.

    They are linked, not copied: `git fetch` would compress hundreds of megabytes first.
    """

    def missing(name: str, copy: str) -> None:
        if not Path(copy).exists():
            link(name, copy)

    objects = '.git/objects'
    shutil.copytree(source.folder / objects, target.folder / objects, copy_function=missing, dirs_exist_ok=True)
