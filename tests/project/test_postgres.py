"""The PostgreSQL that tests start ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from examples.postgres import NoPostgresError, find_postgres
from tests.series.upstream import ROOT

STARTED = """\
import signal, subprocess, time
from examples.postgres import find_postgres, postgres_server

# A shell that runs this in the background has its children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
with postgres_server() as url:
    answer = subprocess.run([find_postgres() / 'psql', f'{url}/postgres', '-Atc', 'select 6 * 7'], capture_output=True)
    print(answer.stdout.decode().strip(), url.rpartition(':')[2], flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGKILL])
def test_postgres_answers_and_ends_with_who_started_it_however_that_ends(how: signal.Signals) -> None:
    try:
        find_postgres()
    except NoPostgresError as error:
        if os.environ.get('CI'):
            raise
        pytest.skip(str(error))
    process = subprocess.Popen(
        [sys.executable, '-c', STARTED], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    answer, port = process.stdout.readline().split()
    assert answer == '42'
    process.send_signal(how)
    process.communicate(timeout=600)
    deadline = time.monotonic() + 300
    while (
        f'port={port}' in subprocess.run(['ps', '-A', '-o', 'args='], capture_output=True, text=True, check=True).stdout
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
