"""Run a verb of the series tool from the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pydantic_ai_slim.hatch_build import ForkError
from series.apply import apply
from series.base import Report
from series.build import build
from series.errors import SeriesError
from series.extract import extract
from series.line import Line, find_line
from series.release import release
from series.verify import verify

_EXIT_CODES = """\
exit codes:
  0    done
  1    refused or failed; the message says why and what to do next
  2    the command line is wrong
  130  interrupted
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
    for name, verb in _VERBS.items():
        chosen = verbs.add_parser(name, help=verb.text, description=verb.text)
        verb.add_arguments(chosen)
        chosen.set_defaults(run=verb.run)
    options = parser.parse_args(arguments)
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        with Progress(*_COLUMNS, console=errors, transient=True, disable=not errors.is_terminal) as progress:
            task = progress.add_task('', total=None)

            def report(step: str, done: int = 0, of: int | None = None) -> None:
                progress.update(task, description=step, completed=done, total=of)

            done = options.run(options, report)
    except (SeriesError, ForkError) as error:
        errors.print(f'error: {error}')
        return 1
    except KeyboardInterrupt:
        errors.print('error: Interrupted. Run the same command again.')
        return 130
    print(done)
    return 0


def _apply(options: Namespace, report: Report) -> str:
    line = _line(options)
    head = apply(line, report)
    return f'`{line.show(line.tree)}` holds the base and {len(line.patches)} patches; its last commit is {head}.'


def _extract(options: Namespace, report: Report) -> str:
    line = _line(options)
    changes = extract(line, report)
    if not changes:
        return f'`{line.show(line.folder)}` holds the commits of `{line.show(line.tree)}` already.'
    return f'`{line.show(line.folder)}` holds the commits of `{line.show(line.tree)}`:\n' + '\n'.join(changes)


def _verify(options: Namespace, report: Report) -> str:
    line = _line(options)
    found = verify(line, report)
    listed = [f'`{line.show(verified.patch)}`: {verified.tests} tests and examples pass' for verified in found]
    return '\n'.join([*listed, f'The {len(found)} patches on {line.name} are in order.'])


def _build(options: Namespace, report: Report) -> str:
    line = _line(options)
    return f'Built `{line.show(build(line, report))}`.'


def _release(options: Namespace, report: Report) -> str:
    folder = release(Path.cwd(), report)
    return f'`dist/{folder.name}` holds the release:\n' + '\n'.join(sorted(path.name for path in folder.iterdir()))


_COLUMNS = (SpinnerColumn(), TextColumn('{task.description}', markup=False), BarColumn(), TimeElapsedColumn())


def _line(options: Namespace) -> Line:
    return find_line(Path.cwd(), options.line)


def _add_line(parser: ArgumentParser) -> None:
    parser.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; the newest line if left out')


def _add_nothing(parser: ArgumentParser) -> None:
    """For a verb that handles all lines."""


@dataclass(frozen=True)
class _Verb:
    text: str
    run: Callable[[Namespace, Report], str]
    """Does it, and returns what to print."""
    add_arguments: Callable[[ArgumentParser], None] = _add_line


_VERBS = {
    'apply': _Verb('make the tree `build/LINE`: the base, then one commit per patch', _apply),
    'extract': _Verb("write the tree's commits back to `patches/LINE`", _extract),
    'verify': _Verb('check the messages, and import and test the package after every single patch', _verify),
    'build': _Verb('build the wheel into `dist/`', _build),
    'release': _Verb(
        'build the wheels of all lines twice, and write a release to `dist/release`', _release, _add_nothing
    ),
}


if __name__ == '__main__':
    sys.exit(main())
