"""B17: what a sub-agent gets that is live already is borrowed, and anything else is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, ModelMessage, ModelResponse, RunContext
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import CombinedToolset
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
    fresh,
    happened,
    parent_of,
)
from .toolsets import RUN, SUCCESS, Journal, Server, Session, run_as
from .transactions import TRANSACTIONS, Nested, committed, new_database

pytestmark = pytest.mark.anyio

ways = pytest.mark.parametrize('way', WAYS)
kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


class Boom(Exception):
    """What the tests raise."""


def catching(child: Any, *, name: str = 'delegate') -> FunctionToolset[Any]:
    """Make a tool that runs another agent and puts up with its failure."""

    async def delegate(value: str) -> str:
        try:
            return await run_as('child', child)
        except Boom:
            return 'failed'

    toolset = FunctionToolset[Any](max_retries=0)
    toolset.add_function(delegate, name=name)
    return toolset


@ways
@kinds
async def test_b17_borrowed_toolset_is_entered_exited_and_copied_by_its_owner_only(kind: type[Notes], way: str):
    journal = Journal()
    notes = kind('t', journal)
    child = calling(['t'], toolsets=[notes, Passing(notes).prefixed('x'), CombinedToolset([notes.prefixed('y')])])
    await run_as('parent', parent_of(child, notes, way=way))
    live = called(journal, 'parent')
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    assert len(journal.of('enter')) == 1
    assert [event.run for event in journal.of('copy')] == (['parent'] if kind is Notes else [])


@ways
@kinds
async def test_b17_own_toolset_is_entered_and_exited_by_the_sub_agent_and_not_copied(kind: type[Notes], way: str):
    journal = Journal()
    notes = kind('t', journal, answer=fresh)
    await run_as('parent', parent_of(calling(['t'], toolsets=[notes]), notes, way=way))
    live, own = called(journal, 'parent'), called(journal, 'child')
    assert own is journal.of('ask')[0].got[1]
    assert entries_and_exits(journal, own) == [('enter', 'child'), ('exit', 'child')]
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']
    assert all(event.toolset is notes for event in journal.of('copy'))


@kinds
async def test_b17_own_toolset_that_stands_in_several_places_is_entered_once(kind: type[Notes]):
    journal = Journal()
    notes = kind('t', journal, answer=fresh)
    child = calling(['a_t', 'b_t'], toolsets=[notes.prefixed('a'), notes.prefixed('b')])
    await run_as('parent', parent_of(child, notes))
    own = called(journal, 'child')
    assert own.values == ['child', 'child']
    assert entries_and_exits(journal, own) == [('enter', 'child'), ('exit', 'child')]


async def test_b17_own_toolset_inside_of_two_answers_is_entered_once():
    journal = Journal()
    notes = Notes('t', journal, answer=fresh)
    one, two = notes.renamed({}), CombinedToolset([notes])
    child = calling(['a_t', 'b_t'], toolsets=[one.prefixed('a'), two.prefixed('b')])
    await run_as('parent', parent_of(child, one, two.prefixed('x')))
    own = called(journal, 'child')
    assert own.values == ['child', 'child']
    assert len(journal.of('ask')) == 1
    assert entries_and_exits(journal, own) == [('enter', 'child'), ('exit', 'child')]


async def test_b17_own_toolset_that_is_a_copy():
    journal = Journal()
    notes = Notes('t', journal, answer=lambda live, ctx: live.copy())
    await run_as('parent', parent_of(calling(['t'], toolsets=[notes]), notes))
    assert called(journal, 'child').values == ['child']
    assert entries_and_exits(journal, called(journal, 'child')) == [('enter', 'child'), ('exit', 'child')]


async def test_b17_answer_can_be_another_live_toolset():
    """What's live is borrowed, whichever of the enclosing run's toolsets it is."""
    journal = Journal()
    other = Notes('other', journal)
    live_others: list[Any] = []

    class Keeps(Notes):
        def for_sub_agent(self, ctx: RunContext[Any]) -> Any:
            return live_others[-1]

    class Other(Notes):
        async def __aenter__(self) -> Self:
            live_others.append(self)
            return await super().__aenter__()

    other, notes = Other('other', journal), Keeps('t', journal)
    child = calling(['other'], toolsets=[notes])
    await run_as('parent', calling(['other'], ['delegate'], toolsets=[other, notes, delegating(child)]))
    assert called(journal, 'child') is called(journal, 'parent') is live_others[0]
    assert len(journal.of('enter')) == len(journal.of('exit')) == 2
    assert {event.run for event in journal.of('enter', 'exit')} == {'parent'}


async def test_b17_own_toolset_is_entered_before_the_first_request_and_exited_after_the_last():
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        journal.note('request', notes)
        return ModelResponse(parts=[TextPart('done')])

    journal = Journal()
    notes = Notes('t', journal, answer=fresh)
    child = Agent(FunctionModel(respond), toolsets=[notes])
    await run_as('parent', parent_of(child, notes, before=None))
    events = [event.kind for event in journal.events if event.run == 'child']
    assert events == ['ask', 'enter', 'get_tools', 'request', 'exit']


# Failures


# A task group makes another exception of it
@pytest.mark.parametrize('way', [way for way in WAYS if way != 'task group'])
async def test_b17_exits_get_the_exception_of_their_own_run(way: str):
    """The one of the sub-agent, that the parent doesn't survive, reaches the exits of both."""
    journal = Journal()
    error = Boom('child')
    notes = Notes('t', journal, answer=fresh)
    shared = Notes('u', journal)
    faulty = Server('faulty', Journal(), fail={'call': error})
    child = calling(['t'], ['faulty'], toolsets=[notes, shared, faulty])
    with pytest.raises(Boom) as caught:
        await run_as('parent', parent_of(child, notes, shared, way=way))
    assert caught.value is error
    (own,) = happened(journal, called(journal, 'child'), 'exit')
    assert (own.run, own.got[:2]) == ('child', (Boom, error))
    exits = journal.of('exit')
    assert [event.run for event in exits] == ['child', 'parent', 'parent']
    assert all(event.got[1] is error for event in exits)


async def test_b17_exits_of_a_parent_that_puts_up_with_the_failure_get_none():
    journal = Journal()
    error = Boom('child')
    notes, shared = Notes('t', journal, answer=fresh), Notes('u', journal)
    faulty = Server('faulty', Journal(), fail={'call': error})
    child = calling(['t'], ['faulty'], toolsets=[notes, shared, faulty])
    parent = calling(['t'], ['delegate'], ['u'], toolsets=[notes, shared, catching(child)])
    assert await run_as('parent', parent) == 'done'
    own = called(journal, 'child')
    assert happened(journal, own, 'exit')[0].got[1] is error
    assert [event.got for event in journal.of('exit') if event.run == 'parent'] == [SUCCESS, SUCCESS]


async def test_b17_exits_of_a_sub_agent_that_succeeds_get_none_when_the_parent_fails_later():
    journal = Journal()
    error = Boom('parent')
    notes, shared = Notes('t', journal, answer=fresh), Notes('u', journal)
    child = calling(['t', 'u'], toolsets=[notes, shared])
    faulty = Server('faulty', Journal(), fail={'call': error})
    with pytest.raises(Boom):
        await run_as('parent', calling(['delegate'], ['faulty'], toolsets=[notes, shared, faulty, delegating(child)]))
    assert [(event.run, event.got[1]) for event in journal.of('exit')] == [
        ('child', None),
        ('parent', error),
        ('parent', error),
    ]


async def test_b17_entry_of_an_own_toolset_that_fails_exits_what_the_sub_agent_had_entered():
    journal = Journal()
    error = Boom('enter')

    def failing(live: Any, ctx: RunContext[Any]) -> Any:
        return Notes('own', journal, fail={'enter': error})

    toolsets = [Notes('a', journal, answer=fresh), Notes('b', journal), Notes('c', journal, answer=failing)]
    parent = calling(['delegate'], ['b'], toolsets=[*toolsets, catching(calling(toolsets=toolsets))])
    assert await run_as('parent', parent) == 'done'
    assert [(event.toolset.name, event.got[1]) for event in journal.of('exit') if event.run == 'child'] == [
        ('a', error)
    ]
    assert [event.got for event in journal.of('exit') if event.run == 'parent'] == [SUCCESS] * 3


async def test_b17_cancelled_sub_agent_exits_its_own_and_leaves_the_borrowed():
    class Hangs(Server):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            hanging.set()
            await asyncio.Event().wait()

    async def limited(value: str) -> str:
        async def cancel() -> None:
            await hanging.wait()
            scope.cancel()

        scope = anyio.CancelScope()
        cancelling = asyncio.ensure_future(cancel())
        with scope:
            return await run_as('child', child)
        await cancelling
        return 'too slow'

    async def timed(value: str) -> str:
        task = asyncio.ensure_future(run_as('child', child))
        await hanging.wait()
        try:
            return await asyncio.wait_for(task, 0.01)
        except asyncio.TimeoutError:
            return 'too slow'

    async def cancelled(value: str) -> str:
        task = asyncio.ensure_future(run_as('child', child))
        await hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return 'too slow'

    for tool in (limited, timed, cancelled):
        journal, hanging = Journal(), asyncio.Event()
        notes, shared = Notes('t', journal, answer=fresh), Notes('u', journal)
        child = calling(['t', 'u'], ['hangs'], toolsets=[notes, shared, Hangs('hangs', Journal())])
        toolsets = [notes, shared, FunctionToolset[Any]([tool])]
        assert await run_as('parent', calling([tool.__name__], ['t', 'u'], toolsets=toolsets)) == 'done'
        ((own, run, got),) = [(e.toolset, e.run, e.got[0]) for e in journal.of('exit') if e.run == 'child']
        assert (own.name, run, got) == ('t', 'child', asyncio.CancelledError)
        assert [event.got for event in journal.of('exit') if event.run == 'parent'] == [SUCCESS, SUCCESS]
        assert next(toolset for toolset in calls(journal, 'parent') if toolset.name == 'u').values == [
            'child',
            'parent',
        ]


async def test_b17_cancelled_parent_cancels_its_sub_agent_and_each_exits_its_own():
    class Hangs(Server):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            hanging.set()
            await asyncio.Event().wait()

    hanging = asyncio.Event()
    journal = Journal()
    notes, shared = Notes('t', journal, answer=fresh), Notes('u', journal)
    child = calling(['t', 'u'], ['hangs'], toolsets=[notes, shared, Hangs('hangs', Journal())])
    task = asyncio.ensure_future(run_as('parent', parent_of(child, notes, shared)))
    await hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(event.toolset.name, event.run) for event in journal.of('exit')] == [
        ('t', 'child'),
        ('u', 'parent'),
        ('t', 'parent'),
    ]
    assert all(event.got[0] is asyncio.CancelledError for event in journal.of('exit'))


# Transactions, with a database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return new_database(tmp_path)


def failing_tool(error: BaseException) -> Server:
    return Server('fail', Journal(), fail={'call': error})


INSIDE: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'nothing': lambda toolset: toolset,
    'a combination of a wrapper': lambda toolset: CombinedToolset([toolset.filtered(lambda ctx, tool: True)]),
}
"""What the transaction stands in."""


@pytest.mark.parametrize('policy', TRANSACTIONS)
@pytest.mark.parametrize('child_succeeds, survives, parent_fails', TRANSACTIONS['shared'][1])
@pytest.mark.parametrize('inside', INSIDE.values(), ids=INSIDE.keys())
async def test_b17_transaction_is_committed_or_rolled_back_as_the_toolset_says(
    database: Path,
    policy: str,
    child_succeeds: bool,
    survives: bool,
    parent_fails: bool,
    inside: Callable[[Any], AbstractToolset[Any]],
):
    cls, expected = TRANSACTIONS[policy]
    error = Boom('failed')
    placed = inside(cls(database))
    child = calling(
        ['write'], *([] if child_succeeds else [['fail']]), toolsets=[placed, failing_tool(error)], name='child'
    )
    delegate = catching(child) if survives else delegating(child)
    steps = [['delegate'], ['write'], *([['fail']] if parent_fails else [])]
    parent = calling(*steps, toolsets=[placed, failing_tool(error), delegate], name='parent')
    if parent_fails or (not child_succeeds and not survives):
        with pytest.raises(Boom):
            await run_as('parent', parent)
    else:
        await run_as('parent', parent)
    assert committed(database) == expected[child_succeeds, survives, parent_fails]


@pytest.mark.parametrize('policy, sees', [('shared', True), ('isolated', False), ('savepoint', True)])
async def test_b17_sub_agent_sees_what_is_not_committed_as_the_toolset_says(database: Path, policy: str, sees: bool):
    outputs: list[Any] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart('read', {})])
        outputs.append(messages[-1].parts[0].content)  # pyright: ignore
        return ModelResponse(parts=[TextPart('done')])

    transaction = TRANSACTIONS[policy][0](database)
    child = Agent(FunctionModel(respond), toolsets=[transaction])
    await run_as('parent', calling(['write'], ['delegate'], toolsets=[transaction, delegating(child)]))
    assert outputs == [['parent'] if sees else []]
    assert committed(database) == ['parent']


async def test_b17_savepoints_nest(database: Path):
    """A savepoint in a savepoint, the inner of which fails."""
    transaction = Nested(database)
    error = Boom('grandchild')
    grandchild = calling(['write'], ['fail'], toolsets=[transaction, failing_tool(error)])

    async def delegate(value: str) -> str:
        with pytest.raises(Boom):
            await run_as('grandchild', grandchild)
        return 'failed'

    child = calling(['write'], ['delegate'], toolsets=[transaction, FunctionToolset[Any]([delegate])])
    await run_as('parent', calling(['write'], ['delegate'], toolsets=[transaction, delegating(child)]))
    assert committed(database) == ['parent', 'child']


async def test_b17_own_toolset_that_is_not_stateful_is_the_sub_agents_too():
    """Without `stateful`, as for a toolset that is made anew for each run by hand."""
    journal = Journal()

    class Once(Ledger):
        async def __aenter__(self) -> Self:
            assert not any(event.toolset is self for event in journal.of('enter'))
            return await super().__aenter__()

    for of_child in (lambda t: [t], lambda t: [Passing(t)], lambda t: [CombinedToolset([t])]):  # pyright: ignore
        for answer in (None, fresh):
            journal.events.clear()
            notes = Once('t', journal, answer=answer)
            child = calling(['t'], toolsets=of_child(notes))  # pyright: ignore[reportUnknownArgumentType]
            await run_as('parent', parent_of(child, notes))
            assert (called(journal, 'child') is notes) is (answer is None)
            assert len(journal.of('enter')) == len(journal.of('exit')) == (1 if answer is None else 2)


async def test_b17_live_toolset_inside_a_wrapper_that_the_sub_agent_copies_is_borrowed():
    """The wrapper is new to the enclosing run, and its `copy()` leaves alone what isn't stateful."""

    class Leaves(Passing):
        def copy(self) -> Self:
            return type(self)(self.inner.copy() if self.inner.stateful else self.inner)

    for kind in (Notes, Ledger):
        journal = Journal()
        notes = kind('t', journal)
        await run_as('parent', parent_of(calling(['t'], toolsets=[Leaves(notes)]), notes))
        live = called(journal, 'parent')
        assert called(journal, 'child') is live
        assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b17_toolset_that_the_tool_entered_and_exited_by_hand_is_not_live():
    journal = Journal()
    helper = Session('helper', journal)
    notes = Notes('t', journal, answer=lambda live, ctx: CombinedToolset([live, helper]))
    child = calling(['helper'], toolsets=[notes])

    async def delegate(value: str) -> None:
        async with helper:
            pass
        await run_as('child', child)

    await run_as('parent', calling(['delegate'], toolsets=[notes, FunctionToolset[Any]([delegate])]))
    assert [(event.kind, event.run) for event in happened(journal, helper, 'enter', 'exit')] == [
        ('enter', 'parent'),
        ('exit', 'parent'),
        ('enter', 'child'),
        ('exit', 'child'),
    ]
    RUN.set('')
