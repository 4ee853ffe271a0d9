"""Judge what an environment showed, by nothing but the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from demo.results import Call, Results, Run, Scenario, Seen


class State(Enum):
    """How a scenario came out in one environment."""

    LEAKS = 'leaks'
    ISOLATED = 'isolated'
    UNCLEAR = 'unclear'


@dataclass(frozen=True)
class Verdict:
    """A scenario's state in one environment.

    Args:
        state: The state.
        words: Why, for the reader.
        runs: The numbers of the runs that show it.
    """

    state: State
    words: str
    runs: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f'{self.state.value}: {self.words}'


@dataclass(frozen=True)
class Comparison:
    """The verdicts on one scenario, in both environments."""

    scenario: str
    base: Verdict
    fork: Verdict

    @property
    def shows_the_difference(self) -> bool:
        """Whether the base leaks and the fork doesn't."""
        return (self.base.state, self.fork.state) == (State.LEAKS, State.ISOLATED)


def compare(base: Results, fork: Results) -> list[Comparison]:
    """Judge what base and fork showed, scenario by scenario."""
    pairs = zip(base.scenarios, fork.scenarios, strict=True)
    return [Comparison(mine.key, judge(mine), judge(other)) for mine, other in pairs]


def judge(scenario: Scenario) -> Verdict:
    """Judge one scenario in one environment.

    A run leaks when it saw something else than it sees on its own, with a toolset that nobody has used; and when it failed
    but left something of its order in the database. Nothing is judged unless the model made the calls it was asked for and the
    runs ended as they were meant to, which a real model may not do.
    """
    runs = dict(enumerate(scenario.runs, 1))
    if doubts := [doubt for number, run in runs.items() if (doubt := _doubt(number, run))]:
        return Verdict(State.UNCLEAR, '; '.join(doubts))
    if failed := {number: run for number, run in runs.items() if run.fails and run.committed is not None}:
        return _judge_orders(failed)
    later = {number: (_answers(run, run.seen), _answers(run, run.alone)) for number, run in runs.items() if run.alone}
    if leaking := [number for number, (seen, alone) in later.items() if seen != alone]:
        return Verdict(State.LEAKS, f'{_name(leaking)} saw what an earlier run left', tuple(leaking))
    if later:
        return Verdict(State.ISOLATED, f'{_name(list(later))} saw what it sees on its own', tuple(later))
    return Verdict(State.UNCLEAR, 'there is nothing to compare')


def conclude(comparisons: Sequence[Comparison]) -> tuple[bool, str]:
    """Say in a sentence whether the base leaks and the fork doesn't, in every scenario.

    Returns:
        Whether that is so, and the sentence.
    """
    others: dict[str, list[str]] = {}
    for comparison in comparisons:
        if not comparison.shows_the_difference:
            others.setdefault(_explain(comparison), []).append(f'`{comparison.scenario}`')
    if others:
        return False, ' '.join(f'In {", ".join(keys)} {words}.' for words, keys in others.items())
    if not comparisons:
        return False, 'There is nothing to compare.'
    return True, f'In all {len(comparisons)} scenarios the base leaks and the fork does not.'


def _judge_orders(failed: dict[int, Run]) -> Verdict:
    left = {number: run for number, run in failed.items() if run.committed}
    if not left:
        return Verdict(State.ISOLATED, f'{_name(list(failed))} rolled back', tuple(failed))
    order = 'an order' if any(len(run.committed or ()) >= len(run.asked) for run in left.values()) else 'half an order'
    return Verdict(State.LEAKS, f'{_name(list(left))} failed, but committed {order}', tuple(left))


def _doubt(number: int, run: Run) -> str | None:
    """Say why a run can't be judged, if it can't."""
    if run.seen.error and not run.fails:
        return f'run {number} failed'
    if run.fails and not run.seen.error:
        return f'run {number} was meant to fail, and did not'
    if run.alone and run.alone.error:
        return f'run {number} failed on its own, with {run.alone.error}'
    for seen, name in ((run.seen, f'run {number}'), (run.alone, f'run {number} on its own')):
        if seen and not _did_as_asked(run, seen):
            return f'in {name} the model made {_list(seen.called)}, asked for {_list(run.asked)}'
    if run.committed is not None and not run.fails and len(run.committed) < len(run.asked):
        return f'run {number} succeeded, but only {len(run.committed)} of {len(run.asked)} items are in the database'
    return None


def _did_as_asked(run: Run, seen: Seen) -> bool:
    """Tell whether the calls that were asked for come first; a run that failed needs only the first of them."""
    wanted = run.asked[: max(1, len(seen.called))] if run.fails else run.asked
    return len(seen.called) >= len(wanted) and all(map(Call.is_like, seen.called, wanted))


def _answers(run: Run, seen: Seen) -> tuple[str, ...]:
    """Return what the calls that were asked for returned; a real model may have made more."""
    return seen.saw[: len(run.asked)]


def _explain(comparison: Comparison) -> str:
    base, fork = comparison.base.state, comparison.fork.state
    if base is fork is State.UNCLEAR:
        return 'both base and fork are unclear'
    if State.UNCLEAR in (base, fork):
        return f'the {"base" if base is State.UNCLEAR else "fork"} is unclear'
    if base is fork:
        return f'base and fork behave alike: both {"leak" if base is State.LEAKS else "are isolated"}'
    return 'the fork leaks and the base does not'


def _name(numbers: Sequence[int]) -> str:
    """Name runs: `run 2`, or `runs 1 and 2`."""
    first = ', '.join(map(str, numbers[:-1]))
    return f'runs {first} and {numbers[-1]}' if first else f'run {numbers[-1]}'


def _list(calls: Sequence[Call]) -> str:
    return ', '.join(f'`{call}`' for call in calls) or 'no call'
