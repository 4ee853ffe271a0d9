"""What stops a build. Each message says what failed and what to do next."""

from __future__ import annotations

from pathlib import Path


class ForkError(Exception):
    """Something that stops a build; the message says what failed and what to do next."""


class LineError(ForkError):
    """A `line.toml` that is missing or wrong, or a line folder that isn't where it belongs."""


class BaseMismatchError(ForkError):
    """The base in the environment isn't the release that the line is pinned to."""


class ForkMismatchError(ForkError):
    """The base with the patches isn't the package that the line is pinned to, or the line isn't pinned to one."""


class BuildFolderError(ForkError):
    """A build folder that lacks a file, has another one, or has other content than the line is pinned to."""


class FileNameError(ForkError):
    """A file whose name no release would have."""


class GitMissingError(ForkError):
    """There is no `git` to apply patches with."""


class UnsupportedBuildError(ForkError):
    """A source distribution, an editable installation or a build without hooks, which the fork can't have."""


class PatchError(ForkError):
    """A patch that doesn't apply, or that takes more than it may.

    Attributes:
        patch: The patch file.
        output: What git said, if it was asked.
    """

    def __init__(self, message: str, patch: Path, output: str) -> None:
        super().__init__(message)
        self.patch = patch
        self.output = output
