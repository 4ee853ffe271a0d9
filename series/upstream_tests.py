"""Run upstream's tests, and the like, in a tree."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from series import pytest_plugin
from series.comparison import Result, read_results
from series.errors import SeriesError
from series.folders import inheritable_fds
from series.git import Git
from series.programs import Programs

_SECONDS = 3 * 3600
"""How long all tests together may take."""

_OPTIONS = (
    *('-p', 'no:cacheprovider', '-p', 'series_plugin', '--tb=short', '-q', '-o', 'verbosity_assertions=2'),
    # A file that can't be imported is an outcome as well.
    '--continue-on-collection-errors',
)


def variables(python: Path, folder: Path) -> dict[str, str]:
    """Return the variables that the tests run with, to be added to others.

    Args:
        python: The interpreter of their environment.
        folder: A folder outside of the tree, which gets an empty one for certificates.
    """
    (certificates := folder / 'certificates').mkdir(exist_ok=True)
    return {
        'PATH': os.pathsep.join([str(python.parent), os.environ.get('PATH', os.defpath)]),
        # Upstream's fixtures make ten HTTP clients for each test and nearly all of the time would go into reading the
        # certificates of each. No test needs any, since none talks to a server outside.
        'SSL_CERT_DIR': str(certificates),
    }


@dataclass(frozen=True)
class Pytest:
    """Runs tests in a tree, on one of the sides."""

    tree: Git
    python: Path
    """The interpreter of the environment."""
    folder: Path
    """Where what the tests need and leave goes."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the tests run with, beside what all of them do."""

    def run(self, arguments: Sequence[str], results: Path) -> dict[str, Result]:
        """Run tests, and return what came of each.

        Args:
            arguments: What pytest is given.
            results: Where its JUnit XML goes.
        """
        # Remove what the tests of another cell have left.
        self.tree.run('reset', '--quiet', '--hard')
        self.tree.run('clean', '-ffdxq', '--exclude=__pycache__')
        # `tests/test_examples.py` looks for examples there, and fails without one.
        for name in ('docs', 'pydantic_evals', 'pydantic_graph'):
            (self.tree.folder / name).mkdir(exist_ok=True)
        for name in ('home', 'plugin'):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / 'plugin' / 'series_plugin.py').write_bytes(Path(pytest_plugin.__file__).read_bytes())
        written, log = results.with_suffix('.new'), self.folder / 'log'
        with log.open('wb') as output, Programs() as programs:
            done = programs.run(
                [str(self.python), '-m', 'pytest', *_OPTIONS, f'--junitxml={written}', *arguments],
                _SECONDS,
                cwd=self.tree.folder,
                env=self._environment(),
                stdout=output,
                # What goes on when we are killed is still under our locks.
                pass_fds=inheritable_fds(),
            )
        # 0 and 1: the tests have run. 5: there are none.
        if done.returncode not in (0, 1, 5) or not written.exists():
            raise SeriesError(
                f'pytest could not run the tests in `{self.tree.folder}`: it ended with exit status {done.returncode}.',
                "These are pytest's words.",
                log.read_text('utf-8', 'replace')[-4000:] + done.stdout,
            )
        written.replace(results)
        return read_results(results)

    def _environment(self) -> dict[str, str]:
        """Return the variables that the tests run with, which are the same for everyone."""
        kept = {name: value for name in ('LANG', 'LC_ALL', 'TMPDIR', 'TZ') if (value := os.environ.get(name))}
        found = kept | variables(self.python, self.folder)
        found |= {
            # Nobody's configuration or keys, and nobody's files are touched.
            'HOME': str(self.folder / 'home'),
            # As upstream's CI has it.
            'CI': 'true',
            'COLUMNS': '150',
            'DO_NOT_TRACK': '1',
            'PREFECT_SERVER_ANALYTICS_ENABLED': 'false',
        }
        found |= self.variables
        path = [str(self.folder / 'plugin'), found.get('PYTHONPATH', '')]
        return found | {'PYTHONPATH': os.pathsep.join(filter(None, path))}
