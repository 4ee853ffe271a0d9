"""The files that measurements are kept in, which pyperf reads."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.plan import MEMORY
from benchmarks.report import Measured

pyperf: Any = import_module('pyperf')  # which has no types


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
