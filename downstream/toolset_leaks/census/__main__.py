"""Look for leaks in published packages: `python downstream/toolset_leaks/census`.

For each package that `subjects.py` names it makes an environment with the newest release, drives the agents in the sandbox, and writes
what it found to `results.json`. Then it writes the table of `docs/downstream/toolset-leaks.md`, with what `verdicts.toml` says
of each finding: what a person found who looked at the code.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from subjects import SUBJECTS, Subject

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
PAGE = PROJECT.parents[1] / 'docs' / 'downstream' / 'toolset-leaks.md'
RESULTS = HERE / 'results.json'
VERDICTS = HERE / 'verdicts.toml'
BEGIN, END = '<!-- census: begin -->', '<!-- census: end -->'
UV = shutil.which('uv', path=str(Path(sys.executable).parent)) or shutil.which('uv') or 'uv'


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the census, or with `--table` only its table."""
    parser = argparse.ArgumentParser('census', description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('packages', nargs='*', help='only these; the results of the others stay')
    parser.add_argument(
        '--folder', type=Path, default=PROJECT.parents[1] / 'build' / 'census', help='where environments are made'
    )
    parser.add_argument('--table', action='store_true', help='only write the table, of the results that are there')
    given = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not given.table:
        for package, subjects in groupby(SUBJECTS, key=lambda subject: subject.package):
            if not given.packages or package in given.packages:
                print(package, flush=True)
                results |= drive(package, list(subjects), given.folder)
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + '\n')
    text = table(results, tomllib.loads(VERDICTS.read_text()))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f'{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}')
    return 0


def drive(package: str, subjects: list[Subject], folder: Path) -> dict[str, Any]:
    """Drive the agents of one package in an environment with its newest release."""
    environment = folder / package
    python = environment / 'bin' / 'python'
    needs = {need for subject in subjects for need in subject.needs}
    run(UV, 'venv', '--quiet', '--no-project', '--clear', str(environment))
    run(UV, 'pip', 'install', '--quiet', '--python', str(python), str(PROJECT), package, *sorted(needs))
    listed = json.loads(run(UV, 'pip', 'list', '--python', str(python), '--format', 'json'))
    versions = {item['name']: item['version'] for item in listed}
    results: dict[str, Any] = {}
    for subject in subjects:
        options = ['--deps', f'subjects:{subject.deps}'] if subject.deps else []
        done = subprocess.run(
            [python, '-m', 'toolset_leaks', f'subjects:{subject.name}', '--json', *options],
            cwd=HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            sys.exit(f'{package}, {subject.name}: {done.stderr}')
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


def table(results: dict[str, Any], verdicts: dict[str, Any]) -> str:
    """Write the results as a table, with what a person says of each finding."""
    lines = [
        '| package | pydantic-ai | driven | tools | runs | found | checked by hand |',
        '| --- | --- | --- | --- | --- | --- | --- |',
    ]
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
        checked = list(dict.fromkeys(checked)) or [verdicts.get(subject.name, {}).get('quiet', 'nothing to find')]
        failed = f', {result["failed"]} failed' if result['failed'] else ''
        lines.append(
            f'| {result["package"]} {result["version"]} | {result["pydantic-ai-slim"]} | {result["driven"]} | {len(result["called"])} '
            f'| {result["runs"]}{failed} | {"<br>".join(found) or "nothing"} | {"<br>".join(checked)} |'
        )
    packages = {result['package'] for result in results.values()}
    leaking = {
        result['package']
        for name, result in results.items()
        for leak in result['leaks']
        if judge(verdicts, name, leak['name'])['verdict'] == 'leak'
    }
    dates = sorted({result['date'] for result in results.values()})
    total = ', '.join(f'{number} {verdict}' for verdict, number in sorted(counts.items()))
    head = (
        f'{len(packages)} packages, {len(results)} agents, {sum(result["runs"] for result in results.values())} runs, on '
        f'{" to ".join(dict.fromkeys([dates[0], dates[-1]]))}. {sum(counts.values())} findings: {total}. '
        f'{len(leaking)} of {len(packages)} packages leak.'
    )
    return '\n'.join([head, '', *lines])


def judge(verdicts: dict[str, Any], subject: str, name: str) -> dict[str, str]:
    """Return what a person says of a finding; `"*"` stands for all findings of a subject."""
    about = verdicts.get(subject, {})
    return about.get(name) or about.get('*') or {'verdict': 'not yet checked', 'why': ''}


def run(*command: str) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f'`{" ".join(command[:3])}` failed:\n{done.stderr}')
    return done.stdout


if __name__ == '__main__':
    sys.exit(main())
