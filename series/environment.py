"""Make the environment that upstream's tests run in."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from series.base import Report
from series.errors import NoEnvironmentError
from series.git import words
from series.line import Line


def test_environment(line: Line, report: Report) -> Path:
    """Return the `python` of an environment with the base and what its tests need, as on the day after the base's release.

    What it holds is in the line's `tests.in`. It is made once and kept in `build/environments`, under a name that holds
    what it was made of.

    Raises:
        NoEnvironmentError: `tests.in` is missing, or something in it can't be installed.
    """
    requirements = line.folder / 'tests.in'
    if not requirements.exists():
        raise NoEnvironmentError(
            f"There is no `{line.show(requirements)}`, which says what upstream's tests need.",
            f'Write it, beginning with `pydantic-ai-slim==={line.base}`, then run the same command again.',
        )
    made_of = requirements.read_bytes() + f'{line.released} {sys.version} {sys.prefix}'.encode()
    folder = line.root / 'build/environments' / f'upstream-{line.name}-{hashlib.sha256(made_of).hexdigest()[:16]}'
    python = folder / ('Scripts/python.exe' if os.name == 'nt' else 'bin/python')
    ready = folder / '.ready'
    if not ready.exists():
        report("Making the environment for upstream's tests")
        if folder.exists():
            shutil.rmtree(folder)
        _uv(line, 'venv', '--no-python-downloads', '--python', sys.executable, str(folder))
        # A release of a dependency that came later can break the tests, and would say nothing about a patch.
        newest = f'{line.released + timedelta(days=1)}T00:00:00Z'
        _uv(
            line,
            'pip',
            'install',
            '--python',
            str(python),
            '--exclude-newer',
            newest,
            '--requirements',
            str(requirements),
        )
        ready.touch()
    return python


def _uv(line: Line, *arguments: str) -> None:
    done = subprocess.run([sys.executable, '-m', 'uv', *arguments], capture_output=True, check=False)
    if done.returncode:
        raise NoEnvironmentError(
            f"The environment for upstream's tests could not be made from `{line.show(line.folder / 'tests.in')}`.",
            "These are uv's words; put right what they name, then run the same command again.",
            words(done),
        )
