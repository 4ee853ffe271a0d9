"""`docs/pinning.md` says nothing that isn't tried here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

from series.line import find_lines
from tests.pinning import page

HERE = Path(__file__).parent
TRIED = '\n'.join(path.read_text('utf-8') for path in HERE.glob('test_*.py') if path != Path(__file__))
TABLE = 'In a `pyproject.toml`'
BLOCKS = [(heading, number) for heading, found in page.blocks().items() for number in range(len(found))]
FURTHER = {('Check that you have it', 0), ('The same bytes', 0)}
"""What `tests/series` has, or what is a fact about each environment that is tried."""


@pytest.mark.parametrize(('heading', 'number'), [block for block in BLOCKS if block not in FURTHER])
def test_page_has_no_block_that_is_not_tried(heading: str, number: int) -> None:
    names = (f"'{heading}', {number}", f'TABLE, {number}' if heading == TABLE else f"'{heading}', {number}")
    assert any(name in TRIED for name in names)


def test_page_can_do_without_packages_that_a_line_has_no_release_of() -> None:
    words = {'URL': 'url', 'COMMIT': 'commit', 'INDEX': 'index'}
    for heading, found in page.blocks().items():
        for number, (kind, text) in enumerate(found):
            shown = page.block(heading, number, page.NAMED, words, {'pydantic-ai', 'pydantic-evals'})
            assert 'pydantic-evals' not in shown
            if kind == 'toml':
                named = tomllib.loads(text).get('project', {}).get('dependencies', [])
                left = tomllib.loads(shown).get('project', {}).get('dependencies', [])
                assert len(left) == len([one for one in named if one.startswith('pydantic-ai-slim')])


def test_page_names_the_newest_line_and_the_newest_fork_of_each() -> None:
    lines = find_lines(page.ROOT)
    assert lines[-1] == page.NAMED
    named = set(re.findall(r'\d+\.\d+\.\d+\+lifecycle\.\d+', page.PAGE.read_text('utf-8')))
    assert named == {line.version for line in lines}
