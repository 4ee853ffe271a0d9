"""What comes out of the measurements, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from statistics import median, quantiles

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


@dataclass(frozen=True)
class Goals:
    """What a line aims at: ratios to the base where nothing else is said."""

    run: Mapping[int, float]
    """For each number of tools."""
    factory: Mapping[int, float]
    """A run with a factory, for each number of tools, to the plain run of the fork that the goal was set for."""
    run_then: Mapping[int, float]
    """The instructions of that run."""
    copy: float
    """How many instructions a run with a copy may take more than a plain one."""
    history: float
    """A run after 1,000 turns."""
    memory: float
    lifecycle: float = 1.02
    """A run with the patches that are about lifecycles only."""
    scope: float = 1.005
    """A run in a toolset scope that has the copy already, to a run with a copy of its own: no more, but for what two counts differ by."""
    build: float = 0.05
    """Building agent and tools again."""


GOALS = {
    '2.68.0': Goals(
        run={15: 0.42, 150: 0.29},
        factory={15: 1.22, 150: 1.4},
        run_then={15: 14.18e6, 150: 36.13e6},
        copy=1.0e6,
        history=0.3,
        memory=0.68,
    ),
}
"""By the name of the line."""

REASONS = {
    'run': 'what is left is what the base does for each step: messages, events, hooks and copies of contexts',
    'lifecycle': 'each copy of a context has more fields, and each tool call notes whose run it is in',
    'toolsets': 'each run looks whether a toolset says what the run gets in its place',
    'build': 'to know that a schema is the same, annotations and defaults are compared, and the schema is copied',
    'history': 'the messages are copied and looked at for each request',
    'factory': 'each tool is built again in each run, though its schema is found',
    'copy': 'what `copy()` returns is checked before the run uses it',
    'scope': 'the run asks its scope for each instance',
    MEMORY: 'most of it is messages, contexts and tasks, which the base needs as well',
}
"""Why a goal isn't met, by what it is about."""


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
            '| instructions of | size | base | lifecycle | fork | fork / base |',
            '| --- | ---: | ---: | ---: | ---: | ---: |',
        ]
        tables.append('\n'.join([*rows, *starmap(_counted, counted.items())]))
    if (aims := GOALS.get(line)) and (goals := [*_goals(aims, found, counted), *_memory(aims, found)]):
        rows = [
            f'| what, by {"instructions" if counted else "time"} | is | goal | met or not, and why |',
            '| --- | ---: | ---: | --- |',
        ]
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
    values = [f'{sides[side] / 1e6:.2f} M' if side in sides else '' for side in ('base', 'lifecycle', 'fork')]
    ratio = f'{sides["fork"] / sides["base"]:.3f}' if {'base', 'fork'} <= sides.keys() else ''
    return f'| {of[0]} | {of[1]:,} | {" | ".join(values)} | {ratio} |'


def _goals(goals: Goals, found: Mapping[tuple[str, int], Measured], counted: Counted | None) -> Iterator[str]:
    """Yield a row for each goal: by instructions where they were counted, else by the ratios of times."""
    wanted = [
        *((f'a run, fork / base, {size} tools', 'run', size, 'fork', goal) for size, goal in goals.run.items()),
        *(
            (f'a run, lifecycle patches only / base, {size} tools', 'run', size, 'lifecycle', goals.lifecycle)
            for size in (15, 150)
        ),
        *(
            (f'a run, lifecycle patches only / base, {size:,} toolsets', 'toolsets', size, 'lifecycle', goals.lifecycle)
            for size in (1, 100, 1_000)
        ),
        *((f'building agent and tools again, {size} tools', 'build', size, 'fork', goals.build) for size in (15, 150)),
        ('a run after 1,000 turns, fork / base', 'history', 1_000, 'fork', goals.history),
    ]
    for what, workload, size, side, goal in wanted:
        why = 'lifecycle' if (workload, side) == ('run', 'lifecycle') else workload
        if counted:
            sides = counted.get((workload, size), {})
            if {side, 'base'} <= sides.keys():
                yield _goal(what, why, sides[side] / sides['base'], goal)
        elif (one := found.get((workload, size))) and {side, 'base'} <= one.rounds.keys():
            ratios = one.ratios(side, one, 'base')
            yield _goal(what, why, median(ratios), goal, _spread(ratios))
    if not counted:
        return
    for size, goal in goals.factory.items():
        if 'fork' in (sides := counted.get(('factory', size), {})):
            what = f'a run with a factory / the run before, {size} tools'
            yield _goal(what, 'factory', sides['fork'] / goals.run_then[size], goal)
    copy, run = counted.get(('copy', 15), {}), counted.get(('run', 15), {})
    if 'fork' in copy and 'fork' in run:
        more = copy['fork'] - run['fork']
        shown = (f'{number / 1e6:+.2f} M' for number in (more, goals.copy))
        yield _goal('a run with a copy, more than without', 'copy', more, goals.copy, *shown)
    for size in (15, 150):
        scope, copy = counted.get(('scope', size), {}), counted.get(('copy', size), {})
        if 'fork' in copy and 'fork' in scope:
            what = f'a run in a scope / with a copy, {size} tools'
            yield _goal(what, 'scope', scope['fork'] / copy['fork'], goals.scope)


def _memory(goals: Goals, found: Mapping[tuple[str, int], Measured]) -> Iterator[str]:
    if live := found.get((MEMORY, 1_000)):
        ratios = live.ratios('fork', live, 'base')
        yield _goal('memory of a live run, fork / base', MEMORY, median(ratios), goals.memory, _spread(ratios))


def _goal(what: str, why: str, value: float, goal: float, shown: str | None = None, aim: str | None = None) -> str:
    judged = 'met' if value <= goal else f'not met: {REASONS[why]}'
    return f'| {what} | {shown or f"{value:.3f}"} | ≤ {aim or goal} | {judged} |'


def _spread(ratios: Sequence[float]) -> str:
    low, _, high = quantiles(ratios if len(ratios) > 1 else [*ratios] * 2, n=4, method='inclusive')
    return f'{median(ratios):.2f} [{low:.2f}–{high:.2f}]'


def _milliseconds(seconds: float) -> str:
    return f'{seconds * 1000:.3g} ms'


def _bytes(number: float) -> str:
    return f'{number / 1000:.1f} kB'
