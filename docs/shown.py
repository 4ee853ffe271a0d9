"""Fill in what pages show of other files, so that they read well as they stand, with no site built.

A page says what it shows between two comments, and a command writes it there:

    <!-- show: examples/cache.py:toolset -->
    ...
    <!-- /show -->
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r'^<!-- show: (?P<what>.+?) -->\n.*?^<!-- /show -->$', re.MULTILINE | re.DOTALL)
MARK = re.compile(r'^.*--8<-- \[(?:start|end):.*\n', re.MULTILINE)
LANGUAGES = {'.py': 'python', '.toml': 'toml', '.sql': 'sql'}

Source = Callable[[Path, str], 'str | None']
"""Returns what a page shows, given the page and what its comment says, or `None` if that is for another command."""


def written_pages() -> list[Path]:
    """Return the pages that somebody writes: the README, and those of `docs/` that aren't made from the patches."""
    pages = sorted((ROOT / 'docs').rglob('*.md'))
    return [ROOT / 'README.md', *(page for page in pages if not page.read_text('utf-8').startswith('<!-- Written by'))]


def fill(page: Path, source: Source) -> str:
    """Return the text of a page with what it shows written again."""

    def one(found: re.Match[str]) -> str:
        text = source(page, found['what'])
        return found[0] if text is None else f'<!-- show: {found["what"]} -->\n\n{text.strip()}\n\n<!-- /show -->'

    return SHOWN.sub(one, page.read_text('utf-8'))


def put(page: Path, what: str, text: str) -> None:
    """Write a text into a page in place of what it shows by that name.

    Raises:
        ValueError: It shows nothing by that name.
    """
    if f'<!-- show: {what} -->' not in page.read_text('utf-8'):
        raise ValueError(f'`{page.relative_to(ROOT)}` shows no `{what}`.')
    page.write_text(fill(page, lambda _, shown: text if shown == what else None), 'utf-8')


def show_file(page: Path, what: str) -> str | None:
    """Return a file of this repository, or the section of it after the colon: code in a block, and Markdown as it is.

    `diff A B` shows what the file `B` adds to and takes from `A`.

    Raises:
        ValueError: There is no such file or section.
    """
    if what.startswith('diff '):
        return show_change(*what.split()[1:])
    name, _, section = what.partition(':')
    path = ROOT / name
    if path.suffix not in {*LANGUAGES, '.md'}:
        return None
    if not path.is_file():
        raise ValueError(f'`{page.relative_to(ROOT)}` shows `{name}`, which does not exist.')
    text = path.read_text('utf-8')
    if section:
        found = re.search(
            rf'--8<-- \[start:{re.escape(section)}\][^\n]*\n(.*?)^[^\n]*--8<-- \[end:{re.escape(section)}\]',
            text,
            re.DOTALL | re.MULTILINE,
        )
        if not found:
            raise ValueError(
                f'`{page.relative_to(ROOT)}` shows the section `{section}` of `{name}`, which has none of that name.'
            )
        text = found[1]
    text = MARK.sub('', text)
    if path.suffix == '.md':
        return _move_links(text, path.parent, page.parent)
    return block(text, LANGUAGES[path.suffix], name)


def show_change(before: str, after: str) -> str:
    """Return what changes from one file to another, from the first class on: imports are left out."""
    texts = [(ROOT / name).read_text('utf-8') for name in (before, after)]
    old, new = (text[text.index('\nclass ') + 1 :].splitlines() for text in texts)
    changes = list(difflib.unified_diff(old, new, n=1, lineterm=''))[3:]
    shown = '\n'.join('@@' if line.startswith('@@') else line for line in changes)
    return f'```diff title="{after}"\n{shown}\n```'


def block(text: str, language: str = 'text', title: str = '') -> str:
    """Return a code block."""
    return f'```{language}{title and f" title={chr(34)}{title}{chr(34)}"}\n{text.strip()}\n```'


def _move_links(text: str, before: Path, after: Path) -> str:
    """Return Markdown of one folder as it stands in another, with links that lead to the same files."""

    def one(link: re.Match[str]) -> str:
        target = (before / link[1]).resolve()
        up = 0
        folder = after.resolve()
        while not target.is_relative_to(folder):
            folder, up = folder.parent, up + 1
        return f']({"../" * up}{target.relative_to(folder).as_posix()}{link[2] or ""})'

    return re.sub(r'\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)', one, text)


def write(pages: Mapping[Path, str], check: bool, again: str, obsolete: Iterable[Path] = ()) -> int:
    """Write pages, or only say which are not as they should be, and return the exit code.

    Args:
        pages: The texts of the pages.
        check: Whether to change nothing.
        again: The command that writes them.
        obsolete: Pages that are there but should not be.
    """
    stale = [page for page, text in pages.items() if not page.exists() or page.read_text('utf-8') != text]
    gone = list(obsolete)
    for page in [] if check else stale:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pages[page], 'utf-8')
    for page in [] if check else gone:
        page.unlink()
    for page in [*stale, *gone]:
        print(f'{"not up to date" if check else "written"}: {page.relative_to(ROOT)}')
    if check and (stale or gone):
        print(
            f'error: Pages show what is not so any more. Write them with `{again}`, and look at what changed.',
            file=sys.stderr,
        )
        return 1
    return 0
