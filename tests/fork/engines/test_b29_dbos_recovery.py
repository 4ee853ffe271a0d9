"""B29 on DBOS and a real PostgreSQL: a workflow whose process was killed, and which another process recovers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path


def test_b29_recovered_workflow_has_a_fresh_copy_and_the_recorded_results(database: str, tmp_path: Path):
    journal = tmp_path / 'journal'
    journal.touch()
    command = [sys.executable, '-I', str(Path(__file__).with_name('crash_worker.py')), database, str(journal)]

    worker = subprocess.Popen([*command, 'begin'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while 'pay' not in journal.read_text().split() and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        worker.kill()
        worker.communicate()
    before = journal.read_text().splitlines()
    assert before == ['enter', 'request 0', 'add', 'request 1', 'note', 'request 2', 'pay']

    recovered = subprocess.run(
        [*command, 'recover'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=120, check=False
    )

    assert recovered.returncode == 0
    after = journal.read_text().splitlines()[len(before) :]
    # `add` isn't a step, so it's called again. `pay` had begun, but not finished.
    assert after == ['enter', 'add', 'pay', 'request 3', 'exit None']
    # The recorded result of `note` is what it returned, while the fresh copy never took the note.
    assert json.loads(recovered.stdout) == [['tea'], ['green'], "paid for ['tea'] with []"]
