"""Run pytest on upstream's tests, until it is done or nothing happens any more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from series import upstream_tests
from series.folders import write
from series.git import Git
from series.matrix_results import Results

_STALLED = 300
"""The seconds without any outcome after which the tests are begun again where they stopped."""

_PLUGIN = 'series_matrix_plugin'

_OPTIONS = (
    *('-p', 'no:cacheprovider', '--tb=short', '-q'),
    # A file that can't be imported is an outcome as well.
    '--continue-on-collection-errors',
)


@dataclass(frozen=True)
class Pytest:
    """Runs tests in a tree, with a plugin that notes what comes of each."""

    tree: Git
    python: Path
    """The interpreter of the environment."""
    plugin: bytes
    """The source of the plugin."""
    variables: Mapping[str, str]
    """What the tests run with, beside what all of them do."""

    def run(self, results: Results, known: Sequence[str], arguments: Sequence[str], tell: Callable[[int], None]) -> int:
        """Run tests, and return the exit status of pytest.

        Args:
            results: Where to note what comes of them.
            known: The tests to be left out.
            arguments: What else pytest is given.
            tell: Is told how many have a result, whenever there are more.
        """
        self._clean_tree()
        self._write_plugin(results.folder, known)
        with _ending_with_us() as alive, (results.folder / 'log').open('ab') as log:
            started = time.monotonic()
            process = subprocess.Popen(
                [str(self.python), '-m', 'pytest', '-p', _PLUGIN, *_OPTIONS, *arguments],
                cwd=self.tree.folder,
                env=self._variables(results.folder, alive),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[alive],
                # All that the tests start and leave behind is in it.
                start_new_session=True,
            )
            try:
                _wait(process, results, tell)
            finally:
                _end(process)
                results.add_seconds(time.monotonic() - started)
        return process.returncode

    def _clean_tree(self) -> None:
        """Remove what the tests of another cell have left."""
        self.tree.run('reset', '--quiet', '--hard')
        self.tree.run('clean', '-ffdxq', '--exclude=__pycache__')
        upstream_tests.make_example_folders(self.tree.folder)

    def _write_plugin(self, folder: Path, known: Sequence[str]) -> None:
        (folder / 'plugin').mkdir(exist_ok=True)
        (folder / 'plugin' / f'{_PLUGIN}.py').write_bytes(self.plugin)
        write(folder / 'done.json', json.dumps(known))

    def _variables(self, folder: Path, alive: int) -> dict[str, str]:
        """Return the variables that the tests run with, which are the same for everyone."""
        (home := folder / 'home').mkdir(exist_ok=True)
        kept = {name: value for name in ('LANG', 'LC_ALL', 'TMPDIR', 'TZ') if (value := os.environ.get(name))}
        variables = kept | upstream_tests.variables(self.python, folder)
        variables |= {
            # Nobody's configuration or keys, and nobody's files are touched.
            'HOME': str(home),
            # As upstream's CI has it.
            'CI': 'true',
            'COLUMNS': '150',
            'DO_NOT_TRACK': '1',
            'PREFECT_SERVER_ANALYTICS_ENABLED': 'false',
            'SERIES_MATRIX_FOLDER': str(folder),
            'SERIES_MATRIX_ALIVE': str(alive),
        }
        variables |= self.variables
        path = [str(folder / 'plugin'), variables.get('PYTHONPATH', '')]
        return variables | {'PYTHONPATH': os.pathsep.join(filter(None, path))}


def _wait(process: subprocess.Popen[bytes], results: Results, tell: Callable[[int], None]) -> None:
    """Wait for pytest until it ends, or nothing happens any more."""
    number, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        if (found := results.count()) != number:
            number, since = found, time.monotonic()
            tell(number)
        if time.monotonic() - since > _STALLED:
            return


@contextmanager
def _ending_with_us() -> Generator[int]:
    """Give a file that ends when we do, however that is."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
