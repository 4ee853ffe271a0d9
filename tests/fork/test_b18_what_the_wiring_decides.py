"""B18: the wiring decides last: a factory makes a fresh one, `.shared()` shares, `ctx.for_sub_agent()` hands over."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, UserError, WrapperToolset
from pydantic_ai.output import ToolOutput
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .delegation import (
    WAYS,
    Ledger,
    Notes,
    Passing,
    called,
    calling,
    calls,
    delegating,
    entries_and_exits,
    event_loop,
    fresh,
    happened,
    never,
    parent_of,
)
from .toolsets import METHODS, RUN, Journal, Server, Session, once_per_run, run_as, scripted

pytestmark = pytest.mark.anyio

ways = pytest.mark.parametrize('way', WAYS)
kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


# Factories


async def _make(notes: Callable[[], Any], ctx: RunContext[Any]) -> Any:
    await asyncio.sleep(0)
    return notes()


FACTORIES: dict[str, Callable[[Callable[[], Any]], Any]] = {
    'a function': lambda make: lambda: make(),
    'a partial': functools.partial,
    'a partial of a function of the context': lambda make: functools.partial(_make, make),
    'a function of the context': lambda make: lambda ctx: make(),  # pyright: ignore[reportUnknownLambdaType]
    'DynamicToolset of an async function': lambda make: DynamicToolset(
        functools.partial(_make, make), per_run_step=False
    ),
    'DynamicToolset': lambda make: DynamicToolset(lambda ctx: make(), per_run_step=False),
}

factories = pytest.mark.parametrize('factory', FACTORIES.values(), ids=FACTORIES.keys())


@factories
@pytest.mark.parametrize('for_parent', ['the factory too', 'what it makes', 'nothing'])
async def test_b18_factory_always_makes_a_fresh_one(factory: Callable[[Any], Any], for_parent: str):
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    made = factory(lambda: Notes('t', journal, answer=never))
    toolsets = {'the factory too': [made], 'what it makes': [notes], 'nothing': []}[for_parent]
    child = calling(['t'], toolsets=[made])
    before = 't' if toolsets else None
    await run_as('parent', parent_of(child, *toolsets, before=before))
    assert calls(journal, 'child')
    assert not set(calls(journal, 'child')) & set(calls(journal, 'parent'))
    assert called(journal, 'child').values == ['child']
    for toolset in {event.toolset for event in journal.of('enter')}:
        (entered, exited) = happened(journal, toolset, 'enter', 'exit')
        assert entered.run == exited.run


async def test_b18_class_is_a_factory():
    class Made(Notes):
        def __init__(self) -> None:
            super().__init__('t', journal, answer=never)

    journal = Journal()
    await run_as('parent', parent_of(calling(['t'], toolsets=[Made]), Made))
    assert called(journal, 'child').values == ['child']
    assert called(journal, 'parent').values == ['parent', 'parent']


async def test_b18_factory_inside_of_wrappers_makes_a_fresh_one():
    """What is inside decides, so one object in both agents' lists is no other case than two."""
    journal = Journal()
    made: AbstractToolset[Any] = once_per_run(lambda: Notes('t', journal, answer=never))
    for tree in (made.renamed({}), CombinedToolset([made]), CombinedToolset([made.filtered(lambda ctx, tool: True)])):
        journal.events.clear()
        await run_as('parent', parent_of(calling(['t'], toolsets=[tree]), tree))
        assert called(journal, 'child').values == ['child']
        assert called(journal, 'parent').values == ['parent', 'parent']


# `.shared()`


@ways
@kinds
async def test_b18_shared_is_the_live_instance_without_asking(kind: type[Notes], way: str):
    journal = Journal()
    notes = kind('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes.shared()])
    await run_as('parent', parent_of(child, notes, way=way))
    live = called(journal, 'parent')
    assert called(journal, 'child') is live
    assert live.values == ['parent', 'child', 'parent']
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    assert len(journal.of('copy')) == (1 if kind is Notes else 0)


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'renamed': lambda toolset: toolset.renamed({}),
    'combined': lambda toolset: CombinedToolset([toolset]),
    'passed on': Passing,
    'many': lambda toolset: CombinedToolset([Passing(CombinedToolset([toolset.filtered(lambda ctx, tool: True)]))]),
}
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())
LOOKED_INTO: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'renamed': PLACES['renamed'],
    'combined': PLACES['combined'],
    'both': lambda toolset: CombinedToolset([CombinedToolset([toolset.filtered(lambda ctx, tool: True)]).renamed({})]),
}
looked_into = pytest.mark.parametrize('place', LOOKED_INTO.values(), ids=LOOKED_INTO)
"""Without wrappers that are written straight on `AbstractToolset`, which are used as they answer."""


@places
@kinds
async def test_b18_shared_can_stand_anywhere(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    journal = Journal()
    notes = kind('t', journal, answer=never)
    await run_as('parent', parent_of(calling(['t'], toolsets=[place(notes.shared())]), place(notes)))
    live = called(journal, 'parent')
    assert called(journal, 'child') is live
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


@looked_into
@kinds
async def test_b18_shared_of_a_wrapper_or_combination_shares_what_is_inside(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    journal = Journal()
    notes = kind('t', journal, answer=never)
    placed = place(notes)
    await run_as('parent', parent_of(calling(['t'], toolsets=[placed.shared()]), placed))
    live = called(journal, 'parent')
    assert called(journal, 'child') is live
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b18_shared_is_that_of_the_nearest_run():
    journal = Journal()
    notes = Notes('t', journal, answer=fresh)
    grandchild = calling(['t'], toolsets=[notes.shared()])
    unknowing = calling(['delegate'], toolsets=[delegating(grandchild, run='grandchild')])
    child = calling(['t'], ['delegate'], toolsets=[notes, delegating(unknowing, run='unknowing')])
    await run_as('parent', parent_of(child, notes))
    assert called(journal, 'grandchild') is called(journal, 'child') is not called(journal, 'parent')
    assert called(journal, 'child').values == ['child', 'grandchild']


@pytest.mark.parametrize('method', METHODS)
async def test_b18_shared_outside_of_a_run_is_the_original(method: str):
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    agent = calling(['t'], toolsets=[notes.shared()])
    for number in range(3):
        await run_as(f'run{number}', agent, method)
    assert notes.values == ['run0', 'run1', 'run2']
    assert journal.of('copy') == []
    assert journal.lifecycle == ['+t', '-t'] * 3


async def test_b18_shared_original_is_what_runs_share():
    """`async with agent` enters it, and concurrent runs all have it."""
    journal = Journal()
    notes = Notes('t', journal)
    agent = calling(['t'], toolsets=[notes.shared()])
    async with agent:
        assert journal.lifecycle == ['+t']
        await asyncio.gather(*(run_as(f'run{number}', agent) for number in range(5)))
    assert journal.names('enter') == journal.names('exit')
    assert sorted(notes.values) == [f'run{number}' for number in range(5)]
    assert journal.of('copy') == []


class Counting(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def copy(self) -> Self:
        return type(self)(self.wrapped)


async def test_b18_shared_original_in_several_places_is_entered_once():
    journal = Journal()
    notes = Notes('t', journal)
    audited = Counting(notes)
    for given in (notes, audited):
        journal.events.clear()
        toolsets = [given.shared().prefixed('a'), CombinedToolset([given.shared()]).prefixed('b')]
        await run_as('run', calling(['a_t', 'b_t'], toolsets=toolsets))
        assert journal.lifecycle == ['+t', '-t']
        assert called(journal, 'run') is notes


async def test_b18_shared_original_is_live_for_sub_agents():
    journal = Journal()
    notes = Notes('t', journal)
    for of_child in (notes, notes.shared()):
        journal.events.clear()
        notes.values.clear()
        await run_as('parent', parent_of(calling(['t'], toolsets=[of_child]), notes.shared()))
        assert notes.values == ['parent', 'child', 'parent']
        assert entries_and_exits(journal, notes) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b18_shared_original_does_not_make_other_runs_share():
    journal = Journal()
    notes = Notes('t', journal)
    await run_as('shares', calling(['t'], toolsets=[notes.shared()]))
    await run_as('own', calling(['t'], toolsets=[notes]))
    assert called(journal, 'shares') is notes
    assert called(journal, 'own').values == ['own']


async def test_b18_shared_counts_in_an_agent_that_runs_again():
    journal = Journal()
    notes, other = Notes('t', journal, answer=never), Notes('u', journal, answer=never)
    tools = FunctionToolset[Any]()
    agent = calling(['t', 'u'], ['again'], toolsets=[notes.shared(), other, tools])

    async def again(ctx: RunContext[Any], value: str) -> None:
        await run_as('inner', agent, model=scripted(['t', 'u']))

    tools.add_function(again)
    await run_as('outer', agent)
    assert notes.values == ['outer', 'inner']
    assert entries_and_exits(journal, notes) == [('enter', 'outer'), ('exit', 'outer')]
    assert [toolset.values for toolset in calls(journal, 'inner')] == [['outer', 'inner'], ['inner']]


async def test_b18_shared_needs_no_copy():
    class WithoutCopy(Server):
        stateful = True

    toolset = WithoutCopy('t', Journal())
    await calling(['t'], toolsets=[Passing(toolset.shared())]).run('go')
    assert toolset.values == ['']
    with pytest.raises(UserError, match='copy'):
        calling(toolsets=[toolset.shared(), toolset])


# `ctx.for_sub_agent()`


def handing(*names: Any) -> Callable[[RunContext[Any]], dict[str, Any]]:
    return lambda ctx: {'toolsets': ctx.for_sub_agent(*names)}


@ways
@kinds
async def test_b18_toolset_that_is_handed_over_is_what_the_live_one_answers(kind: type[Notes], way: str):
    for answer in (None, fresh):
        journal = Journal()
        notes = kind('t', journal, answer=answer)
        toolsets = [notes, delegating(calling(['t']), way, options=handing(notes))]
        await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=toolsets))
        (asked,) = journal.of('ask')
        live = called(journal, 'parent')
        assert asked.toolset is live
        assert asked.got[0].tool_name == 'delegate'
        assert called(journal, 'child') is asked.got[1]
        assert (called(journal, 'child') is live) is (answer is None)
        assert {event.run for event in happened(journal, live, 'enter', 'exit')} == {'parent'}
        assert len(journal.of('enter')) == len(journal.of('exit')) == (1 if answer is None else 2)


@looked_into
@kinds
@pytest.mark.parametrize('all_of_them', [True, False])
async def test_b18_shared_original_is_asked_when_it_is_handed_over(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], all_of_them: bool
):
    journal = Journal()
    notes = kind('t', journal, answer=fresh)
    for shared in (place(notes.shared()), place(notes).shared()):
        journal.events.clear()
        delegate = delegating(calling(['t']), options=handing(*[] if all_of_them else [shared]))
        await run_as('parent', calling(['t'], ['delegate'], toolsets=[shared, delegate]))
        (asked,) = journal.of('ask')
        assert asked.toolset is called(journal, 'parent') is notes
        assert called(journal, 'child') is asked.got[1]


async def test_b18_all_that_were_given_are_handed_over_without_an_argument():
    handed: list[Any] = []

    def finish(value: str) -> str:
        return value

    def own_tool(value: str) -> str:
        return value

    async def delegate(ctx: RunContext[Any], value: str) -> None:
        handed.extend(ctx.for_sub_agent())
        await run_as('child', Agent(scripted(['t', 'u', 's', 'made', 'x_v']), toolsets=handed))

    journal = Journal()
    notes, other, server = Notes('t', journal), Notes('u', journal, answer=fresh), Server('s', journal)
    wrapped = Notes('v', journal).prefixed('x')
    made = lambda: Session('made', journal)
    parent = calling(
        ['t', 'u', 's', 'made', 'x_v'],
        ['delegate'],
        ['finish'],
        toolsets=[notes, other, made],
        tools=[own_tool, delegate],
        output_type=ToolOutput(finish, name='finish'),
    )
    await run_as('parent', parent, toolsets=[server, wrapped])
    assert len(handed) == 5
    same = [toolset in calls(journal, 'parent') for toolset in calls(journal, 'child')]
    assert [toolset.name for toolset in calls(journal, 'child')] == ['t', 'u', 's', 'made', 'v']
    assert same == [True, False, True, True, True]
    own = {(event.toolset.name, event.run) for event in journal.of('enter', 'exit') if event.run == 'child'}
    assert own <= {('u', 'child'), ('s', 'child')}


@looked_into
@kinds
async def test_b18_wrapper_or_combination_is_handed_over_with_what_is_inside(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    journal = Journal()
    notes = kind('t', journal)
    placed = place(notes)
    for handed in ([placed], [notes]):
        journal.events.clear()
        delegate = delegating(calling(['t']), options=handing(*handed))
        await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[placed, delegate]))
        live = called(journal, 'parent')
        assert called(journal, 'child') is live
        assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


@looked_into
@kinds
@pytest.mark.parametrize('answer', [None, fresh])
async def test_b18_handing_over_works_without_the_context_of_the_tool_call(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], answer: Any
):
    """In a thread that has none, as that of a pool."""

    def delegate(ctx: RunContext[Any], value: str) -> None:
        def work() -> None:
            RUN.set('child')
            with event_loop():
                calling(['t']).run_sync('go', toolsets=toolsets)

        toolsets = ctx.for_sub_agent(placed)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    journal = Journal()
    notes = kind('t', journal, answer=answer)
    placed = place(notes)
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[placed], tools=[delegate]))
    live = called(journal, 'parent')
    assert (called(journal, 'child') is live) is (answer is None)
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    assert len(journal.of('ask')) == 1


@kinds
async def test_b18_handing_over_counts_in_an_agent_that_runs_again(kind: type[Notes]):
    for place in (lambda toolset: toolset, *LOOKED_INTO.values()):  # pyright: ignore
        journal = Journal()
        notes = kind('t', journal)
        placed = place(notes)  # pyright: ignore
        agent = calling(['t'], ['again'], ['t'])

        @agent.tool
        async def again(ctx: RunContext[Any], value: str) -> None:
            toolsets = ctx.for_sub_agent(placed)  # noqa: B023  # pyright: ignore
            await run_as('inner', agent, model=scripted(['t']), toolsets=toolsets)  # noqa: B023

        await run_as('outer', agent, toolsets=[placed])
        live = called(journal, 'outer')
        assert called(journal, 'inner') is live
        assert entries_and_exits(journal, live) == [('enter', 'outer'), ('exit', 'outer')]


async def test_b18_context_of_an_outer_run_hands_over_that_of_the_outer_run():
    journal = Journal()
    notes = Notes('t', journal, answer=lambda live, ctx: fresh(live, ctx) if ctx.tool_name == 'delegate' else live)
    outer: list[RunContext[Any]] = []

    async def inner(ctx: RunContext[Any], value: str) -> None:
        await run_as('grandchild', calling(['t']), toolsets=outer[0].for_sub_agent(notes))

    def remember(ctx: RunContext[Any], value: str) -> None:
        outer.append(ctx)

    child = calling(['t'], ['inner'], toolsets=[notes, FunctionToolset[Any]([inner])])
    toolsets = [notes, delegating(child), FunctionToolset[Any]([remember])]
    await run_as('parent', calling(['t'], ['remember'], ['delegate'], toolsets=toolsets))
    assert called(journal, 'grandchild') is called(journal, 'parent') is not called(journal, 'child')


async def test_b18_handing_over_what_the_run_does_not_work_with_is_refused():
    async def delegate(ctx: RunContext[Any], value: str) -> None:
        contexts.append(ctx)
        with pytest.raises(UserError) as caught:
            ctx.for_sub_agent(notes, other)
        assert other.label in str(caught.value)

    contexts: list[RunContext[Any]] = []
    journal = Journal()
    notes, other = Notes('t', journal), Session('other', journal)
    await run_as('parent', calling(['delegate'], toolsets=[notes], tools=[delegate]))
    with pytest.raises(UserError):
        contexts[0].for_sub_agent(notes)


@kinds
async def test_b18_handing_over_leaves_later_runs_alone(kind: type[Notes]):
    """What once was handed over is an ordinary toolset in another run."""
    journal = Journal()
    notes = kind('t', journal)
    handing_parent = calling(
        ['t'], ['delegate'], toolsets=[notes, delegating(calling(['t']), options=handing())], name='handing'
    )
    for given in (notes, notes.shared()):
        with handing_parent.override(toolsets=[given, delegating(calling(['t']), options=handing(notes))]):
            await run_as('before', handing_parent)
    for _ in range(2):
        journal.events.clear()
        await run_as('alone', calling(['t'], toolsets=[notes]))
        await run_as('parent', parent_of(calling(['t'], toolsets=[notes]), notes))
        live = called(journal, 'parent')
        assert called(journal, 'child') is live
        assert (live is notes) is (called(journal, 'alone') is notes) is (kind is Ledger)
        assert entries_and_exits(journal, live)[-2:] == [('enter', 'parent'), ('exit', 'parent')]
        assert len(journal.of('enter')) == 2


async def test_b18_concurrent_runs_hand_over_their_own():
    """Also of what they all share: each sub-agent borrows from its own parent."""
    journal = Journal()
    ledger, notes = Ledger('t', journal), Notes('u', journal)
    first_has_ended = asyncio.Event()

    def parent(number: int, *steps: list[str]) -> Any:
        async def delegate(ctx: RunContext[Any], value: str) -> None:
            toolsets = ctx.for_sub_agent()
            await meet(number)
            await run_as(f'child{number}', calling(['t', 'u'], ['wait'], ['t', 'u'], tools=[wait]), toolsets=toolsets)

        async def wait(value: str) -> None:
            if number == 1:
                await first_has_ended.wait()

        return calling(['t', 'u'], ['delegate'], toolsets=[ledger, notes], tools=[delegate], name=f'parent{number}')

    there: set[int] = set()

    async def meet(number: int) -> None:
        there.add(number)
        while len(there) < 2:
            await asyncio.sleep(0)

    async def first() -> None:
        await run_as('parent2', parent(2))
        first_has_ended.set()

    await asyncio.gather(run_as('parent1', parent(1)), first())
    for number in (1, 2):
        assert calls(journal, f'child{number}') == calls(journal, f'parent{number}')
    assert {event.run for event in journal.of('enter', 'exit')} == {'parent1', 'parent2'}
