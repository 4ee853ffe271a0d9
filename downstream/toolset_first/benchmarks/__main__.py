"""Compare an agent per call on the base with agents that are built once on the fork.

`build/tool/bin/python -m downstream.toolset_first.benchmarks`, after `make build`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from downstream.__main__ import ROOT, find_projects, project_environment, project_python
from pydantic_ai_slim.fork.errors import ForkError
from series.environments import base_requirements, make_environment
from series.errors import SeriesError
from series.line import find_line

HERE = Path(__file__).parent
# What it is called, and what each side works with
ROWS = {
    'functions without state': ('functions', 'functions'),
    'state for each run, in a stateful toolset': ('state', 'state'),
    'state for each run, from a factory': ('state', 'factory'),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a line, and print a table."""
    parser = ArgumentParser(prog='python -m downstream.toolset_first.benchmarks', description=__doc__)
    parser.add_argument('line', nargs='?', help='an upstream release; the newest line if left out')
    parser.add_argument('--rounds', type=int, default=5, help='how often the sides take turns (default: 5)')
    parser.add_argument('--count', type=int, default=20, help='calls in each round (default: 20)')
    parser.add_argument('--instructions', action='store_true', help='count instructions with valgrind, once, not time')
    options = parser.parse_args(arguments)
    try:
        line = find_line(ROOT, options.line)
        fork = project_environment(find_projects('toolset_first')[0], line)
        folder = ROOT / 'build' / 'envs' / f'downstream-per-call-{line.name}'
        base = make_environment(folder, project_python(line), base_requirements(line))
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    unit = 'million instructions' if options.instructions else 'ms of the processor'
    print(f'| a call 10 deep with 15 tools, {unit} | agent per call, base | built once, fork | ratio |')
    print('| --- | ---: | ---: | ---: |')
    for title, (before, after) in ROWS.items():
        pairs = [
            (_measure(base, 'per_call.py', before, options), _measure(fork, 'built_once.py', after, options))
            for _ in range(1 if options.instructions else options.rounds)
        ]
        ratio = median(one / other for other, one in pairs)
        then, now = (median(side) for side in zip(*pairs, strict=True))
        print(f'| {title} | {then:.1f} | {now:.1f} | {ratio:.2f}x |', flush=True)
    return 0


def _measure(python: Path, script: str, kind: str, options: object) -> float:
    """Return what one call costs: milliseconds, or millions of instructions."""
    count: int = getattr(options, 'count', 20)
    if not getattr(options, 'instructions', False):
        return float(_run([str(python), '-s', str(HERE / script), kind, str(count)]).stdout) * 1000
    _run([str(python), '-s', str(HERE / script), kind, '1'])  # writes what Python compiles when it first imports it
    few, many = (_instructions(python, script, kind, calls) for calls in (1, 4))
    return (many - few) / 3 / 1e6


def _instructions(python: Path, script: str, kind: str, count: int) -> int:
    tool = ['valgrind', '--tool=cachegrind', '--cache-sim=no', '--cachegrind-out-file=/dev/null']
    done = _run([*tool, str(python), '-s', str(HERE / script), kind, str(count)])
    found = re.search(r'I\s+refs:\s+([\d,]+)', done.stderr)
    assert found, done.stderr
    return int(found[1].replace(',', ''))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {'PYTHONHASHSEED': '0', 'PYTHONPATH': '', 'PATH': '/usr/local/bin:/usr/bin:/bin'}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


if __name__ == '__main__':
    sys.exit(main())
