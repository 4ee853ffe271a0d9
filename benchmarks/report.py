"""What comes out of the measurements, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

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


_GOALS = {
    '1.26.0': {'lifecycle': 1.02, 'run': 0.5, 'copy': 1.05, 'factory': 1.3, 'build': 0.1, 'memory': 0.9},
    '2.68.0': {'lifecycle': 1.02, 'run': 0.6, 'copy': 1.05, 'factory': 1.3, 'build': 0.1, 'memory': 0.6},
}


def write(line: str, python: str, measured: Mapping[str, Sequence[Measured]]) -> str:
    """Write tables of what was measured, by the part of the plan that it belongs to, in Markdown."""
    parts = [
        f'Line {line}, Python {python}. A ratio is the median of those of all rounds, with their middle half in brackets.'
    ]
    for title, of_part in measured.items():
        if title == 'peers':
            parts.append('\n'.join(['| a run of | tools | |', '| --- | ---: | ---: |', *map(_peer, of_part)]))
            continue
        size = {'tools': 'tools', 'memory': 'runs'}.get(title, 'size')
        rows = [f'| workload | {size} | base | fork | fork / base |', '| --- | ---: | ---: | ---: | ---: |']
        parts.append('\n'.join([*rows, *map(_row, of_part)]))
    # The first of equal points is the one that others were measured in turn with.
    found: dict[tuple[str, int], Measured] = {}
    for one in (one for of_part in measured.values() for one in of_part):
        found.setdefault((one.point.workload, one.point.size), one)
    if goals := list(_goals(line, found)):
        parts.append('\n'.join(['| what | ratio | goal | |', '| --- | ---: | ---: | --- |', *goals]))
    return '\n\n'.join(parts) + '\n'


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


def _goals(line: str, found: Mapping[tuple[str, int], Measured]) -> Iterator[str]:
    """Yield a row for each goal."""
    goals = _GOALS.get(line, {})
    wanted = [
        ('lifecycle', 'a run, lifecycle patches only / base', 'run', 'lifecycle', 'run', 'base'),
        ('run', 'a run, fork / base', 'run', 'fork', 'run', 'base'),
        ('copy', "a run with a copy / the fork's run", 'copy', 'fork', 'run', 'fork'),
        ('copy', "a run whose copy makes its tools anew / the fork's run", 'copy with tools', 'fork', 'run', 'fork'),
        ('factory', "a run with a factory / the fork's run", 'factory', 'fork', 'run', 'fork'),
        ('build', 'building agent and tools again, fork / base', 'build', 'fork', 'build', 'base'),
    ]
    for goal, what, workload, side, to, to_side in wanted:
        for size in (15, 150):
            one, other = found.get((workload, size)), found.get((to, size))
            if one and other and side in one.rounds and to_side in other.rounds and goal in goals:
                yield _goal(f'{what}, {size} tools', one.ratios(side, other, to_side), goals[goal])
    if (live := found.get((MEMORY, 1_000))) and MEMORY in goals:
        yield _goal('memory of a live run, fork / base', live.ratios('fork', live, 'base'), goals[MEMORY])


def _goal(what: str, ratios: Sequence[float], goal: float) -> str:
    return f'| {what} | {_spread(ratios)} | ≤ {goal} | {"met" if median(ratios) <= goal else "not met"} |'


def _spread(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios if len(ratios) > 1 else [*ratios] * 2, n=4, method='inclusive')
    return f'{median(ratios):.2f} [{low:.2f}–{high:.2f}]'


def _milliseconds(seconds: float) -> str:
    return f'{seconds * 1000:.3g} ms'


def _bytes(number: float) -> str:
    return f'{number / 1000:.1f} kB'
