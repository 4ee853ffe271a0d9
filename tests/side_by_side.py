"""Run commands side by side, so that no processor waits, and print what each of them says when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pydantic_ai_slim.fork.errors import ForkError
from series.errors import SeriesError
from series.progress import heartbeat

PASSED, FAILED, EMPTY = 'passed', 'FAILED', 'no test was selected'

AT_ONCE = 3
"""How many parts run at once unless somebody says otherwise. Each takes its share of the processors."""


@dataclass(frozen=True)
class Part:
    """A command that stands on its own, and that others may run beside.

    Attributes:
        title: What it does, for the user to read.
        command: The command, or what makes what it needs, such as an environment, and returns it.
        folder: Where the command runs.
        variables: Environment variables of the command, besides those of this process.
        seconds: How long it takes, about. What takes longest begins first, so that nothing waits for it in the end.
    """

    title: str
    command: Sequence[str] | Callable[[], Sequence[str]]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: int = 0


def run_all(parts: Sequence[Part], at_once: int = AT_ONCE) -> dict[str, str]:
    """Run parts, and return what came of each by its title, in the order in which they are given.

    Each is printed as a whole when it ends, and until then at least every ten seconds what is running. A part that runs
    alone is printed as it goes.

    What came of one that failed ends with the last lines that it printed.

    Args:
        parts: The parts.
        at_once: How many of them run at once.
    """
    # pytest-xdist's own variable, for `-n auto`. A single worker would only add what it takes to talk with it.
    workers = (os.cpu_count() or 1) // min(at_once, len(parts) or 1)
    share = {'PYTEST_XDIST_AUTO_NUM_WORKERS': str(workers if workers > 1 else 0)}
    results: dict[str, str] = {}
    if at_once == 1 or len(parts) < 2:
        for part in parts:
            print(f'\n== {part.title}', flush=True)
            results[part.title] = _run(part, share, None)[0]
        return results
    running: list[str] = []
    with (
        heartbeat(_say) as note,
        tempfile.TemporaryDirectory(prefix='side-by-side-') as folder,
        ThreadPoolExecutor(at_once) as pool,
    ):

        def run(number: int, part: Part) -> tuple[Part, Path, str, float]:
            path = Path(folder) / str(number)
            running.append(part.title)
            note('; '.join(running), len(results), len(parts))
            with path.open('w+b') as output:
                found, seconds = _run(part, share, output)
            running.remove(part.title)
            return part, path, found, seconds

        first = sorted(parts, key=lambda part: -part.seconds)
        waiting = [pool.submit(run, number, part) for number, part in enumerate(first)]
        try:
            for finished in as_completed(waiting):
                part, path, found, seconds = finished.result()
                said = path.read_bytes().decode('utf-8', 'replace').rstrip()
                print(f'\n== {part.title}: {found} after {seconds:.0f} s\n{said}', flush=True)
                note('; '.join(running), len(results) + 1, len(parts))
                results[part.title] = found if found != FAILED else f'{found}. It said last:\n{_last(said)}'
        finally:
            pool.shutdown(cancel_futures=True)
    return {part.title: results[part.title] for part in parts}


def _run(part: Part, variables: Mapping[str, str], output: IO[bytes] | None) -> tuple[str, float]:
    """Run a part, and return what came of it and how long it took."""
    began = time.monotonic()
    try:
        command = part.command() if callable(part.command) else part.command
    except (SeriesError, ForkError) as error:
        words = f'error: {error}\n'
        if output:
            output.write(words.encode())
        else:
            print(words, end='', file=sys.stderr)
        return FAILED, time.monotonic() - began
    with tempfile.TemporaryDirectory(prefix='part-', ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            command,
            cwd=part.folder,
            # Each pytest removes what others have left in a folder of all, and fails where another did so first. `TMPDIR` would
            # be for PostgreSQL too, which another user runs, who can't look into this folder.
            env=os.environ | {'PYTEST_DEBUG_TEMPROOT': folder} | dict(variables) | dict(part.variables),
            stdin=subprocess.DEVNULL if output else None,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            check=False,
        )
    # 5: pytest has found none, as with a `-k` that is meant for another part.
    found = {0: PASSED, 5: EMPTY}.get(done.returncode, FAILED)
    return found, time.monotonic() - began


def _last(said: str, lines: int = 20) -> str:
    """Return the end of what a part has said, which is where tests list what failed."""
    return textwrap.indent('\n'.join(said.splitlines()[-lines:]), '    ')


def succeeded(results: Mapping[str, str], wrong: tuple[str, ...] = (FAILED,)) -> bool:
    """Return whether something passed, and nothing ended with what is wrong."""
    return PASSED in results.values() and not any(result.startswith(wrong) for result in results.values())


def print_results(results: Mapping[str, str]) -> None:
    """End the output with each result, and with those that failed last, since the end of a long output is read first."""
    ordered = sorted(results.items(), key=lambda result: result[1].startswith(FAILED))
    print('\n'.join(['', *(f'- {what}: {result}' for what, result in ordered)]), flush=True)


def _say(text: str) -> None:
    print(text, flush=True)
