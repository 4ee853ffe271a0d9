"""Write the pages that the patches of the newest line carry for upstream, and the list of its API.

It also writes into all pages what they show of other files. Run it in the environment of the docs, after `docs.prepare`.
"""

from __future__ import annotations

import re
import sys

import griffe

from docs import hooks
from docs.shown import ROOT, fill, show_file, write, written_pages

NOTE = '<!-- Written by `make pages` from the patches. Change those, then run it again. -->\n\n'
DOCS = ROOT / 'docs'


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with `--check` only say which are not up to date, and return the exit code."""
    check = '--check' in (sys.argv[1:] if arguments is None else arguments)
    pages = {page: fill(page, show_file) for page in written_pages()}
    pages |= {DOCS / page.name: NOTE + plain(hooks.retitle(page.read_text('utf-8'))) for page in hooks.find_pages()}
    pages[DOCS / hooks.API] = NOTE + list_api()
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


def list_api() -> str:
    """Return the names that the series adds to the public API, each with the first sentence of its docs."""
    base, fork = hooks.read_apis()
    parts = [
        '# API',
        f'What the series adds to the public API of pydantic-ai {hooks.LINE}. '  # noqa: ISC004
        'The site, which `make docs` builds, shows all of their documentation.',
        '| Name | What it is |\n| --- | --- |',
    ]
    for path, members in hooks.added(base, fork):
        for one in [f'{path}.{member}' for member in members] or [path]:
            found = fork.find(one)
            name = one.removeprefix('pydantic_ai.') + ('()' if found.is_function else '')
            parts[-1] += f'\n| `{name}` | {_first_sentence(found)} |'
    if changed := list(hooks.new_parameters(base, fork)):
        parts += ['## New parameters', hooks.NEW_PARAMETERS + '\n'.join(changed)]
    return plain('\n\n'.join(parts))


def _first_sentence(found: griffe.Object) -> str:
    text = found.docstring.value if found.docstring else ''
    return (
        re.split(r'(?<=[.:])\s', ' '.join(text.split('\n\n')[0].split()))[0]
        .rstrip(':')
        .removesuffix('.')
        .replace('|', r'\|')
        + '.'
    )


if __name__ == '__main__':
    sys.exit(main())
