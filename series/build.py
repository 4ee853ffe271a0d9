"""Build the wheel of a line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from series import network
from series.environments import line_python
from series.errors import BuildError
from series.folders import lock, scratch
from series.line import Line
from series.progress import Report


def build(
    line: Line,
    report: Report,
    *,
    dist: Path | None = None,
    python: Path | None = None,
    umask: int = -1,
    variables: Mapping[str, str] | None = None,
) -> Path:
    """Build the wheel of a line and return its path.

    It has the same bytes wherever it is built: hatchling is the tool's own, which is locked, and the time of all files is
    that which hatchling gives them.

    Args:
        line: The line.
        report: Is told of each step.
        dist: The folder that it is put into; by default `dist/`.
        python: The interpreter that builds; by default the running one, if the line supports it.
        umask: What the builder's files are not permitted; by default as the process has it.
        variables: Environment variables of the builder.

    Raises:
        BuildError: The build failed, with the words of the hook if it was the hook that stopped it. There is no wheel
            then: one of an earlier build would pass for that of the patches as they are now.
        NoPythonError: This machine has no Python for it.
    """
    project = line.root / 'pydantic_ai_slim' / line.name
    dist = dist or line.root / 'dist'
    environment = network.environment() | {'NO_COLOR': '1'} | dict(variables or {})
    with (
        lock(line.root, f'wheel-{line.name}', line.make('build')),
        scratch(line.root, dist, 'build') as folder,
    ):
        for stale in dist.glob(f'*-{line.version}-*.whl'):
            stale.unlink()
        report(f'Building the wheel of {line.version}')
        # The wheel names the version of hatchling.
        constraint = folder / 'constraint.txt'
        constraint.write_text(f'hatchling=={version("hatchling")}\n')
        done = subprocess.run(
            [
                sys.executable,
                '-m',
                'uv',
                'build',
                '--wheel',
                '--out-dir',
                str(folder),
                '--python',
                str(python or line_python(line)),
                '--build-constraint',
                str(constraint),
                str(project),
            ],
            env=environment,
            umask=umask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding='utf-8',
            errors='replace',
            check=False,
        )
        wheels = list(folder.glob('*.whl'))
        if done.returncode or len(wheels) != 1:
            raise _error(line, done.stdout)
        return wheels[0].replace(dist / wheels[0].name)


def _error(line: Line, output: str) -> BuildError:
    # The hook ends the build with the name and the message of its error, between uv's own words before and after.
    said = re.search(r'^\w+Error: (.+?)^error: Failed to build', output, re.MULTILINE | re.DOTALL)
    if said and 'Traceback' not in output:
        return BuildError(f'The wheel of {line.version} was not built.', said[1].strip())
    if network.unreachable(output):
        return BuildError(
            f'The wheel of {line.version} was not built: the package index cannot be reached, and what it is built of is not '
            f'on this machine yet.',
            f"Check the connection and uv's configuration, then run `{line.make('build')}` again.",
            output,
        )
    return BuildError(
        f'The wheel of {line.version} was not built.',
        f"These are the builder's words; put right what they name, then run `{line.make('build')}` again.",
        output,
    )
