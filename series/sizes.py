"""Count what each patch adds to the package."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER

_CODE = f'{UPSTREAM_FOLDER}/{PACKAGE}/'


def changed_lines(patch: Path, sign: str = '+') -> list[tuple[str, str]]:
    """Return the lines, empty ones, comments and docstrings too, that a patch adds to the package's modules, each after its module.

    Args:
        sign: `-` for those that it takes away.
    """
    found: list[tuple[str, str]] = []
    path, left = '', 0
    for line in patch.read_bytes().decode('utf-8', 'replace').split('\n'):
        if line.startswith('+++ ') and not left:
            path = line.removeprefix('+++ b/').rstrip('\t')
        elif place := re.match(r'@@ -\S+ \+\d+(?:,(\d+))? @@', line):
            left = int(place[1] or 1)
        elif left and line[:1] in ('+', '-', ' '):
            left -= line[0] != '-'
            if line[0] == sign and path.startswith(_CODE) and path.endswith('.py'):
                found.append((path.removeprefix(_CODE), line[1:]))
    return found
