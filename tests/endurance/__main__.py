"""Have the built fork endure load and faults at length, and write down what was found: `python -m tests.endurance`."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from docs.shown import put
from pydantic_ai_slim.fork.errors import ForkError
from series.environments import ENGINES, built_wheel, line_python, make_environment, overrides
from series.errors import SeriesError
from series.line import Line, find_line, find_lines
from series.progress import waiting

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Test the line that the arguments name, or all lines, and return 0 if nothing was lost."""
    parser = ArgumentParser(
        prog='python -m tests.endurance',
        description='Run the tests of endurance in full, and write their tables to `docs/endurance.md`. '
        'What is not listed below is passed to pytest, and then no table is written.',
    )
    parser.add_argument('--line', help='an upstream release; all lines if left out')
    options, rest = parser.parse_known_args(arguments)
    try:
        lines = [find_line(ROOT, options.line)] if options.line else find_lines(ROOT)
        failed = [line.name for line in lines if not _endure(line, rest)]
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return int(bool(failed))


def _endure(line: Line, rest: Sequence[str]) -> bool:
    folder = ROOT / 'build' / 'envs' / f'endurance-{line.name}'
    needs = [*requirements(line), '--requirement', ROOT / 'requirements' / 'test.in']
    with waiting(f'Making `{line.show(folder)}`'):
        python = make_environment(folder, line_python(line), needs)
    report = folder / 'report.md'
    report.unlink(missing_ok=True)
    arguments = rest or [f'--report={report}']
    done = subprocess.run(
        [str(python), '-I', '-m', 'pytest', 'tests/endurance', '--full', *arguments],
        cwd=ROOT,
        env=os.environ | {'CI': 'true'},  # with which the tests that need PostgreSQL fail without it
        check=False,
    )
    if report.exists():  # as all held
        put(ROOT / 'docs' / 'endurance.md', f'make endurance LINE={line.name}', report.read_text('utf-8'))
    return done.returncode == 0


def requirements(line: Line) -> list[str | Path]:
    """Return what to install for these tests besides what the tests of the contract need, the fork among it."""
    listed = [ROOT / 'requirements' / f'{name}.in' for name in ('endurance', 'engines')]
    named = [part for path in listed for part in ('--requirement', path)]
    return [f'{built_wheel(line)}{ENGINES}', *overrides(line), *named]


if __name__ == '__main__':
    sys.exit(main())
