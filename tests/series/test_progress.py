"""Work that takes long says in a file where it is."""

from __future__ import annotations

import time

from series.progress import heartbeat


def test_heartbeat_names_the_step_again_and_again() -> None:
    said: list[str] = []

    with heartbeat(said.append, 0.02) as note:
        note('Testing `0001-Add-one.patch`', 2, 5)
        while len(said) < 2:
            time.sleep(0.005)
    ended = len(said)
    time.sleep(0.06)

    assert said[0].startswith('Testing `0001-Add-one.patch` (2 of 5 done), after ')
    assert len(said) == ended


def test_heartbeat_says_nothing_of_what_is_done_at_once() -> None:
    said: list[str] = []

    with heartbeat(said.append) as note:
        note('Reading', 0, None)

    assert said == []
