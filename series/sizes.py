"""Count what each patch adds to the package, and how much of that is the same text on all lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER
from series.line import Line
from series.message import read_message

_CODE = f'{UPSTREAM_FOLDER}/{PACKAGE}/'


@dataclass(frozen=True)
class Size:
    """What the patches of a subject add to the package, on the lines that have it."""

    subject: str
    added: Mapping[str, Sequence[str]]
    """The lines that each adds, by the name of the line that it is on."""

    @property
    def common(self) -> int | None:
        """How many of them are the same on the newest two lines that have it, in the same order; `None` where only one has."""
        if len(self.added) < 2:
            return None
        matcher = SequenceMatcher(None, *[*self.added.values()][-2:], autojunk=False)
        return sum(block.size for block in matcher.get_matching_blocks())


def sizes(lines: Sequence[Line]) -> list[Size]:
    """Count the patches of lines, the oldest line first, in the order of the newest line; those that it doesn't have come last."""
    found: dict[str, dict[str, Sequence[str]]] = {}
    for line in reversed(lines):
        for patch in line.patches:
            found.setdefault(read_message(patch).subject, {})[line.name] = added_lines(patch)
    return [
        Size(subject, {line.name: added[line.name] for line in lines if line.name in added})
        for subject, added in found.items()
    ]


def added_lines(patch: Path) -> list[str]:
    """Return what a patch adds to the Python modules of the package: all lines, with empty ones, comments and docstrings."""
    found = lines_by_module(patch, '+')
    return [line for path in sorted(found) for line in found[path]]


def lines_by_module(patch: Path, sign: str) -> dict[str, list[str]]:
    """Return what a patch adds to the Python modules of the package, or takes from them, by their paths from the package on.

    Args:
        patch: The patch.
        sign: `+` for what it adds, `-` for what it takes.
    """
    found: dict[str, list[str]] = {}
    path, left = '', 0
    for line in patch.read_bytes().decode('utf-8', 'replace').split('\n'):
        if line.startswith('+++ ') and not left:
            path = line.removeprefix('+++ b/').rstrip('\t')
        elif place := re.match(r'@@ -\S+ \+\d+(?:,(\d+))? @@', line):
            left = int(place[1] or 1)
        elif left and line[:1] in ('+', '-', ' '):
            left -= line[0] != '-'
            if line[0] == sign and path.startswith(_CODE) and path.endswith('.py'):
                found.setdefault(path.removeprefix(_CODE), []).append(line[1:])
    return found
