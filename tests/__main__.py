"""Run all tests: those of the tool where it runs, and those of the fork in environments that hold nothing but the built wheel."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.version import Version

from examples.__main__ import requirements as examples_need
from examples.postgres import NoPostgresError, find_postgres
from pydantic_ai_slim.fork.errors import ForkError
from series.environments import ENGINES, built_wheel, find_python, make_environment, overrides
from series.errors import SeriesError
from series.line import Line, find_line, find_lines
from tests.carried import in_place_of_base, write_carried
from tests.carried import requirements as carried_need
from tests.checks import plan_checks, plan_nightly
from tests.endurance.__main__ import requirements as endurance_needs
from tests.side_by_side import AT_ONCE, FAILED, Part, print_results, run_all, succeeded

ROOT = Path(__file__).parents[1]
HARNESS_NEEDS = Version('2')
"""The oldest base that releases of `pydantic-ai-harness` are made for."""

SKIPPED = 'skipped, since this machine does not have it'
LEFT_OUT = 'left out; `make test ARGS=--every` tests it'
SLOW = 'left out; `make nightly` runs them'
NO_PYTHON = f'{FAILED}, since this machine has no Python that it supports'

NIGHTLY = ('examples', 'endurance', 'carried')
"""The parts of a line that CI leaves out. What patches carry, `make verify` tests there, in the tree."""

SHARE, NIGHTLY_SHARE = ('--one-in=2', '--one-in=6'), ('--but-one-in=3', '--one-in=3')
"""Which variants of the contract's tests the newest Python and the oldest one run, in CI and by night. By night, each is run."""

OLDER_SHARE = '--one-in=8'
"""Which of them an older line runs in CI, on its newest Python alone."""

OLDER = 'left out on an older line'
"""What is said of parts that are for the newest line."""

_SECONDS = {'engines': 180, 'carried': 180, 'examples': 120, 'endurance': 30, 'servers': 30, 'harness': 10}
"""How long parts take, about, that aren't for one version of Python."""

Choose = Callable[[list[str]], list[str]]

Plan = dict[str, Part | str]
"""What is tested, by its title, or why it isn't."""


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
    parser.add_argument(
        '--checks',
        action='store_true',
        help='also run what CI checks besides: patches and types; several Pythons share some of the variants of the tests',
    )
    parser.add_argument(
        '--nightly',
        action='store_true',
        help='also run what takes too long for CI: slow tests, examples, endurance, pinning and the downstream projects',
    )
    parser.add_argument(
        '--at-once',
        type=int,
        default=AT_ONCE,
        metavar='N',
        help='run so many parts at once, each on its share of the processors; 1 prints what they say as they go',
    )
    parser.add_argument('--refuse', action='store_true', help='only refuse what there is nothing to run for')
    options, rest = parser.parse_known_args(arguments)
    try:
        lines = [find_line(ROOT, options.line)] if options.line else find_lines(ROOT)
        for version in options.python or ():
            if not any(version in line.python for line in lines):
                parser.error(f'Python {version} is none that {" or ".join(line.name for line in lines)} supports')
        if options.refuse:
            return 0
        share = NIGHTLY_SHARE if options.nightly else SHARE if options.checks else None
        skip = NIGHTLY if share is SHARE else ()
        planned: Plan = {} if options.fork else plan_tool(rest, alone=share is not None, slow=options.nightly)
        for line in lines:
            planned |= plan_line(line, _choose(options), options.python, rest, share, skip)
        parts = [*(plan_checks(lines) if share else ()), *(plan_nightly(lines) if options.nightly else ())]
        planned |= {part.title: part for part in parts}
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1

    ran = run_all([part for part in planned.values() if isinstance(part, Part)], options.at_once)
    results = {title: ran.get(title, str(part)) for title, part in planned.items()} | left_out()
    print_results(results)
    # A version that was asked for must be there.
    return int(not succeeded(results, (FAILED, SKIPPED) if options.python else (FAILED,)))


def left_out() -> dict[str, str]:
    """Say which tests are skipped for what this machine lacks. With `CI` set, they fail instead."""
    found: dict[str, str] = {}
    if os.environ.get('CI'):
        return found
    try:
        find_postgres()
    except NoPostgresError as error:
        found['what needs PostgreSQL'] = f'left out. {error}'
    browsers = Path(os.environ.get('PLAYWRIGHT_BROWSERS_PATH') or Path.home() / '.cache' / 'ms-playwright')
    if not shutil.which('chromium') and not any(browsers.glob('chromium*')):
        found['what needs a browser'] = (
            'left out. Chromium is not installed. Install it, on Debian with `apt-get install chromium`, '
            'and run the same command again.'
        )
    return found


def _choose(options: Namespace) -> Choose:
    """Return what chooses from the Pythons that are found, oldest first."""
    if options.python or options.every:
        return lambda found: found
    return _choose_ends if options.ends else lambda found: found[-1:]


def _choose_ends(found: list[str]) -> list[str]:
    """Return the oldest and the newest."""
    return list(dict.fromkeys((found[0], found[-1])))


def plan_tool(rest: Sequence[str] = (), *, alone: bool = False, slow: bool = False) -> Plan:
    """Plan the tests of the tool, which start git and package managers, and those of what goes with it.

    If `alone`, they find no Python but the system's.
    """
    parts = {
        'the tool': ['tests/series', 'tests/hook', 'tests/project'],
        'the demonstration and the docs': ['tests/demo', 'tests/docs'],
    }
    # `-n auto` uses all processors, and none of them waits behind a long test.
    pytest = [sys.executable, '-m', 'pytest', '-n', 'auto', '--dist', 'worksteal']
    chosen = [] if slow else ['-m', 'not slow']
    variables = without_pyenv() if alone else {}
    planned: Plan = {
        title: Part(title, [*pytest, *folders, *chosen, *rest], ROOT, variables, seconds=400)
        for title, folders in parts.items()
    }
    return planned if slow else {**planned, 'the slow tests of the tool and the docs': SLOW}


def without_pyenv() -> dict[str, str]:
    """Return variables in which there is no Python but the system's, as where nobody has installed another."""
    pyenv = Path(os.environ.get('PYENV_ROOT') or Path.home() / '.pyenv')
    path = os.environ.get('PATH', os.defpath).split(os.pathsep)
    return {
        'PATH': os.pathsep.join(folder for folder in path if not Path(folder).is_relative_to(pyenv)),
        'PYENV_ROOT': os.devnull,
    }


def plan_line(
    line: Line,
    choose: Choose,
    asked: Sequence[str] | None = None,
    rest: Sequence[str] = (),
    share: tuple[str, str] | None = None,
    skip: Sequence[str] = (),
) -> Plan:
    """Plan the tests of a line on what is chosen of the Python versions that were asked for, or that it supports.

    With a `share`, the newest of them and the others run these of the variants, if there are others. What
    to `skip` is named as in `_SECONDS`. Of an older line, the contract is tested, and its engines where others aren't skipped.

    Raises:
        NoWheelError: The fork isn't built.
    """
    versions = [version for version in line.python if version in (asked or line.python)]
    found = {version: python for version in versions if (python := find_python(version))}
    if not found:
        return {line.version: SKIPPED if asked else NO_PYTHON}
    planned: Plan = {f'{line.version} on Python {version}': SKIPPED for version in versions if version not in found}
    newest = [*found][-1]
    older = not line.is_newest
    short = older and share is SHARE
    chosen = [newest] if short else choose([*found])
    wheel = built_wheel(line)
    others = [f'--ignore=tests/fork/{folder}' for folder in ('engines', 'examples', 'harness', 'servers')]
    for version, python in found.items():
        title = f'{line.version} on Python {version}'
        if version not in chosen:
            planned[title] = LEFT_OUT
            continue
        folders = ['-n', 'auto', '--dist', 'worksteal', 'tests/fork', *others]
        if short:
            folders.append(OLDER_SHARE)
        elif share and len(chosen) > 1:
            folders.append(share[version != newest])
        planned[title] = _plan_part(title, folders, [wheel], line, version, python, rest)
    parts = {
        'engines': (
            'in the durable engines',
            'tests/fork/engines',
            [f'{wheel}{ENGINES}', *overrides(line), '--requirement', ROOT / 'requirements' / 'engines.in'],
        ),
        'examples': ('in the examples', 'tests/fork/examples', examples_need(line)),
        'servers': ('in chat servers', 'tests/fork/servers', _servers(line)),
        'endurance': ('under load and faults', 'tests/endurance', endurance_needs(line)),
    }
    if Version(line.base) >= HARNESS_NEEDS:
        # In place of the one release that it asks for
        harness = [*in_place_of_base(line, 'harness'), '--requirement', ROOT / 'requirements' / 'harness.in']
        parts['harness'] = 'under pydantic-ai-harness', 'tests/fork/harness', harness
    if older:
        parts = {'engines': parts['engines']} if not skip else {}
        planned[f'{line.version} in examples and servers'] = OLDER
    # On the newest Python only, since what differs between versions is tested without these packages.
    for name, (what, folder, requirements) in parts.items():
        title = f'{line.version} {what}, on Python {newest}'
        part = None if name in skip else _plan_part(title, [folder], requirements, line, name, found[newest], rest)
        planned[title] = part or SLOW
    title = f'{line.version} with the tests of its patches, on Python {newest}'
    # Their servers are each for a file.
    chosen = ['-n', 'auto', '--dist', 'loadfile']
    part = _plan_part(title, chosen, carried_need(line), line, 'carried', found[newest], rest, write_carried)
    if older and newest not in find_line(ROOT).python:
        part = 'left out, as most of them are written for newer Pythons'
    planned[title] = SLOW if 'carried' in skip else part
    return planned


def _plan_part(
    title: str,
    arguments: Sequence[str],
    requirements: Sequence[str | Path],
    line: Line,
    name: str,
    python: Path,
    rest: Sequence[str],
    write: Callable[[Line], list[str]] = lambda line: [],
) -> Part:
    """Plan tests that run in an environment of their own, which holds nothing but what they need. Some are written first."""
    requirements = [*requirements, '--requirement', ROOT / 'requirements' / 'test.in']

    def command() -> list[str]:
        inside = make_environment(ROOT / 'build' / 'envs' / f'test-{line.base}-{name}', python, requirements)
        # `-I` keeps this folder and the user's packages off the path.
        return [str(inside), '-I', '-m', 'pytest', *arguments, *write(line), *rest]

    return Part(title, command, ROOT, seconds=_SECONDS.get(name, 150))


def _servers(line: Line) -> list[str | Path]:
    """Return what to install for the tests with real servers, the fork among it."""
    return [f'{built_wheel(line)}[ag-ui,mcp]', *overrides(line), '--requirement', ROOT / 'requirements' / 'servers.in']


if __name__ == '__main__':
    sys.exit(main())
