"""The command `toolset-leaks`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from .sandbox import PERMISSIONS, SandboxError, run_sandboxed


def main(arguments: Sequence[str] | None = None) -> int:
    """Find the leaks of the agent that the arguments name.

    Returns:
        0 if nothing leaks, 1 if something does, and 2 if that can't be said.
    """
    parser = argparse.ArgumentParser(
        'toolset-leaks',
        description='Call each tool of an agent on a scripted model, and find the state that one run leaves behind for the next. '
        'The tools run in a process that can neither reach the network, nor start programs, nor write outside of a temporary folder.',
    )
    parser.add_argument('agent', help='MODULE:NAME of the agent, or of a function that returns it')
    parser.add_argument(
        '--deps', metavar='MODULE:NAME', help='the deps of the runs, or a function that makes them for each run'
    )
    parser.add_argument(
        '--skip', metavar='TOOL', action='append', default=[], help='a tool not to call, like `delete_*`; repeatable'
    )
    parser.add_argument(
        '--shared',
        metavar='STATE',
        action='append',
        default=[],
        help='state that is shared on purpose, like `Todo.cache`',
    )
    parser.add_argument(
        '--permit', choices=PERMISSIONS, action='append', default=[], help='what the tools may do; repeatable'
    )
    parser.add_argument('--rounds', type=int, default=2, help='how often each tool is called (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0, help='makes the same arguments each time (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=300, help='how long it may take (default: %(default)g)')
    parser.add_argument('--json', action='store_true', help='write the report as JSON')
    given = parser.parse_args(arguments)
    options = {name: getattr(given, name) for name in ('deps', 'skip', 'shared', 'rounds', 'seed')}
    try:
        report = run_sandboxed(given.agent, options, permit=given.permit, seconds=given.seconds)
    except SandboxError as error:
        print(f'error: {error}', file=sys.stderr)
        return 2
    print(json.dumps(dataclasses.asdict(report), indent=2) if given.json else report)
    return 1 if report.leaks else 0


if __name__ == '__main__':
    sys.exit(main())
