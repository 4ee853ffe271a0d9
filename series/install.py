"""Make the tool environment `build/tool`, which all else of the tool runs in: so this needs nothing but Python.

`make` runs it when `requirements/tool.txt` has changed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from series.errors import SeriesError
from series.folders import lock
from series.network import environment, missing_certificates, unreachable
from series.progress import waiting

TOOL = Path('build/tool')
READY = TOOL / '.ready'
REQUIREMENTS = Path('requirements/tool.txt')


def install() -> None:
    """Make the environment, unless somebody else has made it while this waited."""
    with lock(Path.cwd(), 'tool', 'make build/tool', lambda who: print(who, flush=True)):
        if READY.exists() and READY.stat().st_mtime >= REQUIREMENTS.stat().st_mtime:
            return
        print(f'Making the tool environment `{TOOL}`, which takes up to a minute', flush=True)
        with waiting(f'Making the environment `{TOOL}`') as step:
            _run(sys.executable, '-m', 'venv', '--clear', str(TOOL))
            locked = REQUIREMENTS.read_text('utf-8').count('==')
            step(f'Installing the {locked} packages of `{REQUIREMENTS}` in `{TOOL}`, each compared with its hash')
            pip = [str(TOOL / 'bin' / 'python'), '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check']
            _run(*pip, '--require-hashes', '--requirement', str(REQUIREMENTS))
        # The last step, so that an installation which was interrupted is begun again.
        READY.touch()


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding='utf-8',
        errors='replace',
        check=False,
    )
    if done.returncode:
        why = ': the package index cannot be reached' if unreachable(done.stdout) else ''
        raise SeriesError(
            f'The tool environment `{TOOL}` was not made{why}.',
            f"{missing_certificates()}Check the connection and pip's configuration (`pip config list`), then run the same command again."
            if why
            else 'Put right what stands below, then run the same command again.',
            done.stdout,
        )


if __name__ == '__main__':
    try:
        install()
    except SeriesError as error:
        sys.exit(f'error: {error}')
