"""Build the wheel of a line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from series.base import Report
from series.errors import BuildError
from series.line import Line


def build(line: Line, report: Report) -> Path:
    """Build the wheel of a line into `dist/` and return its path.

    Raises:
        BuildError: The build failed, with the words of the hook if it was the hook that stopped it. There is no wheel
            then: one of an earlier build would pass for that of the patches as they are now.
    """
    project = line.root / 'pydantic_ai_slim' / line.name
    dist = line.root / 'dist'
    dist.mkdir(exist_ok=True)
    for stale in dist.glob(f'*-{line.version}-*.whl'):
        stale.unlink()
    report(f'Building the wheel of {line.version}')
    with tempfile.TemporaryDirectory(dir=dist, prefix='.build-') as folder:
        done = subprocess.run(
            [
                sys.executable,
                '-m',
                'uv',
                'build',
                '--wheel',
                '--out-dir',
                folder,
                '--python',
                sys.executable,
                str(project),
            ],
            env=os.environ | {'NO_COLOR': '1'},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding='utf-8',
            errors='replace',
            check=False,
        )
        wheels = list(Path(folder).glob('*.whl'))
        if done.returncode or len(wheels) != 1:
            raise _error(line, done.stdout)
        return wheels[0].replace(dist / wheels[0].name)


def _error(line: Line, output: str) -> BuildError:
    # The hook ends the build with the name and the message of its error, between uv's own words before and after.
    said = re.search(r'^\w+Error: (.+?)^error: Failed to build', output, re.MULTILINE | re.DOTALL)
    if said and 'Traceback' not in output:
        return BuildError(f'The wheel of {line.version} was not built.', said[1].strip())
    return BuildError(
        f'The wheel of {line.version} was not built.',
        "These are the builder's words; put right what they name, then run `make build` again.",
        output,
    )
