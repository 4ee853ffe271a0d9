"""Count what each patch adds to the package."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER

_CODE = f'{UPSTREAM_FOLDER}/{PACKAGE}/'


def added_lines(patch: Path) -> list[str]:
    """Return what a patch adds to the Python modules of the package: all lines, with empty ones, comments and docstrings."""
    found = lines_by_module(patch, '+')
    return [line for path in sorted(found) for line in found[path]]


def lines_by_module(patch: Path, sign: str) -> dict[str, list[str]]:
    """Return what a patch adds to the Python modules of the package, or takes from them, by their paths from the package on.

    Args:
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
