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
    """Give what takes each step, and say again and again which one it is, until the block ends.

    What is done sooner says nothing.

    Args:
        say: Prints a line.
        seconds: How long nothing is said at most.
    """
    began = time.monotonic()
    ended = threading.Event()
    now = ''

    def note(step: str, done: int, of: int | None) -> None:
        nonlocal now
        now = f'{step} ({done} of {of} done)' if of else step

    def beat() -> None:
        while not ended.wait(seconds):
            say(f'{now or "Starting"}, after {time.monotonic() - began:.0f} s')

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield note
    finally:
        ended.set()
        thread.join()


@contextmanager
def waiting(step: str) -> Generator[None]:
    """Say again and again what is waited for, until the block ends. What is done sooner says nothing.

    Args:
        step: What is being done.
    """

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with heartbeat(say) as note:
        note(step, 0, None)
        yield
