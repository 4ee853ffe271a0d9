"""Show what changed in a series, commit by commit."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from series import tree
from series.base import borrow
from series.errors import SeriesError, quoted
from series.folders import scratch
from series.git import Git
from series.line import Line, digest_patches
from series.progress import Report
from series.verbs.apply import apply_series


@dataclass(frozen=True, kw_only=True)
class _PastLine(Line):
    """A line as it was, whose folder is somewhere else."""

    checkout: Path

    @property
    def root(self) -> Path:
        return self.checkout

    def show(self, path: Path) -> str:
        """Return a path as if the folder were where it was."""
        inside = path.relative_to(self.folder) if path.is_relative_to(self.folder) else None
        return f'patches/{self.name}/{inside.as_posix()}' if inside else super().show(path)


def review(line: Line, revision: str, report: Report, *, colour: bool = False) -> str:
    """Return a range-diff of the series of a line, from a revision of this repository to the patches as they are now.

    Args:
        revision: A commit, branch or tag of this repository.
        colour: Whether the range-diff is to be coloured.

    Returns:
        The range-diff, or an empty string when nothing changed.
    """
    with tempfile.TemporaryDirectory() as folder:
        return compare(_line_of(line, revision, Path(folder)), line, report, colour=colour)


def compare(before: Line, after: Line, report: Report, *, colour: bool = False) -> str:
    """Return a range-diff as `review()` does, of two lines, or of one at two times."""
    if (before.base_message, digest_patches(before.patches)) == (after.base_message, digest_patches(after.patches)):
        return ''
    with scratch(after.root, after.cache.parent, 'review') as folder:
        old = apply_series(before, folder / 'before', report)
        new = apply_series(after, folder / 'after', report)
        borrow(old, new)
        report('Comparing')
        ranges = [f'{git.run("rev-parse", tree.BASE)}..{git.run("rev-parse", "HEAD")}' for git in (old, new)]
        # A patch that was moved to another base has other lines around it, and is the same patch still.
        options = (f'--color={"always" if colour else "never"}', '--creation-factor=80')
        found = new.lines('range-diff', *options, *ranges)
    shown: list[str] = []
    last = 0
    for line in found:
        same = re.match(r'(?:\x1b\[[\d;]*m)*\s*(\d+):\s+[0-9a-f]+ (?:\x1b\[[\d;]*m)*= ', line)
        # A patch that didn't change has an equals sign, and is left out unless it came before another one
        shown += [] if same and int(same[1]) > last else [line]
        last = max(last, int(same[1]) if same else 0)
    return '\n'.join(shown)


def _line_of(line: Line, revision: str, folder: Path) -> Line:
    """Read a line as it was in a revision, with its patches in a folder."""
    git = Git(line.root)
    if not git.has(revision):
        raise SeriesError(
            f'There is no revision `{revision}` in this repository.',
            'Name a commit, a branch or a tag, such as `HEAD~3`; `git log -- patches` lists those that changed a series.',
        )
    path = line.show(line.folder)
    if git.attempt('cat-file', '-e', f'{revision}:{path}/line.toml').returncode:
        lines = [
            Path(name).parent.name
            for name in git.lines('ls-tree', '-r', '--name-only', revision, 'patches/')
            if name.endswith('/line.toml')
        ]
        raise SeriesError(
            f'There is no line `{line.name}` in `{revision}`.',
            f'It has {quoted(lines) or "no lines"}. Name a later revision, or compare two lines with '
            f'`--against LINE` (`ARGS="--against LINE"`).',
        )
    target = folder / line.name
    files = git.files(revision, path)
    if 'series' not in files and any(name.endswith('.patch') for name in files):
        raise SeriesError(
            f'`{path}` has another layout in `{revision}`: its patches stand in no list `series` there.',
            f'Name a later revision; `git log --diff-filter=A -- {path}/series` says which one has brought the list.',
        )
    # Not as text: a patch can hold any bytes.
    for name, content in files.items():
        if name.endswith(('.patch', 'series', 'line.toml')):
            (written := target / name).parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(content)
    return _PastLine.load(target, checkout=line.root)
