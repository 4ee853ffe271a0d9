"""Work that takes long says in a file where it is."""

from __future__ import annotations

import time
from functools import partial

import pytest

from series.progress import heartbeat, waiting


def test_heartbeat_names_the_step_again_and_again() -> None:
    said: list[str] = []

    with heartbeat(said.append, 0.02) as note:
        note('Testing `fixes/add-one`', 2, 5)
        while len(said) < 2:
            time.sleep(0.005)
    ended = len(said)
    time.sleep(0.06)

    assert said[0].startswith('Testing `fixes/add-one` (2 of 5 done), after ')
    assert len(said) == ended


def test_heartbeat_says_nothing_of_what_is_done_at_once() -> None:
    said: list[str] = []

    with heartbeat(said.append) as note:
        note('Reading', 0, None)

    assert said == []


def test_waiting_says_what_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr('series.progress.heartbeat', partial(heartbeat, seconds=0.02))

    with waiting('Making `build/tool`'):
        time.sleep(0.1)

    assert capsys.readouterr().err.startswith('Making `build/tool`, after 0 s\n')
