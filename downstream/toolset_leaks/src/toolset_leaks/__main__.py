"""The command `toolset-leaks`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from .arguments import ArgumentsError
from .sandbox import PERMISSIONS, SandboxError, run_sandboxed


def main(arguments: Sequence[str] | None = None) -> int:
    """Find the leaks of the agent that the arguments name.

    Returns:
        0 if nothing leaks, 1 if something does, and 2 if that can't be said, as when no call of one of the tools succeeded.
    """
    parser = argparse.ArgumentParser(
        'toolset-leaks',
        description='Call each tool of an agent on a scripted model, and find the state that one run leaves behind for the next. '
        'The tools run in a process that can neither reach the network, nor start programs, nor write outside of a temporary folder.',
    )
    add = parser.add_argument
    many: Any = {'action': 'append', 'default': []}
    add('agent', help='MODULE:NAME of the agent, or of a function that returns it')
    add('--deps', metavar='MODULE:NAME', help='the deps of the runs, or a function that makes them for each run')
    add(
        '--arguments',
        metavar='FILE',
        type=Path,
        help='a JSON file with arguments that the tools accept, {"TOOL": {"name": "value"}}, or a list of such for several calls',
    )
    add('--skip', metavar='TOOL', **many, help='a tool not to call, like `delete_*`; repeatable')
    add('--shared', metavar='STATE', **many, help='state that is shared on purpose, like `Todo.cache`')
    add('--permit', choices=PERMISSIONS, **many, help='what the tools may do; repeatable')
    add('--rounds', type=int, default=2, help='how often each tool is called (default: %(default)s)')
    add('--seed', type=int, default=0, help='makes the same arguments each time (default: %(default)s)')
    add('--seconds', type=float, default=300, help='how long it may take (default: %(default)g)')
    add('--json', action='store_true', help='write the report as JSON')
    given = parser.parse_args(arguments)
    options = {name: getattr(given, name) for name in ('deps', 'skip', 'shared', 'rounds', 'seed')}
    try:
        options['arguments'] = _read(given.arguments) if given.arguments else {}
        report = run_sandboxed(given.agent, options, permit=given.permit, seconds=given.seconds)
    except (ArgumentsError, SandboxError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(dataclasses.asdict(report) | {'incomplete': report.incomplete}, indent=2))
    else:
        print(report)
    if report.undecided and given.json:
        print(f'error: {report.undecided}', file=sys.stderr)
    return 1 if report.leaks else 2 if report.incomplete else 0


def _read(file: Path) -> dict[str, Any]:
    """Read the arguments of tools.

    Raises:
        ArgumentsError: The file can't be read, or holds something else.
    """
    try:
        found = json.loads(file.read_text('utf-8'))
    except OSError as error:
        raise ArgumentsError(f'`--arguments {file}` cannot be read: {error.strerror}.') from error
    except ValueError as error:
        raise ArgumentsError(f'`--arguments {file}` is no JSON: {error}.') from error
    if not isinstance(found, dict):
        raise ArgumentsError(f'`--arguments {file}` holds no object. Write {{"TOOL": {{"name": "value"}}}}.')
    return cast('dict[str, Any]', found)


if __name__ == '__main__':
    sys.exit(main())
