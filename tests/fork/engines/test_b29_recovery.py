"""B29: a workflow whose process was killed, and which another process recovers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from ..line import WAYS_TO_MAKE_DURABLE


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
def test_b29_workflow_recovered_by_dbos_has_a_fresh_copy_and_the_recorded_results(
    way: str, database: str, tmp_path: Path
):
    _crash_and_recover('dbos', way, database, tmp_path)


@pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)
@pytest.mark.usefixtures('prefect')
def test_b29_flow_recovered_by_prefect_has_a_fresh_copy_and_the_recorded_results(way: str, tmp_path: Path):
    _crash_and_recover('prefect', way, PREFECT_API_URL.value() or '', tmp_path)


def _crash_and_recover(engine: str, way: str, url: str, tmp_path: Path) -> None:
    journal = tmp_path / 'journal'
    journal.touch()
    command = [sys.executable, '-I', str(Path(__file__).with_name('crash_worker.py')), engine, way, str(journal)]
    environment = os.environ | ({'PREFECT_API_URL': url} if engine == 'prefect' else {})

    worker = subprocess.Popen([*command, 'begin', url], stdin=subprocess.DEVNULL, env=environment)
    try:
        deadline = time.monotonic() + 60
        while 'pay' not in journal.read_text().split() and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        worker.kill()
        worker.wait()
    before = journal.read_text().splitlines()
    assert before == ['enter', 'request 0', 'add', 'request 1', 'note', 'request 2', 'pay']

    recovered = subprocess.run(
        [*command, 'recover', url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment,
        timeout=120,
        check=False,
    )

    assert recovered.returncode == 0
    after = journal.read_text().splitlines()[len(before) :]
    # The result of `add` isn't recorded, so it's called again. `pay` had begun, but not finished.
    assert after == ['enter', 'add', 'pay', 'request 3', 'exit None']
    # The recorded result of `note` is what it returned, while the fresh copy never took the note.
    assert json.loads(recovered.stdout) == [['tea'], ['green'], "paid for ['tea'] with []"]
