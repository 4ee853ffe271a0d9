"""What the README and the docs show of other files, and of what programs print, is so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs import outputs, shown
from examples.postgres import NoPostgresError, find_postgres

ROOT = Path(__file__).parents[2]
PAGES = shown.written_pages()
MADE = sorted({*(ROOT / 'docs').rglob('*.md')} - {*PAGES})
OUTPUTS = [
    (page, what)
    for page in PAGES
    for what in re.findall(r'^<!-- show: (output .+) -->$', page.read_text('utf-8'), re.MULTILINE)
]


def test_pages_show_what_their_files_say(prepared: None) -> None:
    done = subprocess.run(
        [ROOT / 'build/envs/more/bin/python', '-m', 'docs.pages', '--check'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ('', '')


# One test, since all of them run in the same two environments.
@pytest.mark.slow
def test_pages_show_what_programs_print() -> None:
    if not os.environ.get('CI'):
        try:
            find_postgres()
        except NoPostgresError as error:
            pytest.skip(str(error))
        if not shutil.which('chromium'):
            pytest.skip('Chromium is missing, which some of the examples need.')
    wrong = [
        (page.name, what)
        for page, what in OUTPUTS
        for written in shown.SHOWN.finditer(page.read_text('utf-8'))
        if written['what'] == what and (outputs.show_output(page, what) or '') not in written[0]
    ]

    assert OUTPUTS
    assert wrong == []


def test_pages_that_are_read_without_the_site_have_nothing_of_it_and_links_that_lead_somewhere() -> None:
    wrong: list[str] = []
    for page in PAGES + MADE:
        # Code, in which brackets are not links
        text = re.sub(r'`[^`\n]*`', '', without_blocks(page))
        wrong += [f'{page.name}: {line}' for line in text.splitlines() if line.startswith(ONLY_ON_THE_SITE)]
        for target, anchor in re.findall(r'\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)', text):
            path = page.parent / target if target else page
            if not path.exists() or (path.suffix == '.md' and anchor and anchor not in anchors(path)):
                wrong.append(f'{page.name}: {target}#{anchor}')

    assert wrong == []


ONLY_ON_THE_SITE = ('--8<-- "', '!!! ', '??? ', '???+ ', ':::', '=== "')
"""What begins a line that says something to the site only: an include, an admonition, a reference, a tab."""


def without_blocks(page: Path) -> str:
    return re.sub(r'^ *```.*?^ *```$', '', page.read_text('utf-8'), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return what a link to a heading of a page is called on GitHub."""
    headings = re.findall(r'^#+ (.+)$', without_blocks(page), re.MULTILINE)
    texts = [re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', heading) for heading in headings]
    return {re.sub(r'[^\w -]', '', text.strip().lower()).replace(' ', '-') for text in texts}


def test_pages_of_patches_are_read_in_one_sitting() -> None:
    words = {page.name: len(without_blocks(page).split()) for page in MADE}

    assert words
    assert {page: number for page, number in words.items() if number > 1800} == {}


def test_pages_have_titles_of_one_style() -> None:
    titles = [page.read_text('utf-8').partition('# ')[2].partition('\n')[0] for page in (ROOT / 'docs').rglob('*.md')]
    names = r'(?:API|FastAPI|HTTP|SQLite|MCP|REPL)\b|[A-Z]+'

    assert [title for title in titles if re.search(rf' (?!{names})[A-Z]', title)] == []


def test_pages_explain_the_marks_in_code_after_it() -> None:
    found = 0
    for page in MADE:
        for code, after in re.findall(
            r'^```python\n(.*?)^```\n+([^\n]*)', page.read_text('utf-8'), re.DOTALL | re.MULTILINE
        ):
            if '# (1)' in code:
                found += 1
                assert after.startswith('1. '), page

    assert found


def test_pages_with_a_file_or_a_section_that_is_not_there_are_refused(tmp_path: Path) -> None:
    page = ROOT / 'docs' / 'index.md'

    with pytest.raises(ValueError, match=r'`docs/index\.md` shows `none\.py`, which does not exist'):
        shown.show_file(page, 'none.py')
    with pytest.raises(ValueError, match=r'shows the section `none` of `README\.md`, which has none of that name'):
        shown.show_file(page, 'README.md:none')


def test_pages_get_links_that_lead_to_the_same_files() -> None:
    text = shown.show_file(ROOT / 'docs' / 'index.md', 'README.md:what')

    assert text is not None
    assert '](cookbook/approvals.md)' in text


def test_pages_are_written_between_their_comments_only(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text(
        'before\n<!-- show: a -->\nold\n<!-- /show -->\nbetween\n<!-- show: b -->\nkept\n<!-- /show -->\nafter\n'
    )

    filled = shown.fill(page, lambda page, what: 'new' if what == 'a' else None)

    assert filled == (
        'before\n<!-- show: a -->\n\nnew\n\n<!-- /show -->\nbetween\n<!-- show: b -->\nkept\n<!-- /show -->\nafter\n'
    )
