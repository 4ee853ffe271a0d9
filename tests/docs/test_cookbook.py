"""The cookbook has a chapter for each example, and a user finds it with its command in the table and on the site."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from examples.__main__ import find_examples, main

ROOT = Path(__file__).parents[2]
COOKBOOK = ROOT / 'docs' / 'cookbook'
EXAMPLES = find_examples()
CHAPTERS = {path.stem for path in COOKBOOK.glob('*.md')} - {'index'}
TABLE: list[tuple[str, str]] = re.findall(
    r'^\|[^|]+\| \[[^]]+\]\(([\w-]+)\.md\) \| `make example NAME=(\w+)` \|$',
    (COOKBOOK / 'index.md').read_text('utf-8'),
    re.MULTILINE,
)


@pytest.mark.parametrize('name', EXAMPLES)
def test_cookbook_chapter_of_an_example_shows_its_code_and_its_command(name: str) -> None:
    chapter = (COOKBOOK / f'{name.replace("_", "-")}.md').read_text('utf-8')

    assert f'\n<!-- show: examples/{name}.py:' in chapter
    assert f'\n<!-- show: output {name} -->' in chapter
    assert re.search(rf'^make example NAME={name}\b', chapter, re.MULTILINE)


def test_cookbook_table_has_each_chapter_and_each_command_once() -> None:
    assert sorted(chapter for chapter, _ in TABLE) == sorted(CHAPTERS)
    assert sorted(name for _, name in TABLE) == sorted(EXAMPLES)
    assert [chapter for chapter, name in TABLE if chapter != name.replace('_', '-')] == []


def test_cookbook_is_in_the_navigation_in_the_order_of_the_table() -> None:
    pages = re.findall(r'^ +- cookbook/([\w-]+)\.md$', (ROOT / 'mkdocs.yml').read_text('utf-8'), re.MULTILINE)

    assert pages == ['index', *(chapter for chapter, _ in TABLE)]


def test_cookbook_examples_are_listed_each_with_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    listed = re.findall(r'^(\w+)  +(\S.*)$', capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in listed] == [*EXAMPLES, 'tutorial']


@pytest.mark.parametrize('arguments', [[], ['NAME=cache']])
def test_make_example_leaves_it_to_the_command_what_to_build(arguments: list[str]) -> None:
    # A make that runs these tests hands its own arguments on.
    own = {'ARGS', 'LINE', 'NAME', 'MAKEFLAGS', 'MAKEOVERRIDES', 'MFLAGS'}
    environment = {key: value for key, value in os.environ.items() if key not in own}
    recipe = subprocess.run(
        ['make', '--silent', '--dry-run', 'example', *arguments],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    assert '-m series build' not in recipe
    assert recipe.split()[-2 - len(arguments) :] == ['-m', 'examples', *(['cache'] if arguments else [])]


def links(page: Path) -> set[str]:
    """Return the pages and headings that a page links to."""
    found = re.findall(r'\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)', page.read_text('utf-8'))
    return {f'{(page.parent / target).resolve() if target else page}{anchor}' for target, anchor in found}


def test_cookbook_and_situations_are_two_clicks_from_the_readme() -> None:
    once = links(ROOT / 'README.md')
    twice = once.union(*(links(Path(page)) for page in once if page.endswith('.md')))
    situations = ROOT / 'docs' / 'situations.md'
    headings = re.findall(r'^## (.+)$', situations.read_text('utf-8'), re.MULTILINE)

    assert {str(COOKBOOK / f'{chapter}.md') for chapter in CHAPTERS} - twice == set()
    assert headings
    assert {f'{situations}#{heading.lower().replace(" ", "-")}' for heading in headings} - twice == set()


@pytest.mark.parametrize('page', ['README.md', 'docs/index.md'])
def test_cookbook_is_linked_from_the_front_pages(page: str) -> None:
    path = ROOT / page
    links = re.findall(r'\]\(([\w/]*cookbook/index\.md)\)', path.read_text('utf-8'))

    assert {(path.parent / link).resolve() for link in links} == {COOKBOOK / 'index.md'}
