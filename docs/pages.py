"""Write the pages that the patches of the newest line carry for upstream, and the list of its API.

It also writes into all pages what they show of other files. Run it in the environment of the docs, after `docs.prepare`.
"""

from __future__ import annotations

import re
import sys

from docs import hooks
from docs.shown import ROOT, fill, show_file, write, written_pages

NOTE = '<!-- Written by `make pages` from the patches. Change those, then run it again. -->\n\n'
DOCS = ROOT / 'docs'


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with `--check` only say which are not up to date, and return the exit code."""
    check = '--check' in (sys.argv[1:] if arguments is None else arguments)
    pages = {page: fill(page, show_file) for page in written_pages()}
    pages |= {DOCS / page.name: NOTE + plain(hooks.retitle(page.read_text('utf-8'))) for page in hooks.find_pages()}
    pages[DOCS / hooks.API] = NOTE + plain(hooks.list_api(*hooks.read_apis()))
    made = {page for page in DOCS.rglob('*.md') if page.read_text('utf-8').startswith(NOTE)}
    return write(pages, check, 'make pages', sorted(made - pages.keys()))


def plain(text: str) -> str:
    """Return a page in Markdown that is read without the site: names in place of references, examples with the names of their files, and links to upstream's pages."""
    text = re.sub(r'\[(`[^`]+`)\]\[[\w.]+\]', r'\1', text)
    text = re.sub(r'\[([^]`]+)\]\[pydantic_ai[\w.]*\]', r'\1', text)
    text = re.sub(r'^```python \{title="([^"]+)".*\}$', r'`\1`:\n\n```python', text, flags=re.MULTILINE)
    text = re.sub(r'^```python \{.*\}$', '```python', text, flags=re.MULTILINE)
    text = re.sub(r'# \((\d+)\)!$', r'# (\1)', text, flags=re.MULTILINE)
    return '\n'.join(hooks.link_upstream(line) for line in text.splitlines()) + '\n'


if __name__ == '__main__':
    sys.exit(main())
