"""Programs end when they take too long, and when who runs them does, with all that they have started; git is waited for."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from series.git import Git
from series.programs import Programs

WRITES = """
import subprocess, sys, time
if len(sys.argv) > 2:
    subprocess.Popen([sys.executable, *sys.argv[:-1]])
print('began', flush=True)
while True:
    open(sys.argv[1], 'a').write('x')
    time.sleep(0.05)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A program that starts another one, and goes on writing to a file like that."""
    (program := tmp_path / 'writes.py').write_text(WRITES)
    return [sys.executable, str(program), str(tmp_path / 'written'), 'more']


def is_quiet(path: Path) -> bool:
    """Say whether nothing is written to a file any more."""
    before = path.read_text()
    time.sleep(0.5)
    return path.read_text() == before


def test_programs_end_what_takes_too_long_and_say_so(command: list[str], tmp_path: Path) -> None:
    with Programs() as programs:
        done = programs.run(command, 3)
    assert done.returncode == -9
    assert done.stdout.startswith('began\n') and done.stdout.endswith('\nIt was ended after 3 s.')
    assert is_quiet(tmp_path / 'written')


def test_programs_end_with_who_runs_them_and_none_begins_after_that(command: list[str], tmp_path: Path) -> None:
    programs = Programs()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(programs.run, command, 600)
        while not (tmp_path / 'written').exists():
            time.sleep(0.05)
        programs.end()
        assert running.result().returncode == -9
    assert programs.run([sys.executable, '-c', 'import time; time.sleep(600)'], 600).returncode == -9
    assert is_quiet(tmp_path / 'written')


def test_git_is_waited_for_when_we_are_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (git := tmp_path / 'git').write_text(f'#!/bin/sh\ntouch {tmp_path}/begun\nsleep 1\ntouch {tmp_path}/ended\n')
    git.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')

    def interrupt() -> None:
        while not (tmp_path / 'begun').exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        pool.submit(interrupt)
        Git(tmp_path, os.environ).attempt('status')
    assert (tmp_path / 'ended').exists()


def test_programs_return_what_a_program_says_and_its_status() -> None:
    done = Programs().run([sys.executable, '-c', 'print(1); raise SystemExit(3)'], 600)
    assert (done.stdout, done.returncode) == ('1\n', 3)
