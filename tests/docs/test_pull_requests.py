"""The page on pull requests lists the patches that need no other, of each line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r'^\|(.*)\|(.*)\|$', (ROOT / 'docs/pull-requests.md').read_text('utf-8'), re.MULTILINE)
LINES = [cell.strip() for cell in ROWS[0]]


@pytest.mark.parametrize('line', LINES)
def test_pull_requests_lists_the_patches_that_need_no_other(line: str) -> None:
    cells = [row[LINES.index(line)].strip() for row in ROWS[2:]]
    patches = sorted((ROOT / 'patches' / line).glob('*.patch'))
    alone = [int(patch.name[:4]) for patch in patches if '\nNeeds: ' not in patch.read_text('utf-8')]

    assert alone
    assert sorted(int(cell.split(',')[0]) for cell in cells if cell) == alone


def test_pull_requests_has_each_line() -> None:
    assert set(LINES) == {path.parent.name for path in (ROOT / 'patches').glob('*/line.toml')}
