"""Run the demonstration from the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from demo.environments import Side, check_side, run_sides
from demo.render import render
from demo.verdict import compare, conclude
from pydantic_ai_slim.fork.errors import ForkError
from series.errors import SeriesError
from series.line import find_line
from series.progress import waiting

_EPILOG = """\
With `--model`, the key that the provider needs is taken from the environment, as pydantic-ai does: `OPENAI_API_KEY` for
`--model openai:gpt-5-mini`. The scenarios then make about 50 small requests.

exit codes:
  0  the base leaks in every scenario, and the fork in none
  1  they don't differ like that, or one of them could not run; the last sentence says which
  2  the command line is wrong
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the demonstration that the arguments ask for, and return the exit code.

    Args:
        arguments: Those after `python -m demo`; by default those of the process.
    """
    parser = ArgumentParser(
        prog='python -m demo',
        description='Run the same script on the base and on the fork, and show side by side what each user saw.',
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; the newest line if left out')
    parser.add_argument('--base', metavar='PYTHON', type=Path, help='interpreter of an environment with the base')
    parser.add_argument('--fork', metavar='PYTHON', type=Path, help='interpreter of an environment with the fork')
    parser.add_argument(
        '--model', metavar='NAME', help='a real model, as pydantic-ai names it (default: scripted, offline)'
    )
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors='replace')  # not every pipe takes the frames, or all that a real model says
    out, notes = Console(highlight=False), Console(stderr=True, highlight=False, soft_wrap=True)
    out.width = min(out.width, 120)  # wider, the columns would be too far apart
    try:
        sides = find_sides(options.line, options.base, options.fork)
        with (
            Progress(console=notes, transient=True, disable=not notes.is_terminal) as progress,
            nullcontext() if notes.is_terminal else waiting('Running the script on the base and on the fork'),
        ):
            bars = {side: progress.add_task(side.name, total=None) for side in sides}
            base, fork = run_sides(
                sides, options.model, lambda side, done, total: progress.update(bars[side], completed=done, total=total)
            )
    except (SeriesError, ForkError) as error:
        notes.print(f'error: {error}', markup=False)
        return 1
    comparisons = compare(base, fork)
    out.print(render(base, fork, comparisons))
    return 0 if conclude(comparisons)[0] else 1


def find_sides(line: str | None, base: Path | None, fork: Path | None) -> list[Side]:
    """Find the environments of the base and of the fork.

    Args:
        line: The line whose environments in `build/` are used where no interpreter is given; `None` for the newest.
        base: An interpreter with the base.
        fork: An interpreter with the fork.

    Raises:
        SeriesError: There is no such line.
        MissingEnvironmentError: An interpreter does not exist.
    """
    found, made_by = {'base': base, 'fork': fork}, 'make fork'
    if not (base and fork):
        name = find_line(Path.cwd(), line).name
        made_by = f'make fork LINE={name}'
        for side, python in found.items():
            found[side] = python or Path.cwd() / 'build' / 'envs' / f'{side}-{name}' / 'bin' / 'python'
    sides = [Side(name, python, made_by) for name, python in found.items() if python]
    for side in sides:
        check_side(side)
    return sides


if __name__ == '__main__':
    sys.exit(main())
