"""Measure what the fork costs beside its base: `python -m benchmarks`."""

from __future__ import annotations

import platform
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from benchmarks.files import save
from benchmarks.instructions import COUNTS, OF_PATCHES, Count, Counted, can_count, count
from benchmarks.plan import MEMORY, PEERS, PLANS, Point
from benchmarks.report import Measured, write, write_patches
from benchmarks.sides import Place, prepare, prepare_patches, prepare_peers, start
from docs.shown import put
from pydantic_ai_slim.fork.errors import ForkError
from series.errors import SeriesError
from series.line import find_line

ROOT = Path(__file__).parents[1]
INSTRUCTIONS = 'instructions'
PATCHES = 'patches'


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a line, print and write what came out, and return the exit code."""
    parser = ArgumentParser(
        prog='python -m benchmarks',
        description='Measure base and fork in turn, and write the ratios to `docs/performance.md`.',
    )
    parser.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; the newest line if left out')
    parser.add_argument('--rounds', type=int, default=9, help='how often the sides take turns (default: 9)')
    parser.add_argument('--seconds', type=float, default=0.3, help='for how long in each round (default: 0.3)')
    parser.add_argument(
        '--only',
        metavar='PART',
        choices=[*PLANS, INSTRUCTIONS, PATCHES],
        help=f'one of {", ".join(PLANS)}, {INSTRUCTIONS}, {PATCHES}',
    )
    parser.add_argument('--peers', action='store_true', help='measure other frameworks too')
    options = parser.parse_args(arguments)
    console = Console()
    try:
        line = find_line(ROOT, options.line)
        folder = ROOT / 'build' / 'bench' / line.name
        plans = {part: plan for part, plan in PLANS.items() if options.only in (None, part)}
        plans |= {'peers': PEERS} if options.peers else {}
        groups = [(part, group) for part in plans for group in plans[part]]
        measured: dict[str, list[Measured]] = {part: [] for part in plans}
        failed: list[SeriesError] = []
        counted: Counted = {}
        of_patches: Counted = {}
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task('Preparing', total=len(groups))
            sides = prepare(line) if options.only != PATCHES else {}
            sides |= prepare_peers(line) if options.peers else {}
            for part, group in groups:
                progress.update(task, description=f'{part}: {group[0].workload} {group[0].size}')
                try:
                    measured[part] += _measure(group, sides, options.rounds, options.seconds)
                except SeriesError as error:  # what was measured before it is still worth having
                    failed.append(error)
                progress.advance(task)
            if options.only in (None, INSTRUCTIONS) and can_count():
                progress.update(task, description='counting instructions')
                try:
                    counted = count(COUNTS, sides)
                except SeriesError as error:
                    failed.append(error)
            if options.only in (None, PATCHES) and can_count():
                progress.update(task, description='counting instructions of each patch')
                try:
                    places = prepare_patches(line)
                    of_patches = count([Count(*point, 5, tuple(places)) for point in OF_PATCHES], places)
                except SeriesError as error:
                    failed.append(error)
        if options.only in (None, INSTRUCTIONS, PATCHES) and not can_count():
            print(
                '`valgrind` is not installed: no instructions are counted, and goals are judged by times.',
                file=sys.stderr,
            )
        save([one for of_part in measured.values() for one in of_part], folder)
        report = write(line.name, platform.python_version(), measured, counted)
        saved = write_patches(of_patches) if of_patches else ''
        console.print(Markdown(f'{report}\n{saved}'))
        if failed:
            for error in failed:
                print(f'error: {error}', file=sys.stderr)
            return 1
        if not options.only:
            put(ROOT / 'docs' / 'performance.md', f'make bench LINE={line.name}', report)
        if saved:
            put(ROOT / 'docs' / 'performance.md', f'make bench LINE={line.name}, each patch', saved)
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


def _measure(points: Sequence[Point], sides: Mapping[str, Place], rounds: int, seconds: float) -> list[Measured]:
    """Measure points, each on its sides, all of them in turn."""
    measured = [Measured(point, {name: [] for name in point.sides}) for point in points]
    with ExitStack() as stack:
        turns = [(one, stack.enter_context(start(name, sides[name]))) for one in measured for name in one.point.sides]
        for one, side in turns if points[0].workload != MEMORY else ():
            side.measure(one.point.workload, one.point.size, seconds)  # warms up
        began = monotonic()
        for number in range(rounds):
            for one, side in turns if number % 2 else reversed(turns):
                values = side.measure(one.point.workload, one.point.size, seconds)
                one.rounds[side.name].append([value / one.point.operations for value in values])
            if number and monotonic() - began > points[0].patience:
                break
    return measured


if __name__ == '__main__':
    sys.exit(main())
