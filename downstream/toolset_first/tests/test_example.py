"""The main example: three agents that keep books."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / 'examples'


def test_example_rolls_back_what_was_denied_and_commits_what_was_approved() -> None:
    done = subprocess.run([sys.executable, EXAMPLES / 'main.py'], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "clerk may call post {'account': 'revenue', 'amount': 42}: no\n"
        "denied: `post` of 'clerk' was denied: The user denied this call.\n"
        'posted for good: []\n'
        '\n'
        "clerk may call post {'account': 'revenue', 'amount': 42}: yes\n"
        'revenue in March: 42\n'
        "posted for good: [('revenue', 42)]\n"
        '\n'
    )
    shown = done.stderr.splitlines()
    assert (
        '      ▶ analyst: Sum 12.' in shown
    )  # the analyst who was called by an analyst, who was called by the bookkeeper
    # The inner one has variables of its own: the total of the outer one is what it was.
    assert shown.count('    ← run 42') == 2


def test_example_runs_and_is_checked_from_the_command_line(tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program = 'from toolset_first.cli import main; main()'
        environment = {**os.environ, 'LEDGER': str(tmp_path / 'ledger.db')}
        command = [sys.executable, '-c', program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    for balance in (42, 84):
        done = run('run', EXAMPLES / 'bookkeeping', 'Close March.', '--approve-all')
        assert (done.returncode, done.stdout) == (0, f'{balance}\n'), done.stderr
    denied = run('run', EXAMPLES / 'bookkeeping', 'Close March.', '--reject-all')
    assert (denied.returncode, denied.stdout) == (0, '84\n'), denied.stderr
    checked = run('check', EXAMPLES / 'bookkeeping')
    assert checked.returncode == 0
    assert checked.stdout.count('Problems found: 0.') == 3
