"""Run a chapter of the cookbook on the built fork: `python -m examples NAME`."""

from __future__ import annotations

import ast
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from pydantic_ai_slim.hatch_build import ForkError
from series.environments import built_wheel, line_python, make_environment
from series.errors import SeriesError
from series.line import Line, find_line

ROOT = Path(__file__).parents[1]
EXTRAS = '[fastmcp,mcp,openai]'
"""The extras that the examples need: those of MCP, and that of a real model."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example that the arguments name, or list all of them, and return the exit code."""
    examples = find_examples()
    parser = ArgumentParser(
        prog='python -m examples',
        description='Run an example on the built fork. What is not listed below is passed to the example.',
    )
    parser.add_argument('name', nargs='?', choices=examples, help='the example; all are listed if left out')
    parser.add_argument('--line', help='an upstream release; the newest line if left out')
    options, rest = parser.parse_known_args(arguments)
    if not options.name:
        width = max(map(len, examples))
        print('\n'.join(f'{name:{width}}  {what}' for name, what in examples.items()))
        return 0
    try:
        line = find_line(ROOT, options.line)
        folder = ROOT / 'build' / 'envs' / f'examples-{line.name}'
        python = make_environment(folder, line_python(line), requirements(line))
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return subprocess.run([str(python), '-m', f'examples.{options.name}', *rest], cwd=ROOT, check=False).returncode


def requirements(line: Line) -> list[str | Path]:
    """Return what to install for the examples, the fork among it."""
    return [f'{built_wheel(line)}{EXTRAS}', '--requirement', ROOT / 'requirements' / 'examples.in']


def find_examples() -> dict[str, str]:
    """Find the examples, and return the first line of what each says of itself, by name."""
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob('[a-z]*.py')):
        content = path.read_text('utf-8')
        if '\nasync def main(' in content:
            found[path.stem] = (ast.get_docstring(ast.parse(content)) or '').partition('\n')[0]
    return found


if __name__ == '__main__':
    sys.exit(main())
