"""`overview` says of each patch what it needs, its size, what upstream has said, and what to send first."""

from __future__ import annotations

import pytest

from series.apply import apply
from series.errors import OverviewError
from series.extract import extract
from series.line import Line, find_line
from series.overview import PAGE, SAID, overview, write_overview
from tests.series.upstream import ROOT, User, quiet

CODE = 'pydantic_ai_slim/pydantic_ai'
READ = 'read = 2026-01-02\n'
ABOUT = '[{{ number = 7, kind = "issue", state = "open", opened = 2025-12-31, about = "asks for {0}" }}]'


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line whose third patch needs the second, which needs the first, and whose fourth stands alone and isn't for upstream."""
    apply(line, quiet)
    user.commit('Add `a`\n\nUpstream-Status: Pending', {f'{CODE}/a.py': 'a = 1\na = 2\n'})
    user.commit('Add `b`\n\nNeeds: Add `a`\nUpstream-Status: Pending', {f'{CODE}/b.py': 'b = 1\n'})
    user.commit('Add `c`\n\nNeeds: Add `b`\nUpstream-Status: Pending', {f'{CODE}/c.py': 'c = 1\n'})
    user.commit('Add `d`\n\nUpstream-Status: Inappropriate [ours]', {f'{CODE}/d.py': 'd = 1\n'})
    user.commit('Add `e`\n\nUpstream-Status: Pending', {f'{CODE}/e.py': 'e = 1\n'})
    extract(line, quiet)
    (line.root / SAID).write_text(f'{READ}["Add `b`"]\nsaid = {ABOUT.format("b")}\n')
    (line.root / PAGE).parent.mkdir()
    return find_line(line.root)


def test_overview_says_what_each_patch_needs_and_what_to_send_first(series: Line) -> None:
    text = overview(series.root)
    assert 'as read on 2026-01-02.' in text
    assert text.partition('## 1.0.0\n\n')[2] == (
        'To send first, since each stands alone:\n'
        '\n'
        '1. patch 1, *Add `a`*: 2 lines; 2 other patches stand on it\n'
        '2. patch 5, *Add `e`*: 1 line; nothing stands on it\n'
        '\n'
        '| | patch | lines | common | needs | upstream |\n'
        '| ---: | --- | ---: | ---: | --- | --- |\n'
        '| 1 | Add `a` | 2 | – | stands alone |  |\n'
        '| 2 | Add `b` | 1 | – | 1 | [#7](https://github.com/pydantic/pydantic-ai/issues/7), issue, open, 2025-12-31: asks for b |\n'
        '| 3 | Add `c` | 1 | – | 2; 2 in all |  |\n'
        '| 4 | Add `d` | 1 | – | stands alone | Inappropriate [ours] |\n'
        '| 5 | Add `e` | 1 | – | stands alone |  |\n'
    )
    assert write_overview(series.root)
    assert not write_overview(series.root)


def test_overview_of_a_subject_that_no_patch_has_names_it(series: Line) -> None:
    with (series.root / SAID).open('a') as file:
        file.write(f'["Add `x`"]\nsaid = {ABOUT.format("x")}\n')
    with pytest.raises(OverviewError) as error:
        overview(series.root)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        '`patches/upstream.toml` says something of patches that no line has:\n'
        '- Add `x`\n'
        'Give each the subject that its patch has now, or remove it, then run `make overview` again.'
    )


def test_overview_of_this_repository_is_written() -> None:
    assert (ROOT / PAGE).read_text() == overview(ROOT), 'Run `make overview`.'
