"""Say where long work is, also in a file or a pipe, where no bar can be drawn."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

SECONDS = 8.0
"""How long nothing is said at most."""


class Report(Protocol):
    """What is told of each step, for the user to see."""

    def __call__(self, step: str, done: int = 0, of: int | None = None) -> None:
        """Say that a step begins.

        Args:
            step: What is being done.
            done: How many of its parts are behind it.
            of: How many parts there are, where that is known.
        """


@contextmanager
def heartbeat(
    say: Callable[[str], None], seconds: float = SECONDS
) -> Generator[Callable[[str, int, int | None], None]]:
    """Give what takes each step, and say which one it is when that takes a while, until the block ends.

    What is done sooner says nothing. A step that doesn't change is said again, more and more seldom.

    Args:
        say: Prints a line.
        seconds: How long nothing is said at first.
    """
    ended = threading.Event()
    now, began = 'Starting', time.monotonic()

    def note(step: str, done: int, of: int | None) -> None:
        nonlocal now, began
        text = f'{step} ({done} of {of} done)' if of else step
        if text != now:
            now, began = text, time.monotonic()

    def beat() -> None:
        said, times, after = '', 0, 1
        while not ended.wait(seconds):
            times += 1
            if now != said:
                say(f'{now} …')
                said, times, after = now, 0, 1
            elif times == after:
                say(f'{now}, for {time.monotonic() - began:.0f} s')
                times, after = 0, after * 2

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield note
    finally:
        ended.set()
        thread.join()


@contextmanager
def waiting(step: str) -> Generator[Callable[[str], None]]:
    """Say what is waited for when that takes a while, until the block ends, and give what takes the next step.

    Args:
        step: What is being done.
    """

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with heartbeat(say) as note:
        note(step, 0, None)
        yield lambda step: note(step, 0, None)
