"""Run all checks side by side: what `bash .ci/run` does on a machine that has what they need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from downstream.__main__ import find_projects
from downstream.__main__ import plan as plan_downstream
from examples.__main__ import find_project_examples
from pydantic_ai_slim.hatch_build import ForkError
from series.errors import SeriesError
from series.line import Line, find_lines
from series.side_by_side import FAILED, Part, print_results, run_all
from tests.__main__ import Plan, choose_ends, plan_line, plan_tool

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run all checks, and return 0 if none found a fault."""
    try:
        lines = find_lines(ROOT)
        # These write what all others read, which then nobody writes any more.
        results = run_all([_command(60, 'bash', '.ci/prepare', line.name) for line in lines])
        if FAILED not in results.values():
            planned = plan(lines)
            ran = run_all([part for part in planned.values() if isinstance(part, Part)])
            results |= {title: ran.get(title, str(part)) for title, part in planned.items()}
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    print_results(results)
    return int(any(result.startswith(FAILED) for result in results.values()))


def plan(lines: Sequence[Line]) -> Plan:
    """Plan all that is checked once the forks are built.

    Raises:
        SeriesError: One of them isn't, or a project's settings are wrong.
    """
    planned = plan_tool()
    parts = [
        *plan_downstream(find_projects(), lines),
        *(_command(30, 'make', 'example', f'NAME={name}') for name in find_project_examples()),
        _command(100, 'make', '--old-file=wheels', 'pinning'),
        # The line whose tests are on the index
        _command(100, 'make', 'matrix', 'LINE=1.26.0', 'ARGS=--slice'),
    ]
    for line in lines:
        planned |= plan_line(line, choose_ends)
        parts.append(_command(300, 'make', 'verify', f'LINE={line.name}'))
        parts.append(_command(200, 'make', '--old-file=build', 'types', f'LINE={line.name}'))
    return planned | {part.title: part for part in parts}


def _command(seconds: int, *command: str) -> Part:
    """Plan a command. What is built stays as it is: `--old-file` keeps `make` from building it under others."""
    return Part(' '.join(command), command, ROOT, seconds=seconds)


if __name__ == '__main__':
    sys.exit(main())
