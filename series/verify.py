"""Check a series patch by patch: its messages, and that the package works after each of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from pydantic_ai_slim.hatch_build import PACKAGE, UPSTREAM_FOLDER
from series import tree
from series.apply import apply_one
from series.base import Report, base_repository, clone
from series.environments import make_environment
from series.errors import Fault, PatchError, VerifyError
from series.extract import write_patches
from series.git import Git
from series.line import Line
from series.message import message_faults

_PACKAGE = f'{UPSTREAM_FOLDER}/{PACKAGE}/'
_PATHS = (_PACKAGE, 'tests/', 'docs/')
_EXAMPLES = 'tests/test_examples.py'
"""Upstream's tests of the examples in its pages and docstrings."""


@dataclass
class Verified:
    """What was found of one patch."""

    patch: Path
    tests: int = 0
    """How many tests passed after it."""
    faults: list[Fault] = field(default_factory=list[Fault])


def upstream_environment(line: Line) -> Path:
    """Make the environment that upstream's tests run in, and return its interpreter.

    The line's `tests.in` says what it holds.

    Raises:
        EnvironmentFailedError: It can't be made.
    """
    folder = line.root / 'build' / 'envs' / f'upstream-{line.name}-{sys.version_info[0]}.{sys.version_info[1]}'
    # A release of a dependency that came later can break a test, which would say nothing about a patch.
    newest = f'{line.released + timedelta(days=1)}T00:00:00Z'
    requirements = ['--exclude-newer', newest, '--requirement', line.folder / 'tests.in']
    return make_environment(folder, Path(sys.executable), requirements)


def verify(line: Line, report: Report, environment: Callable[[Line], Path] = upstream_environment) -> list[Verified]:
    """Apply a series to the base, in a folder that is thrown away, and check it after every patch.

    Checked are the message, the paths, that `pydantic_ai` is imported, the tests that the patch adds or changes and the
    examples of the pages and docstrings that it touches; after the last patch those of all patches; and that an extract
    would change nothing. The tree and the patches stay as they are.

    Args:
        line: The line.
        report: Is told of each step.
        environment: Makes the interpreter that imports and tests are run with.

    Returns:
        The patches, with the numbers of tests that passed.

    Raises:
        VerifyError: There are faults; all are named at once, except those after a patch that doesn't apply.
        EnvironmentFailedError: The environment of upstream's tests can't be made.
        DownloadError: The base can't be got, or isn't the pinned one.
    """
    patches = line.patches
    base = base_repository(line, report)
    report("Making the environment of upstream's tests")
    python = environment(line)
    found: list[Verified] = []
    with tempfile.TemporaryDirectory(dir=line.tree.parent, prefix='.verify-') as folder:
        report('Checking the base out')
        git = clone(base, Path(folder) / 'tree', 'HEAD')
        git.run('update-ref', tree.BASE, 'HEAD')
        run = _Run(git, python, Path(folder))
        earlier: set[str] = set()
        for number, patch in enumerate(patches):
            report(f'Verifying `{patch.name}`', number, len(patches))
            found.append(verified := Verified(patch))
            verified.faults += [Fault(fault) for fault in message_faults(patch, Path(folder))]
            try:
                apply_one(git, patch)
            except PatchError as error:
                verified.faults.append(Fault('It does not apply to the base with the patches before it.', error.words))
                break
            paths = git.lines('-c', 'core.quotePath=false', 'diff', '--name-only', '--no-renames', 'HEAD~1', 'HEAD')
            verified.faults += _path_faults(git, paths)
            if run.import_package(verified):
                run.test(verified, paths)
                if patch == patches[-1]:
                    report('Verifying what the patches before it carry', number, len(patches))
                    run.test(verified, earlier.difference(paths))
            earlier.update(paths)
        else:
            _check_round_trip(git, found, Path(folder) / 'written')
    if any(verified.faults for verified in found):
        raise VerifyError(
            line.name,
            {line.show(verified.patch): verified.faults for verified in found if verified.faults},
            f'Correct the commits in `{line.show(line.tree)}` with `git rebase --interactive {tree.BASE}`, write them to '
            f'`{line.show(line.folder)}` with `make extract`, and run `make verify` again.',
        )
    return found


def _path_faults(git: Git, paths: Sequence[str]) -> Iterator[Fault]:
    """Say what a patch touches that it must not."""
    for path in paths:
        if not path.startswith(_PATHS):
            yield Fault(f'It touches `{path}`, which is in none of {_listed(_PATHS)}.')
        elif not git.attempt('check-ignore', '--quiet', '--no-index', path).returncode:
            yield Fault(f"It touches `{path}`, which upstream's `.gitignore` keeps out.")
    if any(path.startswith(_PACKAGE) for path in paths) and not any(_is_test(path) for path in paths):
        yield Fault(f'It changes `{_PACKAGE}` and carries no test of that.')


def _check_round_trip(git: Git, found: list[Verified], folder: Path) -> None:
    for verified, written in zip(found, write_patches(git, folder), strict=True):
        if verified.patch.name != written.name:
            verified.faults.append(Fault(f'`make extract` would call it `{written.name}`.'))
        if verified.patch.read_bytes() != written.read_bytes():
            verified.faults.append(
                Fault('`make extract` would write it otherwise. Let it: run `make apply` and `make extract`.')
            )


def _listed(paths: Iterable[str]) -> str:
    return ', '.join(f'`{path}`' for path in paths)


def _is_test(path: str) -> bool:
    return path.startswith('tests/') and Path(path).match('test_*.py')


@dataclass
class _Run:
    """Runs Python on a tree in the environment of upstream's tests."""

    git: Git
    python: Path
    scratch: Path

    def __post_init__(self) -> None:
        # `tests/test_examples.py` looks for examples in these folders of upstream's repository, and takes the last
        # one for a sign that every extra is installed. Our pages and docstrings need no more than `tests.in` holds.
        for folder in ('docs', 'pydantic_evals', 'pydantic_graph', 'pydantic_ai_examples'):
            (self.git.folder / folder).mkdir(exist_ok=True)
        self.certificates = self.scratch / 'certificates'
        self.certificates.mkdir()

    def import_package(self, verified: Verified) -> bool:
        """Import the package, and say whether that worked."""
        done = self._run('-c', f'import pathlib, {PACKAGE}; print(pathlib.Path({PACKAGE}.__file__).resolve())')
        if done.returncode:
            verified.faults.append(Fault(f'`import {PACKAGE}` fails after it.', done.stdout))
            return False
        assert Path(done.stdout.strip()).is_relative_to(self.git.folder), f'the tests would run on {done.stdout}'
        return True

    def test(self, verified: Verified, paths: Iterable[str]) -> None:
        """Run the tests and examples that are in these files, as far as they are there."""
        paths = sorted(path for path in paths if (self.git.folder / path).exists())
        tests = [path for path in paths if _is_test(path)]
        if tests:
            self._pytest(verified, f'The tests in {_listed(tests)}', *tests)
        examples = [path for path in paths if path.endswith(('.md', '.py')) and not path.startswith('tests/')]
        # Without upstream's tests the tree has nothing that runs examples.
        if examples and (self.git.folder / _EXAMPLES).exists():
            # `-k` takes such a path for one name. The colon keeps out a longer path that begins with it.
            chosen = ' or '.join(f'{path}:' for path in examples)
            self._pytest(verified, f'The examples in {_listed(examples)}', _EXAMPLES, '-k', chosen)

    def _pytest(self, verified: Verified, what: str, *arguments: str) -> None:
        # Faults enough to see what is wrong.
        done = self._run('-m', 'pytest', '-q', '--tb=short', '--maxfail=5', '-p', 'no:cacheprovider', *arguments)
        summary = done.stdout.strip().rpartition('\n')[2]
        # 5: no test was selected, as in a file without examples.
        if done.returncode not in ((0, 5) if '-k' in arguments else (0,)):
            verified.faults.append(Fault(f'{what} fail after it.', done.stdout))
        verified.tests += int(passed[1]) if (passed := re.search(r'(\d+) passed', summary)) else 0

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(('PYTHON', 'PYTEST'))}
        environment |= {
            # Files of two commits can have the same size and second, which is all that a compiled file is checked by.
            'PYTHONDONTWRITEBYTECODE': '1',
            'PATH': os.pathsep.join([str(self.python.parent), environment.get('PATH', '')]),
            'PYTHONPATH': UPSTREAM_FOLDER,
            # Upstream's fixtures make ten HTTP clients for each test and nearly all of the time would go into reading
            # the certificates of each. No test needs any, since none talks to a server outside.
            'SSL_CERT_DIR': str(self.certificates),
            'NO_COLOR': '1',
        }
        environment.pop('SSL_CERT_FILE', None)
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=self.git.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding='utf-8',
            errors='replace',
            check=False,
        )
