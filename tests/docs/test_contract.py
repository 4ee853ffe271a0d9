"""The page on the contract lists the points that have tests, and those only."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = [
    int(number) for number in re.findall(r'^\| B(\d+) \|', (ROOT / 'docs/contract.md').read_text('utf-8'), re.MULTILINE)
]
TESTED = {
    int(number)
    for path in (ROOT / 'tests/fork').rglob('test_b[0-9][0-9]_*.py')
    for number in re.findall(rf'^(?:async )?def test_b({path.name[6:8]})_', path.read_text('utf-8'), re.MULTILINE)
}
"""The points that have a test by that name, in a file by that name, which the page names."""


def test_contract_lists_each_point_once() -> None:
    assert sorted(LISTED) == list(range(1, 42))


def test_contract_has_tests_for_each_point() -> None:
    assert set(LISTED) == TESTED
