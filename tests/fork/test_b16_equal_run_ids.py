"""B16: runs that were given the same ID are as separate as any: nothing but the tool call decides which run encloses which."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, UserError

from .delegation import Ledger, Notes, called, calling, calls, delegating, entries_and_exits, forked, fresh, happened
from .toolsets import METHODS, RUN, Journal, run_as

pytestmark = pytest.mark.anyio


@pytest.fixture
def same_id() -> dict[str, Any]:
    """Give the options of runs that get the same ID."""
    return {'run_id': 'the same'}


def meeting(child: Agent[Any, Any], runs: int, options: dict[str, Any]) -> FunctionToolset[Any]:
    """Make a toolset with a tool that runs another agent once it was called in as many runs."""
    calls: list[str] = []
    all_called = asyncio.Event()

    async def delegate(ctx: RunContext[Any], value: str) -> None:
        assert ctx.run_id == 'the same'
        calls.append(value)
        if len(calls) == runs:
            all_called.set()
        await all_called.wait()
        await run_as(f'child of {value}', child, **options)

    toolset = FunctionToolset[Any](max_retries=0)
    toolset.add_function(delegate)
    return toolset


@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b16_runs_at_once_with_the_same_id_lend_their_own(method: str, same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    parent = calling(['t'], ['delegate'], ['t'], toolsets=[notes, meeting(child, 3, same_id)], name='parent')
    names = ['a', 'b', 'c']
    await asyncio.gather(*(run_as(name, parent, method, **same_id) for name in names))
    for name in names:
        live = called(journal, name)
        assert called(journal, f'child of {name}') is live
        assert live.values == [name, f'child of {name}', name]
        assert entries_and_exits(journal, live) == [('enter', name), ('exit', name)]
    assert len(journal.of('copy')) == 3


async def test_b16_runs_at_once_of_two_agents_with_the_same_id_lend_their_own(same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal)
    delegate = meeting(calling(['t'], toolsets=[notes]), 2, same_id)
    parents = {name: calling(['t'], ['delegate'], toolsets=[notes, delegate], name=name) for name in ('a', 'b')}
    await asyncio.gather(*(run_as(name, parent, **same_id) for name, parent in parents.items()))
    for name in parents:
        assert called(journal, f'child of {name}') is called(journal, name)
        assert called(journal, name).values == [name, f'child of {name}']


@pytest.mark.parametrize('shared', [False, True])
@pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])
async def test_b16_sub_agent_with_the_id_of_its_parent_gets_what_that_lends(
    kind: type[Notes], shared: bool, same_id: dict[str, Any]
):
    journal = Journal()
    notes = kind('t', journal)
    child = calling(['t'], toolsets=[notes.shared() if shared else notes])
    parent = calling(['t'], ['delegate'], toolsets=[notes, delegating(child, options=lambda ctx: same_id)])
    await run_as('parent', parent, **same_id)
    assert called(journal, 'child') is called(journal, 'parent')
    assert called(journal, 'parent').values == ['parent', 'child']
    assert [event.run for event in journal.of('enter', 'exit')] == ['parent', 'parent']
    assert len(journal.of('ask')) == (0 if shared else 1)


async def test_b16_sub_agent_with_the_id_of_its_parent_exits_its_own(same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    child = calling(['t'], toolsets=[notes])
    parent = calling(
        ['t'], ['delegate'], ['t'], toolsets=[notes, delegating(child, options=lambda ctx: same_id)], name='parent'
    )
    await run_as('parent', parent, **same_id)
    assert called(journal, 'child').values == ['parent', 'child']
    assert called(journal, 'parent').values == ['parent', 'parent']
    for run in ('parent', 'child'):
        assert entries_and_exits(journal, called(journal, run)) == [('enter', run), ('exit', run)]


async def test_b16_toolset_is_handed_over_to_a_run_with_the_same_id(same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal)
    options = lambda ctx: {**same_id, 'toolsets': ctx.for_sub_agent(notes)}
    delegate = delegating(calling(['t']), options=options)
    await run_as('parent', calling(['t'], ['delegate'], toolsets=[notes, delegate]), **same_id)
    assert called(journal, 'child') is called(journal, 'parent')
    assert called(journal, 'parent').values == ['parent', 'child']


async def test_b16_agent_that_runs_again_with_the_same_id_gets_a_fresh_one(same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal)
    tools = FunctionToolset[Any](max_retries=0)
    agent = calling(['t'], ['again'], ['t'], toolsets=[notes, tools])

    async def again(ctx: RunContext[Any], value: str) -> None:
        if value == 'outer':
            await run_as('inner', agent, **same_id)

    tools.add_function(again)
    await run_as('outer', agent, **same_id)
    assert called(journal, 'outer').values == ['outer', 'outer']
    assert called(journal, 'inner').values == ['inner', 'inner']
    assert journal.of('ask') == []


async def test_b16_nearest_of_nested_runs_with_the_same_id_is_asked(same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal, answer=fresh)
    options = lambda ctx: same_id
    grandchild = calling(['t'], toolsets=[notes])
    child = calling(
        ['t'], ['delegate'], toolsets=[notes, delegating(grandchild, run='grandchild', options=options)], name='child'
    )
    parent = calling(['t'], ['delegate'], ['t'], toolsets=[notes, delegating(child, options=options)], name='parent')
    await run_as('parent', parent, **same_id)
    assert [event.toolset for event in journal.of('ask')] == [called(journal, 'parent'), called(journal, 'child')]
    assert called(journal, 'grandchild').values == ['grandchild']
    assert called(journal, 'child').values == ['child']
    assert called(journal, 'parent').values == ['parent', 'parent']


async def test_b16_runs_one_after_another_with_the_same_id_have_their_own(same_id: dict[str, Any]):
    journal = Journal()
    notes = Notes('t', journal)
    agent = calling(['t'], toolsets=[notes])
    for name in ('first', 'second'):
        await run_as(name, agent, **same_id)
    assert [called(journal, name).values for name in ('first', 'second')] == [['first'], ['second']]


async def test_b16_run_in_the_background_does_not_join_a_later_run_with_the_same_id(same_id: dict[str, Any]):
    """The run that started it has ended, so what that lent can't be used, though another with that ID goes on."""
    journal = Journal()
    notes = Notes('t', journal)
    go_on, errors, background = asyncio.Event(), list[BaseException](), list[asyncio.Task[None]]()
    tools = FunctionToolset[Any](max_retries=0)
    waiting = FunctionToolset[Any](max_retries=0)
    child = calling(['t'], ['wait'], ['t'], toolsets=[notes, waiting], name='child')
    parent = calling(['t'], ['start'], toolsets=[notes, tools], name='parent')
    later = calling(['t'], ['join'], toolsets=[notes, tools], name='later')

    async def wait(value: str) -> None:
        waits.set()
        await go_on.wait()

    async def in_background() -> None:
        try:
            await run_as('child', child, **same_id)
        except UserError as error:
            errors.append(error)

    async def start(value: str) -> None:
        background.append(asyncio.ensure_future(in_background()))
        await waits.wait()

    async def join(value: str) -> None:
        assert RUN.get() == 'later'
        go_on.set()
        await asyncio.gather(*background)

    waits = asyncio.Event()
    waiting.add_function(wait)
    tools.add_function(start)
    tools.add_function(join)
    await run_as('parent', parent, **same_id)
    await run_as('later', later, **same_id)
    assert len(errors) == 1
    assert "'parent'" in str(errors[0])
    assert called(journal, 'later').values == ['later']
    assert called(journal, 'later') is not called(journal, 'parent')
    assert [event.kind for event in happened(journal, called(journal, 'parent'), 'enter', 'exit')] == ['enter', 'exit']
    assert not set(calls(journal, 'child')) & set(calls(journal, 'later'))
