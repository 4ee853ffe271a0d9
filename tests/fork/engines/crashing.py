"""A workflow whose process is killed, and which another process recovers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def crash_and_recover(engine: str, way: str, url: str, folder: Path) -> None:
    """Kill a process in the middle of a workflow, have another one recover it, and check what that does again.

    Args:
        engine: `dbos` or `prefect`.
        way: How the agent is made durable, one of `WAYS_TO_MAKE_DURABLE`.
        url: The address of DBOS's database or Prefect's server.
        folder: An empty one for what the processes write down.
    """
    journal = folder / 'journal'
    journal.touch()
    command = [sys.executable, '-I', str(Path(__file__).with_name('crash_worker.py')), engine, way, str(journal)]
    environment = os.environ | ({'PREFECT_API_URL': url} if engine == 'prefect' else {})

    worker = subprocess.Popen([*command, 'begin', url], stdin=subprocess.DEVNULL, env=environment)
    try:
        while 'pay' not in journal.read_text().split() and worker.poll() is None:
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
        check=False,
    )

    assert recovered.returncode == 0
    after = journal.read_text().splitlines()[len(before) :]
    # The result of `add` isn't recorded, so it's called again. `pay` had begun, but not finished.
    assert after == ['enter', 'add', 'pay', 'request 3', 'exit None']
    # The recorded result of `note` is what it returned, while the fresh copy never took the note.
    assert json.loads(recovered.stdout) == [['tea'], ['green'], "paid for ['tea'] with []"]
