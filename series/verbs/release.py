"""Make a release: the wheels of all lines, built twice and compared, with digests, bills of materials and a text."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from pydantic_ai_slim.fork.names import DIST_NAME
from series.base import base_wheel, wheel_metadata
from series.build import build
from series.environments import find_python, line_python
from series.errors import SeriesError
from series.folders import lock, replace_dir, scratch, write
from series.git import Git
from series.line import Line, find_lines
from series.progress import Report

CHANGELOG = 'CHANGELOG.md'
DIGESTS = 'SHA256SUMS'
TEXT = 'RELEASE.md'

RELEASES = 'RELEASES'
"""The file in the repository with the digest of each wheel that was released, as `sha256sum` prints it: what a number stands for."""


def release(root: Path, report: Report) -> Path:
    """Write a release of all lines to `dist/release`, in place of what is there.

    It is made of the commit that is checked out. Each line's wheel is built twice, as unlike as can be: in another folder,
    with another interpreter, locale, time zone and umask. The two must have the same bytes.

    Returns:
        The folder. It holds the wheels, a `.cdx.json` beside each, `SHA256SUMS` and `RELEASE.md`.
    """
    lines = find_lines(root)
    git = Git(root)
    _refuse_changes(git)
    entries = changelog_entries(lines)
    commit, time = git.run('show', '--no-patch', '--format=%H %cI', 'HEAD').split()
    target = root / 'dist' / 'release'
    with (
        lock(root, 'release', 'make release'),
        scratch(root, target.parent, 'release') as folder,
        tempfile.TemporaryDirectory(prefix='elsewhere-') as elsewhere,
    ):
        made = folder / 'release'
        made.mkdir()
        checkouts = [_check_out(git, commit, path) for path in (folder / 'first', Path(elsewhere) / 'the second')]
        for step, line in enumerate(lines):
            report(f'Building {line.version} twice', step, len(lines))
            wheel = _build_twice(line, checkouts, report)
            _refuse_other_bytes(line, wheel)
            bill = bill_of_materials(line, wheel, commit, time)
            shutil.copyfile(wheel, made / wheel.name)
            (made / f'{wheel.name.removesuffix("-py3-none-any.whl")}.cdx.json').write_text(bill, 'utf-8')
        (made / DIGESTS).write_text(_digests(made), 'utf-8')
        (made / TEXT).write_text(_text(entries, commit), 'utf-8')
        replace_dir(made, target)
    released = {wheel.name: _digest(wheel) for wheel in target.glob('*.whl')}
    write(
        root / RELEASES,
        ''.join(f'{digest}  {name}\n' for name, digest in sorted((read_releases(root) | released).items())),
    )
    return target


def _refuse_changes(git: Git) -> None:
    # What the last release has written down is no part of what is released, nor what one that was killed had begun to write.
    if changes := git.run(
        'status', '--porcelain', '--untracked-files=all', '--', ':/', f':!/{RELEASES}', f':!/.{RELEASES}.new'
    ):
        raise SeriesError(
            'The checkout has changes that no commit holds, so that nobody could make the same release again.',
            'Commit them, or put them away with `git stash --include-untracked`, then run `make release` again.',
            changes,
        )


def read_releases(root: Path) -> dict[str, str]:
    """Return the digests of all wheels that were released, by their names: what a commit holds of them counts, whatever became of the file."""
    path = root / RELEASES
    committed = Git(root).attempt('cat-file', 'blob', f'HEAD:{RELEASES}').stdout.decode('utf-8', 'replace')
    found: dict[str, str] = {}
    for line in (path.read_text('utf-8') if path.exists() else '').splitlines() + committed.splitlines():
        if not (entry := re.fullmatch(r'([0-9a-f]{64})  (\S+\.whl)', line)):
            raise SeriesError(
                f'`{RELEASES}` has the line {line!r}, which is no digest of a wheel.',
                'Write it as `sha256sum` does, commit the file, and run `make release` again.',
            )
        found[entry[2]] = entry[1]
    return found


def _refuse_other_bytes(line: Line, wheel: Path) -> None:
    """Refuse a wheel that isn't the one which was released under its number, and which users have locked."""
    released = read_releases(line.root).get(wheel.name)
    if released not in (None, digest := _digest(wheel)):
        raise SeriesError(
            f'Other bytes were released under the number of {line.version}, as `{RELEASES}` says:\n'
            f'released {released}\n'
            f'now      {digest}',
            f'Raise `number` in `{line.show(line.folder)}/line.toml`, add an entry to `{CHANGELOG}`, commit both, and run `make '
            f'release` again.',
        )


def changelog_entries(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """Return what the changelog says of the current number of each line."""
    path = lines[0].root / CHANGELOG
    entries: dict[str, str] = {}
    if path.exists():
        parts = re.split(r'^### +(.+?) *$', path.read_text('utf-8'), flags=re.MULTILINE)
        # The next line's heading ends an entry too.
        entries = {
            head: re.split(r'^##? ', text, maxsplit=1, flags=re.MULTILINE)[0].strip()
            for head, text in zip(parts[1::2], parts[2::2], strict=True)
        }
    faults: list[str] = []
    found: list[tuple[Line, str]] = []
    for line in lines:
        heads = [head for head in entries if head.startswith(f'{line.base}+lifecycle.')]
        numbers = [int(match[1]) for head in heads if (match := re.match(r'.*\+lifecycle\.(\d+)', head))]
        mine = [head for head in heads if re.fullmatch(rf'{re.escape(line.version)}\b.*', head)]
        if not mine:
            faults.append(f'There is no entry `### {line.version}`.')
        elif not entries[mine[0]]:
            faults.append(f'The entry `### {line.version}` is empty.')
        elif re.search(r'\bunreleased\b', f'{mine[0]}\n{entries[mine[0]]}', re.IGNORECASE):
            faults.append(f'The entry `### {mine[0]}` says that it is unreleased.')
        else:
            found.append((line, entries[mine[0]]))
        if numbers and max(numbers) > line.number:
            faults.append(
                f'There is an entry `### {line.base}+lifecycle.{max(numbers)}`, but `number` in '
                f'`{line.show(line.folder)}/line.toml` is {line.number}.'
            )
    if faults:
        listed = '\n'.join(f'- {fault}' for fault in faults)
        raise SeriesError(
            f'`{CHANGELOG}` does not fit what is to be released:\n{listed}',
            'Write what changes for users below those headings, commit it, and run `make release` again.',
        )
    return found


def _check_out(git: Git, commit: str, folder: Path) -> Path:
    """Lay the files of a commit into a new folder: nothing that git ignores is there, nor the history."""
    folder.mkdir(parents=True)
    archive = folder.parent / f'{folder.name}.zip'
    git.run('archive', '--format=zip', f'--output={archive}', commit)
    with zipfile.ZipFile(archive) as content:
        content.extractall(folder)
    archive.unlink()
    return folder


def _build_twice(line: Line, checkouts: Sequence[Path], report: Report) -> Path:
    """Build a line in two checkouts, and return the first wheel."""
    base = base_wheel(line, report)
    first, second = (next(one for one in find_lines(root) if one.name == line.name) for root in checkouts)
    python, other = interpreters(line)
    wheel = build(first, report, python=python, base=base)
    unlike = {'TZ': 'Pacific/Kiritimati', 'LC_ALL': 'C', 'PYTHONHASHSEED': '268'}
    again = build(second, report, python=other, umask=0o077, variables=unlike, base=base)
    if wheel.read_bytes() != again.read_bytes():
        raise SeriesError(
            f'Two builds of {line.version} differ, the first by `{python}`, the second by `{other}`:\n'
            + '\n'.join(f'- {difference}' for difference in differences(wheel, again)),
            'Find out where the difference comes from: nobody could check such a wheel by building it.',
        )
    return wheel


def interpreters(line: Line) -> tuple[Path, Path]:
    """Choose two interpreters that a line supports, different ones if this machine has them.

    They have the same zlib, since another one may compress the same files to other bytes.
    """
    first = line_python(line)
    own = f'{sys.version_info.major}.{sys.version_info.minor}'
    found = [
        python for version in line.python if version != own and (python := find_python(version)) and python != first
    ]
    return first, next((python for python in reversed(found) if _zlib(python) == _zlib(first)), first)


def _zlib(python: Path) -> str:
    code = 'import zlib; print(zlib.ZLIB_RUNTIME_VERSION)'
    return subprocess.run([python, '-I', '-c', code], capture_output=True, text=True, check=False).stdout


def differences(first: Path, second: Path) -> list[str]:
    """Say in which members two wheels differ: in their content, time or permissions."""

    def members(path: Path) -> dict[str, tuple[object, ...]]:
        with zipfile.ZipFile(path) as wheel:
            return {info.filename: (wheel.read(info), info.date_time, info.external_attr) for info in wheel.infolist()}

    ones, others = members(first), members(second)
    found = [f'`{name}`' for name in sorted(ones.keys() | others.keys()) if ones.get(name) != others.get(name)]
    return found or ['the order or the compression of their members']


def bill_of_materials(line: Line, wheel: Path, commit: str, time: str) -> str:
    """Describe a wheel as CycloneDX JSON: what it is, and what it was made of. What it requires, its own metadata says.

    The same wheel of the same commit gives the same text.

    Args:
        line: The line, whose patches are named and quoted.
        wheel: Its wheel.
        commit: The commit of this repository that it was built of.
        time: When that was made.
    """
    metadata = wheel_metadata(wheel)
    digest = _digest(wheel)

    def component(name: str, version: str, content: str) -> dict[str, Any]:
        return {
            'type': 'library',
            'bom-ref': name,
            'name': DIST_NAME,
            'version': version,
            'licenses': [{'expression': metadata.license_expression}],
            'purl': f'pkg:pypi/{DIST_NAME}@{quote(version)}',
            'properties': [{'name': 'lifecycle:content-digest', 'value': content}],
        }

    patches = [
        {
            'type': 'unofficial',
            'diff': {
                'url': line.show(patch),
                'text': {'contentType': 'text/x-diff', 'content': patch.read_text('utf-8')},
            },
        }
        for patch in line.patches
    ]
    fork = component('fork', line.version, line.patched or '') | {
        'description': metadata.summary,
        'hashes': [{'alg': 'SHA-256', 'content': digest}],
        'pedigree': {
            'ancestors': [component('base', line.base, line.digest)],
            'commits': [{'uid': commit}],
            'patches': patches,
            'notes': 'The base with the patches applied in this order, built from the commit of the repository that holds them. '
            'The content digests are the SHA-256 of a listing as `sha256sum --zero` prints it.',
        },
    }
    bill = {
        'bomFormat': 'CycloneDX',
        'specVersion': '1.6',
        'serialNumber': f'urn:uuid:{uuid5(NAMESPACE_URL, f"urn:sha256:{digest}:{commit}")}',
        'version': 1,
        'metadata': {'timestamp': datetime.fromisoformat(time).isoformat(), 'component': fork},
    }
    return json.dumps(bill, indent=2, ensure_ascii=False) + '\n'


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digests(folder: Path) -> str:
    """List the digests of all files as `sha256sum` does, for `sha256sum --check`."""
    return ''.join(f'{_digest(path)}  {path.name}\n' for path in sorted(folder.iterdir()))


def _text(entries: Sequence[tuple[Line, str]], commit: str) -> str:
    """Write what to say of the release: per line, what changed and how to pin it."""
    parts = [f'# {" and ".join(line.version for line, _ in entries)}\n']
    for line, entry in entries:
        parts.append(
            f'## {line.version}\n\n{entry}\n\n'
            f'Pin it from the repository, whose address is `URL`:\n\n'
            f'```console\npip install "{DIST_NAME} @ git+URL@{commit}#subdirectory=pydantic_ai_slim/{line.name}"\n'
            f'uv add "{DIST_NAME} @ git+URL@{commit}#subdirectory=pydantic_ai_slim/{line.name}"\n```\n\n'
            f'or from a package index `INDEX` that holds the wheel:\n\n'
            f'```console\npip install --extra-index-url INDEX "{DIST_NAME}=={line.version}"\n'
            f'uv add --index fork=INDEX "{DIST_NAME}=={line.version}"\n```\n\n'
            f'For Python {", ".join(line.python)}. `docs/pinning.md` has the lines for hatch, Poetry and pip-compile.\n'
        )
    parts.append(f'`sha256sum --check {DIGESTS}` checks the files of this release. It was made of commit {commit}.\n')
    return '\n'.join(parts)
