"""Run a verb of the series tool from the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pydantic_ai_slim.hatch_build import ForkError
from series.apply import apply
from series.errors import SeriesError
from series.line import find_line

_EXIT_CODES = """\
exit codes:
  0  done
  1  refused or failed; the message says why and what to do next
  2  the command line is wrong
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verb that the arguments name, and return the exit code.

    Args:
        arguments: Those after `python -m series`; by default those of the process.
    """
    parser = ArgumentParser(
        prog='python -m series',
        description='Handle the series of patches. Run it from the root of the repository.',
        epilog=_EXIT_CODES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest='verb', metavar='VERB', required=True)
    for verb, text in (('apply', 'make the tree `build/LINE`: the base, then one commit per patch'),):
        verbs.add_parser(verb, help=text, description=text).add_argument(
            'line', metavar='LINE', nargs='?', help='an upstream release, such as 1.26.0; the newest line if left out'
        )
    options = parser.parse_args(arguments)
    out, progress = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        line = find_line(Path.cwd(), options.line)
        with progress.status('') as status:
            head = apply(line, lambda step: status.update(step))
        out.print(f'{line.show(line.tree)} holds the base and {len(line.patches)} patches; its last commit is {head}.')
    except (SeriesError, ForkError) as error:
        progress.print(f'error: {error}', markup=False)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
