"""The command line: run a verb of the series tool."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai_slim.fork.errors import ForkError
from pydantic_ai_slim.fork.line import patch_name
from series.build import build
from series.errors import SeriesError, quoted
from series.line import Line, find_line, find_lines, line_names
from series.merge import Outcome
from series.patches import find_patch
from series.progress import Report, heartbeat, say
from series.verbs.apply import apply
from series.verbs.branch import branch
from series.verbs.carry import carry, other_line, show_carried
from series.verbs.extract import extract
from series.verbs.locks import INSTALLS, RESOLUTIONS, write_locks
from series.verbs.matrix import Tests, choose_cells, matrix, summary, write_report
from series.verbs.overview import PAGE as OVERVIEW
from series.verbs.overview import write_overview
from series.verbs.rebase import Rebased, abort_rebase, finish_rebase, rebase
from series.verbs.release import release
from series.verbs.review import compare, review
from series.verbs.status import Status, status
from series.verbs.verify import verify

_EXIT_CODES = """\
exit codes:
  0      done
  1      refused or failed; the message says why and what to do next
  2      the command line is wrong
  128+N  interrupted by the signal N: 130 after Ctrl-C
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
    try:
        with heartbeat(say) as report:
            done = options.run(options, report)
    except (SeriesError, ForkError) as error:
        say(f'error: {error}')
        return 1
    except OSError as error:
        say(f'error: {error}\nPut that right, then run the same command again. Nothing was left in halves.')
        return 1
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
    name, patch = options.line, options.patch
    # One argument alone may be either.
    if patch is None and name is not None and not name[:1].isdecimal():
        name, patch = None, name
    line = find_line(Path.cwd(), name)
    only = None if patch is None else find_patch(line, patch)
    found = verify(line, report, together=options.together, only=only)
    if options.together:
        tests = sum(verified.tests for verified in found)
        return f'The {len(found)} patches on {line.name} are in order, and together {tests} tests pass.'
    listed = [f'`{line.show(verified.patch)}`: {_tested(line, verified.tests)}' for verified in found]
    return '\n'.join([*listed, *([] if only else [f'The {len(found)} patches on {line.name} are in order.'])])


def _tested(line: Line, tests: int) -> str:
    if tests or line.is_newest:
        return f'{tests} tests pass'
    return f'carries no tests; an older line has only those in which it differs from {line_names(line.root)[-1]}'


def _build(options: Namespace, report: Report) -> str:
    line = _line(options)
    return f'Built `{line.show(build(line, report))}`.'


def _release(options: Namespace, report: Report) -> str:
    folder = release(Path.cwd(), report)
    return f'`dist/{folder.name}` holds the release:\n' + '\n'.join(sorted(path.name for path in folder.iterdir()))


def _rebase(options: Namespace, report: Report) -> str:
    root = Path.cwd()
    if options.abort:
        line = abort_rebase(root, options.onto)
        return f'The rebase to {line.name} is given up; `{line.show(line.tree)}` is gone.'
    if options.go_on:
        return _rebased(finish_rebase(root, options.onto, report), report)
    if options.onto is None:
        raise SeriesError(
            'There is nothing to rebase onto.', 'Name a release with `--onto VERSION` (`make rebase ONTO=VERSION`).'
        )
    return _rebased(rebase(_line(options), options.onto, report), report)


def _rebased(rebased: Rebased, report: Report) -> str:
    line = rebased.line
    try:
        locks = f'{len(write_locks(line, report))} locks for `make matrix` are written'
    except SeriesError as error:
        # The line is whole without them, and nothing of it is to be lost.
        locks = f'There are no locks for `make matrix`; run `{line.make("locks")}` later. {error.problem}'
    counts = [f'{len(line.patches)} patches', *(f'without `{patch}`' for patch in rebased.dropped)]
    made = [line.show(line.folder), f'pydantic_ai_slim/{line.name}', 'CHANGELOG.md']
    todo = f'Run `{line.make("verify")}`, say in `CHANGELOG.md` what users will notice, and commit {quoted(made)}.'
    listed = [f'- {entry}' for entry in (*counts, *rebased.notes, locks)]
    return '\n'.join([f'`{made[0]}` holds the new line; its tree is `{line.show(line.tree)}`.', *listed, todo])


def _carry(options: Namespace, report: Report) -> str:
    line = _line(options)
    return show_carried(carry(line, other_line(Path.cwd(), line, options.to), report))


def _review(options: Namespace, report: Report) -> str:
    name, revision = options.line, options.revision
    # One argument alone may be either.
    if revision is None and name is not None and name not in line_names(Path.cwd()):
        name, revision = None, name
    line = find_line(Path.cwd(), name)
    colour = sys.stdout.isatty() and 'NO_COLOR' not in os.environ
    if options.against:
        if revision is not None:
            raise SeriesError(
                'A line is compared either with a revision or with another line.', 'Leave one of the two out.'
            )
        before = find_line(Path.cwd(), options.against)
        found, since = compare(before, line, report, colour=colour), f'on {before.name}'
    else:
        found, since = review(line, revision or 'HEAD', report, colour=colour), f'in `{revision or "HEAD"}`'
    return found or f'The series on {line.name} is the same as {since}.'


def _overview(options: Namespace, report: Report) -> str:
    write_overview(Path.cwd())
    return f'Wrote `{OVERVIEW.as_posix()}`.'


def _status(options: Namespace, report: Report) -> str:
    lines = [_line(options)] if options.line else find_lines(Path.cwd())
    return '\n\n'.join(map(_show_status, status(lines, report, options.onto)))


def _show_status(found: Status) -> str:
    title = f'{found.line.name} on {found.release}'
    if not found.attempts:
        return f'{title}: there is nothing newer.'
    rows = [
        f'{made.outcome.value:9}  {patch_name(patch)}'
        + ''.join(f'\n{"":11}{place}' for place in made.places or made.words.splitlines())
        for patch, made in zip(found.line.patches, found.attempts, strict=True)
    ]
    counts = Counter(made.outcome for made in found.attempts)
    return '\n'.join(
        [f'{title}:', *rows, ', '.join(f'{counts[outcome]} {outcome.value}' for outcome in Outcome if counts[outcome])]
    )


def _branch(options: Namespace, report: Report) -> str:
    line = _line(options)
    made = branch(
        line,
        find_patch(line, options.patch),
        options.clone,
        report,
        onto=options.onto,
        name=options.name,
    )
    pages = quoted(made.pages)
    listed = '\n'.join(f'- {subject}' for subject in made.subjects)
    return '\n'.join(
        [
            f'`{options.clone}` is on the new branch `{made.name}`, which adds to `{made.onto}`:\n{listed}',
            f'The title and the text of the pull request are in `{line.show(made.text)}`.',
            *([f'Add {pages} to the navigation of the docs there.'] if pages else []),
            'Run `make format`, `make lint` and `make typecheck` there before you push.',
        ]
    )


def _locks(options: Namespace, report: Report) -> str:
    line = _line(options)
    return f'Wrote {quoted(line.show(path) for path in write_locks(line, report))}.'


def _matrix(options: Namespace, report: Report) -> str:
    line = _line(options)
    cells = choose_cells(line, options.python, options.install, options.resolution)
    tests = Tests(options.tests.resolve(), tuple(options.only), options.expression)
    found = matrix(line, cells, tests, report)
    path = line.show(write_report(found, line.root / 'build' / 'matrix' / line.name / 'report.txt'))
    text = f'{summary(found)}\n\n`{path}` has all, and `results` beside it the JUnit XML of each side.'
    if found.differences or found.broken:
        raise SeriesError(
            f"Upstream's tests differ between base and fork of {line.name}, or tests that its patches add fail.\n\n{text}",
            'Find out which patch does it, and correct it there. What was run is not run again when you repeat the command.',
        )
    return f"{text}\nUpstream's tests say the same of {line.version} as of the base."


_PATCH = 'the slug of the patch, or `topic/slug`'


def _line(options: Namespace) -> Line:
    return find_line(Path.cwd(), options.line)


def _add_line(parser: ArgumentParser) -> None:
    parser.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; the newest line if left out')


def _add_verify(parser: ArgumentParser) -> None:
    _add_line(parser)
    parser.add_argument('patch', metavar='PATCH', nargs='?', help=f'{_PATCH}; all if left out')
    parser.add_argument(
        '--together',
        action='store_true',
        help='test the patches together, after the last, and not each on those before it and on those that it needs',
    )


def _add_rebase(parser: ArgumentParser) -> None:
    _add_line(parser)
    parser.add_argument('--onto', metavar='VERSION', help='the release of upstream for the new line')
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        '--continue', dest='go_on', action='store_true', help="make the line when git's rebase is at its end"
    )
    instead.add_argument('--abort', action='store_true', help='remove all that the rebase has made')


def _add_carry(parser: ArgumentParser) -> None:
    _add_line(parser)
    parser.add_argument('--to', metavar='LINE', help='the line that gets the change; the other one if there are two')


def _add_review(parser: ArgumentParser) -> None:
    _add_line(parser)
    parser.add_argument(
        'revision', metavar='REV', nargs='?', help='a revision of this repository to compare with; `HEAD` if left out'
    )
    parser.add_argument('--against', metavar='LINE', help='another line to compare with, instead of a revision')


def _add_status(parser: ArgumentParser) -> None:
    parser.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; all lines if left out')
    parser.add_argument('--onto', metavar='VERSION', help='a release of upstream; the newest if left out')


def _add_branch(parser: ArgumentParser) -> None:
    parser.add_argument('patch', metavar='PATCH', help=_PATCH)
    _add_line(parser)
    parser.add_argument(
        '--clone', metavar='DIR', type=Path, required=True, help='your clone of upstream (`CLONE=DIR` of make)'
    )
    parser.add_argument(
        '--onto', metavar='REV', help="where the branch begins; the tag of the line's release if left out"
    )
    parser.add_argument('--name', metavar='BRANCH', help="the branch's name; that of the patch if left out")


def _add_matrix(parser: ArgumentParser) -> None:
    _add_line(parser)
    parser.add_argument('--python', action='append', metavar='VERSION', help='on this one only; repeatable')
    parser.add_argument('--install', action='append', choices=INSTALLS, help='with this only; repeatable')
    parser.add_argument('--resolution', action='append', choices=RESOLUTIONS, help='so only; repeatable')
    parser.add_argument(
        '--tests', type=Path, metavar='DIR', required=True, help='your clone of upstream (`CLONE=DIR` of make)'
    )
    parser.add_argument(
        '--only',
        action='append',
        default=[],
        metavar='PATH',
        help='run this file or folder; repeatable, with wildcards',
    )
    parser.add_argument(
        '-k', dest='expression', default='', metavar='EXPRESSION', help="run what pytest's `-k` chooses"
    )


@dataclass(frozen=True)
class _Verb:
    text: str
    run: Callable[[Namespace, Report], str]
    """Does it, and returns what to print."""
    add_arguments: Callable[[ArgumentParser], None] = _add_line


_VERBS = {
    'apply': _Verb('make the tree `build/LINE`: the base, then one commit per patch', _apply),
    'extract': _Verb("write the tree's commits back to `patches/LINE`", _extract),
    'verify': _Verb(
        'check the messages, and import and test the package after every single patch', _verify, _add_verify
    ),
    'build': _Verb('build the wheel into `dist/`', _build),
    'release': _Verb(
        'build the wheels of all lines twice, and write a release to `dist/release`', _release, lambda _: None
    ),
    'rebase': _Verb('start a new line from this one, for another release of upstream', _rebase, _add_rebase),
    'carry': _Verb("bring the fixups in a line's tree to that of another line", _carry, _add_carry),
    'review': _Verb('show what changed in the series since a revision of this repository', _review, _add_review),
    'overview': _Verb(
        'write what each patch needs, its size and what upstream has said to the docs', _overview, lambda _: None
    ),
    'status': _Verb('say whether each patch still applies to the newest upstream release', _status, _add_status),
    'branch': _Verb('put a patch, with what it needs, on a branch of your clone of upstream', _branch, _add_branch),
    'matrix': _Verb("run upstream's own tests on base and fork, side by side", _matrix, _add_matrix),
    'locks': _Verb("lock what upstream's tests need, to the time of the release", _locks),
}
