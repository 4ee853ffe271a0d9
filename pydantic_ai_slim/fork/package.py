"""Check that the package that comes out is what the line is pinned to."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import ForkMismatchError
from pydantic_ai_slim.fork.line import PinnedLine
from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER


def check_package(line: PinnedLine, tree: Path) -> list[Path]:
    """Check that the package in a folder is what the line is pinned to, and give its files the same permissions everywhere.

    git can skip a patch, or a part of one, and say that all went well. So its word isn't taken for it.

    Args:
        line: The line.
        tree: As for `apply_patches()`, with the patches applied.

    Returns:
        The files of the package.

    Raises:
        ForkMismatchError: It is another package, or the line isn't pinned to one.
        FileNameError: As `digest_files()`.
    """
    pins, name = line.folder / 'line.toml', line.folder.name
    repin = f'`make apply LINE={name}` and `make extract LINE={name}`'
    if line.patched is None:
        raise ForkMismatchError(
            f'`{pins}` has no `patched`, the digest of the package with the patches, so nobody could tell whether they were '
            f'applied in full. Run {repin}, which write it, and build again.'
        )
    files = package_files(tree)
    digest = digest_files(files)
    if digest != line.patched:
        raise ForkMismatchError(
            f'The base with the patches is not the package that `{pins}` is pinned to:\n'
            f'expected {line.patched}\n'
            f'found    {digest}\n'
            f'Either the patches are not those that were pinned, or `{shutil.which("git")}` has not applied all of them. '
            f'If they were edited by hand, put that away with `git stash push --include-untracked -- patches/{name}` and build '
            f'again; if they are meant to be others, run {repin} first.'
        )
    paths = [tree / UPSTREAM_FOLDER / path for path in files]
    for path in paths:
        path.chmod(0o644)  # neither a umask nor a patch makes a difference
    return paths


def package_digest(tree: Path) -> str:
    """Compute the digest of the package in a folder with the layout of upstream's repository.

    Args:
        tree: As for `apply_patches()`.

    Returns:
        As `digest_files()`.

    Raises:
        ForkMismatchError: As `package_files()`.
        FileNameError: As `digest_files()`.
    """
    return digest_files(package_files(tree))


def package_files(tree: Path) -> dict[str, bytes]:
    """Read the package in a folder with the layout of upstream's repository.

    Args:
        tree: As for `apply_patches()`.

    Returns:
        The content of its files by their paths, which begin with `pydantic_ai/`.

    Raises:
        ForkMismatchError: Something in it is neither a folder nor a regular file; all of that is named.
    """
    folder = tree / UPSTREAM_FOLDER
    found: dict[str, bytes] = {}
    odd: list[str] = []
    for path in sorted((folder / PACKAGE).rglob('*')):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
        elif not stat.S_ISDIR(mode):
            odd.append(path.relative_to(tree).as_posix())
    if odd:
        raise ForkMismatchError(
            f'With the patches, the package has what is neither a folder nor a regular file: '
            f'{", ".join(f"`{name}`" for name in odd)}. Only regular files go into the fork. Find the patch that makes it, and '
            f'have it write a file.'
        )
    return found
