"""The page on the tool has a heading for each verb, and pages name only targets of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from series.cli import main
from series.line import find_lines
from series.message import read_message
from series.patches import find_patch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs/verbs.md').read_text('utf-8')
UPSTREAM = ('install', 'typecheck')
"""What `make` does in a clone of upstream."""

TARGETS = re.findall(r'^([a-z-]+):.*## ', (ROOT / 'Makefile').read_text('utf-8'), re.MULTILINE)


def test_verbs_have_a_heading_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(['--help'])
    verbs = re.findall(r'^    ([a-z]+) {2,}\S', capsys.readouterr().out, re.MULTILINE)

    assert verbs
    assert [verb for verb in verbs if f'\n## {verb}\n' not in PAGE] == []


def test_the_loop_corrects_the_patch_that_it_verifies() -> None:
    pattern, name = re.findall(r"--fixup ':/(.+?)'.*?verify PATCH=(\S+)", PAGE, re.DOTALL)[0]
    for line in find_lines(ROOT):
        subjects = {patch: read_message(patch).subject for patch in line.patches}
        # As git does: the youngest
        assert [patch for patch in subjects if re.search(pattern, subjects[patch])][-1] == find_patch(line, name)


def test_pages_name_only_targets_that_make_help_lists() -> None:
    pages = [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md')]
    # In a block or in backticks, not in the middle of a sentence
    named = {
        name: page.name
        for page in pages
        for name in re.findall(r'(?:^|`)make ([a-z][a-z-]*)', page.read_text('utf-8'), re.MULTILINE)
    }

    assert {name: page for name, page in named.items() if name not in {*TARGETS, *UPSTREAM}} == {}
