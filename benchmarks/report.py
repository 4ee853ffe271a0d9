"""What comes out of the measurements, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from statistics import median, quantiles
from typing import NamedTuple

from benchmarks.instructions import Counted
from benchmarks.plan import MEMORY, Point


@dataclass
class Measured:
    """What a point came to."""

    point: Point
    rounds: dict[str, list[list[float]]]
    """For each side and round what each call took: seconds for one operation, or bytes for one live run."""

    def median(self, side: str) -> float:
        """Return the median of the rounds' medians."""
        return median(map(median, self.rounds[side]))

    def ratios(self, side: str, other: Measured, to: str) -> list[float]:
        """Return for each round the ratio of the medians, of a side to a side of another point or of the same."""
        pairs = zip(self.rounds[side], other.rounds[to], strict=False)
        return [median(mine) / median(its) for mine, its in pairs]


class Value(NamedTuple):
    """What one operation takes on a side."""

    workload: str
    size: int
    side: str = 'fork'


class Goal(NamedTuple):
    """What a line aims at: how often as much one thing takes as another."""

    what: str
    of: Value
    to: Value
    at_most: float
    why: str
    """Why it isn't met, where it isn't."""


_EACH_TOOL = 'what is left is a definition, a tool and two copies for each tool and step, which users may change'
_FIELDS = (
    'each copy of a context has two more fields, and each run looks what its toolsets say of copies and sub-agents'
)
_AGAIN = 'each tool is built again in each run, though its schema is found'
_COLLECTOR = "Python's garbage collector goes through all that is alive again and again"

GOALS = {
    '2.68.0': (
        *(
            Goal(f'a run, {size} tools / base', Value('run', size), Value('run', size, 'base'), goal, _EACH_TOOL)
            for size, goal in ((15, 0.42), (150, 0.29))
        ),
        *(
            Goal(
                f'a run, heart alone, {size} {what} / base',
                Value(workload, size, 'heart'),
                Value(workload, size, 'base'),
                1.01,
                _FIELDS,
            )
            for workload, what, size in (('run', 'tools', 15), ('run', 'tools', 150), ('toolsets', 'toolsets', 100))
        ),
        *(
            Goal(
                f'a copy that makes its {size} tools again / a run',
                Value('copy with tools', size),
                Value('run', size),
                goal,
                _AGAIN,
            )
            for size, goal in ((15, 1.10), (150, 1.3))
        ),
        Goal(
            'a copy around 15 tools / a run',
            Value('copy', 15),
            Value('run', 15),
            1.10,
            'what `copy()` returns is checked',
        ),
        Goal(
            'a run in a scope / with a copy, 15 tools',
            Value('scope', 15),
            Value('copy', 15),
            1.02,
            'the run asks its scope',
        ),
        Goal(
            '40 nested wrappers / base',
            Value('wrappers', 40),
            Value('wrappers', 40, 'base'),
            1.5,
            'each wrapper is asked',
        ),
        Goal('a run among 5,000 / a run alone', Value('concurrent', 5_000), Value('concurrent', 1), 1.3, _COLLECTOR),
    )
}
"""By the name of the line."""


def write(line: str, python: str, measured: Mapping[str, Sequence[Measured]], counted: Counted | None = None) -> str:
    """Write tables in Markdown.

    Args:
        line: The name of the line.
        python: The version of Python.
        measured: What was measured, by the part of the plan that it belongs to.
        counted: The instructions that were counted, if they could be. Goals are judged by them then.
    """
    # The first of equal points is the one that others were measured in turn with.
    found: dict[tuple[str, int], Measured] = {}
    for one in (one for of_part in measured.values() for one in of_part):
        found.setdefault((one.point.workload, one.point.size), one)
    parts = [*_takeaway(found, counted or {})]
    tables = [
        f'Line {line}, Python {python}. A ratio is the median of those of all rounds, with their middle half in brackets.'
    ]
    for title, of_part in measured.items():
        if title == 'peers':
            tables.append('\n'.join(['| a run of | tools | |', '| --- | ---: | ---: |', *map(_peer, of_part)]))
            continue
        size = {'tools': 'tools', 'memory': 'runs'}.get(title, 'size')
        rows = [f'| workload | {size} | base | fork | fork / base |', '| --- | ---: | ---: | ---: | ---: |']
        tables.append('\n'.join([*rows, *map(_row, of_part)]))
    if counted:
        rows = [
            '| instructions of | size | base | heart | fork | fork / base |',
            '| --- | ---: | ---: | ---: | ---: | ---: |',
        ]
        tables.append('\n'.join([*rows, *starmap(_counted, counted.items())]))
    if goals := [row for goal in GOALS.get(line, ()) if (row := _judge(goal, found, counted or {}))]:
        rows = ['| goal | is | at most | by | met or not, and why |', '| --- | ---: | ---: | --- | --- |']
        tables.append('\n'.join([*rows, *goals]))
        parts.append(f'{sum(goal.endswith("| met |") for goal in goals)} of {len(goals)} goals are met.')
    fold = '<details markdown="1">\n<summary>All that was measured</summary>'
    return '\n\n'.join([*parts, fold, *tables, '</details>']) + '\n'


def _takeaway(found: Mapping[tuple[str, int], Measured], counted: Counted) -> Iterator[str]:
    """Yield a sentence that says what the chart and the tables come to."""
    counts = [counted.get(('run', size), {}) for size in (15, 150)]
    times = [found.get(('run', size)) for size in (15, 150)]
    if all({'base', 'fork'} <= sides.keys() for sides in counts):
        of, ratios = 'instructions', [sides['fork'] / sides['base'] for sides in counts]
    else:
        of, ratios = 'time', [median(one.ratios('fork', one, 'base')) for one in times if one and 'base' in one.rounds]
    if len(ratios) == len(times):
        few, many = (f'{ratio:.0%}' for ratio in ratios)
        yield f"**A run takes {few} of the base's {of} with 15 tools, and {many} with 150.**"


def _row(one: Measured) -> str:
    point = one.point
    unit = _bytes if point.workload == MEMORY else _milliseconds
    values = [unit(one.median(side)) if side in one.rounds else '' for side in ('base', 'fork')]
    ratio = _spread(one.ratios('fork', one, 'base')) if 'base' in one.rounds else ''
    return f'| {point.workload} | {point.size:,} | {" | ".join(values)} | {ratio} |'


def _peer(one: Measured) -> str:
    (side,) = one.rounds
    name = 'the fork' if side == 'fork' else one.point.workload
    return f'| {name} | {one.point.size} | {_milliseconds(one.median(side))} |'


def _counted(of: tuple[str, int], sides: Mapping[str, float]) -> str:
    values = [f'{sides[side] / 1e6:.2f} M' if side in sides else '' for side in ('base', 'heart', 'fork')]
    ratio = f'{sides["fork"] / sides["base"]:.3f}' if {'base', 'fork'} <= sides.keys() else ''
    return f'| {of[0]} | {of[1]:,} | {" | ".join(values)} | {ratio} |'


def _judge(goal: Goal, found: Mapping[tuple[str, int], Measured], counted: Counted) -> str | None:
    """Write a row for a goal, by instructions where they were counted, or else by time, if it was measured."""
    first, second = (counted.get((each.workload, each.size), {}).get(each.side) for each in (goal.of, goal.to))
    if first and second:
        return _goal(goal, first / second, f'{first / second:.3f}', 'instructions')
    of, to = (found.get((each.workload, each.size)) for each in (goal.of, goal.to))
    if of is None or to is None or goal.of.side not in of.rounds or goal.to.side not in to.rounds:
        return None
    ratios = of.ratios(goal.of.side, to, goal.to.side)
    return _goal(goal, median(ratios), _spread(ratios), 'time')


def _goal(goal: Goal, value: float, shown: str, by: str) -> str:
    judged = 'met' if value <= goal.at_most else f'not met: {goal.why}'
    return f'| {goal.what} | {shown} | {goal.at_most} | {by} | {judged} |'


def write_patches(counted: Counted) -> str:
    """Write what each patch about speed saves of the instructions that were left before it, as a table in Markdown.

    Args:
        counted: The instructions of workloads: those of the side of each patch, in the order of the series, after those of
            the side that stands before all of them.
    """
    (sides, *_) = counted.values()
    head = [f'{workload}, {size:,}' for workload, size in counted]
    rows = [f'| patch | {" | ".join(head)} |', f'| --- |{" ---: |" * len(head)}']
    for before, patch in pairwise(sides):
        saved = [1 - of[patch] / of[before] for of in counted.values()]
        rows.append(f'| {patch} | {" | ".join(f"{share:.1%}" for share in saved)} |')
    return '\n'.join(rows) + '\n'


def _spread(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios if len(ratios) > 1 else [*ratios] * 2, n=4, method='inclusive')
    return f'{median(ratios):.2f} [{low:.2f}–{high:.2f}]'


def _milliseconds(seconds: float) -> str:
    return f'{seconds * 1000:.3g} ms'


def _bytes(number: float) -> str:
    return f'{number / 1000:.1f} kB'
