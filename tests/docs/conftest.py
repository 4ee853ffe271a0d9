from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='session')
def prepared() -> None:
    """Make the environment of the docs and the sources of the pages, as far as they aren't there.

    Processes that test at once take turns.
    """
    with (ROOT / 'build' / 'docs.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ['make', '--silent', 'build/envs/more/.ready'],
            ['build/tool/bin/python', '-m', 'docs.prepare'],
        ):
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            assert done.returncode == 0, done.stdout
