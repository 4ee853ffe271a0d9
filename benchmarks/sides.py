"""The sides that are compared: the base, the heart alone, the fork, and other frameworks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, NamedTuple, cast

from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from series.environments import built_wheel, line_python, make_environment, make_environments
from series.errors import SeriesError
from series.line import Line
from series.message import all_needs, direct_needs, read_message

WORKER = Path(__file__).with_name('worker.py')


class MeasurementFailedError(SeriesError):
    """A worker that ended before it had answered."""


class Place(NamedTuple):
    """Where a side is measured."""

    python: Path
    """The interpreter of an environment."""
    module: str = 'workloads'
    """The module with the workloads."""
    path: Path | None = None
    """A folder to import `pydantic_ai` from, if not from the environment."""


@dataclass
class Side:
    """A process that measures on one side."""

    name: str
    process: Popen[str]

    def measure(self, workload: str, size: int, seconds: float) -> list[float]:
        """Measure a workload.

        Args:
            workload: Its name.
            size: Its size.
            seconds: For how long it is called again and again; one call at least.

        Returns:
            The seconds that each call took; for `memory`, the bytes that one run holds.

        Raises:
            MeasurementFailedError: The process ended, which has printed why.
        """
        to, back = cast(IO[str], self.process.stdin), cast(IO[str], self.process.stdout)
        try:
            print(json.dumps({'workload': workload, 'size': size, 'seconds': seconds}), file=to, flush=True)
        except BrokenPipeError:
            answer = ''
        else:
            answer = back.readline()
        if not answer:
            raise MeasurementFailedError(
                f'Measuring `{workload}` of size {size} failed on the side `{self.name}`.',
                'What the process printed is above; see what it names.',
            )
        return json.loads(answer)


def prepare(line: Line) -> dict[str, Place]:
    """Make what the sides of a line run in, and return it by their names.

    Args:
        line: The line. Its wheel is built.
    """
    base, fork, package = _environments(line)
    heart = [patch for patch in line.patches if patch.parent.name == 'heart']
    needed = all_needs(heart, direct_needs({patch: read_message(patch) for patch in line.patches}))
    tree = _tree(line, 'heart', package, needed)
    return {'base': Place(base), 'heart': Place(base, path=tree), 'fork': Place(fork)}


def prepare_patches(line: Line) -> dict[str, Place]:
    """Make the sides of the patches about speed, each with all that stands before it in the series.

    Returns:
        The sides by the titles of the patches. The first one, `before`, has none of them.
    """
    python, _, package = _environments(line)
    speed = [patch for patch in line.patches if patch.parent.name == 'speed']
    before = line.patches[: line.patches.index(speed[0])]
    places = {'before': Place(python, path=(tree := _tree(line, 'before', package, before)))}
    for number, patch in enumerate(speed):
        tree = _tree(line, f'speed-{number}', tree, [patch])
        places[read_message(patch).subject] = Place(python, path=tree)
    return places


def _environments(line: Line) -> tuple[Path, Path, Path]:
    """Return the interpreters of the base and the fork, and the folder that has the package of the base."""
    base, fork = (folder / 'bin' / 'python' for folder in make_environments(line))
    (installed,) = base.parent.parent.glob(f'lib/python*/site-packages/{PACKAGE}')
    return base, fork, installed.parent


def _tree(line: Line, name: str, source: Path, patches: Sequence[Path]) -> Path:
    """Copy the package from a folder and apply patches to it, and return the folder to import it from."""
    folder = line.root / 'build' / 'bench' / line.name / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_package(source, folder)
    apply_patches(patches, folder)
    return folder / UPSTREAM_FOLDER


def prepare_peers(line: Line) -> dict[str, Place]:
    """Make the environment of the side `peers`, with the fork and the other frameworks."""
    requirements = [built_wheel(line), '--requirement', line.root / 'requirements' / 'peers.in']
    python = make_environment(line.root / 'build' / 'envs' / f'peers-{line.name}', line_python(line), requirements)
    return {'peers': Place(python, 'peers')}


@contextmanager
def start(name: str, place: Place) -> Generator[Side]:
    """Start the process of a side, and end it afterwards."""
    environment = {**os.environ, 'PYTHONPATH': str(place.path or ''), 'PYTHONHASHSEED': '0', 'PYTHONWARNINGS': 'ignore'}
    command = [place.python, WORKER, place.module]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environment) as process:
        try:
            yield Side(name, process)
        finally:
            process.kill()
