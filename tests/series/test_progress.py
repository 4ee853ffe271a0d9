"""Work that takes long says in a file where it is."""

from __future__ import annotations

import time
from functools import partial

import pytest

from series.progress import heartbeat, waiting


def test_heartbeat_names_each_step_and_one_that_lasts_more_and_more_seldom() -> None:
    said: list[str] = []

    with heartbeat(said.append, 0.02) as note:
        note('Testing `fixes/add-one`', 2, 5)
        while len(said) < 3:
            time.sleep(0.005)
        note('Testing `fixes/add-two`', 3, 5)
        while 'two' not in said[-1]:
            time.sleep(0.005)
    ended = len(said)
    time.sleep(0.06)

    step = 'Testing `fixes/add-one` (2 of 5 done)'
    assert said[:3] == [f'{step} …', f'{step}, for 0 s', f'{step}, for 0 s']
    assert said[-1] == 'Testing `fixes/add-two` (3 of 5 done) …'
    assert len(said) == ended


def test_heartbeat_says_nothing_of_what_is_done_at_once() -> None:
    said: list[str] = []

    with heartbeat(said.append) as note:
        note('Reading')

    assert said == []


def test_waiting_says_what_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr('series.progress.heartbeat', partial(heartbeat, seconds=0.02))

    with waiting('Making `build/tool`') as step:
        time.sleep(0.1)
        step('Installing what it needs')
        time.sleep(0.2)

    said = capsys.readouterr().err
    assert said.startswith('Making `build/tool` …\n')
    assert '\nInstalling what it needs …\n' in said
