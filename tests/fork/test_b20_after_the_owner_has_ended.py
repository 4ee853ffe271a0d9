"""B20: a borrowed toolset that is used after its owner's run has ended raises an error that names the owner's agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, FunctionToolset, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset

from .delegation import Ledger, Notes, Passing, calling, calls, delegating, entries_and_exits, fresh, happened
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


class Background:
    """Starts agents in the background of a tool call, which wait in their tool `wait` until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting = asyncio.Event()
        self.tasks: list[asyncio.Future[Any]] = []

    async def wait(self, value: str) -> None:
        self.waiting.set()
        await self.go.wait()

    def starting(self, child: Any, method: str = 'run', options: Callable[[Any], dict[str, Any]] | None = None) -> Any:
        async def start(ctx: RunContext[Any], value: str) -> None:
            chosen = options(ctx) if options else {}
            self.tasks.append(asyncio.ensure_future(run_as('child', child, method, **chosen)))
            waiting = asyncio.ensure_future(self.waiting.wait())
            await asyncio.wait([self.tasks[-1], waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

        toolset = FunctionToolset[Any]()
        toolset.add_function(start)
        return toolset

    async def outcome(self) -> Any:
        self.go.set()
        (outcome,) = await asyncio.gather(*self.tasks, return_exceptions=True)
        return outcome


def check_refused(outcome: Any, toolset: Any, owner: str) -> None:
    assert isinstance(outcome, UserError)
    assert repr(owner) in str(outcome)
    assert toolset.label in str(outcome)


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    'renamed': lambda toolset: toolset.renamed({}),
    'combined': lambda toolset: CombinedToolset([toolset]),
    'passed on': Passing,
    'shared': lambda toolset: toolset.shared(),
}
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())


@places
@kinds
@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b20_background_child_cannot_use_what_its_parent_has_exited(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], method: str
):
    journal = Journal()
    background = Background()
    notes = kind('t', journal)
    child = calling(['t'], ['wait'], ['t'], toolsets=[place(notes)], tools=[background.wait])
    await run_as('parent', calling(['t'], ['start'], toolsets=[notes, background.starting(child, method)], name='boss'))
    before = list(journal.events)
    outcome = await background.outcome()
    check_refused(outcome, notes, 'boss')
    assert journal.events == before
    (live,) = calls(journal, 'child')
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


@pytest.mark.parametrize('nested', [False, True])
async def test_b20_error_of_several_borrowed_toolsets_is_raised_alone(nested: bool):
    """Toolsets that are asked for their tools at once would raise it together, as a group that no `except UserError` catches."""
    background = Background()
    one, two, three = (Notes(name, Journal()) for name in ('one', 'two', 'three'))
    toolsets = [CombinedToolset([one, two.prefixed('x')]), three] if nested else [one, two, three]
    child = calling(['wait'], ['one'], toolsets=toolsets, tools=[background.wait])
    await run_as('parent', calling(['start'], toolsets=[one, two, three, background.starting(child)], name='boss'))
    outcome = await background.outcome()
    assert type(outcome) is UserError
    assert "'boss'" in str(outcome)


async def test_b20_calls_of_several_borrowed_toolsets_in_one_step_raise_it_alone():
    background = Background()
    one, two = Notes('one', Journal()), Notes('two', Journal())

    class Waits(Server):
        async def get_tools(self, ctx: RunContext[Any]) -> Any:
            tools = await super().get_tools(ctx)
            await background.wait('')
            return tools

    child = calling(['one', 'two'], toolsets=[one, two, Waits('waits', Journal())])
    await run_as('parent', calling(['start'], toolsets=[one, two, background.starting(child)], name='boss'))
    assert type(await background.outcome()) is UserError


async def test_b20_call_that_the_model_asks_for_after_the_owner_has_ended_is_refused():
    """The tools were listed while it was live."""
    journal = Journal()
    background = Background()
    notes = Notes('t', journal)

    class Waits(Server):
        async def get_tools(self, ctx: RunContext[Any]) -> Any:
            tools = await super().get_tools(ctx)
            await background.wait('')
            return tools

    child = calling(['t'], toolsets=[notes, Waits('waits', Journal())])
    await run_as('parent', calling(['start'], toolsets=[notes, background.starting(child)], name='boss'))
    check_refused(await background.outcome(), notes, 'boss')
    assert journal.of('call') == []


async def test_b20_own_toolsets_of_a_background_child_get_the_error_and_are_exited():
    journal = Journal()
    background = Background()
    notes, owned = Notes('t', journal), Notes('o', journal, answer=fresh)
    child = calling(['o'], ['wait'], ['o'], ['t'], toolsets=[owned, notes], tools=[background.wait])
    await run_as('parent', calling(['start'], toolsets=[notes, owned, background.starting(child)], name='boss'))
    outcome = await background.outcome()
    check_refused(outcome, notes, 'boss')
    ((own, got),) = [(event.toolset, event.got) for event in journal.of('exit') if event.run == 'child']
    assert own.name == 'o'
    assert got[1] is outcome


async def test_b20_background_child_with_toolsets_of_its_own_goes_on():
    journal = Journal()
    background = Background()
    notes = Notes('t', journal, answer=fresh)
    other = Session('u', journal)
    child = calling(['t', 'u'], ['wait'], ['t', 'u'], toolsets=[notes, other], tools=[background.wait])
    await run_as('parent', calling(['t'], ['start'], toolsets=[notes, background.starting(child)]))
    assert await background.outcome() == 'done'
    assert [toolset.values for toolset in calls(journal, 'child')] == [['child', 'child']] * 2
    assert [event.run for event in journal.of('exit')] == ['parent', 'child', 'child']


async def test_b20_owner_of_what_is_borrowed_twice_over_is_named():
    """A grandchild has it from the child, which has it from the parent."""
    journal = Journal()
    background = Background()
    notes = Notes('t', journal)
    grandchild = calling(['t'], ['wait'], ['t'], toolsets=[notes], tools=[background.wait], name='grandchild')
    child = calling(['t'], ['start'], toolsets=[notes, background.starting(grandchild)], name='middle')
    for ended in ('middle', 'both'):
        journal.events.clear()
        background.__init__()

        async def go_on(value: str, ended: str = ended) -> None:
            if ended == 'middle':
                assert await background.outcome() == 'done'

        toolsets = [notes, delegating(child, run='middle'), FunctionToolset[Any]([go_on])]
        await run_as('parent', calling(['delegate'], ['go_on'], toolsets=toolsets, name='boss'))
        if ended == 'both':
            check_refused(await background.outcome(), notes, 'boss')
        assert len(journal.of('enter')) == len(journal.of('exit')) == 1


async def test_b20_what_the_middle_run_owned_is_refused_when_it_has_ended():
    journal = Journal()
    background = Background()
    notes = Notes('t', journal, answer=lambda live, ctx: live if live.values == ['middle'] else fresh(live, ctx))
    grandchild = calling(['t'], ['wait'], ['t'], toolsets=[notes], tools=[background.wait])
    child = calling(['t'], ['start'], toolsets=[notes, background.starting(grandchild)], name='middle')
    outcomes: list[Any] = []

    async def go_on(value: str) -> None:
        outcomes.append(await background.outcome())

    toolsets = [notes, delegating(child, run='middle'), FunctionToolset[Any]([go_on])]
    await run_as('parent', calling(['t'], ['delegate'], ['go_on'], ['t'], toolsets=toolsets, name='boss'))
    check_refused(outcomes[0], notes, 'middle')


async def test_b20_use_while_the_owner_exits_is_refused():
    """Some of its toolsets are exited already, and nobody knows which."""
    journal = Journal()
    background = Background()
    outcomes: list[Any] = []

    class Last(Server):
        async def __aexit__(self, *args: object) -> bool | None:
            outcomes.append(await background.outcome())
            return await super().__aexit__(*args)

    notes = Notes('t', journal)
    child = calling(['wait'], ['t'], toolsets=[notes], tools=[background.wait])
    toolsets = [Last('first', Journal()), notes, background.starting(child)]
    await run_as('parent', calling(['start'], toolsets=toolsets, name='boss'))
    check_refused(outcomes[0], notes, 'boss')
    assert journal.of('call') == []


async def test_b20_owner_that_failed_has_ended_too():
    journal = Journal()
    background = Background()
    notes = Notes('t', journal)
    faulty = Server('faulty', Journal(), fail={'call': RuntimeError('parent')})
    child = calling(['wait'], ['t'], toolsets=[notes], tools=[background.wait])
    parent = calling(['start'], ['faulty'], toolsets=[notes, faulty, background.starting(child)], name='boss')
    with pytest.raises(RuntimeError):
        await run_as('parent', parent)
    check_refused(await background.outcome(), notes, 'boss')


@kinds
async def test_b20_another_run_of_the_owner_does_not_make_it_live_again(kind: type[Notes]):
    journal = Journal()
    background = Background()
    notes = kind('t', journal)
    child = calling(['wait'], ['t'], toolsets=[notes], tools=[background.wait])
    parent = calling(['start'], toolsets=[notes, background.starting(child)], name='boss')
    await run_as('parent', parent)
    async with calling(['t'], toolsets=[notes], name='boss').iter('go'):
        check_refused(await background.outcome(), notes, 'boss')
    assert journal.of('call') == []


@kinds
@pytest.mark.parametrize('name', [name for name in PLACES if name != 'shared'])
async def test_b20_child_that_starts_after_the_end_with_what_was_handed_over_is_refused(kind: type[Notes], name: str):
    handed: list[Any] = []

    async def hand_over(ctx: RunContext[Any], value: str) -> None:
        handed.extend(ctx.for_sub_agent(placed))

    journal = Journal()
    notes = kind('t', journal)
    placed = PLACES[name](notes)
    await run_as('parent', calling(['t'], ['hand_over'], toolsets=[placed], tools=[hand_over], name='boss'))
    (live,) = calls(journal, 'parent')
    before = happened(journal, live)
    with pytest.raises(UserError) as caught:
        await run_as('child', calling(['t']), toolsets=handed)
    check_refused(caught.value, notes, 'boss')
    assert happened(journal, live) == before


async def test_b20_grandchild_of_a_background_child_is_not_given_what_has_ended():
    """What the child has borrowed isn't live any more, so nobody asks or uses it."""

    async def late(value: str) -> None:
        await background.wait(value)
        await run_as('grandchild', calling(['t'], toolsets=[notes]))

    journal = Journal()
    background = Background()
    notes = Notes('t', journal)
    child = calling(['t'], ['late'], toolsets=[notes], tools=[late])
    await run_as('parent', calling(['start'], toolsets=[notes, background.starting(child)], name='boss'))
    (live,) = calls(journal, 'child')
    before = happened(journal, live)
    check_refused(await background.outcome(), notes, 'boss')
    assert happened(journal, live) == before


async def test_b20_what_runs_share_goes_on():
    """A toolset that's neither stateful nor says anything belongs to no run."""
    journal = Journal()
    background = Background()
    server = Server('t', journal)
    child = calling(['t'], ['wait'], ['t'], toolsets=[server], tools=[background.wait])
    await run_as('parent', calling(['t'], ['start'], toolsets=[server, background.starting(child)]))
    assert await background.outcome() == 'done'
    assert entries_and_exits(journal, server) == [
        ('enter', 'parent'),
        ('enter', 'child'),
        ('exit', 'parent'),
        ('exit', 'child'),
    ]
