"""`sizes` counts what patches add to the package, and what of it is one text."""

from __future__ import annotations

import pytest

from series.line import Line, find_line
from series.sizes import added_lines
from series.verbs.apply import apply
from series.verbs.extract import extract
from tests.series.upstream import PACKAGE, User, quiet

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
