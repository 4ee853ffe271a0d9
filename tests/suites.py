"""Run the test suites of others on base and fork, side by side: `make downstream-suites`."""

from __future__ import annotations

import shutil
import sys
import tarfile
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pydantic_ai_slim.fork.errors import ForkError
from pydantic_ai_slim.fork.names import DIST_NAME
from series.base import download
from series.comparison import SIDES, Comparison, Result, compare
from series.environments import base_requirements, built_wheel, line_python, make_environment, overrides, uv
from series.errors import DownloadError, SeriesError
from series.git import Git, words
from series.line import Line, find_line, find_lines
from series.progress import Report, heartbeat, say
from series.upstream_tests import Pytest

PAGE = Path('docs') / 'downstream' / 'suites.md'


@dataclass(frozen=True)
class Suite:
    """The tests of a project, as its source archive has them."""

    name: str
    """Of the project, on the package index."""
    needs: tuple[str, ...]
    """What else is installed for the tests."""
    tests: tuple[str, ...] = ('tests',)
    """What pytest is given: files, folders and options."""


@dataclass(frozen=True)
class Ran:
    """What came of a suite on a line."""

    suite: Suite
    line: Line
    version: str = ''
    comparison: Comparison | None = None
    """`None` if no release works with the line's base."""


def load_suites(path: Path) -> list[Suite]:
    """Read which suites there are."""
    listed = tomllib.loads(path.read_text('utf-8'))
    return [Suite(name, **{key: tuple(value) for key, value in settings.items()}) for name, settings in listed.items()]


def run_suite(suite: Suite, line: Line, report: Report) -> Ran:
    """Run a suite in two environments that differ in nothing but the fork, and compare it test by test.

    Args:
        suite: The suite. Its project is taken in the newest release that works with the line's base.
        line: The line, whose fork is built.
        report: Is told of each step.

    Raises:
        NoWheelError: The fork isn't built.
        DownloadError: The release has no source archive, or can't be got.
        SeriesError: It is refused, or fails; the message says why.
    """
    folder = line.root / 'build' / 'suites' / f'{suite.name}-{line.name}'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    title = f'{suite.name} on {line.name}'
    report(f'{title}: finding its releases')
    if (locked := _lock(suite, line, folder)) is None:
        return Ran(suite, line)
    version = next(pin.partition('==')[2] for pin in locked if _named(pin, suite.name))
    report(f'{title}: getting the tests of {version}')
    tree = _unpack(download(folder / 'archive', f'{suite.name}==={version}', '--no-binary', suite.name), folder)
    wheels = {'base': f'{DIST_NAME}==={line.base}', 'fork': built_wheel(line)}
    others = [pin for pin in locked if not _named(pin, DIST_NAME)]
    sides: dict[str, Pytest] = {}
    for side in SIDES:
        report(f'{title}: making the environment of the {side}')
        python = make_environment(folder / f'env-{side}', line_python(line), ['--no-deps', *others, wheels[side]])
        sides[side] = Pytest(tree, python, folder / f'run-{side}')

    def run(side: str, named: Sequence[str], number: int) -> dict[str, Result]:
        report(f'{title}: {"what differs, once more," if number else "the tests"} on the {side}')
        return sides[side].run(named or suite.tests, folder / f'{side}-{number}.xml')

    try:
        compared = compare(run)
    except SeriesError as error:
        raise SeriesError(
            f'pytest could not run the tests of {title}.',
            f'Say in `tests/suites.toml` what they need. {error.remedy}',
            error.words,
        ) from None
    for side in SIDES:
        shutil.rmtree(folder / f'env-{side}')
    return Ran(suite, line, version, compared)


def _named(pin: str, name: str) -> bool:
    return canonicalize_name(Requirement(pin).name) == canonicalize_name(name)


def _lock(suite: Suite, line: Line, folder: Path) -> list[str] | None:
    """Find releases that go together with the base of a line, or none if there are no such."""
    base, *caps = base_requirements(line)
    listed = folder / 'required.in'
    listed.write_text('\n'.join([suite.name, str(base), *suite.needs, 'pytest']) + '\n', 'utf-8')
    done = uv(
        *('pip', 'compile', '--quiet', '--no-header', '--no-annotate', '--python', str(line_python(line))),
        *('--no-emit-index-url', '--no-emit-find-links', *map(str, caps), *map(str, overrides(line)), str(listed)),
    )
    said = words(done)
    if done.returncode and 'No solution found' in said:
        return None
    if done.returncode:
        raise DownloadError(f'uv could not find the releases that {suite.name} needs.', "These are uv's words.", said)
    return [
        text.strip() for text in done.stdout.decode().splitlines() if '==' in text and not text.startswith((' ', '#'))
    ]


def _unpack(archive: Path, folder: Path) -> Git:
    """Unpack a source archive, and make a repository of it, which is as it was for each run."""
    with tarfile.open(archive) as content:
        content.extraction_filter = getattr(tarfile, 'data_filter', None)  # Python 3.11.2 doesn't know filters
        content.extractall(folder / 'unpacked')
    (unpacked,) = (folder / 'unpacked').iterdir()
    tree = Git(unpacked)
    tree.run('init', '--quiet')
    tree.run('add', '--all', '--force')
    tree.run('commit', '--quiet', '--message', archive.name)
    return tree


def write_page(ran: Iterable[Ran], path: Path) -> None:
    """Write a dated table of what came of all suites."""
    rows: list[str] = []
    differing: list[str] = []
    for each in ran:
        if (found := each.comparison) is None:
            rows.append(f'| {each.suite.name} | none works with it | {each.line.name} | | | |')
            continue
        numbers = (found.common, len(found.failing), len(found.differences))
        rows.append(
            f'| {each.suite.name} | {each.version} | {each.line.name} | ' + ' | '.join(map(str, numbers)) + ' |'
        )
        differing += [
            f'- {each.suite.name}, {each.line.name}: `{test.test}` is {test.outcome("base")} on the base, '
            f'and {test.outcome("fork")} on the fork.'
            for test in found.differences
        ]
    path.write_text(
        _PAGE.format(
            date=date.today().isoformat(),
            rows='\n'.join(rows),
            verdict='\n'.join(differing) or 'No test differs between base and fork.',
        ),
        'utf-8',
    )


_PAGE = """\
# Test suites of others

The tests of published projects that use pydantic-ai, on base and fork. Each pair of environments differs in the fork alone.
A test that fails on both, for want of a key or a server, says nothing. One that differs ran again alone, three times on each side.

`make downstream-suites` wrote this page on {date}, each project in the newest release that works with the line's base.

| project | release | line | tests | fail on both | differ |
| --- | --- | --- | ---: | ---: | ---: |
{rows}

{verdict}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites that the arguments name, by default all on all lines, and return the exit code."""
    parser = ArgumentParser(
        prog='python -m tests.suites', description='Run the test suites of others on base and fork, side by side.'
    )
    parser.add_argument('--line', help='an upstream release; all lines if left out')
    parser.add_argument('--name', action='append', help='a project of `tests/suites.toml`; repeatable')
    options = parser.parse_args(arguments)
    root = Path.cwd()
    suites = load_suites(root / 'tests' / 'suites.toml')
    if unknown := set(options.name or ()) - {suite.name for suite in suites}:
        parser.error(f'`tests/suites.toml` has no {", ".join(sorted(unknown))}')
    chosen = [suite for suite in suites if suite.name in (options.name or [suite.name])]
    try:
        lines = [find_line(root, options.line)] if options.line else find_lines(root)
        with heartbeat(say) as report:
            ran = [run_suite(suite, line, report) for suite in chosen for line in reversed(lines)]
        # A part is for the eye; the page has all.
        page = root / ('build/suites/page.md' if options.name or options.line else PAGE)
        write_page(ran, page)
        print(page.read_text('utf-8'))
        if any(each.comparison and each.comparison.differences for each in ran):
            raise SeriesError(
                f'Tests of others differ between base and fork; `{page.relative_to(root)}` names them.',
                'Find out which patch does it, and correct it there.',
            )
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
