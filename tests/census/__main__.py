"""Look for leaks in published packages: `build/tool/bin/python -m tests.census`.

For each package that `subjects.py` names it makes an environment with the newest release, drives the agents in the sandbox, and writes
what it found to `results.json`. Then it writes the table of `docs/downstream/toolset-census.md`, with what `verdicts.toml` says
of each finding, which is what a person found who looked at the code. The texts for the maintainers stand below it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import tomllib

from series.environments import find_python, make_environment, uv
from series.errors import SeriesError
from tests.census.subjects import SUBJECTS, Subject

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROJECT = ROOT / 'downstream' / 'toolset_leaks'
PAGE = ROOT / 'docs' / 'downstream' / 'toolset-census.md'
RESULTS = HERE / 'results.json'
VERDICTS = HERE / 'verdicts.toml'
PYTHON = '3.12'
"""What the environments are made of: the newest releases of some packages need it."""
BEGIN, END = '<!-- census: begin -->', '<!-- census: end -->'


class CensusError(Exception):
    """A package that can't be driven."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the census, or with `--list` only its list."""
    parser = argparse.ArgumentParser('census', description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('packages', nargs='*', help='only these; the results of the others stay')
    parser.add_argument('--folder', type=Path, default=ROOT / 'build' / 'census', help='where environments are made')
    parser.add_argument('--list', action='store_true', help='only write the list, of the results that are there')
    given = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed: list[str] = []
    if not given.list:
        if not (python := find_python(PYTHON)):
            parser.error(f'the environments need Python {PYTHON}, and this machine has none')
        for package, subjects in groupby(SUBJECTS, key=lambda subject: subject.package):
            if not given.packages or package in given.packages:
                print(package, flush=True)
                try:
                    results |= drive(package, list(subjects), given.folder, python)
                except (CensusError, SeriesError) as error:
                    failed.append(f'error: {package}: {error}')
                RESULTS.write_text(as_lines(results))
    text = listing(results, tomllib.loads(VERDICTS.read_text()))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f'{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}')
    if failed:
        print('\n'.join([*failed, 'Their earlier results stay in the list.']), file=sys.stderr)
    return int(bool(failed))


def as_lines(results: dict[str, Any]) -> str:
    """Return results as JSON with a line for each subject."""
    lines = ',\n'.join(
        f'{json.dumps(name)}: {json.dumps(found, sort_keys=True)}' for name, found in sorted(results.items())
    )
    return f'{{\n{lines}\n}}\n'


def drive(package: str, subjects: list[Subject], folder: Path, python: Path) -> dict[str, Any]:
    """Drive the agents of one package in an environment with its newest release."""
    needs = {need for subject in subjects for need in subject.needs}
    python = make_environment(folder / package, python, [PROJECT, package, *sorted(needs)])
    listed = uv('pip', 'list', '--python', str(python), '--format', 'json').stdout
    versions = {item['name']: item['version'] for item in json.loads(listed)}
    results: dict[str, Any] = {}
    for subject in subjects:
        options = ['--deps', f'subjects:{subject.deps}'] if subject.deps else []
        if subject.arguments:
            file = folder / f'{subject.name}.json'
            file.write_text(json.dumps(subject.arguments))
            options += ['--arguments', str(file)]
        done = subprocess.run(
            [python, '-m', 'toolset_leaks', f'subjects:{subject.name}', '--json', *options],
            cwd=HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:  # 2 alone says that no call of a tool succeeded
            raise CensusError(f'`{subject.name}` cannot be driven. Correct it in `subjects.py`.\n{done.stderr}')
        report = json.loads(done.stdout)
        results[subject.name] = {
            'package': package,
            'version': versions[package],
            'pydantic-ai-slim': versions['pydantic-ai-slim'],
            'driven': subject.words,
            'date': datetime.date.today().isoformat(),
            **report,
            'failed': len(report['failed']),
        }
    return results


def listing(results: dict[str, Any], verdicts: dict[str, Any]) -> str:
    """Write the results as a list, with what a person says of each finding."""
    lines: list[str] = []
    counts: dict[str, int] = {}
    for subject in SUBJECTS:
        if not (result := results.get(subject.name)):
            continue
        found: list[str] = []
        checked: list[str] = []
        for leak in result['leaks']:
            verdict = judge(verdicts, subject.name, leak['name'])
            counts[verdict['verdict']] = counts.get(verdict['verdict'], 0) + 1
            found.append(f'`{leak["name"]}`')
            checked.append(f'**{verdict["verdict"]}**: {verdict["why"]}')
        held = dict.fromkeys(leak['held_by'] for leak in result['leaks'])
        checked = list(dict.fromkeys(checked)) or [verdicts.get(subject.name, {}).get('quiet', 'nothing to find')]
        failed = f', {result["failed"]} failed' if result['failed'] else ''
        never = len(result.get('unproven', ()))
        tools = f'{len(result["called"])}' + (f', {never} never succeeded' if never else '')
        driven = f'**{result["package"]} {result["version"]}** on {result["pydantic-ai-slim"]}: {result["driven"]}'
        where = f'; in {", ".join(held)}: {", ".join(found)}' if found else ''
        lines.append(f'- {driven}; tools: {tools}; runs: {result["runs"]}{failed}<br>{"<br>".join(checked)}{where}')
    packages = {result['package'] for result in results.values()}
    leaking = {
        result['package']
        for name, result in results.items()
        for leak in result['leaks']
        if judge(verdicts, name, leak['name'])['verdict'] == 'leak'
    }
    dates = [result['date'] for result in results.values()]
    when = ' and '.join(f'{dates.count(date)} agents on {date}' for date in sorted(set(dates)))
    total = ', '.join(f'{number} {verdict}' for verdict, number in sorted(counts.items()))
    head = (
        f'{len(packages)} packages, {len(results)} agents, {sum(result["runs"] for result in results.values())} runs: '
        f'{when}. {sum(counts.values())} findings: {total}. '
        f'{len(leaking)} of {len(packages)} packages leak.'
    )
    return '\n'.join([head, '', *lines])


def judge(verdicts: dict[str, Any], subject: str, name: str) -> dict[str, str]:
    """Return what a person says of a finding; `"*"` stands for all findings of a subject."""
    about = verdicts.get(subject, {})
    return about.get(name) or about.get('*') or {'verdict': 'not yet checked', 'why': ''}


if __name__ == '__main__':
    sys.exit(main())
