"""Ask ruff about a patch, with upstream's settings, and leave out what it finds without the patch as well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from series.errors import SeriesError
from series.git import Git

_SETTINGS = 'pyproject.toml'

_RULES = ['E4', 'E7', 'E9', 'F']
"""What ruff looks for where settings don't select it, as upstream had it at the time of those lines. Later releases of ruff
look for much more by default."""


@dataclass(frozen=True)
class Finding:
    """One thing that ruff says of a file."""

    path: str
    line: int
    rule: str
    message: str
    text: str
    """The line in the file. Unlike the number it stays the same when a patch adds lines before it."""

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: {self.rule} {self.message}'


def new_findings(git: Git, commit: str, paths: Iterable[str]) -> list[Finding]:
    """Find what ruff says of a commit's files that it doesn't say of them in the commit before.

    Args:
        git: A repository of its own, which is left with the commit checked out.
        commit: The commit.
        paths: The files that it touches. Only those in Python count.
    """
    wanted = [path for path in paths if path.endswith(('.py', '.pyi'))]
    if not wanted:
        return []
    git.run('checkout', '--quiet', '--force', '--detach', f'{commit}~1')
    before = Counter(map(_without_number, _findings(git.folder, wanted)))
    git.run('checkout', '--quiet', '--force', '--detach', commit)
    found: list[Finding] = []
    for finding in _findings(git.folder, wanted):
        key = _without_number(finding)
        before[key] -= 1
        if before[key] < 0:
            found.append(finding)
    return found


def _without_number(finding: Finding) -> tuple[str, str, str]:
    return finding.path, finding.rule, finding.text


def _findings(folder: Path, paths: Sequence[str]) -> Iterator[Finding]:
    settings: dict[str, Any] = tomllib.loads((folder / _SETTINGS).read_text('utf-8')).get('tool', {}).get('ruff', {})
    there = [path for path in paths if (folder / path).is_file()]
    if not settings or not there:
        return
    lint: dict[str, Any] = settings.get('lint', {})
    select = () if 'select' in lint else ('--config', f'lint.select = {json.dumps(_RULES)}')
    entries: list[dict[str, Any]] = json.loads(_ruff(folder, 'check', '--output-format=json', *select, *there))
    for entry in entries:
        path = Path(entry['filename']).relative_to(folder.resolve()).as_posix()
        # What is no Python has a name in the place of a code, with settings that have the preview on.
        rule = entry['code'] or entry.get('name') or 'invalid-syntax'
        yield _finding(folder, path, entry['location']['row'], rule, entry['message'])
    # What is no Python can't be formatted either.
    if 'format' in settings and not any('invalid-syntax' in (entry['code'], entry.get('name')) for entry in entries):
        yield from _misformatted(folder, _ruff(folder, 'format', '--diff', *there))


def _misformatted(folder: Path, diff: str) -> Iterator[Finding]:
    """Yield the places that ruff would format otherwise, of a diff that says how."""
    path, number = '', 0
    for text in diff.splitlines():
        if text.startswith('--- '):
            path = text.removeprefix('--- ').partition('\t')[0]
        elif place := re.match(r'@@ -(\d+)', text):
            number = int(place[1])
        elif text.startswith(('-', '+')) and not text.startswith('+++ '):
            if number:
                yield _finding(folder, path, number, 'format', 'It is to be formatted otherwise.')
            number = 0  # once for each part
        elif number:
            number += 1


def _finding(folder: Path, path: str, number: int, rule: str, message: str) -> Finding:
    lines = (folder / path).read_text('utf-8').splitlines()
    return Finding(path, number, rule, message, lines[number - 1].strip() if number <= len(lines) else '')


def _ruff(folder: Path, command: str, *arguments: str) -> str:
    """Run the tool's own ruff, and return what it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith('RUFF_')}
    # Named files are looked at even if the settings exclude them, unless that is forced.
    options = ('--config', _SETTINGS, '--no-cache', '--force-exclude', '--quiet')
    done = subprocess.run(
        [sys.executable, '-m', 'ruff', command, *options, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding='utf-8',
        check=False,
    )
    if done.returncode not in (0, 1):  # 1: it has found something
        raise SeriesError(
            f'`ruff {command}` failed in the tree, with the settings in its `{_SETTINGS}`.',
            "These are ruff's words; put right what they name, then run the same command again.",
            done.stderr,
        )
    return done.stdout
