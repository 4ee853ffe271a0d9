"""Count the instructions that workloads take, with `valgrind --tool=callgrind`.

Two counts of the same code differ by half a percent, however busy the machine is; two times differ by ten. Instructions are not
time: they don't say what waits for memory. But a change that leaves out work shows in them at once.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.sides import MeasurementFailedError, Place

SCRIPT = Path(__file__).with_name('counted.py')


class Count(NamedTuple):
    """What is counted: a workload of a size."""

    workload: str
    size: int
    calls: int = 10
    sides: tuple[str, ...] = ('base', 'fork')


COUNTS = (
    *(Count('run', size, calls, ('base', 'heart', 'fork')) for size, calls in ((15, 20), (150, 10))),
    *(Count('toolsets', size, calls, ('base', 'heart', 'fork')) for size, calls in ((1, 20), (100, 5))),
    *(Count(workload, size, 10, ('fork',)) for workload in ('copy', 'scope', 'copy with tools') for size in (15, 150)),
    *(Count('factory', size, calls) for size, calls in ((15, 10), (150, 5))),
    *(Count('build', size, calls) for size, calls in ((15, 3), (150, 1))),
    Count('wrappers', 40),
    Count('history', 1_000, 1),
)
"""What is counted for the goals."""

OF_PATCHES = (
    ('run', 15),
    ('run', 150),
    ('prepared', 150),
    ('toolsets', 100),
    ('history', 100),
    ('copy with tools', 15),
)
"""The workloads that are counted with each patch about speed."""

Counted = Mapping[tuple[str, int], Mapping[str, float]]
"""For each workload and size how many instructions an operation takes on each side."""


def can_count() -> bool:
    """Whether valgrind is installed."""
    return shutil.which('valgrind') is not None


def count(counts: Sequence[Count], sides: Mapping[str, Place]) -> Counted:
    """Count the instructions of workloads, each side in a process of its own, all sides at once.

    Args:
        counts: What is counted.
        sides: The sides by their names.

    Raises:
        MeasurementFailedError: A process failed.
    """
    counted: dict[tuple[str, int], dict[str, float]] = {(one.workload, one.size): {} for one in counts}
    with TemporaryDirectory() as folder:
        started = {
            name: (of_side, _start(place, of_side, Path(folder, name)))
            for name, place in sides.items()
            if (of_side := [one for one in counts if name in one.sides])
        }
        try:
            for name, (of_side, process) in started.items():
                printed, _ = process.communicate()
                totals = read_totals(Path(folder), name)
                if process.returncode or len(totals) < 2 * len(of_side):
                    raise MeasurementFailedError(
                        f'Counting instructions failed on the side `{name}`.',
                        f'What `valgrind` printed ends in:\n{printed[-2_000:]}',
                    )
                # The totals at odd places are those of what makes a workload ready.
                for one, total in zip(of_side, totals[1::2], strict=False):
                    counted[one.workload, one.size][name] = total / one.calls
        finally:
            for _, process in started.values():
                process.kill()
    return counted


def read_totals(folder: Path, name: str) -> list[int]:
    """Return what was counted up to each mark, from the files `NAME.1`, `NAME.2` and so on."""
    files = sorted(folder.glob(f'{name}.*'), key=lambda path: int(path.suffix[1:]))
    totals = [
        re.search(r'^(?:totals|summary): (\d+)', path.read_text(errors='replace'), re.MULTILINE) for path in files
    ]
    return [int(total[1]) for total in totals if total]


def _start(place: Place, counts: Sequence[Count], output: Path) -> Popen[str]:
    environment = {**os.environ, 'PYTHONPATH': str(place.path or ''), 'PYTHONHASHSEED': '0', 'PYTHONWARNINGS': 'ignore'}
    command = [
        *('valgrind', '--tool=callgrind', '--dump-before=getppid', f'--callgrind-out-file={output}'),
        *(place.python, SCRIPT, *(f'{one.workload}:{one.size}:{one.calls}' for one in counts)),
    ]
    return Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, env=environment)
