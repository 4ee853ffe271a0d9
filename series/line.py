"""Find a line, and where its things are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from pydantic_ai_slim.fork.line import PinnedLine, load_line
from pydantic_ai_slim.fork.names import DIST_NAME
from series.errors import SeriesError, quoted

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Line(PinnedLine):
    """One upstream release that the series is carried on, in a checkout of this repository."""

    @classmethod
    def load(cls, pins: Path, **fields: Any) -> Self:
        """Read the `line.toml` in a folder.

        Args:
            pins: The folder.
            fields: What the line has besides, or instead: such as `folder`, for one that isn't in its place.
        """
        return cls(**vars(load_line(pins)) | fields)

    @property
    def name(self) -> str:
        """The line's name, which is the base's version."""
        return self.folder.name

    @property
    def root(self) -> Path:
        """The checkout of this repository."""
        return self.folder.parent.parent

    @property
    def is_newest(self) -> bool:
        """Whether no line in the checkout is newer."""
        return self.name == line_names(self.root)[-1]

    @property
    def tree(self) -> Path:
        """The folder of the tree."""
        return self.root / 'build' / self.name

    @property
    def cache(self) -> Path:
        """The folder of what was downloaded, and of what was made of it once."""
        return self.root / 'build' / 'cache'

    @property
    def base_message(self) -> str:
        """The message of the base commit. It names all that the commit is made of, so that a change of it shows."""
        settings = self.settings
        return (
            f'{DIST_NAME} {self.base}\n\nThe unmodified release, content {self.digest},\n'
            f'with the settings of {settings.package} {settings.version}, archive {settings.digest}.\n'
        )

    def make(self, verb: str) -> str:
        """Return the command for a verb. It names the line, without which make takes the newest."""
        return f'make {verb} LINE={self.name}'

    def show(self, path: Path) -> str:
        """Return a path as a user in the checkout's root would type it."""
        return path.relative_to(self.root).as_posix()


def digest_patches(patches: Iterable[Path]) -> str:
    """Compute a digest of the bytes of patches in their order, which tells whether someone changed them."""
    digest = hashlib.sha256()
    for patch in patches:
        digest.update(hashlib.sha256(patch.read_bytes()).digest())
    return digest.hexdigest()


def pin_patched(text: str, digest: str) -> str:
    """Return the text of a `line.toml` with the digest of the package with the patches, in place of the one that it has."""
    if re.search(r'^patched = ', text, re.MULTILINE):
        return re.sub(r'^patched = "[^"]*"', f'patched = "{digest}"', text, count=1, flags=re.MULTILINE)
    comment = '# package_digest() of the base with the patches; `make extract` writes it'
    return re.sub(
        r'^digest = .*\n', lambda pin: f'{pin[0]}patched = "{digest}"  {comment}\n', text, count=1, flags=re.MULTILINE
    )


def line_names(root: Path) -> list[str]:
    """Return the names of all lines, the newest last."""
    return sorted((path.parent.name for path in (root / 'patches').glob('*/line.toml')), key=_age)


def find_line(root: Path, name: str | None = None) -> Line:
    """Return the line of that name, or the newest."""
    names = line_names(root)
    if not names:
        raise SeriesError(
            f'There is no line in `{root}`: no folder of its `patches/` holds a `line.toml`.',
            "Go to the repository's root and run the same command again.",
        )
    if name is not None and name not in names:
        raise SeriesError(
            f'There is no line `{name}`: `patches/{name}/line.toml` does not exist.',
            f'Name one of {quoted(names)}, or none for the newest.',
        )
    return Line.load(root / 'patches' / (name or names[-1]))


def find_lines(root: Path) -> list[Line]:
    """Return all lines, the newest last."""
    return [find_line(root, name) for name in line_names(root) or [None]]


def _age(name: str) -> tuple[bool, Version]:
    """Order lines by their version; what isn't one comes before all others."""
    try:
        return True, Version(name)
    except InvalidVersion:
        return False, Version('0')
