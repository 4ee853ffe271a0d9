"""B15: a live toolset says what a sub-agent gets in its place, by the context of the tool call that delegates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, ExternalToolset, FunctionToolset, RunContext, UserError, WrapperToolset
from pydantic_ai.output import ToolOutput
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .delegation import WAYS, Ledger, Notes, Passing, called, calling, delegating, fresh, parent_of
from .line import WRAPPERS
from .toolsets import Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


@dataclass
class Audit(WrapperToolset[Any]):
    """A user's wrapper with state of its own."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), log=[])


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'CombinedToolset': lambda toolset: CombinedToolset([toolset]),
    'a wrapper that passes it on': Passing,
    'a wrapper with state': Audit,
    'many': lambda toolset: CombinedToolset(
        [Audit(Passing(CombinedToolset([toolset.filtered(lambda ctx, tool: True)])))]
    ),
}
"""Where a toolset can stand."""

places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())
kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


async def test_b15_toolset_is_shared_by_default():
    def check(ctx: RunContext[Any], value: str) -> None:
        for toolset in toolsets:
            assert toolset.for_sub_agent(ctx) is toolset
            checked.append(toolset)

    checked: list[Any] = []
    journal = Journal()
    server = Server('s', journal)
    toolsets: list[AbstractToolset[Any]] = [
        server,
        Session('t', journal),
        FunctionToolset(),
        ExternalToolset([]),
        CombinedToolset([server, Session('u', journal)]),
        *(wrap(server) for wrap in WRAPPERS.values()),
    ]
    checking = FunctionToolset[Any]()
    checking.add_function(check)
    await calling(['check'], toolsets=[checking]).run('go')
    assert len(checked) == len(toolsets)


@pytest.mark.parametrize('way', WAYS)
@kinds
async def test_b15_live_instance_is_asked_with_the_context_of_the_tool_call(kind: type[Notes], way: str):
    def options(ctx: RunContext[Any]) -> dict[str, Any]:
        contexts.append(ctx)
        return {}

    contexts: list[RunContext[Any]] = []
    journal = Journal()
    notes = kind('t', journal)
    child = calling(['t'], toolsets=[notes])
    parent = calling(['t'], ['delegate'], toolsets=[notes, delegating(child, way, options=options)])
    deps = object()
    await run_as('parent', parent, deps=deps)
    live = called(journal, 'parent')
    (asked,) = journal.of('ask')
    assert asked.toolset is live
    assert (live is notes) is (kind is Ledger)
    ctx = asked.got[0]
    assert ctx.deps is deps
    assert ctx.tool_name == 'delegate'
    assert ctx.tool_call_id
    assert ctx.tool_call_id == contexts[0].tool_call_id
    assert ctx.run_id == contexts[0].run_id
    assert ctx.run_step == 2


@places
@kinds
async def test_b15_toolset_is_asked_wherever_it_stands(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    journal = Journal()
    notes = kind('t', journal)
    placed = place(notes)
    for of_parent, of_child in ((placed, placed), (placed, notes), (notes, placed), (placed, place(notes))):
        journal.events.clear()
        await run_as('parent', parent_of(calling(['t'], toolsets=[of_child]), of_parent))
        (asked,) = journal.of('ask')
        assert asked.toolset is called(journal, 'parent')
        assert asked.got[0].tool_name == 'delegate'


@kinds
async def test_b15_toolset_can_decide_by_the_context(kind: type[Notes]):
    def answer(live: Any, ctx: RunContext[Any]) -> Any:
        if ctx.deps == 'always fresh' or ctx.tool_name == 'isolate':
            return fresh(live, ctx)
        return live

    journal = Journal()
    notes = kind('t', journal, answer=answer)
    child = calling(['t'], toolsets=[notes])
    toolsets = [notes, delegating(child, name='join', run='joins'), delegating(child, name='isolate', run='isolates')]
    parent = calling(['t'], ['join'], ['isolate'], ['join'], toolsets=toolsets)
    await run_as('parent', parent, deps='as they say')
    live = called(journal, 'parent')
    assert called(journal, 'joins') is live
    assert called(journal, 'isolates') is not live
    assert live.values == ['parent', 'joins', 'joins']

    journal.events.clear()
    await run_as('parent', parent, deps='always fresh')
    live = called(journal, 'parent')
    assert [event.toolset is live for event in journal.of('call')] == [True, False, False, False]


async def test_b15_context_is_that_of_each_call_among_parallel_ones():
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    toolsets = [notes, *(delegating(child, name=f'd{number}', run=f'child{number}') for number in range(4))]
    parent = calling([f'd{number}' for number in range(4)], toolsets=toolsets)
    await run_as('parent', parent)
    asked = journal.of('ask')
    assert {(event.run, event.got[0].tool_name) for event in asked} == {(f'child{n}', f'd{n}') for n in range(4)}
    assert len({event.got[0].tool_call_id for event in asked}) == 4


async def test_b15_context_is_that_of_the_call_in_the_run_that_has_it_live():
    """Not that of the call in a run between, which doesn't know the toolset."""
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    between = calling(['inner'], toolsets=[delegating(child, name='inner')])
    outer = delegating(between, name='outer', run='between', options=lambda ctx: {'deps': 'of between'})
    await run_as('parent', calling(['t'], ['outer'], toolsets=[notes, outer]), deps='of parent')
    (asked,) = journal.of('ask')
    assert (asked.got[0].deps, asked.got[0].tool_name) == ('of parent', 'outer')


async def test_b15_context_of_an_output_tool_is_there():
    async def finish(ctx: RunContext[Any], value: str) -> str:
        return await run_as('child', child)

    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    parent = calling(['t'], ['finish'], toolsets=[notes], output_type=ToolOutput(finish, name='finish'))
    await run_as('parent', parent, deps='deps')
    (asked,) = journal.of('ask')
    assert (asked.got[0].deps, asked.got[0].tool_name) == ('deps', 'finish')
    assert called(journal, 'child') is called(journal, 'parent')


async def test_b15_nothing_is_asked_that_the_sub_agent_does_not_name():
    journal = Journal()
    notes, other = Notes('t', journal), Notes('other', journal)
    child = calling(['t'], toolsets=[notes])
    await run_as('parent', parent_of(child, other, notes))
    assert journal.names('ask') == ['t']
    journal.events.clear()
    await run_as('parent', parent_of(calling(['other'], toolsets=[Notes('other', journal)]), other, notes))
    assert journal.names('ask') == []


async def test_b15_nothing_is_asked_without_a_tool_call():
    journal = Journal()
    notes = Notes('t', journal)
    agents = [calling(['t'], toolsets=[notes]) for _ in range(3)]
    await asyncio.gather(*(run_as(f'run{number}', agent) for number, agent in enumerate(agents)))
    assert journal.of('ask') == []


BAD: dict[str, Any] = {
    'None': lambda live, ctx: None,  # pyright: ignore[reportUnknownLambdaType]
    'a class': lambda live, ctx: Server,  # pyright: ignore[reportUnknownLambdaType]
    'a factory': lambda live, ctx: lambda: live,  # pyright: ignore[reportUnknownLambdaType]
    'a list': lambda live, ctx: [live],  # pyright: ignore[reportUnknownLambdaType]
}
"""Answers that are no toolset."""


@pytest.mark.parametrize('answer', BAD.values(), ids=BAD.keys())
@kinds
async def test_b15_answer_that_is_no_toolset_is_refused_before_anything_is_entered(kind: type[Notes], answer: Any):
    journal = Journal()
    notes = kind('t', journal, answer=answer)
    child = calling(['t'], toolsets=[Session('first', journal), notes, Session('last', journal)])
    with pytest.raises(UserError, match='`for_sub_agent') as caught:
        await run_as('parent', parent_of(child, notes))
    assert notes.label in str(caught.value)
    assert journal.lifecycle == ['+t', '-t']
    assert journal.exit_of('t')[1] is caught.value


async def test_b15_coroutine_as_an_answer_is_refused_and_leaves_no_warning():
    class Wrong(Notes):
        async def for_sub_agent(self, ctx: RunContext[Any]) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return self

    journal = Journal()
    wrong = Wrong('t', journal)
    for toolsets in [wrong], [wrong.prefixed('a'), wrong.prefixed('b')]:
        with pytest.raises(UserError, match='coroutine') as caught:
            await run_as('parent', parent_of(calling(['t'], toolsets=toolsets), wrong))
        assert wrong.label in str(caught.value)


@kinds
async def test_b15_exception_of_for_sub_agent_reaches_the_tool_and_nothing_is_entered(kind: type[Notes]):
    def answer(live: Any, ctx: RunContext[Any]) -> Any:
        raise error

    error = RuntimeError('asked')
    journal = Journal()
    notes = kind('t', journal, answer=answer)
    child = calling(['t'], toolsets=[Session('first', journal), notes])
    with pytest.raises(RuntimeError) as caught:
        await run_as('parent', parent_of(child, notes))
    assert caught.value is error
    assert journal.lifecycle == ['+t', '-t']
    assert journal.exit_of('t')[1] is error
