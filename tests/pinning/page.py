"""The lines of `docs/pinning.md`, as its readers copy them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from series.line import Line, find_lines

ROOT = Path(__file__).parents[2]
PAGE = ROOT / 'docs' / 'pinning.md'
NAMED = max(find_lines(ROOT), key=lambda line: PAGE.read_text('utf-8').count(line.name))
"""The line that the examples of the page name."""

BLOCK = re.compile(r'^#+ (?P<heading>[^\n]+)|^```(?P<kind>\w+)\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, list[tuple[str, str]]]:
    """Return the kinds and the texts of the code blocks by the heading they stand under."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ''
    for match in BLOCK.finditer(PAGE.read_text('utf-8')):
        heading = match['heading'] or heading
        if match['kind']:
            found.setdefault(heading, []).append((match['kind'], match['text']))
    return found


def block(heading: str, number: int, line: Line, words: Mapping[str, str], missing: set[str] | None = None) -> str:
    """Return a code block as a user of a line writes it.

    Args:
        heading: The heading it stands under, without the marks before it.
        number: Which one there, from 0.
        line: The line, in place of the one that the page names.
        words: What stands for `URL`, `COMMIT` and `INDEX`.
        missing: Packages that have no release for the line, which are left out.
    """
    _, text = blocks()[heading][number]
    for name in missing or ():
        text = re.sub(rf'"{name}==[^"]*", |(, )?"{name}==[^"]*"|^{name}==.*\n', '', text, flags=re.MULTILINE)
    for old, new in {NAMED.version: line.version, NAMED.name: line.name, **words}.items():
        text = re.sub(rf'(?<![\w.]){re.escape(old)}(?!\w)', lambda _, new=new: new, text)
    return text
