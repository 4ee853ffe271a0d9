"""Find links in docs that lead nowhere: to a name of the package that isn't there, or to a heading that a page doesn't have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_NAME = re.compile(r'\]\[(pydantic_ai(?:\.\w+)+)\]')

RESOLVE = """
import importlib.util, inspect, re, sys
def is_there(module):
    try:
        return bool(importlib.util.find_spec(module))
    except ImportError:
        return False
def sets(one, part):
    try:
        return re.search(rf'\\bself\\.{part}\\b *[:=]', inspect.getsource(one))
    except (OSError, TypeError):
        return False
def found(name):
    parts = name.split('.')
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module('.'.join(parts[:length]))
        except ImportError:
            if is_there('.'.join(parts[:length])):
                return True  # it needs a package that isn't installed
            continue
        for part in parts[length:]:
            fields = getattr(thing, '__annotations__', {}) | getattr(thing, '__dataclass_fields__', {})
            if not hasattr(thing, part):
                return part in fields or any(
                    part in vars(one).get('__annotations__', {}) or sets(one, part) for one in getattr(thing, '__mro__', ())
                )
            thing = getattr(thing, part)
        return True
    return False
print('\\n'.join(name for name in sys.argv[1:] if not found(name)))
"""
"""What Python runs to say which of its arguments are no names of an installed package. A field without a default is one, and what a method sets."""


def names(texts: Iterable[str]) -> list[str]:
    """Return the names of the package that docs link to."""
    return sorted({name for text in texts for name in _NAME.findall(text)})


def broken_links(docs: Path, page: Path) -> list[str]:
    """Return the links of a page to headings that aren't there; a page that isn't there may be upstream's, of which releases ship none."""
    broken: list[str] = []
    for target, anchor in re.findall(r'\]\(([\w./-]*\.md)?#([\w-]+)\)', re.sub(r'`[^`\n]*`', '', _prose(page))):
        other = page.parent / PurePosixPath(target) if target else page
        if other.is_file() and other.resolve().is_relative_to(docs.resolve()) and anchor not in _anchors(other):
            broken.append(f'{target}#{anchor}')
    return broken


def _prose(page: Path) -> str:
    hidden = r'^( *)(```+|~~~+).*?^\1\2|<!--.*?-->'
    return re.sub(hidden, '', page.read_text('utf-8'), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """Return what headings of a page can be linked by, as Markdown makes it of their text, and what says its own `id`."""
    prose = _prose(page)
    found = {*re.findall(r'\{[^{}\n]*#([\w-]+)[^{}\n]*\}', prose), *re.findall(r'\bid="([\w-]+)"', prose)}
    seen: Counter[str] = Counter()
    for heading in re.findall(r'^#+ +(.+?)(?: +#+)? *$', prose, re.MULTILINE):
        if re.search(r'\{[^{}]*#[^{}]*\}$', heading):
            continue
        plain = re.sub(r'\[([^\]]*)\][(\[][^)\]]*[)\]]', r'\1', heading)
        name = re.sub(r'[-\s]+', '-', re.sub(r'[^\w\s-]', '', plain).strip().lower())
        # The next of the same text is told apart by a number.
        found |= {f'{name}_{seen[name]}', f'{name}-{seen[name]}'} if seen[name] else {name}
        seen[name] += 1
    return found
