"""Find links in docs that lead nowhere: to a name of the package that isn't there, or to a heading that a page doesn't have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_NAME = re.compile(r'\]\[(pydantic_ai(?:\.\w+)+)\]')

RESOLVE = """
import importlib, sys
def found(name):
    parts = name.split('.')
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module('.'.join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            fields = getattr(thing, '__annotations__', {}) | getattr(thing, '__dataclass_fields__', {})
            if not hasattr(thing, part):
                return part in fields or any(part in vars(one).get('__annotations__', {}) for one in getattr(thing, '__mro__', ()))
            thing = getattr(thing, part)
        return True
    return False
print('\\n'.join(name for name in sys.argv[1:] if not found(name)))
"""
"""What Python runs to say which of its arguments are no names of an installed package. A field without a default is one."""


def names(texts: Iterable[str]) -> list[str]:
    """Return the names of the package that docs link to."""
    return sorted({name for text in texts for name in _NAME.findall(text)})


def broken_links(docs: Path, page: Path) -> list[str]:
    """Return the links of a page to headings that aren't there; a page that isn't there may be upstream's, of which releases ship none."""
    broken: list[str] = []
    for target, anchor in re.findall(r'\]\(([\w./-]*\.md)?#([\w-]+)\)', _prose(page)):
        other = page.parent / PurePosixPath(target) if target else page
        if other.is_file() and other.resolve().is_relative_to(docs.resolve()) and anchor not in _anchors(other):
            broken.append(f'{target}#{anchor}')
    return broken


def _prose(page: Path) -> str:
    return re.sub(r'^( *)```.*?^\1```', '', page.read_text('utf-8'), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """Return what headings of a page can be linked by, as Markdown makes it of their text, or as they say themselves."""
    found: set[str] = set()
    for heading in re.findall(r'^#+ +(.+?) *$', _prose(page), re.MULTILINE):
        if own := re.search(r'\{ *#([\w-]+) *\}', heading):
            found.add(own[1])
            continue
        plain = re.sub(r'\[([^\]]*)\][(\[][^)\]]*[)\]]', r'\1', heading)
        found.add(re.sub(r'[-\s]+', '-', re.sub(r'[^\w\s-]', '', plain).strip().lower()))
    return found
