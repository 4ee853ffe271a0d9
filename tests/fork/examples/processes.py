"""Find the processes that a test has started, whoever their parent is by now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import anyio


@dataclass
class Processes:
    """The processes whose environment has a mark. Each process passes it on to those that it starts."""

    mark: str

    def running(self) -> dict[int, str]:
        """Return the command lines of those that run, by their IDs. One that has ended but isn't reaped has no environment."""
        found: dict[int, str] = {}
        for process in Path('/proc').glob('[0-9]*'):
            try:
                if self.mark in (process / 'environ').read_bytes().decode(errors='replace'):
                    found[int(process.name)] = (process / 'cmdline').read_bytes().decode().replace('\0', ' ')
            except OSError:
                continue  # it has ended meanwhile, or isn't ours
        return found

    async def are_gone(self, seconds: float = 300) -> None:
        """Wait until none is left, for those that end by themselves when their parent does.

        Raises:
            AssertionError: Some are left.
        """
        deadline = time.monotonic() + seconds
        while running := self.running():
            assert time.monotonic() < deadline, running
            await anyio.sleep(0.05)
