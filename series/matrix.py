"""Run upstream's own tests on base and fork, side by side; the verdict is the difference."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product, zip_longest
from pathlib import Path

from pydantic_ai_slim.fork.names import DIST_NAME, UPSTREAM_FOLDER
from series import matrix_plugin
from series.base import base_repository, base_wheel, clone
from series.build import build
from series.environments import find_python
from series.errors import ApplyError, MatrixError, NoTestsError
from series.folders import write
from series.git import Git
from series.hatch import HatchEnvironment, HatchProject
from series.line import Line
from series.locks import INSTALLS, RESOLUTIONS, for_other_tests, lock_file
from series.matrix_process import Pytest
from series.matrix_results import Results
from series.merge import apply_one
from series.outcomes import Compared, Comparison, Result, compare
from series.postgres import NoPostgresError, postgres_server
from series.progress import Report
from series.renames import rename

SIDES = ('base', 'fork')

SLICE = (
    *('tests/test_agent.py', 'tests/test_toolsets.py', 'tests/test_tools.py'),
    *('tests/graph', 'tests/test_streaming.py'),
)
"""What the slice for CI runs, on one Python: of upstream's tests, those on which the series bears most.

Without those of MCP and of the durable engines, which start a server for nearly each test and took most of the time; some of
`test_agent.py` and of `test_toolsets.py` use such servers too. The tests that patches add are run by `make verify`."""

_TIMEOUT = 120
"""The seconds after which a test has failed. The slowest starts the server of Prefect, or waits for one of Temporal in vain."""

_ATTEMPTS = 3
"""How often tests are begun; those that have no outcome then have crashed what ran them."""

_ROUNDS = 3
"""How often a test whose outcome differs runs again, alone, on both sides."""

_MANY = 40
"""With more tests than that to run again, each runs once only: what is no chance shows itself in many of them."""

_START = 10
"""The seconds that a test takes alone, besides its own."""


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
    return [Cell(*axes) for axes in product(python or line.python, install or INSTALLS, resolution or RESOLUTIONS)]


def slice_cell(line: Line, python: Sequence[str] | None) -> Cell:
    """Return the cell of the slice: the newest Python that is here, with all extras in their highest releases."""
    found = [version for version in python or line.python if find_python(version)]
    return Cell((found or line.python)[-1], 'all', 'highest')


@dataclass(frozen=True)
class Tests:
    """Which tests run."""

    __test__ = False  # pytest: not a test class

    clone: Path | None = None
    """A clone of upstream whose tests take the place of the tree's."""
    only: tuple[str, ...] = ()
    """The files or folders that run, which may have wildcards; by default all."""
    expression: str = ''
    """What pytest is given as `-k`."""
    of: Line | None = None
    """Another line whose tests do."""
    again: bool = False
    """Whether what differs runs again even if it has before."""


@dataclass(frozen=True)
class Prepared:
    """An environment that tests run in, with the package under test."""

    python: Path
    made_of: str
    """What it is made of; outcomes are for nothing else."""
    options: Sequence[str]
    """What pytest is run with."""
    alone: Sequence[str]
    """The same for a test that runs alone."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


Prepare = Callable[[Cell, str, Git], 'Prepared | None']
"""Makes the environment of a cell for a side, whose tree is given; `None` if the cell's interpreter isn't here."""


@dataclass(frozen=True)
class CellResult:
    """What came of a cell."""

    cell: Cell
    comparison: Comparison | None
    """`None` if it was skipped."""
    seconds: float = 0
    """How long its tests took on both sides together."""
    skipped: str = ''
    """Why it was."""


@dataclass(frozen=True)
class Matrix:
    """What came of all cells."""

    line: Line
    tests: Tests
    cells: Sequence[CellResult]
    remarks: Sequence[str] = ()
    """What a reader has to know of all of them."""

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

    Each outcome is noted as soon as it is known, in `build/matrix/LINE/results`, under a name that holds what it was made
    of. So a run that was interrupted, however, goes on where it stopped, and nothing is taken for the outcome of something
    else. The trees that the tests run in are copies; neither the tree of `make apply` nor a clone of upstream is touched.

    Args:
        line: The line.
        cells: Where to. One whose interpreter isn't on this machine is skipped.
        tests: Which tests.
        report: Is told of each step.
        prepare: Makes the environments; by default hatch does, from the base's released wheel and the fork's built one.

    Raises:
        MatrixError: It can't be run; the message says why.
        NoTestsError: There are no such tests.
        BuildError: The fork can't be built.
        ApplyError: A patch doesn't apply to the base.
        DownloadError: The base can't be got, or isn't the pinned one.
        EnvironmentFailedError: An environment can't be made.
    """
    if line.tests is None and tests.clone is None and (tests.of is None or tests.of.tests is None):
        raise MatrixError(
            f"The line {line.name} comes without upstream's tests, so there is nothing to compare.",
            'Name a clone of upstream that has them, with `--tests DIR` (`CLONE=DIR`), or a line with `--tests-of LINE`.',
        )
    folder = line.root / 'build' / 'matrix' / line.name
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        upstream = _tests_of(tests.of, folder / 'trees' / 'tests', report) if tests.of else tests.clone
        trees = {side: _tree(line, side, upstream, folder / 'trees' / side, report) for side in SIDES}
        make = prepare or _Hatch(line, folder, cells, upstream, report)
        with _postgres(report) as url:
            runner = _Runner(folder, trees, tests, make, url, report)
            results = [runner.run(cell) for cell in cells]
    if all(result.comparison is None for result in results):
        raise MatrixError(
            f'No cell was run: {results[0].skipped}.' if results else 'No cell was named.',
            f'Install one of Python {", ".join(line.python)}, or name one that is here with `--python VERSION` (`PYTHON=VERSION`).',
        )
    remarks = [] if url else ['PostgreSQL is not installed, so the tests of DBOS ran on SQLite.']
    if _temporal() is None:
        remarks.append(
            '`temporal` is not on the path, so the tests of Temporal need the network, where their server comes from.'
        )
    return Matrix(line, tests, results, remarks)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Keep a second run away from the trees and results that this one uses."""
    with (folder / 'lock').open('w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MatrixError(
                f'The matrix runs already in `{folder}`.',
                'Wait until it is done, or end it; it then goes on where it stopped.',
            ) from None
        yield


@contextmanager
def _postgres(report: Report) -> Generator[str | None]:
    """Start a PostgreSQL for the tests of DBOS, if there is one."""
    report('Starting PostgreSQL')
    with ExitStack() as stack:
        try:
            url = stack.enter_context(postgres_server())
        except NoPostgresError as error:
            # On a machine that checks all, nothing goes missing unnoticed.
            if os.environ.get('CI'):
                raise MatrixError('The tests of DBOS have no PostgreSQL to run on.', str(error)) from error
            url = None
        yield url


def _tree(line: Line, side: str, upstream: Path | None, folder: Path, report: Report) -> Git:
    """Make what the tests of one side run in: the base with its tests, or all that the patches make of it."""
    report(f'Making the tree of the {side}')
    base = base_repository(line, report)
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(exist_ok=True)
    git = clone(base, folder, 'HEAD')
    if side == 'fork':
        for patch in line.patches:
            try:
                apply_one(git, patch)
            except ApplyError as error:
                raise ApplyError(
                    f'The patch `{line.show(patch)}` does not apply to the base with the patches before it.',
                    f'Run `{line.make("apply")}`, which says how to go on.',
                    error.words,
                    patch=error.patch,
                    files=error.files,
                ) from None
    if upstream is not None:
        _put(upstream, git)
    return git


def _tests_of(line: Line, folder: Path, report: Report) -> Path:
    """Return a folder with the tests of another line, as a clone of upstream has them."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(exist_ok=True)
    return clone(base_repository(line, report), folder, 'HEAD').folder


def _put(upstream: Path, git: Git) -> None:
    """Put what a clone of upstream holds into a tree in place of the tests, all but the package."""
    source = Git(upstream)
    if not (upstream / 'tests').is_dir() or source.attempt('rev-parse', 'HEAD').returncode:
        raise MatrixError(
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
        if (renamed := rename(text)) != text:
            path.write_text(renamed, 'utf-8')
    git.run('add', '--all', '--force')
    git.run('commit', '--quiet', '--allow-empty', '--no-verify', '--message', 'Tests')


class _Hatch:
    """Makes environments with hatch: all that a lock lists, and the wheel of base or fork."""

    def __init__(self, line: Line, folder: Path, cells: Sequence[Cell], upstream: Path | None, report: Report) -> None:
        self.report = report
        self.cells = cells
        with tempfile.TemporaryDirectory(dir=folder, prefix='.base-') as name:
            wheels = {'base': _keep(base_wheel(line, report), folder)}
            # Not the one in `dist/`, which others may be installing.
            wheels['fork'] = _keep(build(line, report, dist=Path(name) / 'fork'), folder)
        environments: dict[str, HatchEnvironment] = {}
        for cell in cells:
            lock = lock_file(line, cell.install, cell.resolution)
            if not lock.exists():
                raise MatrixError(
                    f'There is no lock for {cell.install}, {cell.resolution}: `{line.show(lock)}` does not exist.',
                    f'Write it with `{line.make("locks")}`.',
                )
            locked = [text for text in lock.read_text('utf-8').splitlines() if not text.startswith('#')]
            if upstream and (settings := upstream / 'pyproject.toml').exists():
                own = Git(base_repository(line, report)).run('show', 'HEAD:pyproject.toml')
                lock_of_tests = upstream / 'uv.lock'
                theirs = lock_of_tests.read_text('utf-8') if lock_of_tests.exists() else ''
                locked = for_other_tests(locked, own, settings.read_text('utf-8'), theirs)
            if python := find_python(cell.python):
                for side, wheel in wheels.items():
                    requirements = [*locked, f'{DIST_NAME} @ {wheel.as_uri()}']
                    environments[f'{cell.name}-{side}'] = HatchEnvironment(python, requirements)
        self.project = HatchProject(folder / 'hatch', environments, line.overrides)

    def __call__(self, cell: Cell, side: str, tree: Git) -> Prepared | None:
        name = f'{cell.name}-{side}'
        if name not in self.project.environments:
            return None
        # Each takes a gigabyte where its files can't be linked to those in uv's cache.
        for other in self.cells:
            if other != cell:
                for one in SIDES:
                    self.project.remove(f'{other.name}-{one}')
        self.report(f'{cell}: making the environment of the {side}')
        python = self.project.make(name)
        timeout = f'--timeout={_TIMEOUT}'
        return Prepared(
            python,
            '\n'.join([*self.project.environments[name].requirements, _version(python)]),
            # Upstream's own groups: the tests of one share a server, or a file.
            options=['-n', str(os.cpu_count() or 1), '--dist=loadgroup', timeout],
            alone=[timeout],
        )


def _keep(wheel: Path, folder: Path) -> Path:
    """Copy a wheel to where its path tells what is in it, so that one with the same name doesn't pass for it."""
    target = folder / 'wheels' / hashlib.sha256(wheel.read_bytes()).hexdigest()[:16] / wheel.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wheel, target)
    return target


def _version(python: Path) -> str:
    done = subprocess.run([python, '-VV'], capture_output=True, text=True, check=True)
    return f'{done.stdout.strip()}, {platform.platform()}'


@dataclass
class _Runner:
    """Runs the tests of cells."""

    folder: Path
    trees: Mapping[str, Git]
    tests: Tests
    prepare: Prepare
    url: str | None
    report: Report

    def run(self, cell: Cell) -> CellResult:
        """Run the tests of a cell on both sides, one after the other, and compare them."""
        sides: dict[str, _Side] = {}
        if minutes := self._minutes(cell):
            self.report(f'{cell}: {minutes:.0f} minutes the last time')
        for side in SIDES:
            prepared = self.prepare(cell, side, self.trees[side])
            if prepared is None:
                return CellResult(cell, None, skipped=f'this machine has no Python {cell.python}')
            sides[side] = _Side(self, cell, side, prepared)
        base, fork = (sides[side].run() for side in SIDES)
        if not base and not fork:
            raise NoTestsError(
                f"Upstream's tests have none that were asked for ({cell}).",
                'Name others with `--only` and `-k`, in `ARGS` of make.',
            )
        again = self._run_again(cell, sides, compare(base, fork))
        return CellResult(cell, compare(base, fork, again), sum(side.results.seconds for side in sides.values()))

    def _minutes(self, cell: Cell) -> float:
        """Return how long the last run of a cell took on both sides, if there was one."""
        last = [
            max((self.folder / 'results').glob(f'{cell.name}-{side}-*/seconds'), key=os.path.getmtime, default=None)
            for side in SIDES
        ]
        return sum(float(path.read_text()) for path in last if path) / 60

    def _run_again(self, cell: Cell, sides: Mapping[str, _Side], found: Comparison) -> dict[str, dict[str, list[str]]]:
        """Run what differs, and what is new and fails, again, each test alone, and return the outcomes by test and side."""
        # What one side doesn't have can't run there, and a file that can't be imported is no test.
        chosen = in_order([test for test in found.suspects if test.fork and '::' in test.test])
        rounds = _ROUNDS if len(chosen) <= _MANY else 1
        noted = sides['fork'].results.folder / f'again-{sides["base"].key}.json'
        again: dict[str, dict[str, list[str]]] = {}
        if noted.exists() and not self.tests.again:
            again = json.loads(noted.read_text('utf-8'))
        minutes = sum(_START + (test.fork.seconds if test.fork else 0) for test in chosen) * len(SIDES) * rounds / 60
        for number, test in enumerate(chosen):
            for side in SIDES if test.base else SIDES[1:]:
                outcomes = again.setdefault(test.test, {}).setdefault(side, [])
                while len(outcomes) < rounds:
                    self.report(
                        f'{cell}: once more, alone, on the {side}, {minutes:.0f} minutes in all: `{test.test}`',
                        number,
                        len(chosen),
                    )
                    outcomes.append(sides[side].run_alone(test.test))
                    write(noted, json.dumps(again))
        return {test.test: again[test.test] for test in chosen}


def in_order(tests: Sequence[Compared]) -> list[Compared]:
    """Put tests in an order that finds a shared cause early: of each message first one, then the second of each, and so on."""
    causes: dict[str, list[Compared]] = {}
    for test in tests:
        bad = test.fork if test.fork and test.fork.bad else test.base
        causes.setdefault(bad.message if bad else '', []).append(test)
    return [test for row in zip_longest(*causes.values()) for test in row if test is not None]


class _Side:
    """The tests of one cell on base or fork."""

    def __init__(self, runner: _Runner, cell: Cell, side: str, prepared: Prepared) -> None:
        self.runner, self.cell, self.side, self.prepared = runner, cell, side, prepared
        tree, plugin = runner.trees[side], Path(matrix_plugin.__file__).read_bytes()
        made_of = [
            tree.run('rev-parse', 'HEAD^{tree}'),
            prepared.made_of,
            *prepared.options,
            *runner.tests.only,
            f'-k {runner.tests.expression}',
            f'PostgreSQL: {runner.url is not None}',
            f'Temporal: {_temporal() is not None}',
            hashlib.sha256(plugin).hexdigest(),
        ]
        self.key = hashlib.sha256('\n'.join(made_of).encode()).hexdigest()[:16]
        self.results = Results(runner.folder / 'results' / f'{cell.name}-{side}-{self.key}')
        servers = {'SERIES_MATRIX_POSTGRES': runner.url, 'SERIES_MATRIX_TEMPORAL': _temporal()}
        variables = {name: value for name, value in servers.items() if value}
        self.pytest = Pytest(tree, prepared.python, plugin, {**variables, **prepared.variables})

    def run(self) -> dict[str, Result]:
        """Run all tests that have no result yet, and return the results of all."""
        self.results.folder.mkdir(parents=True, exist_ok=True)
        selected = self._selected()
        for _ in range(_ATTEMPTS if selected is not None else 0):
            if self.results.whole:
                break
            self._run(self.results, self.results.drop_half(), [*self.prepared.options, *(selected or ())])
            self.results.finish()
        results = self.results.load()
        # What has none by now ends, or holds up, whatever runs it.
        return {test: Result(test, 'crashed') for test in self.results.names().keys() - results.keys()} | results

    def run_alone(self, test: str) -> str:
        """Run one test, with nothing beside it, and return its outcome."""
        name = self.results.names()[test]
        with tempfile.TemporaryDirectory(dir=self.results.folder, prefix='.alone-') as folder:
            alone = Results(Path(folder))
            self._run(alone, [], [*self.prepared.alone, name])
            found = alone.load()
            return found[test].outcome if test in found else 'crashed'

    def _selected(self) -> list[str] | None:
        """Return which tests pytest is to run, or `None` if the tree has nothing of it."""
        tests, tree = self.runner.tests, self.pytest.tree.folder
        found = [str(path.relative_to(tree)) for text in tests.only for path in sorted(tree.glob(text))]
        chosen = ['-k', tests.expression] if tests.expression else []
        return [*chosen, *found] if found or not tests.only else None

    def _run(self, results: Results, known: Sequence[str], arguments: Sequence[str]) -> None:
        """Run pytest, and tell the user how far it is."""
        total = 0

        def tell(number: int) -> None:
            nonlocal total
            # They are listed once, before the first of them runs.
            total = total or len(self.results.names())
            self.runner.report(f'{self.cell}: the {self.side}', number, total or None)

        status = self.pytest.run(results, known, arguments, tell)
        # 0 and 1: the tests have run. 2: they were interrupted. 5: there are none. Less than 0: ended by us.
        if status in (3, 4):
            raise MatrixError(
                f"pytest could not run upstream's tests on the {self.side} ({self.cell}).",
                "These are pytest's words.",
                (results.folder / 'log').read_text('utf-8', 'replace')[-4000:],
            )


def _temporal() -> str | None:
    """Find the command line of Temporal, which has the server that its tests otherwise download."""
    return shutil.which('temporal')
