"""The page on the tool has a heading for each verb, and names each target of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from series.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs/verbs.md').read_text('utf-8')


def test_verbs_have_a_heading_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(['--help'])
    verbs = re.findall(r'^    ([a-z]+) {2,}\S', capsys.readouterr().out, re.MULTILINE)

    assert verbs
    assert [verb for verb in verbs if f'\n## {verb}\n' not in PAGE] == []


def test_verbs_names_each_target_of_make() -> None:
    targets = re.findall(r'^([a-z-]+):.*## ', (ROOT / 'Makefile').read_text('utf-8'), re.MULTILINE)
    # Steps of `make fork`, and the list of all
    further = {'environments', 'help'}

    assert targets
    assert [target for target in targets if f'make {target}' not in PAGE and target not in further] == []
