"""Write into the pages what the examples of the cookbook print, on the base and on the fork."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from docs.shown import ROOT, block, fill, write, written_pages
from examples.__main__ import WITHOUT_SCOPES, make_example_environment
from pydantic_ai_slim.fork.errors import ForkError
from series.errors import SeriesError
from series.line import Line, find_line
from series.progress import waiting


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with `--check` only say which are not up to date, and return the exit code."""
    check = '--check' in (sys.argv[1:] if arguments is None else arguments)
    try:
        pages = {page: fill(page, show_output) for page in written_pages()}
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return write(pages, check, 'make pages')


def show_output(page: Path, what: str) -> str | None:
    """Return what a page shows of a program's output, or `None` if it shows something else."""
    kind, _, name = what.partition(' ')
    return compare_example(name) if kind == 'output' else None


def compare_example(name: str) -> str:
    """Return what an example prints on the fork, and what the same file prints on the base."""
    with waiting(f'Running the example `{name}` on the fork and on the base'):
        fork, base = (run_example(name, side) for side in ('fork', 'base'))
    if fork == base:
        return f'It prints, on the fork as on the base:\n\n{block(fork)}'
    there = 'the same file prints'
    if name in WITHOUT_SCOPES:
        there = f'with scopes that keep nothing, {there}'
    return f'On the fork, it prints:\n\n{block(fork)}\n\nOn the base, {there}:\n\n{block(base)}'


def run_example(name: str, side: str) -> str:
    """Run an example on the base or on the fork, and return what it prints: of an error, the last line."""
    environment = {key: value for key, value in os.environ.items() if key != 'DATABASE_URL'}
    done = subprocess.run(
        [str(_example_python(side)), '-m', f'examples.{name}'],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    printed = done.stdout.splitlines()
    if done.returncode or name == 'audit':  # whose log goes to the standard error
        printed += [line for line in done.stderr.splitlines() if line.startswith(('INFO', 'ERROR'))]
    if done.returncode:
        printed.append(next(line for line in reversed(done.stderr.splitlines()) if re.match(r'[\w.]+: ', line)))
    return '\n'.join(map(_without_chance, printed))


def _without_chance(line: str) -> str:
    """Return a line without what differs from one machine, or one time, to the next: ids of runs and calls, and paths."""
    line = re.sub(r'"id": "[^"]*", ', '', line)
    line = re.sub(r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/pyd_ai_[0-9a-f]{32})?', '…', line)
    return re.sub(r' \(/\S+\)$', '', line)


@cache
def _line() -> Line:
    return find_line(ROOT)


@cache
def _example_python(side: str) -> Path:
    return make_example_environment(_line(), side)


if __name__ == '__main__':
    sys.exit(main())
