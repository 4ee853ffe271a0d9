"""Run upstream's own tests on base and fork, side by side; the verdict is the difference."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import tomllib

from pydantic_ai_slim.fork.names import DIST_NAME, UPSTREAM_FOLDER
from series import pytest_plugin
from series.base import base_repository, base_wheel, clone
from series.build import build
from series.comparison import SIDES, Compared, Comparison, Result, compare, read_results
from series.environments import find_python, keep_environment, overrides
from series.errors import SeriesError
from series.folders import lock, write
from series.git import Git
from series.line import Line
from series.progress import Report
from series.upstream_tests import Pytest
from series.verbs.apply import apply_series
from series.verbs.locks import INSTALLS, RESOLUTIONS, for_other_tests, lock_file

_TIMEOUT = 120
"""The seconds after which a test has failed. The slowest starts the server of Prefect."""

_RENAMES = Path(__file__).parents[1] / 'renames.toml'
"""What is called otherwise in the tests of other releases."""


@dataclass(frozen=True)
class Cell:
    """One environment of the matrix."""

    python: str
    install: str
    resolution: str

    @property
    def name(self) -> str:
        """Its name, in files and environments."""
        return f'{self.python}-{self.install}-{self.resolution}'

    def __str__(self) -> str:
        return f'Python {self.python}, {self.install}, {self.resolution}'


def choose_cells(
    line: Line, python: Sequence[str] | None, install: Sequence[str] | None, resolution: Sequence[str] | None
) -> list[Cell]:
    """Return all cells of a line, or those with the named values only."""
    if unknown := [version for version in python or () if version not in line.python]:
        raise SeriesError(
            f'The line {line.name} does not support Python {", ".join(unknown)}.',
            f'Name one of {", ".join(line.python)} with `--python VERSION` (`PYTHON=VERSION`).',
        )
    return [Cell(*axes) for axes in product(python or line.python, install or INSTALLS, resolution or RESOLUTIONS)]


@dataclass(frozen=True)
class Tests:
    """Which tests run."""

    __test__ = False  # pytest: not a test class

    clone: Path
    """The clone of upstream that they are in."""
    only: tuple[str, ...] = ()
    """The files or folders that run, which may have wildcards; by default all."""
    expression: str = ''
    """What pytest is given as `-k`."""


@dataclass(frozen=True)
class Prepared:
    """An environment that tests run in, with the package under test."""

    python: Path
    made_of: str
    """What it is made of; outcomes are for nothing else."""
    options: Sequence[str]
    """What pytest is run with."""
    alone: Sequence[str]
    """The same for tests that run again, without others beside them."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


Prepare = Callable[[Cell, str, Git], 'Prepared | None']
"""Makes the environment of a cell for a side, whose tree is given; `None` if the cell's interpreter isn't here."""


@dataclass(frozen=True)
class CellResult:
    """What came of a cell."""

    cell: Cell
    comparison: Comparison | None
    """`None` if it was skipped."""
    skipped: str = ''
    """Why it was."""


@dataclass(frozen=True)
class Matrix:
    """What came of all cells."""

    cells: Sequence[CellResult]

    @property
    def differences(self) -> int:
        """In how many places an outcome changed."""
        return sum(len(result.comparison.differences) for result in self.cells if result.comparison)

    @property
    def broken(self) -> int:
        """In how many places a test that the patches add fails."""
        return sum(len(result.comparison.broken) for result in self.cells if result.comparison)


def matrix(line: Line, cells: Sequence[Cell], tests: Tests, report: Report, prepare: Prepare | None = None) -> Matrix:
    """Run upstream's tests on base and fork in each cell, and compare them test by test.

    The outcomes of each cell and side are kept in `build/matrix/LINE/results` as JUnit XML, under a name that holds what it
    was made of. So what was run is not run again, and nothing is taken for the outcome of something else. The trees that the
    tests run in are copies; neither the tree of `make apply` nor a clone of upstream is touched.

    Args:
        cells: Where to. One whose interpreter isn't on this machine is skipped.
        tests: Which tests.
        prepare: Makes the environments; by default from the base's released wheel and the fork's built one.
    """
    folder = line.root / 'build' / 'matrix' / line.name
    with lock(line.root, f'matrix-{line.name}', line.make('matrix')):
        shutil.rmtree(folder / 'trees', ignore_errors=True)
        (folder / 'trees').mkdir(parents=True)
        trees = {side: _tree(line, side, tests.clone, folder / 'trees' / side, report) for side in SIDES}
        make = prepare or _Environments(line, folder, tests.clone, report)
        # With a seed, sets are shown in one order.
        variables = {'SERIES_TEMPORAL': shutil.which('temporal') or '', 'PYTHONHASHSEED': '0'}
        results = [_run_cell(cell, folder, trees, tests, make, variables, report) for cell in cells]
    if all(result.comparison is None for result in results):
        raise SeriesError(
            f'No cell was run: {results[0].skipped}.' if results else 'No cell was named.',
            f'Install one of Python {", ".join(line.python)}, or name one that is here with `--python VERSION` (`PYTHON=VERSION`).',
        )
    return Matrix(results)


def _tree(line: Line, side: str, upstream: Path, folder: Path, report: Report) -> Git:
    """Make what the tests of one side run in: the package of the base or of the fork, and all else of the clone."""
    report(f'Making the tree of the {side}')
    git = apply_series(line, folder, report) if side == 'fork' else clone(base_repository(line, report), folder, 'HEAD')
    _copy_clone(upstream, git, line)
    return git


def rename(text: str, line: str) -> str:
    """Return the source of a test of another release with today's names in the place of those of before."""
    rules: dict[str, str] = tomllib.loads(_RENAMES.read_text('utf-8')).get(line, {})
    # A module comes before the package that it is in.
    for old, new in sorted(rules.items(), key=lambda rule: -len(rule[0])):
        text = re.sub(rf'(?<!\w){re.escape(old)}(?!\w)', new, text)
    return text


def _copy_clone(upstream: Path, git: Git, line: Line) -> None:
    """Put what a clone of upstream holds into a tree in place of the tests, all but the package."""
    source = Git(upstream)
    if not (upstream / 'tests').is_dir() or source.attempt('rev-parse', 'HEAD').returncode:
        raise SeriesError(
            f'`{upstream}` is not a clone of upstream: it has no folder `tests`, or is no git repository.',
            'Name the root of a clone with `--tests DIR` (`CLONE=DIR`).',
        )
    git.run('rm', '-r', '--quiet', '--', ':/', f':!/{UPSTREAM_FOLDER}')
    # Also what isn't committed there, but nothing that its `.gitignore` keeps out.
    listed = source.run('ls-files', '-z', '--cached', '--others', '--exclude-standard')
    for name in filter(None, listed.split('\0')):
        file = upstream / name
        if not name.startswith(f'{UPSTREAM_FOLDER}/') and (file.is_symlink() or file.is_file()):
            (target := git.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target, follow_symlinks=False)
    for path in sorted(git.folder.glob('tests/**/*.py')):
        text = path.read_text('utf-8')
        if (renamed := rename(text, line.name)) != text:
            path.write_text(renamed, 'utf-8')
    git.run('add', '--all', '--force')
    git.run('commit', '--quiet', '--allow-empty', '--message', 'Tests')


class _Environments:
    """Makes environments with uv: all that a lock lists, and the wheel of base or fork."""

    def __init__(self, line: Line, folder: Path, upstream: Path, report: Report) -> None:
        self._line, self._folder, self._upstream, self._report = line, folder, upstream, report
        with tempfile.TemporaryDirectory(dir=folder, prefix='.base-') as name:
            self._wheels = {'base': self._keep(base_wheel(line, report))}
            # Not the one in `dist/`, which others may be installing.
            self._wheels['fork'] = self._keep(build(line, report, dist=Path(name) / 'fork'))

    def _keep(self, wheel: Path) -> Path:
        """Copy a wheel to where its path tells what is in it, so that one with the same name doesn't pass for it."""
        target = self._folder / 'wheels' / hashlib.sha256(wheel.read_bytes()).hexdigest()[:16] / wheel.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wheel, target)
        return target

    def __call__(self, cell: Cell, side: str, tree: Git) -> Prepared | None:
        python = find_python(cell.python)
        if not python:
            return None
        locked = self._locked(cell)
        # Each takes a gigabyte where its files can't be linked to those in uv's cache.
        for other in (self._folder / 'envs').glob('*'):
            if not other.name.startswith(f'{cell.name}-'):
                shutil.rmtree(other)
        self._report(f'{cell}: making the environment of the {side}')
        listed = self._folder / f'required-{side}.txt'
        write(listed, '\n'.join([*locked, f'{DIST_NAME} @ {self._wheels[side].as_uri()}']) + '\n')
        requirements = [*overrides(self._line), '--requirement', listed]
        inside, made_of = keep_environment(self._folder / 'envs' / f'{cell.name}-{side}', python, requirements)
        # An exception in the middle of an event loop, as by a signal, would leave fixtures that wait for ever
        timeout = f'--timeout={_TIMEOUT}', '--timeout-method=thread'
        return Prepared(
            inside,
            made_of,
            # Upstream's own groups: the tests of one share a server, or a file.
            options=['-n', str(os.cpu_count() or 1), '--dist=loadgroup', *timeout],
            # A process of its own, whose end isn't that of all.
            alone=['-n', '1', *timeout],
        )

    def _locked(self, cell: Cell) -> list[str]:
        """Return what a lock lists, for the tests that run."""
        line, lock = self._line, lock_file(self._line, cell.install, cell.resolution)
        if not lock.exists():
            raise SeriesError(
                f'There is no lock for {cell.install}, {cell.resolution}: `{line.show(lock)}` does not exist.',
                f'Write it with `{line.make("locks")}`.',
            )
        locked = [text for text in lock.read_text('utf-8').splitlines() if not text.startswith('#')]
        if (settings := self._upstream / 'pyproject.toml').exists():
            own = Git(base_repository(line, self._report)).run('show', 'HEAD:pyproject.toml')
            theirs = self._upstream / 'uv.lock'
            return for_other_tests(
                locked, own, settings.read_text('utf-8'), theirs.read_text('utf-8') if theirs.exists() else ''
            )
        return locked


def _run_cell(
    cell: Cell,
    folder: Path,
    trees: Mapping[str, Git],
    tests: Tests,
    prepare: Prepare,
    variables: Mapping[str, str],
    report: Report,
) -> CellResult:
    """Run the tests of a cell on both sides, one after the other, and compare them."""
    sides: dict[str, Prepared] = {}
    for side in SIDES:
        prepared = prepare(cell, side, trees[side])
        if prepared is None:
            return CellResult(cell, None, skipped=f'this machine has no Python {cell.python}')
        sides[side] = prepared
    (results := folder / 'results').mkdir(exist_ok=True)

    def run(side: str, named: Sequence[str], number: int) -> dict[str, Result]:
        prepared, tree = sides[side], trees[side]
        chosen = ['-k', tests.expression] if tests.expression else []
        files = [str(path.relative_to(tree.folder)) for text in tests.only for path in sorted(tree.folder.glob(text))]
        if tests.only and not files:
            return {}
        arguments = [*prepared.alone, *named] if number else [*prepared.options, *chosen, *files]
        made_of = [
            *(tree.run('rev-parse', 'HEAD^{tree}'), prepared.made_of, *arguments, str(number)),
            *(platform.platform(), str(variables)),
            Path(pytest_plugin.__file__).read_text('utf-8'),
        ]
        key = hashlib.sha256('\n'.join(made_of).encode()).hexdigest()[:16]
        path = results / f'{cell.name}-{side}-{key}.xml'
        report(f'{cell}: {f"what differs, once more ({number})," if number else "the tests"} on the {side}')
        if not path.exists():
            pytest = Pytest(tree, prepared.python, folder / 'run', {**variables, **prepared.variables})
            pytest.run(arguments, path)
        return read_results(path)

    compared = compare(run)
    if not compared.tests:
        raise SeriesError(
            f"Upstream's tests have none that were asked for ({cell}).",
            'Name others with `--only` and `-k`, in `ARGS` of make.',
        )
    return CellResult(cell, compared)


# The report


def summary(found: Matrix) -> str:
    """Return a line for each cell, and below them what differs."""
    listed = [
        text for result in found.cells if result.comparison for text in result.comparison.listed(f' ({result.cell})')
    ]
    return '\n'.join([*map(_row, found.cells), *([''] if listed else []), *listed])


def _row(result: CellResult) -> str:
    if (compared := result.comparison) is None:
        return f'{result.cell}: skipped, since {result.skipped}'
    bad = sum(bool(test.fork and test.fork.is_failure) for test in compared.added)
    return (
        f'{result.cell}: {compared.common} tests in common, of which {len(compared.differences)} differ, {len(compared.flaky)} are '
        f'flaky and {len(compared.failing)} fail on both; {len(compared.added)} new, of which {bad} fail'
    )


def write_report(found: Matrix, path: Path) -> Path:
    """Write what came of the matrix to a file: all that differs, and the names of what is flaky or fails on both."""
    parts = [summary(found)]
    for result in found.cells:
        for what in ('flaky', 'failing'):
            tests: Sequence[Compared] = getattr(result.comparison, what, ())
            if tests:
                title = 'Differed once, but not again' if what == 'flaky' else 'Fail on both'
                parts.append(f'{title} ({result.cell}):\n' + '\n'.join(f'- {test.test}' for test in tests))
    write(path, '\n\n'.join(parts) + '\n')
    return path
