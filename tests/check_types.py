"""Check types with pyright strict: of our own code, which is written for the newest line, and of the files of the tree that the patches touch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from downstream.__main__ import find_projects
from pydantic_ai_slim.fork.errors import ForkError
from series import tree
from series.base import clone
from series.environments import ENGINES, built_wheel, line_python, make_environment, overrides
from series.errors import SeriesError
from series.git import Git
from series.line import Line, find_line
from series.progress import waiting
from series.verbs.apply import apply
from series.verbs.verify import upstream_environment

ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the line that the arguments name, or the newest, and return 0 if there is nothing to complain of."""
    name = next(iter(sys.argv[1:] if arguments is None else arguments), None)
    try:
        line = find_line(ROOT, name)
        own: list[str] = []
        if line.is_newest:
            print('Types of our own code:', flush=True)
            with waiting('Checking the types of our own code'):
                own = pyright(ROOT, _own_environment(line), version=line.python[0])
            print('\n'.join([*own, f'{len(own)} errors']))
        if not line.tree.exists():
            apply(line, _report)
        print(f'Types of what the patches touch in `{line.show(line.tree)}`:', flush=True)
        with waiting('Checking the types of what the patches touch'):
            patched = check_tree(line, upstream_environment(line))
        print('\n'.join([*patched, f'{len(patched)} errors that the base does not have']))
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return int(bool(own or patched))


def _report(step: str, done: int = 0, of: int | None = None) -> None:
    print(step, flush=True)


def _own_environment(line: Line) -> Path:
    """Make an environment with all that our code imports: the fork, and what the tool, the tests and the docs need."""
    requirements = (
        ROOT / 'requirements' / name
        for name in ('tool.in', 'more.in', 'test.in', 'examples.in', 'endurance.in', 'servers.in')
    )
    listed: list[str | Path] = [part for path in requirements for part in ('--requirement', path)]
    # The projects in `downstream/` as well: what they require, and what their tests do
    listed += ['--no-sources']
    for project in find_projects():
        listed += [project.folder, '--group', f'{project.folder / "pyproject.toml"}:test']
    folder = ROOT / 'build' / 'envs' / f'types-{line.name}'
    return make_environment(
        folder, line_python(line), [f'{built_wheel(line)}{ENGINES[:-1]},ag-ui,mcp]', *overrides(line), *listed]
    )


def check_tree(line: Line, python: Path) -> list[str]:
    """Check the Python files that the patches touch, with upstream's own settings.

    Args:
        line: The line, whose tree is checked as it stands.
        python: An environment with what upstream's package and tests import.

    Returns:
        What pyright complains of there and not in the base, which it complains of since it is newer than the base.
    """
    files = Git(line.tree).run('diff', '--name-only', '--diff-filter=d', tree.BASE, '--', '*.py').splitlines()
    after = _check_files(line.tree, files, python)
    complained = sorted({complaint.partition(':')[0] for complaint in after})
    # No dot in front of the folder's name: pyright leaves such folders out.
    with tempfile.TemporaryDirectory(dir=line.tree.parent, prefix='types-') as folder:
        base = clone(line.tree / '.git', Path(folder) / 'base', tree.BASE).folder
        same = [file for file in complained if (base / file).exists()]
        before = _check_files(base, same, python) if same else []
    return sorted((Counter(after) - Counter(before)).elements())


def _check_files(root: Path, files: Sequence[str], python: Path) -> list[str]:
    """Check files of a checkout in upstream's layout, with the settings in it."""
    # Upstream installs the package from its folder; here the environment holds the base.
    paths = [f'{root.name}/pydantic_ai_slim']
    settings = {
        'extends': f'{root.name}/pyproject.toml',
        'include': [f'{root.name}/{file}' for file in files],
        'executionEnvironments': [
            # What upstream's settings say of its tests, whose decorated functions nothing calls.
            {
                'root': f'{root.name}/tests',
                'extraPaths': paths,
                'reportUnusedFunction': False,
                'reportPrivateImportUsage': False,
            },
            # Whether pyright takes the package's own modules for those of a library depends on which files it checks at once.
            {'root': root.name, 'extraPaths': paths, 'reportPrivateImportUsage': False},
        ],
    }
    path = root.parent / f'pyright-{root.name}.json'
    path.write_text(json.dumps(settings))
    try:
        # Without line numbers, which differ between base and tree
        found = pyright(path, python, len(files), numbers=False)
        # Today's typeshed calls deprecated what upstream writes throughout: `Iterator` as the result of a context manager.
        return [complaint.replace(f'{root}/', '') for complaint in found if '(reportDeprecated)' not in complaint]
    finally:
        path.unlink()


def pyright(
    project: Path, python: Path, files: int | None = None, *, numbers: bool = True, version: str | None = None
) -> list[str]:
    """Run pyright and return its complaints.

    Args:
        project: Its settings: a file, or a folder with a `pyproject.toml`.
        python: The environment in which imports are looked up.
        files: How many files it must check.
        numbers: Whether the complaints name the line.
        version: The Python version to check for, in place of that of the settings.
    """
    command = [sys.executable, '-m', 'pyright', '--outputjson', '--project', str(project), '--pythonpath', str(python)]
    command += ['--pythonversion', version] if version else []
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
        found: list[dict[str, Any]] = report['generalDiagnostics']
        checked: int = report['summary']['filesAnalyzed']
    except (ValueError, KeyError):
        checked, found = 0, []
    if not checked or files not in (None, checked):
        raise SeriesError(
            'pyright failed.', 'These are its words; see what they name.', done.stdout + done.stderr
        ) from None
    return [
        f'{one["file"]}{":" + str(one["range"]["start"]["line"] + 1) if numbers else ""}: '
        f'{one["message"]} ({one.get("rule", "syntax")})'
        for one in found
        if one['severity'] == 'error'
    ]


if __name__ == '__main__':
    sys.exit(main())
