"""Test the projects in this folder on the built fork: `python -m downstream`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import tomllib
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pydantic_ai_slim.fork.errors import ForkError
from pydantic_ai_slim.fork.names import DIST_NAME
from series.environments import base_requirements, built_wheel, find_python, make_environment, overrides
from series.errors import SeriesError
from series.line import Line, find_line, find_lines
from tests.side_by_side import Part, print_results, run_all, succeeded

ROOT = Path(__file__).parents[1]
SIDES = ('fork', 'base')


class ProjectError(SeriesError):
    """A project whose settings are wrong, or that isn't there."""


@dataclass(frozen=True)
class Project:
    """A project that uses the fork.

    Attributes:
        folder: The folder with its `pyproject.toml`.
        package: What it is called when it is installed.
        on: What its tests run on: `fork`, `base`, or both.
        needs: Which releases of pydantic-ai it says that it works with.
        beside: The folders of other projects that its tests need.
    """

    folder: Path
    package: str
    on: tuple[str, ...]
    needs: SpecifierSet
    beside: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name


def main(arguments: Sequence[str] | None = None) -> int:
    """Test what the arguments name, and return 0 if all of it passed."""
    parser = ArgumentParser(
        prog='python -m downstream',
        description='Test the projects that use the fork. What is not listed below is passed to pytest.',
    )
    parser.add_argument('--line', help='an upstream release; all lines if left out')
    parser.add_argument('--name', help='a folder in `downstream/`; all projects if left out')
    options, rest = parser.parse_known_args(arguments)
    try:
        lines = [find_line(ROOT, options.line)] if options.line else find_lines(ROOT)
        parts = plan(find_projects(options.name), lines, rest)
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1

    results = run_all(parts)
    print_results(results)
    return int(not succeeded(results))


def plan(projects: Sequence[Project], lines: Sequence[Line], rest: Sequence[str] = ()) -> list[Part]:
    """Plan the tests of projects on the lines that they need, and on the base of the newest where that is to be."""
    return [
        _plan_part(project, line, side, rest)
        for project in projects
        for line in lines
        for side in project.on
        if line.base in project.needs and (side == 'fork' or line == lines[-1])
    ]


def find_projects(name: str | None = None) -> list[Project]:
    """Find all projects, or that of a name.

    Args:
        name: The name of its folder, or the same with dashes.

    Raises:
        ProjectError: There is none, or its `[tool.downstream]` says what nothing is known of.
    """
    paths = sorted((ROOT / 'downstream').glob('*/pyproject.toml'))
    chosen = [path for path in paths if name in (None, path.parent.name, path.parent.name.replace('_', '-'))]
    if not chosen:
        there = ', '.join(f'`{path.parent.name}`' for path in paths) or 'none'
        raise ProjectError(
            f'There is no project `downstream/{name or "*"}` with a `pyproject.toml`.',
            f'There are: {there}. Name one of them with `make downstream NAME=…`.',
        )
    return [_read(path) for path in chosen]


def _read(path: Path) -> Project:
    where = f'`{path.relative_to(ROOT).as_posix()}`'
    try:
        data = tomllib.loads(path.read_text('utf-8'))
    except tomllib.TOMLDecodeError as error:
        raise ProjectError(f'{where} is no TOML: {error}.', 'Correct it, then run the same command again.') from None
    package = data.get('project', {}).get('name')
    if not package or 'test' not in data.get('dependency-groups', {}):
        raise ProjectError(
            f'{where} lacks a `[project]` with a `name`, or the dependency group `test`.',
            'Add what is missing; the group lists what the tests need, pytest among it.',
        )
    settings: dict[str, Any] = data.get('tool', {}).get('downstream', {})
    on = settings.get('on', ['fork'])
    if not isinstance(on, list) or not on or any(side not in SIDES for side in cast('list[Any]', on)):
        raise ProjectError(
            f'{where} says in `[tool.downstream]` what is not known: {settings!r}.',
            'Write `on = ["fork"]`, `on = ["base"]` or `on = ["fork", "base"]`.',
        )
    beside = tuple(ROOT / 'downstream' / name for name in settings.get('beside', ()))
    requirements = map(Requirement, data['project'].get('dependencies', ()))
    needs = next((one.specifier for one in requirements if one.name == DIST_NAME), SpecifierSet())
    return Project(path.parent, package, tuple(cast('list[str]', on)), needs, beside)


def project_python(line: Line) -> Path:
    """Return the newest Python that the line supports and this machine has.

    Raises:
        ProjectError: This machine has none of them.
    """
    for version in reversed(line.python):
        if python := find_python(version):
            return python
    raise ProjectError(
        f'The line {line.name} needs Python {", ".join(line.python)}, and this machine has none of them.',
        f'Install one of them, then run `{line.make("downstream")}` again.',
    )


def project_environment(project: Project, line: Line, side: str = 'fork') -> Path:
    """Make an environment with the project, what its tests need, and the fork or the base of a line.

    The project is installed as its users install it, but takes the fork that is built here in place of that which its
    `[tool.uv.sources]` name.

    Returns:
        The environment's interpreter.
    """
    of = [built_wheel(line), *overrides(line)] if side == 'fork' else base_requirements(line)
    needs = [
        *of,
        '--no-sources',
        project.folder,
        *project.beside,
        '--group',
        f'{project.folder / "pyproject.toml"}:test',
    ]
    folder = ROOT / 'build' / 'envs' / f'downstream-{project.name}-{side}-{line.name}'
    # Always built: uv would take an earlier build of a folder whose `pyproject.toml` has not changed.
    return make_environment(folder, project_python(line), [*needs, '--reinstall-package', project.package])


def _plan_part(project: Project, line: Line, side: str, rest: Sequence[str]) -> Part:
    def command() -> list[str]:
        inside = project_environment(project, line, side)
        # `-I` keeps this folder and the user's packages off the path: what is tested is the installed project.
        return [str(inside), '-I', '-m', 'pytest', 'tests', *rest]

    title = f'{project.name} on {line.version if side == "fork" else f"the base {line.base}"}'
    return Part(title, command, project.folder, seconds=60)


if __name__ == '__main__':
    sys.exit(main())
