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
_COLOURS = {'base': '#888888', 'fork': '#4051b5'}


def draw(measured: Sequence[Measured], path: Path) -> None:
    """Draw how the time of a run grows, as an SVG that reads on light and on dark pages."""
    matplotlib.rcParams.update({'svg.fonttype': 'none', 'svg.hashsalt': 'bench', 'font.size': 9})
    figure, axes = cast(Any, pyplot.subplots(1, len(_AXES), figsize=(12, 3), sharey=True))
    for axis, (workload, label) in zip(axes, _AXES.items(), strict=True):
        points = [one for one in measured if one.point.workload == workload]
        for side, colour in _COLOURS.items():
            values = [one.median(side) * 1000 for one in points]
            axis.plot([one.point.size for one in points], values, marker='o', color=colour, label=side)
        axis.set(xscale='log', yscale='log', xlabel=label)
        axis.grid(visible=True, color='#8884')
        for part in (axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels(), *axis.get_yticklabels()):
            part.set_color('#777777')
    axes[0].set_ylabel('milliseconds a run')
    axes[0].yaxis.label.set_color('#777777')
    legend = axes[0].legend(frameon=False)
    for text in legend.get_texts():
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
