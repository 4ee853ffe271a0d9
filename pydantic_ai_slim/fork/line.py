"""Read what a line is pinned to."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from pydantic_ai_slim.fork.errors import LineError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # hatchling requires it on Python 3.10


@dataclass(frozen=True)
class Archive:
    """A source distribution on the index, of which a line's tree holds something that the base's wheel doesn't."""

    package: str
    version: str
    digest: str


@dataclass(frozen=True)
class PinnedLine:
    """One upstream release that the series is carried on, as its `line.toml` describes it."""

    folder: Path
    """The folder with the patches, their list `series` and the `line.toml`."""
    base: str
    """The base's version."""
    released: date
    """The day on which the base was published."""
    number: int
    """The fork's number N."""
    digest: str
    """What `content_digest()` of the base must be."""
    patched: str | None
    """What `package_digest()` of the base with the patches must be; `None` before `make extract` has written it."""
    licences: str | None
    """What `digest_files()` of the licences in the build folder must be; `None` in lines from before it was written down."""
    python: tuple[str, ...]
    """The supported Python versions."""
    settings: Archive
    """What upstream's settings for running and checking tests come from."""
    url: str | None
    """Where the fork's repository is, for the project URLs of the wheel; `None` as long as it has no public address."""
    caps: Mapping[str, str]
    """Upper bounds of dependencies, by their normalized names, that the fork adds to the base's own requirements."""

    @property
    def version(self) -> str:
        """The fork's version."""
        return f'{self.base}+lifecycle.{self.number}'

    @property
    def patches(self) -> list[Path]:
        """The patch files of the series, in order.

        Raises:
            LineError: As `list_patches()`.
        """
        return list_patches(self.folder)


def list_patches(folder: Path) -> list[Path]:
    """Return the patches of a series in the order of its list.

    Args:
        folder: What holds the list, `series`, and the patches in the folders of their topics. Without a list there are none.

    Raises:
        LineError: The list and the patches don't agree; the message lists every fault.
    """
    listed = folder / 'series'
    try:
        # Not as text, which would take away what `sed` leaves in names
        text = listed.read_bytes().decode('utf-8') if listed.exists() else ''
        if '\r' in text:
            raise ValueError('it has carriage returns')
    except ValueError as error:
        raise LineError(
            f'`{listed}` is not UTF-8 with a newline alone at the end of each line: {error}. Write it again, or restore it with '
            f'`git checkout`.'
        ) from None
    names = [line for line in text.split('\n') if line and not line.startswith('#')]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob('*.patch')}
    faults = [f'`{name}` is listed {count} times.' for name, count in Counter(names).items() if count > 1]
    for name in names:
        if not re.fullmatch(r'[\w-]+/[\w.-]+\.patch', name):
            faults.append(f'`{name}` is not the path of a patch in a topic, such as `fixes/slug.patch`.')
        elif name not in there:
            faults.append(f'`{name}` is listed, but is not there.')
    faults += [f'`{name}` is there, but is not listed.' for name in sorted(there.difference(names))]
    if faults:
        raise LineError(
            f'`{listed}` does not list the patches beside it:\n'
            + '\n'.join(f'- {fault}' for fault in faults)
            + '\nList each patch once, in the order in which they apply, then run the same command again.'
        )
    return [folder / name for name in names]


def patch_name(patch: Path) -> str:
    """Return the name of a patch, or of a copy of it: `topic/slug`."""
    return f'{patch.parent.name}/{patch.stem}'


def line_of(root: Path) -> PinnedLine:
    """Read the line that a build folder belongs to.

    Args:
        root: The folder with the `pyproject.toml`: `pydantic_ai_slim/<line>` in a checkout.

    Raises:
        LineError: As `load_line()`.
    """
    return load_line(root.resolve().parent.parent / 'patches' / root.resolve().name)


def load_line(folder: Path) -> PinnedLine:
    """Read the `line.toml` in the folder of a line.

    Raises:
        LineError: The file is missing or wrong; the message lists every fault.
    """
    path = folder / 'line.toml'
    try:
        data = tomllib.loads(path.read_text(encoding='utf-8'))
    except FileNotFoundError:
        raise LineError(
            f'There is no line `{folder.name}`: `{path}` does not exist. The fork is built inside a checkout of its '
            f'repository, where `patches/` and `pydantic_ai_slim/` stand side by side. Clone the repository and build '
            f'`pydantic_ai_slim/{folder.name}` there.'
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise LineError(f'`{path}` is not valid TOML: {error}. Correct the file and build again.') from error

    faults = list(_line_faults(data, folder.name))
    if faults:
        listed = '\n'.join(f'- {fault}' for fault in faults)
        raise LineError(f'`{path}` is not a valid line:\n{listed}\nCorrect the file and build again.')
    return PinnedLine(
        folder=folder,
        base=data['base'],
        released=data['released'],
        number=data['number'],
        digest=data['digest'],
        patched=data.get('patched'),
        licences=data.get('licences'),
        python=tuple(data['python']),
        settings=Archive(**data['settings']),
        url=data.get('url'),
        caps={canonicalize_name(name): cap for name, cap in data['caps'].items()},
    )


def _line_faults(data: dict[str, Any], name: str) -> Iterator[str]:
    """Say everything that is wrong with the content of the `line.toml` of the line `name`."""

    def is_text(value: Any) -> bool:
        return isinstance(value, str) and value != ''

    def is_digest(value: Any) -> bool:
        return is_text(value) and re.fullmatch('sha256:[0-9a-f]{64}', value) is not None

    def is_bound(value: Any) -> bool:
        try:
            return is_text(value) and len(SpecifierSet(value)) > 0
        except InvalidSpecifier:
            return False

    def is_kind(value: Any, kind: type) -> bool:  # a plain `isinstance()` would narrow to `list[Unknown]`
        return isinstance(value, kind)

    def is_archive(value: Any) -> bool:
        return (
            is_kind(value, dict)
            and value.keys() == {'package', 'version', 'digest'}
            and all(map(is_text, value.values()))
            and is_digest(value['digest'])
        )

    values: list[Any] = [data.get(key) for key in ('number', 'python', 'caps')]
    number, python, caps = values
    a_digest = '`sha256:` and 64 hexadecimal digits'
    an_archive = f'a table of `package`, `version` and `digest`, the last being {a_digest}'
    checks = {
        'base': (data.get('base') == name, f'the name of the folder, {name!r}'),
        'released': (type(data.get('released')) is date, 'a date such as `2025-12-03`'),
        'number': (type(number) is int and number > 0, 'a whole number from 1'),
        'digest': (is_digest(data.get('digest')), a_digest),
        'patched': ('patched' not in data or is_digest(data['patched']), a_digest),
        'licences': ('licences' not in data or is_digest(data['licences']), a_digest),
        'url': ('url' not in data or is_text(data['url']), 'an address such as `https://example.com/fork`'),
        'python': (is_kind(python, list) and all(map(is_text, python or [''])), 'a list such as `["3.12"]`'),
        'settings': (is_archive(data.get('settings')), an_archive),
        'caps': (
            is_kind(caps, dict) and all(map(is_bound, caps.values())),
            'a table of version bounds by package, such as `httpx = "<1"`',
        ),
    }
    for key, (is_right, wanted) in checks.items():
        if not is_right:
            yield f'`{key}` must be {wanted}, but is {data.get(key)!r}.'
    for key in sorted(data.keys() - checks.keys()):
        yield f'`{key}` is not a key of a line; the keys are {", ".join(f"`{known}`" for known in checks)}.'
