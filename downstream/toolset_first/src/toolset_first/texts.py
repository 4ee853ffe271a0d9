"""Text that somebody else wrote, as a terminal may show it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import PurePath

from rich.cells import cell_len

_NEVER = {'Cc', 'Cs', 'Zl', 'Zp'}
"""Control characters, halves of characters, and what breaks lines."""
_TURNS = frozenset('\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069')
"""What changes the direction that text is shown in, so that it reads otherwise than it runs."""
_UNSEEN = re.compile('FILLER|BLANK|JOINER|VARIATION SELECTOR')
"""Names of characters that count as printable, and print nothing."""


def visible(text: str, *, keep: str = '', strict: bool = False) -> str:
    r"""Return a text in which control and bidirectional characters are escaped, as `\x1b` and `\u202e`.

    Args:
        text: The text.
        keep: What is left as it is, such as the end of a line.
        strict: Whether to escape all that can't be seen, such as joiners and spaces of no or unusual width.
    """
    return ''.join(
        character if character in keep or not _is_escaped(character, strict) else _escape(character)
        for character in text
    )


def wrapped(text: str, columns: int) -> list[str]:
    """Return the lines that a text, which `visible()` has returned, has on a terminal that is so wide. An escape is on one line."""
    lines, left = [''], columns
    for piece in _PIECES.findall(text):
        width = columns_of(piece)
        if width > left:
            lines.append('')
            left = columns
        lines[-1] += piece
        left -= width
    return lines


_PIECES = re.compile(r'\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.', re.DOTALL)
"""A character, or what stands for one."""


def columns_of(text: str) -> int:
    """Return how many columns a text takes at most: what combines with the character before it counts, too."""
    return sum(max(1, cell_len(character)) for character in text)


def _is_escaped(character: str, strict: bool) -> bool:
    if character.isascii():
        return not character.isprintable()
    if strict:
        return not character.isprintable() or bool(_UNSEEN.search(unicodedata.name(character, '')))
    return character in _TURNS or unicodedata.category(character) in _NEVER


def _escape(character: str) -> str:
    return character.encode('unicode_escape', 'surrogatepass').decode('ascii')


def quoted(name: str | PurePath, length: int = 200) -> str:
    """Return a name in quotes, on one line, and folded if it is long."""
    shown = json.dumps(visible(folded(str(name), length), strict=True), ensure_ascii=False)
    return shown.replace('\\\\', '\\')


def unknown(name: str, known: Iterable[str]) -> str:
    """Say that a name is none of those that are known, and which of them is nearest."""
    known = list(known)
    nearest = get_close_matches(name.casefold(), known, 1)
    meant = f' Did you mean `{nearest[0]}`?' if nearest else ''
    return f'`{name}` is not known.{meant} Known are {", ".join(f"`{one}`" for one in known)}.'


def folded(text: str, length: int) -> str:
    """Return a text, or if it is longer its beginning and its end, with how much there is between them."""
    if len(text) <= length:
        return text
    end = length // 5
    return f'{text[: length - end]} ⟪… {len(text) - length:,} more characters …⟫ {text[-end:]}'
