"""Run all tests: those of the tool where it runs, and those of the fork in environments that hold nothing but the built wheel."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from pydantic_ai_slim.hatch_build import ForkError
from series.environments import ENGINES, built_wheel, find_python, make_environment, overrides
from series.errors import SeriesError
from series.line import Line, find_line

ROOT = Path(__file__).parents[1]
PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped, since this machine does not have it'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name, and return 0 if all of it passed."""
    parser = ArgumentParser(
        prog='python -m tests', description='Run the tests. What is not listed below is passed to pytest.'
    )
    parser.add_argument('--line', help='an upstream release; the newest line if left out')
    parser.add_argument(
        '--python', action='append', metavar='VERSION', help='test the fork on this one only; repeatable'
    )
    parser.add_argument('--fork', action='store_true', help='test the fork only, not the tool')
    options, rest = parser.parse_known_args(arguments)
    try:
        line = find_line(ROOT, options.line)
        tool = {} if options.fork else {'the tool': _test_tool(rest)}
        versions: Sequence[str] = options.python or line.python
        fork = {f'the fork on Python {version}': _test_fork(line, version, rest) for version in versions}
        fork |= _test_engines(line, versions, rest)
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1

    print(f'\n{line.version}')
    for what, result in (tool | fork).items():
        print(f'- {what}: {result}')
    # A version that was asked for must be there, and otherwise at least one.
    missing = (options.python and SKIPPED in fork.values()) or PASSED not in fork.values()
    return int(bool(missing) or FAILED in (tool | fork).values())


def _test_tool(rest: Sequence[str]) -> str:
    return _run(
        [sys.executable, '-m', 'pytest', '-n', 'auto', 'tests/series', 'tests/demo', 'tests/docs', *rest],
        'The tool, the demonstration and the docs',
    )


def _test_fork(line: Line, version: str, rest: Sequence[str]) -> str:
    python = find_python(version)
    if python is None:
        return SKIPPED
    requirements = [built_wheel(line), '--requirement', ROOT / 'requirements' / 'test.in']
    inside = make_environment(ROOT / 'build' / 'envs' / f'test-{line.base}-{version}', python, requirements)
    # `-I` keeps this folder and the user's packages off the path; `-n auto` uses all cores.
    return _run(
        [str(inside), '-I', '-m', 'pytest', '-n', 'auto', 'tests/fork', '--ignore=tests/fork/engines', *rest],
        f'The fork {line.version} on Python {version}',
    )


def _test_engines(line: Line, versions: Sequence[str], rest: Sequence[str]) -> dict[str, str]:
    """Test the fork in the durable engines: on the newest Python only, since that takes minutes and tells versions apart little."""
    found = [(version, python) for version in versions if (python := find_python(version))]
    if not found:
        return {}
    version, python = found[-1]
    requirements = [
        f'{built_wheel(line)}{ENGINES}',
        *overrides(line),
        '--requirement',
        ROOT / 'requirements' / 'test.in',
    ]
    inside = make_environment(ROOT / 'build' / 'envs' / f'engines-{line.base}', python, requirements)
    title = f'the fork in the durable engines, on Python {version}'
    command = [str(inside), '-I', '-m', 'pytest', 'tests/fork/engines', *rest]
    return {title: _run(command, title[0].upper() + title[1:])}


def _run(command: list[str], title: str) -> str:
    print(f'\n{title}', flush=True)
    return FAILED if subprocess.run(command, cwd=ROOT, check=False).returncode else PASSED


if __name__ == '__main__':
    sys.exit(main())
