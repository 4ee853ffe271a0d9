"""Compute the digests that lines are pinned to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pydantic_ai_slim.fork.errors import FileNameError
from pydantic_ai_slim.fork.names import DIST_NAME


def digest_files(files: Mapping[str, bytes]) -> str:
    """Compute the digest of files.

    It is the SHA-256 of a listing as `sha256sum --zero` prints it: the digest of each file, two spaces, its path, and a zero
    byte, which no path can hold. So a path can't pass for the end of one entry and the next.

    Args:
        files: The content of the files by their paths, with slashes on every platform.

    Returns:
        The digest as `line.toml` holds it, with `sha256:` in front.

    Raises:
        FileNameError: The path of a file has a character that doesn't print, or a backslash; all such paths are named.
    """
    if odd := [name for name in files if not name.isprintable() or '\\' in name]:
        raise FileNameError(
            f'No release has files with such names: {", ".join(map(ascii, sorted(odd)))}. They can stand for other files '
            f'than they seem to. Find out which package brought them; if it is `{DIST_NAME}`, do not trust the package '
            f'index that it is from.'
        )
    listing = hashlib.sha256()
    for name, content in sorted(files.items()):
        listing.update(f'{hashlib.sha256(content).hexdigest()}  {name}\0'.encode())
    return f'sha256:{listing.hexdigest()}'
