"""Ask ruff about a patch, with upstream's settings, and leave out what it finds without the patch as well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from series.errors import SeriesError
from series.git import Git

_SETTINGS = 'pyproject.toml'


def new_findings(git: Git, commit: str, paths: Iterable[str]) -> list[str]:
    """Find what ruff says of a commit's files that it doesn't say of them in the commit before.

    Args:
        git: A repository of its own, which is left with the commit checked out.
        paths: The files that it touches. Only those in Python count.

    Returns:
        The findings, as `path:line: rule message`.
    """
    wanted = [path for path in paths if path.endswith(('.py', '.pyi'))]
    found: dict[str, list[tuple[str, str]]] = {}
    for revision in (f'{commit}~1', commit) if wanted else ():
        git.run('checkout', '--quiet', '--force', '--detach', revision)
        found[revision] = [*_findings(git.folder, wanted)]
    before = Counter(key for key, _ in found.get(f'{commit}~1', ()))
    new: list[str] = []
    for key, text in found.get(commit, ()):
        before[key] -= 1
        if before[key] < 0:
            new.append(text)
    return new


def _findings(folder: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what each finding is known by, without the number of its line, and its text with it."""
    there = [path for path in paths if (folder / path).is_file()]
    if not there:
        return
    entries: list[dict[str, Any]] = json.loads(_ruff(folder, 'check', '--output-format=json', *there))
    places: list[tuple[str, int, str]] = [
        (
            Path(entry['filename']).relative_to(folder.resolve()).as_posix(),
            entry['location']['row'],
            # What is no Python has a name in the place of a code, with settings that have the preview on.
            f'{entry["code"] or entry.get("name") or "invalid-syntax"} {entry["message"]}',
        )
        for entry in entries
    ]
    # What is no Python can't be formatted either.
    if not any('invalid-syntax' in about for *_, about in places):
        listed = re.findall(r'^--- ([^\t\n]+)', _ruff(folder, 'format', '--diff', *there), re.MULTILINE)
        places += [(path, 0, 'format It is to be formatted otherwise.') for path in listed]
    for path, number, about in places:
        lines = (folder / path).read_text('utf-8').splitlines()
        text = lines[number - 1].strip() if 0 < number <= len(lines) else ''
        place = f'{path}:{number}' if number else path
        yield f'{path}: {about.partition(" ")[0]} {text}', f'{place}: {about}'


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
