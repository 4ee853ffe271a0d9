"""Lock what upstream's tests of a line need, as its own CI installs it, to the time of the line's release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import tomllib
from packaging.markers import Marker
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pydantic_ai_slim.fork.names import DIST_NAME
from series.base import base_repository, download, download_base, wheel_metadata
from series.environments import overrides, uv
from series.errors import NoReleaseError, SeriesError
from series.folders import lock, scratch, write
from series.git import Git, words
from series.line import Line
from series.progress import Report

INSTALLS = ('slim', 'standard', 'all')
"""What is installed, as upstream's CI has it: the slim package, the standard one, and that with its extras."""

RESOLUTIONS = ('highest', 'lowest-direct')
"""Which releases are, in uv's words: the newest of everything, or the oldest of what is required directly."""

ROOT = 'pydantic-ai'
"""The distribution that upstream's repository has in its root: the standard one."""

_OTHERS = ('pydantic-graph', 'pydantic-evals', 'pydantic-ai-examples')
"""What else upstream's repository makes and the tests import. It comes from the index, in the version of the line."""

_LEFT_OUT = 'outlines-'
"""How the extras begin that are in no cell: they need gigabytes for GPUs, and compilers. Their tests are skipped."""

_NEEDED = ('pytest-timeout>=2.3.1',)
"""What the tests are run with, besides what upstream runs them with."""


def lock_file(line: Line, install: str, resolution: str) -> Path:
    """Return where the lock of an install and a resolution is."""
    return line.folder / 'locks' / f'{install}-{resolution}.txt'


def bounds_file(line: Line) -> Path:
    """Return where the bounds are that someone has set for the locks; it needn't be there."""
    return line.folder / 'locks' / 'bounds.in'


def for_other_tests(locked: Sequence[str], own: str, others: str, others_lock: str = '') -> list[str]:
    """Return what a lock lists, with the development dependencies of other tests, and their plugins of pytest in place of the line's own.

    Those that do the same in both don't go together. What is in the lock stays in its version; what isn't comes in that of the other lock.

    Args:
        locked: The requirements of the lock.
        own: The `pyproject.toml` that it was made from.
        others: That of the tests.
        others_lock: Their `uv.lock`, if there is one.
    """
    ours, theirs = _development(own), _development(others)
    names = {text: canonicalize_name(Requirement(text).name) for text in locked}
    plugins = {name for name in ours if name.startswith('pytest-') or name == 'cassetter'}  # It records requests
    kept = [text for text in locked if names[text] in theirs or names[text] not in plugins]
    packages: dict[str, Any] = {package['name']: package for package in tomllib.loads(others_lock).get('package', [])}
    # It grows while it's gone through
    added = sorted(theirs.keys() - names.values())
    for name in added:
        needed = [needed['name'] for needed in packages.get(name, {}).get('dependencies', [])]
        added += [each for each in needed if each not in added and each not in names.values()]
    return [*kept, *(f'{name}=={packages[name]["version"]}' if name in packages else theirs[name] for name in added)]


def _development(settings: str) -> dict[str, str]:
    """Return what the group `dev` of a `pyproject.toml` requires from the index, by name."""
    listed = map(Requirement, _group(tomllib.loads(settings).get('dependency-groups', {}), 'dev'))
    return {canonicalize_name(requirement.name): str(requirement) for requirement in listed if requirement.url is None}


def write_locks(line: Line, report: Report) -> list[Path]:
    """Lock what upstream's tests of a line need, for each install and resolution, and return the files.

    What is directly required is what upstream's packages of that release require, and the dependency groups in the
    `pyproject.toml` of the tests. Nothing is locked that was published later than the day after the base, and for the
    rest the bounds of the line's `tests.in` and `locks/bounds.in` hold, and its `overrides.in`, if these are there. A lock
    holds for every Python from the oldest of the line on. `pydantic-ai-slim` itself is in none of them.

    Args:
        line: The line; of its folder only `line.toml` is needed.

    Returns:
        The files, in `patches/LINE/locks`.
    """
    settings = tomllib.loads(Git(base_repository(line, report)).run('show', 'HEAD:pyproject.toml'))
    with (
        lock(line.root, line.name, line.make('locks')),
        scratch(line.root, line.folder.parent, 'locks') as folder,
    ):
        report(f'Reading what upstream requires in {line.name}')
        workspace = _workspace(line, folder)
        made: dict[Path, str] = {}
        cells = [(install, resolution) for install in INSTALLS for resolution in RESOLUTIONS]
        for number, (install, resolution) in enumerate(cells):
            report(f'Locking {install}, {resolution}', number, len(cells))
            required = _required(line, workspace, settings, install)
            target = lock_file(line, install, resolution)
            made[target] = _compile(line, folder, required, resolution, target)
        for target, text in made.items():
            target.parent.mkdir(exist_ok=True)
            write(target, text)
    return list(made)


def _workspace(line: Line, folder: Path) -> dict[str, Metadata]:
    """Download what upstream's repository makes in the version of a line, and return its metadata by name.

    Not every release of the base has its siblings on the index; one that is missing is left out. For the standard package
    another version then stands in, since all that is asked of it is which extras it names.
    """
    # Not the one that is kept: an index that lacks it isn't there, and what it lacks else says nothing.
    wheels = {DIST_NAME: download_base(line, folder)}
    for name in (ROOT, *_OTHERS):
        for version in dict.fromkeys([line.base, *([line.settings.version] if name == line.settings.package else [])]):
            try:
                wheel = download(folder / f'{name}-{version}', f'{name}==={version}', '--only-binary', ':all:')
            except NoReleaseError:
                continue
            wheels[name] = wheel
            break
    return {name: wheel_metadata(wheel) for name, wheel in wheels.items()}


def _required(line: Line, workspace: Mapping[str, Metadata], settings: Mapping[str, Any], install: str) -> list[str]:
    """Return what an install requires directly, as upstream's CI makes it: `uv run` with `--package pydantic-ai-slim`, nothing, or `--all-extras`."""
    of_uv: Mapping[str, Any] = settings.get('tool', {}).get('uv', {})
    default: list[str] = of_uv.get('default-groups', ['dev'])
    elsewhere = {canonicalize_name(name) for name, source in of_uv.get('sources', {}).items() if 'git' in source}
    groups = ['dev'] if install == 'slim' else default
    known = settings.get('dependency-groups', {})
    listed = [Requirement(text) for name in groups for text in _group(known, name)]
    root = DIST_NAME if install == 'slim' or ROOT not in workspace else ROOT
    extras = set(workspace[root].provides_extra or ()) if install == 'all' else set[str]()
    extras = {extra for extra in extras if not extra.startswith(_LEFT_OUT)}
    listed.append(Requirement(f'{root}[{",".join(sorted(extras))}]'))
    found = {f'{DIST_NAME}==={line.base}', *_NEEDED}
    for requirement in _expanded(workspace, listed):
        name = canonicalize_name(requirement.name)
        if name in workspace:
            found.add(f'{name}==={line.base}')
        # One with an address is from a repository at some commit, which the time of the release says nothing about.
        elif requirement.url is None and name not in elsewhere:
            found.add(str(requirement))
    return sorted(found)


def _group(groups: Mapping[str, Sequence[Any]], name: str) -> Iterator[str]:
    """Yield what a dependency group requires, with the groups that it includes."""
    for entry in groups.get(name, ()):
        if isinstance(entry, str):
            yield entry
        else:
            yield from _group(groups, entry['include-group'])


def _expanded(workspace: Mapping[str, Metadata], listed: Iterable[Requirement]) -> Iterator[Requirement]:
    """Yield requirements, with those of upstream's own packages among them, which count as direct ones as in upstream's workspace."""
    seen: set[tuple[str, str]] = set()
    waiting = list(listed)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name == ROOT or name in workspace:
            if name in workspace:
                for extra in ('', *requirement.extras):
                    if (name, extra) not in seen:
                        seen.add((name, extra))
                        waiting += _of_extra(workspace[name], extra)
                # The standard package has nothing in it but these requirements.
                if name != ROOT:
                    yield Requirement(name)
        # A sibling that the index doesn't have in this version would bring another release of the base.
        elif name not in _OTHERS:
            yield requirement


def _of_extra(metadata: Metadata, extra: str) -> Iterator[Requirement]:
    """Yield what a distribution requires for an extra, or always if that is empty."""
    for requirement in metadata.requires_dist or ():
        text = str(requirement.marker or '')
        if found := re.fullmatch(r'(?:(?P<rest>.+) and )?extra == "(?P<extra>[^"]+)"', text):
            if found['extra'] == extra:
                only = Requirement(str(requirement))
                only.marker = Marker(found['rest']) if found['rest'] else None
                yield only
        elif not extra:
            yield requirement


def _compile(line: Line, folder: Path, required: Sequence[str], resolution: str, target: Path) -> str:
    """Have uv find the releases, and return the lock."""
    listed = folder / 'required.in'
    listed.write_text('\n'.join(required) + '\n', 'utf-8')
    bounds = folder / 'bounds.in'
    bounds.write_text('\n'.join(_bounds(line)) + '\n', 'utf-8')
    oldest = min(line.python, key=lambda version: [int(part) for part in version.split('.')])
    left_out = [part for name in (DIST_NAME, ROOT) for part in ('--no-emit-package', name)]
    done = uv(
        *('pip', 'compile', '--quiet', '--universal', '--python-version', oldest, '--resolution', resolution),
        *('--exclude-newer', f'{line.released + timedelta(days=1)}T00:00:00Z'),
        *('--constraint', str(bounds), *map(str, overrides(line)), *left_out),
        # What the lock says must not depend on where it was made.
        *('--no-header', '--no-annotate', '--no-emit-index-url', '--no-emit-find-links'),
        str(listed),
    )
    if done.returncode:
        raise SeriesError(
            f'`{line.show(target)}` was not written: uv finds no releases that go together.',
            f'Bound what stands in the way in `{line.show(bounds_file(line))}`, and run `{line.make("locks")}` again.',
            words(done),
        )
    return f"# What upstream's tests of {line.name} need. Written by `make locks`.\n{done.stdout.decode()}"


def _bounds(line: Line) -> Iterator[str]:
    """Yield the bounds that a line sets to what upstream requires."""
    for path in (line.folder / 'tests.in', bounds_file(line)):
        for text in path.read_text('utf-8').splitlines() if path.exists() else ():
            if requirement := text.partition('#')[0].strip():
                bound = Requirement(requirement)
                if bound.specifier and canonicalize_name(bound.name) != DIST_NAME:
                    yield str(bound)
