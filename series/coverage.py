"""Find out which of the lines that a patch adds to the package its own tests don't run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomllib

from pydantic_ai_slim.fork.names import UPSTREAM_FOLDER
from series.git import Git

REPORT = """
import sys
from coverage import Coverage
settings, report = sys.argv[1:]
measured = Coverage(config_file=settings)
measured.load()
measured.combine()
measured.json_report(outfile=report)
"""
"""What Python runs, in one process, to write what was measured so far into a file."""


def write_settings(tree: Path, folder: Path, paths: Iterable[str]) -> Path:
    """Write the settings of a measurement: those of upstream for what isn't to be run, and nothing else of them.

    Args:
        tree: The checkout, with upstream's settings.
        folder: Where to write them. It gets what is measured, too.
        paths: The files to be measured.
    """
    settings = tomllib.loads((tree / 'pyproject.toml').read_text('utf-8'))
    found: dict[str, Any] = settings.get('tool', {}).get('coverage', {}).get('report', {})
    kept = {name: found[name] for name in ('exclude_lines', 'exclude_also') if name in found}
    run = {
        'data_file': str(folder / 'data'),
        # Not by its whole path, in which `[` would be part of a pattern.
        'include': [f'**/{path}' for path in paths],
        # Some tests start processes, or fork.
        'parallel': True,
        'patch': ['subprocess'],
        'concurrency': ['multiprocessing', 'thread'],
        'disable_warnings': ['no-data-collected', 'module-not-imported', 'include-ignored'],
    }
    folder.mkdir(exist_ok=True)
    written = folder / 'settings.toml'
    written.write_text(
        ''.join(
            f'[tool.coverage.{table}]\n' + ''.join(f'{name} = {json.dumps(value)}\n' for name, value in values.items())
            for table, values in (('run', run), ('report', kept))
        ),
        'utf-8',
    )
    return written


def write_imports(folder: Path, paths: Iterable[str]) -> Path:
    """Write a program that imports files of the package, as far as what they need is there.

    Upstream's tests import them all, so what runs then, such as a signature, is not for the tests of a patch.
    """
    names = (re.sub(r'(/__init__)?\.py$', '', path.removeprefix(f'{UPSTREAM_FOLDER}/')) for path in paths)
    modules = [name.replace('/', '.') for name in names]
    program = folder / 'imports.py'
    program.write_text(
        'import contextlib, importlib\n'
        f'for name in {modules!r}:\n'
        '    with contextlib.suppress(ImportError):\n'
        '        importlib.import_module(name)\n',
        'utf-8',
    )
    return program


def added(git: Git, commit: str, paths: Sequence[str]) -> dict[str, set[int]]:
    """Return the numbers of the lines that a commit adds, by file."""
    found: dict[str, set[int]] = {}
    path = ''
    diff = ('diff', '--unified=0', '--no-renames', f'{commit}~1', commit)
    for line in git.lines('-c', 'core.quotePath=false', *diff, '--', *paths):
        if line.startswith('+++ b/'):
            path = line.removeprefix('+++ b/').rstrip('\t')
        elif hunk := re.match(r'@@ -\S+ \+(\d+)(?:,(\d+))? @@', line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(path, set()).update(range(first, first + count))
    return found


def missing(report: Path, tree: Path, wanted: Mapping[str, set[int]]) -> list[str]:
    """Return which of the wanted lines didn't run, as `path:number`."""
    files: dict[str, Any] = json.loads(report.read_text('utf-8'))['files'] if report.exists() else {}
    measured = {(tree / path).resolve(): file for path, file in files.items()}
    found: list[str] = []
    for path, numbers in sorted(wanted.items()):
        file = measured.get((tree / path).resolve())
        if file is None:
            # Nothing imported it. `coverage` doesn't say so of a file that it was told to look at by its path.
            if numbers and (tree / path).read_text('utf-8').strip():
                found.append(f'{path} (no test imports it)')
            continue
        found += [f'{path}:{number}' for number in sorted(numbers.intersection(file['missing_lines']))]
    return found
