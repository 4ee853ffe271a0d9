"""Run all tests: those of the tool where it runs, and those of the fork in environments that hold nothing but the built wheel."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from pydantic_ai_slim.hatch_build import DIST_NAME, ForkError
from series.environments import ENGINES, built_wheel, find_python, make_environment, overrides
from series.errors import SeriesError
from series.line import Line, find_line

ROOT = Path(__file__).parents[1]
HARNESS_NEEDS = Version('2')
"""The oldest base that releases of `pydantic-ai-harness` are made for."""

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
        engines = [f'{built_wheel(line)}{ENGINES}', *overrides(line)]
        fork |= _test_with('in the durable engines', 'engines', engines, line, versions, rest)
        if Version(line.base) >= HARNESS_NEEDS:
            fork |= _test_with('under pydantic-ai-harness', 'harness', _harness(line), line, versions, rest)
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
    others = [f'--ignore=tests/fork/{folder}' for folder in ('engines', 'harness')]
    return _run(
        [str(inside), '-I', '-m', 'pytest', '-n', 'auto', 'tests/fork', *others, *rest],
        f'The fork {line.version} on Python {version}',
    )


def _test_with(
    what: str, folder: str, requirements: Sequence[str | Path], line: Line, versions: Sequence[str], rest: Sequence[str]
) -> dict[str, str]:
    """Test the fork with other packages: on the newest Python only, since what differs between versions is tested without them."""
    found = [(version, python) for version in versions if (python := find_python(version))]
    if not found:
        return {}
    version, python = found[-1]
    requirements = [*requirements, '--requirement', ROOT / 'requirements' / 'test.in']
    inside = make_environment(ROOT / 'build' / 'envs' / f'{folder}-{line.base}', python, requirements)
    title = f'the fork {what}, on Python {version}'
    command = [str(inside), '-I', '-m', 'pytest', f'tests/fork/{folder}', *rest]
    return {title: _run(command, title[0].upper() + title[1:])}


def _harness(line: Line) -> list[str | Path]:
    """Return what to install for `pydantic-ai-harness` on the fork, in place of the one release that it asks for.

    uv lets an override take the place of what it is told to install too, so the override has to name the wheel.
    """
    override = ROOT / 'build' / 'envs' / f'harness-{line.base}.txt'
    override.parent.mkdir(parents=True, exist_ok=True)
    override.write_text(f'{DIST_NAME} @ {built_wheel(line).as_uri()}\n')
    return ['--override', override, '--requirement', ROOT / 'requirements' / 'harness.in']


def _run(command: list[str], title: str) -> str:
    print(f'\n{title}', flush=True)
    return FAILED if subprocess.run(command, cwd=ROOT, check=False).returncode else PASSED


if __name__ == '__main__':
    sys.exit(main())
