"""`sizes` counts what patches add to the package, and what of it is one text."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from series.line import Line, find_line
from series.sizes import Size, added_lines, sizes
from series.verbs.apply import apply
from series.verbs.extract import extract
from tests.series.upstream import PACKAGE, User, drop_patch, quiet

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
MORE = PACKAGE['pydantic_ai/tools.py'] + '\n\n# A comment\ndef more() -> int:\n    return 1\n'


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line with two patches."""
    apply(line, quiet)
    user.commit(
        'Add `more()`',
        {
            TOOLS: MORE.replace('a + b', 'b + a'),
            'pydantic_ai_slim/pydantic_ai/new.py': '+++ x\n\n+y = 1\n',
            'pydantic_ai_slim/pydantic_ai/page.md': 'Text\n',
            'tests/test_more.py': 'x = 1\n',
        },
    )
    user.commit('Add a page', {'docs/page.md': 'Text\n'})
    extract(line, quiet)
    return find_line(line.root)


def test_sizes_counts_all_added_lines_of_modules(series: Line) -> None:
    assert added_lines(series.patches[0]) == [
        '+++ x',
        '',
        '+y = 1',
        '    return b + a',
        '',
        '',
        '# A comment',
        'def more() -> int:',
        '    return 1',
    ]
    assert added_lines(series.patches[1]) == []


def size(older: str, newer: str) -> Size:
    return Size('A', {'1.0.0': list(older), '2.0.0': list(newer)})


def test_sizes_common_lines_are_in_the_same_order() -> None:
    assert size('abcd', 'abxd').common == 3
    assert size('ab', 'ba').common == 1
    assert Size('A', {'1.0.0': ['a']}).common is None


def other(series: Line) -> Line:
    """Another line, without the second patch and with a little less in the first."""
    folder = Path(shutil.copytree(series.folder, series.folder.with_name('0.9.0')))
    line = replace(series, folder=folder)
    drop_patch(line.patches[1])
    (patch,) = line.patches
    patch.write_text(patch.read_text().replace('+    return 1', '+    return 2'))
    return line


def test_sizes_lists_the_patches_of_the_newest_line_first(series: Line) -> None:
    older = other(series)
    assert [(size.subject, list(size.added)) for size in sizes([series, older])] == [
        ('Add `more()`', ['1.0.0', '0.9.0']),
        ('Add a page', ['1.0.0']),
    ]
