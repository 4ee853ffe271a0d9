"""B18: what a sub-agent was built with and what it is handed is one instance, not two with clashing names."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext
from pydantic_ai.toolsets import CombinedToolset

from .delegation import Ledger, Notes, called, calling, delegating, entries_and_exits, forked, fresh
from .toolsets import METHODS, Journal, Server, run_as

pytestmark = pytest.mark.anyio

PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    'renamed': lambda toolset: toolset.renamed({}),
    'combined': lambda toolset: CombinedToolset([toolset]),
    'shared': lambda toolset: toolset.shared(),
}
kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])
answers = pytest.mark.parametrize('answer', [None, fresh, forked], ids=['share', 'own', 'snapshot'])


def check_one(journal: Journal, answer: Any, *, asked: int = 1) -> None:
    """Check that the sub-agent worked with one instance, which its owner entered and exited once."""
    live, used = called(journal, 'parent'), called(journal, 'child')
    assert (used is live) is (answer is None)
    for toolset in {id(toolset): toolset for toolset in (live, used)}.values():
        owner = 'parent' if toolset is live else 'child'
        assert entries_and_exits(journal, toolset) == [('enter', owner), ('exit', owner)]
    assert len(journal.of('enter')) == len(journal.of('exit')) == (1 if answer is None else 2)
    assert len(journal.of('ask')) == asked


@kinds
@answers
@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('everything', [False, True])
async def test_b18_what_a_sub_agent_has_and_is_handed_is_one_instance(
    kind: type[Notes], answer: Any, method: str, everything: bool
):
    journal = Journal()
    notes = kind('t', journal, answer=answer)
    child = calling(['t'], ['t'], toolsets=[notes], name='child')
    options = lambda ctx: {'toolsets': ctx.for_sub_agent()[:1] if everything else ctx.for_sub_agent(notes)}
    delegate = delegating(child, method, options=options)
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[notes, delegate], name='parent'))
    check_one(journal, answer)
    assert called(journal, 'child').values.count('child') == 2


@answers
@pytest.mark.parametrize('of_child', [name for name in PLACES if name != 'shared'])
@pytest.mark.parametrize('of_parent', PLACES)
async def test_b18_what_a_sub_agent_has_and_is_handed_is_one_instance_wherever_it_stands(
    answer: Any, of_child: str, of_parent: str
):
    journal = Journal()
    notes = Notes('t', journal, answer=answer)
    given = PLACES[of_parent](notes)
    child = calling(['x_t'], ['t'], ['x_t'], toolsets=[PLACES[of_child](notes).prefixed('x')], name='child')
    delegate = delegating(child, options=lambda ctx: {'toolsets': ctx.for_sub_agent(given)})
    await run_as('parent', calling(['t'], ['delegate'], toolsets=[given, delegate], name='parent'))
    check_one(journal, answer)
    assert called(journal, 'child').values.count('child') == 3


class Isolated(Server):
    """A toolset that isolates itself by `for_run()` alone, and declares nothing, as published packages do."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        new = type(self)(self.name, self.journal)
        new.copy_of = self.original
        return new


HANDED: dict[str, tuple[Callable[[Any], list[Any]], Callable[[RunContext[Any], Any], Sequence[Any]]]] = {
    'for_sub_agent(toolset)': (lambda t: [], lambda ctx, t: ctx.for_sub_agent(t)),
    'for_sub_agent()': (lambda t: [], lambda ctx, t: ctx.for_sub_agent()[:1]),
    'shared()': (lambda t: [t.shared()], lambda ctx, t: []),
    'shared() for the run': (lambda t: [], lambda ctx, t: [t.shared()]),
    'instance_of()': (lambda t: [], lambda ctx, t: [ctx.instance_of(t)]),
}


@pytest.mark.parametrize('place', ['alone', 'renamed', 'combined'])
@pytest.mark.parametrize('way', HANDED)
async def test_b18_toolset_that_isolates_itself_by_for_run_alone_is_handed_over(way: str, place: str):
    journal = Journal()
    toolset = Isolated('t', journal)
    built_with, handed = HANDED[way]
    child = calling(['t'], toolsets=built_with(toolset))
    delegate = delegating(child, options=lambda ctx: {'toolsets': handed(ctx, toolset)})
    given = PLACES[place](toolset)
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[given, delegate]))
    assert called(journal, 'child') is called(journal, 'parent')
    assert called(journal, 'parent').values == ['parent', 'child', 'parent']
    assert toolset.values == []
    assert journal.lifecycle == ['+t', '-t']
