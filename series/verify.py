"""Check a series patch by patch: its messages, and that the package works after each of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
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
    examples of the pages and docstrings that it touches; after the last patch the tests of all patches; and that an
    extract would change nothing. The tree and the patches stay as they are.

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
        run = _Run(line, git, python, Path(folder))
        for number, patch in enumerate(patches):
            report(f'Verifying `{patch.name}`', number, len(patches) + 1)
            found.append(verified := Verified(patch))
            verified.faults += [Fault(fault) for fault in message_faults(patch, Path(folder))]
            try:
                apply_one(git, patch)
            except PatchError as error:
                verified.faults.append(Fault('It does not apply to the base with the patches before it.', error.words))
                break
            verified.faults += _path_faults(git)
            run.check(verified, 'HEAD~1')
        else:
            report('Verifying the whole series', len(patches), len(patches) + 1)
            if found:
                run.check(found[-1], tree.BASE)
                _check_round_trip(git, found, Path(folder) / 'written')
    if any(verified.faults for verified in found):
        raise VerifyError(
            line.name,
            {line.show(verified.patch): verified.faults for verified in found if verified.faults},
            f'Correct the commits in `{line.show(line.tree)}` with `git rebase --interactive {tree.BASE}`, write them to '
            f'`{line.show(line.folder)}` with `make extract`, and run `make verify` again.',
        )
    return found


def _path_faults(git: Git) -> Iterator[Fault]:
    """Say what a patch touches that it must not."""
    paths = git.lines('-c', 'core.quotePath=false', 'diff', '--name-only', '--no-renames', 'HEAD~1', 'HEAD')
    for path in paths:
        if not path.startswith(_PATHS):
            yield Fault(f'It touches `{path}`, which is in none of {", ".join(f"`{path}`" for path in _PATHS)}.')
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


def _is_test(path: str) -> bool:
    return path.startswith('tests/') and Path(path).match('test_*.py')


@dataclass
class _Run:
    """Runs Python on a tree in the environment of upstream's tests."""

    line: Line
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

    def check(self, verified: Verified, before: str) -> None:
        """Import the package and run the tests and examples that are new or changed since a revision."""
        code = f'import pathlib, {PACKAGE}; print(pathlib.Path({PACKAGE}.__file__).resolve())'
        done = self._run('-c', code)
        if done.returncode:
            verified.faults.append(Fault(f'`import {PACKAGE}` fails after it.', done.stdout))
            return
        expected = self.git.folder / _PACKAGE / '__init__.py'
        assert Path(done.stdout.strip()) == expected, f'the tests would run on {done.stdout}'
        changed = self.git.lines('diff', '--name-only', '--diff-filter=d', before, 'HEAD')
        tests = [path for path in changed if _is_test(path)]
        if tests:
            self._pytest(verified, f'The tests in {", ".join(f"`{path}`" for path in tests)}', *tests)
        examples = [path for path in changed if path.endswith(('.md', '.py')) and not path.startswith('tests/')]
        if examples:
            # In `-k` a dash or a slash is a part of a name.
            chosen = ' or '.join(f'{path}:' for path in examples)
            what = f'The examples in {", ".join(f"`{path}`" for path in examples)}'
            self._pytest(verified, what, 'tests/test_examples.py', '-k', chosen)

    def _pytest(self, verified: Verified, what: str, *arguments: str) -> None:
        done = self._run('-m', 'pytest', '-q', '--tb=short', '-p', 'no:cacheprovider', *arguments)
        summary = done.stdout.strip().rpartition('\n')[2]
        # 5: no tests were collected, which is right for a file without examples.
        if done.returncode not in (0, 5):
            verified.faults.append(Fault(f'{what} fail after it.', done.stdout))
        verified.tests += int(passed[1]) if (passed := re.search(r'(\d+) passed', summary)) else 0

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(('PYTHON', 'PYTEST'))}
        environment |= {
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
