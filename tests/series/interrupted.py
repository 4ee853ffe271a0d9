"""Run a verb in a process that is killed at some step of it, or in which that step fails.

`python -m tests.series.interrupted KIND AT DELAY RELEASES VERB …` runs in the root of a checkout. With the kind `kill`, the
process and its children are killed when it begins the step AT, or DELAY milliseconds later; with `fault`, that rename fails
as on a disk that is full; with `count`, both are counted and printed.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from series import build, folders, pins
from series.cli import main
from series.verbs import rebase, release
from tests.series.upstream import fetch, find_release

STEPS = {
    'os.rename',
    'os.remove',
    'os.rmdir',
    'os.mkdir',
    'os.link',
    'subprocess.Popen',
    'shutil.copytree',
    'shutil.rmtree',
}
"""What a verb does to the disk, as Python names it to those who watch it."""


class Interruption:
    """Watches the steps of a verb, and interrupts one of them."""

    def __init__(self, kind: str, at: int, delay: int) -> None:
        self.kind, self.at, self.delay = kind, at, delay
        self.steps = self.renames = 0
        self.active = False

    def __call__(self, event: str, arguments: Any) -> None:
        """Take note of something that Python is about to do."""
        if not self.active or event not in STEPS:
            return
        self.steps += 1
        if self.kind == 'kill' and self.steps == self.at:
            if not self.delay:
                self._kill()
            threading.Timer(self.delay / 1000, self._kill).start()
        if event == 'os.rename':
            self.rename()

    def rename(self) -> None:
        """Take note of a rename, or of an exchange."""
        self.renames += 1
        if self.kind == 'fault' and self.renames == self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @staticmethod
    def _kill() -> None:
        os.killpg(0, signal.SIGKILL)
        time.sleep(60)


def _own(*_: object) -> Path:
    return Path(sys.executable)


def run(arguments: list[str]) -> int:
    """Run the verb that the arguments name, and return its exit code."""
    kind, at, delay, folder, *verb = arguments
    releases = Path(folder)
    replaced: dict[Any, dict[str, Any]] = {
        build: {'line_python': _own},
        release: {'interpreters': lambda _: (_own(), _own())},  # pyright: ignore[reportUnknownLambdaType]
        pins: {'find_release': partial(find_release, releases), 'download': partial(fetch, releases)},
        rebase: {'find_release': partial(find_release, releases)},
    }
    for module, functions in replaced.items():
        for name, function in functions.items():
            setattr(module, name, function)
    watch = Interruption(kind, int(at), int(delay))
    exchange = folders._exchange  # pyright: ignore[reportPrivateUsage]

    def exchanged(one: Path, other: Path) -> bool:
        watch('os.rename', ())
        done = exchange(one, other)
        watch('os.link', ())  # a step of its own: it can be killed right after
        return done

    folders._exchange = exchanged  # pyright: ignore[reportPrivateUsage]
    sys.addaudithook(watch)
    watch.active = True
    code = main(verb)
    watch.active = False
    if kind == 'count':
        print(f'{watch.steps} {watch.renames}')
    return code


if __name__ == '__main__':
    sys.exit(run(sys.argv[1:]))
