"""Run programs that end when they take too long, and when we do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Programs:
    """Programs that run at the same time, each in a session with all that it starts; they end with the `with` block."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all programs, and what is begun after that at once."""
        self._over = True
        for process in self._running.copy():
            _kill(process)

    def run(
        self,
        command: Sequence[str],
        seconds: float,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program, and return what came of it; what it says is captured, unless the options say where to put it.

        Args:
            command: The program and its arguments.
            seconds: How long it may take. What takes longer is ended, and the last line of the output says so.
            options: What else `subprocess.Popen` is given.
        """
        options = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT} | options
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding='utf-8',
            errors='replace',
            start_new_session=True,
            **options,
        )
        self._running.append(process)
        try:
            if self._over:
                _kill(process)
            try:
                output = process.communicate(timeout=seconds)[0]
                return subprocess.CompletedProcess(command, process.returncode, output or '')
            except subprocess.TimeoutExpired:
                _kill(process)
                said = process.communicate()[0] or ''
                return subprocess.CompletedProcess(
                    command, -signal.SIGKILL, f'{said}\nIt was ended after {seconds:.0f} s.'
                )
        finally:
            _kill(process)
            self._running.remove(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a program and what it has started, if it hasn't ended by itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
