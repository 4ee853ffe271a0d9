"""`overview` says of each patch what it needs, its size, what upstream has said, and what to send first."""

from __future__ import annotations

import pytest

from series.line import Line, find_line
from series.verbs.apply import apply
from series.verbs.extract import extract
from series.verbs.overview import PAGE, overview, write_overview
from tests.series.upstream import ROOT, User, quiet

CODE = 'pydantic_ai_slim/pydantic_ai'


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line whose third patch needs the second, which needs the first, and whose fourth stands alone and isn't for upstream."""
    apply(line, quiet)
    user.commit('Add `a`\n\nForwarded: no', {f'{CODE}/a.py': '++ a\n\n', f'{CODE}/page.md': 'Text\n'})
    user.commit(
        'Add `b`\n\nNeeds: Add `a`\nBug: https://github.com/pydantic/pydantic-ai/issues/7\nForwarded: no',
        {f'{CODE}/b.py': 'b = 1\n'},
    )
    user.commit('Add `c`\n\nNeeds: Add `b`\nForwarded: no', {f'{CODE}/c.py': 'c = 1\n'})
    user.commit('Add `d`\n\nForwarded: not-needed (ours)', {f'{CODE}/d.py': 'd = 1\n'})
    user.commit('Add `e`\n\nForwarded: no', {f'{CODE}/e.py': 'e = 1\n'})
    extract(line, quiet)
    (line.root / PAGE).parent.mkdir()
    return find_line(line.root)


def test_overview_says_what_each_patch_needs_and_what_to_send_first(series: Line) -> None:
    text = overview(series.root)
    assert text.partition('## 1.0.0\n\n')[2] == (
        'To send first, since each stands alone:\n'
        '\n'
        '1. `fixes/add-a`: 2 lines; 2 other patches stand on it\n'
        '2. `fixes/add-e`: 1 line; nothing stands on it\n'
        '\n'
        '| patch | lines | needs | upstream |\n'
        '| --- | ---: | --- | --- |\n'
        '| `fixes/add-a` | 2 | stands alone |  |\n'
        '| `fixes/add-b` | 1 | `fixes/add-a` | [#7](https://github.com/pydantic/pydantic-ai/issues/7) |\n'
        '| `fixes/add-c` | 1 | `fixes/add-b`; 2 in all |  |\n'
        '| `fixes/add-d` | 1 | stands alone | not-needed (ours) |\n'
        '| `fixes/add-e` | 1 | stands alone |  |\n'
    )
    write_overview(series.root)
    assert (series.root / PAGE).read_text() == text


def test_overview_of_this_repository_is_written() -> None:
    assert (ROOT / PAGE).read_text() == overview(ROOT), 'Run `make overview`.'
