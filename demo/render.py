"""Show the results of the base and of the fork in two columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.results import Results, Run, Scenario
from demo.verdict import Comparison, State, Verdict, conclude

# Only the colours of the terminal's own palette, which are readable on dark and light alike; and no meaning without a word.
_STYLES = {State.LEAKS: 'bold red', State.ISOLATED: 'bold green', State.UNCLEAR: 'bold magenta'}
SIGNS = {State.LEAKS: '✗', State.ISOLATED: '✓', State.UNCLEAR: '?'}
_MOST = 300  # characters of one answer, or of one error, which a real model's provider may make very long


def render(base: Results, fork: Results, comparisons: Sequence[Comparison]) -> RenderableType:
    """Lay out all scenarios, and the conclusion.

    Args:
        base: What the base showed.
        fork: What the fork showed, for the same scenarios.
        comparisons: The verdicts on them, in the same order.
    """
    model = base.environment.model
    parts: list[RenderableType] = [
        Text.assemble(
            'The same script, ',
            ('demo/scenarios.py', 'bold'),
            ', on the base and on the fork. Each scenario has one agent, which one user runs after the other. '
            'A run should see what it sees on its own, with a toolset that nobody has used before. The model is ',
            f'{_plain(model)}.' if model else 'scripted, without a network.',
        )
    ]
    for number in range(len(comparisons)):
        parts += [Text(), render_scenario(base, fork, comparisons, number)]
    shown, words = conclude(comparisons)
    sign = State.ISOLATED if shown else State.LEAKS
    parts += [Text(), Text(f'{SIGNS[sign]} {words}', style=_STYLES[sign])]
    if model and any(State.UNCLEAR in (each.base.state, each.fork.state) for each in comparisons):
        parts.append(
            Text('A real model may not do as asked, and its provider may refuse. Try again, or leave `--model` out.')
        )
    return Group(*parts)


def render_scenario(base: Results, fork: Results, comparisons: Sequence[Comparison], number: int) -> RenderableType:
    """Lay out one scenario.

    Args:
        base: What the base showed.
        fork: What the fork showed, for the same scenarios.
        comparisons: The verdicts on them, in the same order.
        number: Which one, from 0.
    """
    left, right = base.scenarios[number], fork.scenarios[number]
    title = Text(f'{number + 1}. {_plain(left.title)}', style='bold')
    return Group(title, _table(base, fork, left, right, comparisons[number]))


def _table(base: Results, fork: Results, left: Scenario, right: Scenario, comparison: Comparison) -> Table:
    table = Table(
        box=box.ROUNDED,
        expand=True,
        leading=1,
        border_style='dim',
        header_style='bold',
        footer_style='',
        show_footer=True,
    )
    table.add_column('', Text('verdict', style='bold'), ratio=10, overflow='fold')
    for name, results, verdict in (('base', base, comparison.base), ('fork', fork, comparison.fork)):
        table.add_column(
            Text(f'{name} {_plain(results.environment.version)}'), _verdict(verdict), ratio=13, overflow='fold'
        )
    for number, (mine, other) in enumerate(zip(left.runs, right.runs, strict=True), 1):
        saw = (_saw(run, number, verdict) for run, verdict in ((mine, comparison.base), (other, comparison.fork)))
        table.add_row(_did(number, mine), *saw)
    return table


def _did(number: int, run: Run) -> Text:
    return Text.assemble((f'run {number}', 'bold'), '  ', _plain(run.did))


def _saw(run: Run, number: int, verdict: Verdict) -> Text:
    lines = list(run.seen.saw)
    if not lines and not run.seen.error:
        lines.append('nothing: no tool was called')
    if run.seen.error:
        lines.append(f'failed: {run.seen.error}')
    if run.committed is not None:
        lines.append(f'in the database: {", ".join(run.committed) or "nothing"}')
    style = _STYLES[verdict.state] if number in verdict.runs else ''
    # Of a run that writes an order, what tells is the last line: what of it was committed.
    plain, telling = (lines[:-1], lines[-1:]) if run.committed is not None else ([], lines)
    return Text('\n').join([*(Text(_plain(line)) for line in plain), *(Text(_plain(line), style) for line in telling)])


def _verdict(verdict: Verdict) -> Text:
    return Text(f'{SIGNS[verdict.state]} {_plain(str(verdict))}', style=_STYLES[verdict.state])


def _plain(text: str) -> str:
    """Return text without control characters, which could change the terminal, and no longer than is useful."""
    plain = ''.join(character if character.isprintable() else ' ' for character in text)
    return plain if len(plain) <= _MOST else f'{plain[: _MOST - 1]}…'
