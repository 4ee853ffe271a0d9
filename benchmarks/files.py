"""The files that measurements are kept in: a chart, and what pyperf reads."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, cast

import matplotlib

from benchmarks.plan import MEMORY
from benchmarks.report import Measured

matplotlib.use('svg')
from matplotlib import pyplot

pyperf: Any = import_module('pyperf')  # which has no types

_AXES = {
    'run': 'tools of the agent',
    'toolsets': 'toolsets of the agent',
    'history': 'turns before the run',
    'concurrent': 'runs at once',
}
_COLOURS = {'base': '#888888', 'fork': '#5b73e8'}


def draw(measured: Sequence[Measured], path: Path) -> None:
    """Draw how the time of a run grows and how much rounds differ, as an SVG that reads on light and dark pages and on phones."""
    matplotlib.rcParams.update({'svg.fonttype': 'none', 'svg.hashsalt': 'bench', 'font.size': 12})
    figure, axes = cast(Any, pyplot.subplots(2, 2, figsize=(7, 6), sharey=True))
    for axis, (workload, label) in zip(axes.flat, _AXES.items(), strict=True):
        points = {one.point.size: one for one in measured if one.point.workload == workload}
        sizes = sorted(points)
        for side, colour in _COLOURS.items():
            rounds = [[median(calls) * 1000 for calls in points[size].rounds[side]] for size in sizes]
            axis.plot(sizes, [*map(median, rounds)], marker='o', color=colour, label=side)
            axis.fill_between(sizes, [*map(min, rounds)], [*map(max, rounds)], color=colour, alpha=0.3, linewidth=0)
        axis.set(xscale='log', yscale='log', xlabel=label)
        axis.grid(visible=True, color='#8884')
        for part in (axis.xaxis.label, *axis.get_xticklabels(), *axis.get_yticklabels()):
            part.set_color('#777777')
    figure.supylabel('milliseconds a run', color='#777777')
    for text in axes[0, 0].legend(frameon=False).get_texts():
        text.set_color('#777777')
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={'Date': None})
    pyplot.close(figure)


def save(measured: Sequence[Measured], folder: Path) -> None:
    """Write a file for each side that `python -m pyperf compare_to` reads."""
    benchmarks: dict[str, dict[str, Any]] = {}
    for one in measured:
        for side, rounds in one.rounds.items():
            name = f'{one.point.workload} {one.point.size}'
            metadata = {'name': name, 'unit': 'byte' if one.point.workload == MEMORY else 'second'}
            runs = [pyperf.Run([median(values)], metadata=metadata, collect_metadata=False) for values in rounds]
            # Of equal points, like those beside the peers, the first
            benchmarks.setdefault(side, {}).setdefault(name, pyperf.Benchmark(runs))
    for side, of_side in benchmarks.items():
        pyperf.BenchmarkSuite([*of_side.values()]).dump(str(folder / f'{side}.json'), replace=True)
