"""`sizes` counts what patches add to the package, and what of it is one text."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from series.__main__ import main
from series.apply import apply
from series.extract import extract
from series.line import Line, find_line
from series.sizes import Size, added_lines, share, sizes, table
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


def size(older: str, newer: str) -> Size:
    return Size('A', {'1.0.0': list(older), '2.0.0': list(newer)})


def test_sizes_common_lines_are_in_the_same_order() -> None:
    assert size('abcd', 'abxd').common == 3
    assert size('ab', 'ba').common == 1
    assert Size('A', {'1.0.0': ['a']}).common is None


def test_sizes_share_is_of_the_lines_of_both() -> None:
    assert share([size('abcd', 'abxd')]) == 0.75
    assert share([size('ab', 'ab'), size('xxxxxx', 'yy')]) == 4 / 12
    assert share([Size('A', {'1.0.0': ['a']}), size('a', 'a')]) == 1
    assert share([]) == 0


def other(series: Line) -> Line:
    """Another line, without the second patch and with a little less in the first."""
    folder = Path(shutil.copytree(series.folder, series.folder.with_name('0.9.0')))
    sorted(folder.glob('*.patch'))[1].unlink()
    (patch,) = folder.glob('*.patch')
    patch.write_text(patch.read_text().replace('+    return 1', '+    return 2'))
    return replace(series, folder=folder)


def test_sizes_lists_the_patches_of_the_newest_line_first(series: Line) -> None:
    older = other(series)
    assert [(size.subject, list(size.added)) for size in sizes([series, older])] == [
        ('Add `more()`', ['1.0.0', '0.9.0']),
        ('Add a page', ['1.0.0']),
    ]
    assert table([older, series]) == (
        '| patch | 1.0.0 | 0.9.0 | common | share |\n'
        '| --- | ---: | ---: | ---: | ---: |\n'
        '| Add `more()` | 9 | 9 | 8 | 89% |\n'
        '| Add a page | 0 | | | |\n'
        '| all | 9 | 9 | 8 | |\n'
    )


def test_sizes_writes_its_table_between_the_marks_only(
    series: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(series.root)
    (page := series.root / 'docs/decisions.md').parent.mkdir()
    page.write_text('Before\n\n<!-- sizes:start -->\nold\n<!-- sizes:end -->\n\nAfter\n')
    assert main(['sizes']) == 0
    assert page.read_text() == (f'Before\n\n<!-- sizes:start -->\n\n{table([series])}\n<!-- sizes:end -->\n\nAfter\n')
    assert main(['sizes']) == 0
    assert capsys.readouterr().out == (
        'Wrote the table of sizes to `docs/decisions.md`.\n`docs/decisions.md` has these sizes already.\n'
    )


def test_sizes_without_a_place_says_what_to_write(
    series: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(series.root)
    (series.root / 'docs').mkdir()
    (series.root / 'docs/decisions.md').write_text('Nothing\n')
    assert main(['sizes']) == 1
    assert capsys.readouterr().err == (
        'error: `docs/decisions.md` has no place for the table of sizes.\n'
        'Write the lines `<!-- sizes:start -->` and `<!-- sizes:end -->` where it is to be, then run `make sizes` again.\n'
    )
