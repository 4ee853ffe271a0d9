"""What can go wrong: every error says what failed and why, then the next command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from series.network import missing_certificates


def trimmed(words: str) -> str:
    """Return what a program said, without what is blank around it. A list keeps its first column: that of `git status` may be a blank."""
    return words.strip('\n').rstrip()


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


class NoLineError(SeriesError):
    """A line that doesn't exist."""


class GitError(SeriesError):
    """A git command that failed where none was expected to.

    Args:
        command: The arguments after `git`.
        folder: Where it ran.
        status: Its exit status.
        words: What it said.
    """

    def __init__(self, command: Sequence[str], folder: Path, status: int, words: str) -> None:
        super().__init__(
            f'`git {" ".join(command)}` failed in `{folder}` with exit status {status}.',
            "This is git's answer; if it doesn't say what to do, delete `build/cache` and try again.",
            words,
        )
        self.command = tuple(command)
        self.folder = folder
        self.status = status


class OddFilesError(SeriesError):
    """Something in the package of a commit that no wheel can hold.

    Args:
        folder: The folder of the package.
        names: The paths in it that are symlinks or other repositories.
    """

    def __init__(self, revision: str, folder: str, names: Sequence[str]) -> None:
        super().__init__(
            f'The commit `{revision}` has what is no regular file in `{folder}`: '
            f'{", ".join(f"`{name}`" for name in names)}. Only regular files go into the fork.',
            'Have the commit that adds it write a file in its place, then run the same command again.',
        )
        self.names = tuple(names)


class DownloadError(SeriesError):
    """A release that pip could not get, or that isn't the pinned one."""

    @property
    def unlisted(self) -> bool:
        """Whether the index answered, and has no such release: these are pip's words for it."""
        return 'No matching distribution found' in self.words


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

    @property
    def unlisted(self) -> bool:
        """Whether the index answered: it didn't, whatever pip makes of that."""
        return False


class NoReleaseError(SeriesError):
    """A release that the index doesn't have, or that can't become a line."""


class RebaseError(SeriesError):
    """A new line that can't be started, or that isn't finished."""


class CarryError(SeriesError):
    """A change that can't be carried to another line, or a carry that isn't finished."""


class ReviewError(SeriesError):
    """A revision that holds no series to compare with."""


class LockError(SeriesError):
    """Requirements that uv finds no releases for."""


class MatrixError(SeriesError):
    """A matrix that can't be run."""


class SuiteError(SeriesError):
    """A test suite of others that can't be run."""


class NoTestsError(SeriesError):
    """A choice of tests that none of upstream's fits."""


class DifferenceError(SeriesError):
    """Upstream's tests that say something else of the fork than of the base."""


class BusyError(SeriesError):
    """Something that another command is writing at the same time.

    Args:
        what: What it writes, such as the name of a line.
        other: The command.
    """

    def __init__(self, what: str, other: str) -> None:
        super().__init__(
            f'{other} is at work on `{what}`.', 'Wait until it has ended, then run the same command again.'
        )


class NoTreeError(SeriesError):
    """A tree that doesn't exist, or a folder in its place that is something else."""


class UnfinishedError(SeriesError):
    """A tree in the middle of an `am`, a rebase, a merge or the like."""


class DirtyTreeError(SeriesError):
    """A tree with changes that no commit holds."""


class ElsewhereError(SeriesError):
    """A tree in which something else than the series is checked out."""


class LostWorkError(SeriesError):
    """A step that would destroy commits or patches which nothing else holds."""


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


class NoPatchError(SeriesError):
    """A patch that doesn't exist."""


class CloneError(SeriesError):
    """A clone of upstream that a branch can't be made in as it is."""


class ExtractError(SeriesError):
    """A tree that can't be written as a series."""


class BuildError(SeriesError):
    """A wheel that wasn't built."""


class ReleaseError(SeriesError):
    """A release that can't be made, or that nobody could make again."""


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
