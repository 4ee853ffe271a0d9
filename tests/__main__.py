"""Run all tests: those of the tool where it runs, and those of the fork in environments that hold nothing but the built wheel."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.version import Version

from downstream.__main__ import print_results
from examples.__main__ import requirements as examples_need
from pydantic_ai_slim.hatch_build import DIST_NAME, ForkError
from series.environments import ENGINES, built_wheel, find_python, make_environment, overrides
from series.errors import SeriesError
from series.line import Line, find_line, find_lines
from tests.endurance.__main__ import requirements as endurance_needs

ROOT = Path(__file__).parents[1]
HARNESS_NEEDS = Version('2')
"""The oldest base that releases of `pydantic-ai-harness` are made for."""

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped, since this machine does not have it'
LEFT_OUT = 'left out; `make test ARGS=--every` tests it'
EMPTY = 'no test was selected'
NO_PYTHON = ', since this machine has no Python that it supports'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name, and return 0 if all of it passed."""
    parser = ArgumentParser(
        prog='python -m tests', description='Run the tests. What is not listed below is passed to pytest.'
    )
    parser.add_argument('--line', help='an upstream release; all lines if left out')
    parser.add_argument(
        '--python', action='append', metavar='VERSION', help='test the fork on this one only; repeatable'
    )
    parser.add_argument(
        '--ends',
        action='store_true',
        help='test the fork on the oldest and the newest Python only of those that are found',
    )
    parser.add_argument(
        '--every', action='store_true', help='test the fork on every Python that is found, not on the newest only'
    )
    parser.add_argument('--fork', action='store_true', help='test the fork only, not the tool')
    options, rest = parser.parse_known_args(arguments)
    results: dict[str, str] = {}
    try:
        lines = [find_line(ROOT, options.line)] if options.line else find_lines(ROOT)
        for version in options.python or ():
            if not any(version in line.python for line in lines):
                parser.error(f'Python {version} is none that {" or ".join(line.name for line in lines)} supports')
        if not options.fork:
            results['the tool'] = _test_tool(rest)
        for line in lines:
            results |= _test_line(line, _choose(options), options.python, rest)
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1

    print_results(results)
    # A version that was asked for must be there.
    wrong = (FAILED, SKIPPED) if options.python else (FAILED,)
    return int(PASSED not in results.values() or any(result.startswith(wrong) for result in results.values()))


def _choose(options: Namespace) -> Callable[[list[str]], list[str]]:
    """Return what chooses from the Pythons that are found, oldest first."""
    if options.python or options.every:
        return lambda found: found
    if options.ends:
        return lambda found: list(dict.fromkeys((found[0], found[-1])))
    return lambda found: found[-1:]


def _test_line(
    line: Line, choose: Callable[[list[str]], list[str]], asked: Sequence[str] | None, rest: Sequence[str]
) -> dict[str, str]:
    """Test a line on what is chosen of the Python versions that were asked for, or that it supports."""
    versions = [version for version in line.python if version in (asked or line.python)]
    found = {version: python for version in versions if (python := find_python(version))}
    if not found:
        return {line.version: SKIPPED if asked else FAILED + NO_PYTHON}
    results = {f'{line.version} on Python {version}': SKIPPED for version in versions if version not in found}
    newest = [*found][-1]
    chosen = choose([*found])
    for version, python in found.items():
        title = f'{line.version} on Python {version}'
        results[title] = _test_fork(line, version, python, rest) if version in chosen else LEFT_OUT
    engines = [f'{built_wheel(line)}{ENGINES}', *overrides(line)]
    parts = {
        'fork/engines': ('in the durable engines', engines),
        'fork/examples': ('in the examples', examples_need(line)),
        'endurance': ('under load and faults', endurance_needs(line)),
    }
    if Version(line.base) >= HARNESS_NEEDS:
        parts['fork/harness'] = 'under pydantic-ai-harness', _harness(line)
    # On the newest Python only, since what differs between versions is tested without these packages.
    for folder, (what, requirements) in parts.items():
        title = f'{line.version} {what}, on Python {newest}'
        results[title] = _test_with(folder, title, requirements, line, found[newest], rest)
    return results


def _test_tool(rest: Sequence[str]) -> str:
    return _run(
        [
            sys.executable,
            '-m',
            'pytest',
            '-n',
            'auto',
            '--dist',
            'worksteal',
            'tests/series',
            'tests/demo',
            'tests/docs',
            *rest,
        ],
        'The tool, the demonstration and the docs',
    )


def _test_fork(line: Line, version: str, python: Path, rest: Sequence[str]) -> str:
    requirements = [built_wheel(line), '--requirement', ROOT / 'requirements' / 'test.in']
    inside = make_environment(ROOT / 'build' / 'envs' / f'test-{line.base}-{version}', python, requirements)
    # `-I` keeps this folder and the user's packages off the path; `-n auto` uses all cores, and no core waits behind a long test.
    others = [f'--ignore=tests/fork/{folder}' for folder in ('engines', 'examples', 'harness')]
    return _run(
        [str(inside), '-I', '-m', 'pytest', '-n', 'auto', '--dist', 'worksteal', 'tests/fork', *others, *rest],
        f'{line.version} on Python {version}',
    )


def _test_with(
    folder: str, title: str, requirements: Sequence[str | Path], line: Line, python: Path, rest: Sequence[str]
) -> str:
    """Test the fork together with other packages."""
    requirements = [*requirements, '--requirement', ROOT / 'requirements' / 'test.in']
    inside = make_environment(ROOT / 'build' / 'envs' / f'test-{line.base}-{Path(folder).name}', python, requirements)
    return _run([str(inside), '-I', '-m', 'pytest', f'tests/{folder}', *rest], title)


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
    # 5: pytest has found none, as with a `-k` that is meant for another part.
    return {0: PASSED, 5: EMPTY}.get(subprocess.run(command, cwd=ROOT, check=False).returncode, FAILED)


if __name__ == '__main__':
    sys.exit(main())
