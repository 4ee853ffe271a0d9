"""B17: at every depth, what is live is borrowed and what isn't is owned: nothing is used that nobody entered, or entered twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext
from pydantic_ai.toolsets import CombinedToolset

from .delegation import Answer, Notes, Options, calling, calls, delegating, fresh
from .toolsets import Journal, run_as
from .trees import Audit

pytestmark = pytest.mark.anyio


class View(Audit):
    """A wrapper with state of its own that a toolset puts around itself for a sub-agent."""


class AsksAgain(View):
    """One that puts another around itself, one level further down."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return AsksAgain(self, self.name, self.journal)


def check_owners(journal: Journal) -> None:
    """Check that whatever was used had been entered, by one run, which exited it, and that nobody used it afterwards."""
    events: dict[int, list[Any]] = defaultdict(list)
    for event in journal.of('enter', 'exit', 'get_tools', 'call'):
        events[id(event.toolset)].append(event)
    for several in events.values():
        kinds = [event.kind for event in several]
        name = f'{type(several[0].toolset).__name__} {several[0].toolset.name} of {several[0].run}'
        assert kinds.count('enter') == kinds.count('exit') == 1, f'{name}: {kinds}'
        assert (kinds[0], kinds[-1]) == ('enter', 'exit'), f'{name}: {kinds}'
        assert several[0].run == several[-1].run, name


def alternating(*answers: Answer) -> Answer:
    """Answer in turn with one of several."""
    numbers = count()
    return lambda live, ctx: answers[next(numbers) % len(answers)](live, ctx)


NUMBERS = count()
"""So that tools have different names."""


def share(live: Any, ctx: RunContext[Any]) -> Any:
    return live


def view(live: Any, ctx: RunContext[Any]) -> Any:
    return View(live, 'view', live.journal)


def asks_again(live: Any, ctx: RunContext[Any]) -> Any:
    return AsksAgain(live, 'view', live.journal)


def beside(live: Any, ctx: RunContext[Any]) -> Any:
    return CombinedToolset([fresh(live, ctx).prefixed(f'new{next(NUMBERS)}'), live])


ANSWERS: dict[str, Callable[[], Answer]] = {
    'share': lambda: share,
    'own': lambda: fresh,
    'share, then own': lambda: alternating(share, fresh),
    'own, then share': lambda: alternating(fresh, share),
    'a view': lambda: view,
    'a view that asks again': lambda: asks_again,
    'share, then a view': lambda: alternating(share, view),
    'a view, then own': lambda: alternating(view, fresh),
    'a copy': lambda: lambda live, ctx: live.copy(),
    'one beside itself': lambda: beside,
}
answers = pytest.mark.parametrize('answer', ANSWERS.values(), ids=ANSWERS)


def tower(
    *levels: list[Any], journal: Journal, options: Callable[[int], Any] = lambda level: None, **of_run: Any
) -> Any:
    """Make agents that start each other, each of which calls `t`, starts the next, and calls `t` again."""
    agent: Any = None
    for level in reversed(range(len(levels))):
        steps = [['t']] if agent is None else [['t'], ['delegate'], ['t']]
        below = [] if agent is None else [delegating(agent, run=f'level{level + 1}', options=options(level))]
        agent = calling(*steps, toolsets=[*levels[level], *below], name=f'agent{level}')
    return run_as('level0', agent, **of_run)


AGENTS: dict[str, Callable[[Notes], list[list[Any]]]] = {
    'all have it plain': lambda t: [[t]] * 4,
    'wrapped from the second on': lambda t: [[t], *[[Audit(t, 'audit', t.journal)]] * 3],
    'each wraps it anew': lambda t: [[t], *([Audit(t, f'audit{level}', t.journal)] for level in range(3))],
    'wrapped in the first': lambda t: [[Audit(t, 'audit', t.journal)], [t], [t], [t]],
    'wrapped by turns': lambda t: [[audit := Audit(t, 'audit', t.journal)], [t], [audit], [t]],
    'wrapped twice': lambda t: [[t], *[[Audit(Audit(t, 'inner', t.journal).renamed({}), 'outer', t.journal)]] * 3],
    'combined': lambda t: [[t], *[[CombinedToolset([Audit(t, 'audit', t.journal)])]] * 3],
    'shared inside a wrapper': lambda t: [[t], *[[Audit(t.shared(), 'audit', t.journal)]] * 3],
    'each wraps what is shared anew': lambda t: [
        [t],
        *([Audit(t.shared(), f'audit{level}', t.journal)] for level in range(3)),
    ],
    'shared, then not': lambda t: [[t], [Audit(t.shared(), 'audit', t.journal)], [t], [t]],
}
agents = pytest.mark.parametrize('tree', AGENTS.values(), ids=AGENTS)


@answers
@agents
async def test_b17_four_runs_deep_everything_has_one_owner(tree: Any, answer: Callable[[], Answer]):
    journal = Journal()
    notes = Notes('t', journal, answer=answer())
    await tower(*tree(notes), journal=journal)
    check_owners(journal)
    assert notes.values == []
    for level in range(4):
        assert [toolset for toolset in calls(journal, f'level{level}') if toolset.name == 't']


@answers
@pytest.mark.parametrize('all_of_them', [True, False])
async def test_b17_four_runs_deep_what_is_handed_on_has_one_owner(answer: Callable[[], Answer], all_of_them: bool):
    """Each run hands to the next what it was handed itself."""
    journal = Journal()
    notes = Notes('t', journal, answer=answer())

    def options(level: int) -> Options:
        if all_of_them:
            # All but the tool that delegates, which the next one has too
            return lambda ctx: {'toolsets': ctx.for_sub_agent()[:1] if level == 0 else ctx.for_sub_agent()[1:]}
        return lambda ctx: {'toolsets': ctx.for_sub_agent(notes)}

    await tower([notes], [], [], [], journal=journal, options=options)
    check_owners(journal)
    assert calls(journal, 'level3')


# An answer that is kept


# An answer in several places
