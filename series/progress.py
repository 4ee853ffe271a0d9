"""Say where long work is."""

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


def say(text: str) -> None:
    """Print a line for the user to see, beside what the program says."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def heartbeat(say: Callable[[str], None], seconds: float = SECONDS) -> Generator[Report]:
    """Give what takes each step, and say now and then which one it is, until the block ends. What is done sooner says nothing.

    Args:
        say: Prints a line.
        seconds: How long nothing is said at most.
    """
    ended = threading.Event()
    now, began = 'Starting', time.monotonic()

    def report(step: str, done: int = 0, of: int | None = None) -> None:
        nonlocal now, began
        text = f'{step} ({done} of {of} done)' if of else step
        if text != now:
            now, began = text, time.monotonic()

    def beat() -> None:
        said, times = '', 0
        while not ended.wait(seconds):
            times = 0 if now != said else times + 1
            # More and more seldom, as long as it is the same step.
            if times.bit_count() < 2:
                say(f'{now}, for {time.monotonic() - began:.0f} s' if times else f'{now} …')
            said = now

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        ended.set()
        thread.join()


@contextmanager
def waiting(step: str) -> Generator[Report]:
    """Say what is waited for when that takes a while, until the block ends, and give what takes the next step.

    Args:
        step: What is being done.
    """
    with heartbeat(say) as report:
        report(step)
        yield report
