"""Run a verb of the series tool from the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from pydantic_ai_slim.hatch_build import ForkError
from series.apply import apply
from series.base import Report
from series.errors import SeriesError
from series.extract import extract
from series.line import Line, find_line

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
    verbs = parser.add_subparsers(metavar='VERB', required=True)
    for verb, text in _VERBS.items():
        chosen = verbs.add_parser(verb.__name__.strip('_'), help=text, description=text)
        chosen.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; the newest line if left out')
        chosen.set_defaults(verb=verb)
    options = parser.parse_args(arguments)
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        line = find_line(Path.cwd(), options.line)
        with errors.status('') as status:
            done = options.verb(line, status.update)
    except (SeriesError, ForkError) as error:
        errors.print(f'error: {error}')
        return 1
    print(done)
    return 0


def _apply(line: Line, report: Report) -> str:
    head = apply(line, report)
    return f'`{line.show(line.tree)}` holds the base and {len(line.patches)} patches; its last commit is {head}.'


def _extract(line: Line, report: Report) -> str:
    changes = extract(line, report)
    if not changes:
        return f'`{line.show(line.folder)}` holds the commits of `{line.show(line.tree)}` already.'
    return f'`{line.show(line.folder)}` holds the commits of `{line.show(line.tree)}`:\n' + '\n'.join(changes)


_VERBS: dict[Callable[[Line, Report], str], str] = {
    _apply: 'make the tree `build/LINE`: the base, then one commit per patch',
    _extract: "write the tree's commits back to `patches/LINE`",
}


if __name__ == '__main__':
    sys.exit(main())
