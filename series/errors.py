"""What can go wrong: every error says what failed and why, then the next command.

Anything here may raise a `SeriesError`. `Raises:` names what a caller tells apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from series.network import missing_certificates


def trimmed(words: str) -> str:
    """Return what a program said, without what is blank around it. A list keeps its first column: that of `git status` may be a blank."""
    return words.strip('\n').rstrip()


def quoted(names: Iterable[object]) -> str:
    """Return names as errors list them, in backticks."""
    return ', '.join(f'`{name}`' for name in names)


class SeriesError(Exception):
    """A refusal or a failure that the user can do something about.

    Args:
        problem: What failed, on which patch or path, and why, in full sentences.
        remedy: The next command, in full sentences.
        words: What git (or another program) said about it, shown below ours.
    """

    def __init__(self, problem: str, remedy: str, words: str = '') -> None:
        super().__init__(problem, remedy, words)
        self.problem = problem
        self.remedy = remedy
        self.words = trimmed(words)

    def __str__(self) -> str:
        text = f'{self.problem}\n{self.remedy}'
        return f'{text}\n\n{indent(self.words, "    ")}' if self.words else text


class GitError(SeriesError):
    """A git command that failed where none was expected to."""

    def __init__(self, command: Sequence[str], folder: Path, status: int, words: str) -> None:
        super().__init__(
            f'`git {" ".join(command)}` failed in `{folder}` with exit status {status}.',
            "This is git's answer; if it doesn't say what to do, delete `build/cache` and try again.",
            words,
        )


class DownloadError(SeriesError):
    """A release that could not be got, or that isn't the pinned one."""


class NoReleaseError(DownloadError):
    """A release that the index doesn't have, or that can't become a line."""


class OfflineError(DownloadError):
    """A package index that can't be reached.

    Args:
        wanted: What was wanted of it.
        words: What pip or uv said.
    """

    def __init__(self, wanted: str, words: str) -> None:
        super().__init__(
            f'The package index cannot be reached, and {wanted} is not on this machine yet.',
            f'{missing_certificates()}Check the connection and the configuration of pip (`pip config list`) and uv, then run the same '
            f'command again.',
            words,
        )


class ApplyError(SeriesError):
    """A patch that doesn't apply.

    Args:
        patch: The patch's file.
        files: The files of the tree that it doesn't fit, where git names them.
    """

    def __init__(self, problem: str, remedy: str, words: str, *, patch: Path, files: Sequence[str]) -> None:
        super().__init__(problem, remedy, words)
        self.patch = patch
        self.files = tuple(files)


@dataclass(frozen=True)
class Fault:
    """One thing that `verify` found wrong with a patch."""

    problem: str
    words: str = ''
    """What a program said about it."""

    def __str__(self) -> str:
        return f'- {self.problem}\n{indent(trimmed(self.words), "    ")}'.rstrip()


class VerifyError(SeriesError):
    """A series with faults.

    Args:
        line: The line's name.
        faults: The faults of each patch that has some.
        remedy: The next command.
    """

    def __init__(self, line: str, faults: Mapping[str, Sequence[Fault]], remedy: str) -> None:
        number = sum(map(len, faults.values()))
        listed = '\n\n'.join(f'`{patch}`:\n' + '\n'.join(map(str, found)) for patch, found in faults.items())
        super().__init__(
            f'The series on {line} has {number} {"fault" if number == 1 else "faults"}.\n\n{listed}\n', remedy
        )
        self.faults = faults
