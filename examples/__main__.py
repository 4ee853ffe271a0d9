"""Run a chapter of the cookbook, or the main example of a downstream project, on the built fork: `python -m examples NAME`."""

from __future__ import annotations

import ast
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic_ai_slim.fork.errors import ForkError
from series.build import build
from series.environments import NoWheelError, base_requirements, built_wheel, line_python, make_environment
from series.errors import SeriesError
from series.line import Line, find_line
from series.progress import waiting

ROOT = Path(__file__).parents[1]
EXTRAS = '[mcp,openai,temporal]'
"""The extras that the examples need: those of MCP, that of a real model, and that of an engine."""

WITHOUT_SCOPES = {'approvals'}
"""The examples for which `examples.support` stands in for scopes on the base."""


TUTORIAL = 'A chat server in six steps: `make tutorial STEP=1`'
SCREENSHOTS = 'docs.screenshots'
"""What `make screenshots` runs in the environment of the examples."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example that the arguments name, or list all of them, and return the exit code."""
    examples = find_examples()
    parser = ArgumentParser(
        prog='python -m examples',
        description='Run an example on the built fork. What is not listed below is passed to the example.',
    )
    projects = find_project_examples()
    choices = {**examples, 'tutorial': TUTORIAL, **{name: what for name, (_, what) in projects.items()}}
    parser.add_argument('name', nargs='?', help='the example; all are listed if left out')
    parser.add_argument('--line', help='an upstream release; the newest line if left out')
    parser.add_argument('--base', action='store_true', help='run it on the unmodified base, to see the difference')
    options, rest = parser.parse_known_args(arguments)
    if not options.name:
        width = max(map(len, choices))
        print('\n'.join(f'{name:{width}}  {what}' for name, what in choices.items()))
        return 0
    if options.name not in {*choices, SCREENSHOTS}:
        there = ', '.join(f'`{name}`' for name in choices)
        parser.exit(2, f'error: There is no example `{options.name}`.\nName one of {there} (`make example NAME=…`).\n')
    if options.base and options.name in projects:
        parser.error(f"the base runs the chapters of the cookbook, and `{options.name}` isn't one of them")
    try:
        line = find_line(ROOT, options.line)
        if not options.base:
            build_if_needed(line)
        if options.name in projects:
            main_file = projects[options.name][0]
            with waiting('Making the environment of the example'):
                python = _project_python(main_file, line)
            return _run([str(python), str(main_file), *rest])
        with waiting('Making the environment of the examples'):
            python = make_example_environment(line, 'base' if options.base else 'fork')
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    module = options.name if options.name == SCREENSHOTS else f'examples.{options.name}'
    return _run([str(python), '-m', module, *rest])


def build_if_needed(line: Line) -> None:
    """Build the wheel of a line if there is none, or if what it is made of was changed since.

    Raises:
        SeriesError: The build failed.
    """
    project = line.root / 'pydantic_ai_slim'
    # The folder itself changes when a patch is deleted.
    made_of = [line.folder, *line.folder.rglob('*'), *project.glob('*.py'), *(project / line.name).glob('*')]
    try:
        built = built_wheel(line).stat().st_mtime
    except NoWheelError:
        built = 0
    if any(path.stat().st_mtime > built for path in made_of):
        build(line, lambda step, done=0, of=None: print(step, file=sys.stderr, flush=True))


def make_example_environment(line: Line, side: str) -> Path:
    """Make the environment of the examples with the built fork, or with the base, and return its interpreter."""
    folder = ROOT / 'build' / 'envs' / f'examples-{"base-" if side == "base" else ""}{line.name}'
    if side == 'fork':
        return make_environment(folder, line_python(line), requirements(line))
    base = [*base_requirements(line, EXTRAS), '--requirement', ROOT / 'requirements' / 'examples.in']
    return make_environment(folder, line_python(line), base)


def _run(command: list[str]) -> int:
    with subprocess.Popen(command, cwd=ROOT) as process:
        while True:
            # Ctrl-C is for the example, which ends as it would.
            with suppress(KeyboardInterrupt):
                return process.wait()


def _project_python(main_file: Path, line: Line) -> Path:
    """Make an environment with a project, the fork, and what a real model needs."""
    project = main_file.parents[1]
    folder = ROOT / 'build' / 'envs' / f'examples-{project.name}-{line.name}'
    return make_environment(folder, line_python(line), [f'{built_wheel(line)}[openai]', '--no-sources', project])


def find_project_examples() -> dict[str, tuple[Path, str]]:
    """Find the main examples of the projects in `downstream/`, by the name of the project, with dashes."""
    files = sorted((ROOT / 'downstream').glob('*/examples/main.py'))
    return {file.parents[1].name.replace('_', '-'): (file, _says(file)) for file in files}


def requirements(line: Line) -> list[str | Path]:
    """Return what to install for the examples, the fork among it."""
    return [f'{built_wheel(line)}{EXTRAS}', '--requirement', ROOT / 'requirements' / 'examples.in']


def find_examples() -> dict[str, str]:
    """Find the examples, and return the first line of what each says of itself, by name."""
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob('[a-z]*.py')):
        if '\nasync def main(' in path.read_text('utf-8'):
            found[path.stem] = _says(path)
    return found


def _says(path: Path) -> str:
    """Return the first line of what a file says of itself."""
    return (ast.get_docstring(ast.parse(path.read_text('utf-8'))) or '').partition('\n')[0]


if __name__ == '__main__':
    sys.exit(main())
