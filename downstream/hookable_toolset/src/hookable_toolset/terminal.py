"""Text on a terminal: what tools, files and models say can't move the cursor, hide or reorder anything."""

from __future__ import annotations

from unicodedata import category

ESCAPED = {'Cc', 'Cf', 'Cs', 'Zl', 'Zp'}
"""Controls, format characters such as those that reorder text, halves of characters, and separators of lines."""
JOINERS = '\u200c\u200d'
"""Format characters that scripts and emoji are written with, and that show nothing by themselves."""


def printable(text: str) -> str:
    r"""Return a text with all that a terminal would act on as `\u001b` and the like, but for ends of lines and tabs."""
    return ''.join(map(_printable, text.replace('\r\n', '\n')))


def indented(text: str) -> str:
    """Return a printable text whose further lines can't be taken for lines of the chat."""
    return printable(text).replace('\n', '\n     ')


def _printable(character: str) -> str:
    if character in '\n\t' or character in JOINERS or category(character) not in ESCAPED:
        return character
    # As JSON has them, so that edited arguments are what was shown.
    units = character.encode('utf-16-be', 'surrogatepass')
    return ''.join(f'\\u{units[n : n + 2].hex()}' for n in range(0, len(units), 2))
