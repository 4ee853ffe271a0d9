"""B33: in the block of a scope, each stateful toolset has one copy for all top-level runs; all else is per run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import CombinedToolset, ToolsetScope

from .delegation import Notes, calling, delegating, fresh
from .line import WRAPPERS, once_per_run
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


@methods
async def test_b33_all_runs_of_all_agents_have_one_copy(method: str):
    journal = Journal()
    session, server = Session('t', journal), Server('s', journal)
    agents = [calling(['t'], ['s', 't'], toolsets=[session, server], name=name) for name in ('one', 'two')]
    async with ToolsetScope():
        for agent in agents:
            await run_as('run', agent, method)
            await asyncio.ensure_future(run_as('task', agent, method))
    (copy,) = {event.toolset for event in journal.of('call') if event.toolset.name == 't'}
    assert copy.values == ['run', 'run', 'task', 'task'] * 2
    assert (session.values, journal.names('copy')) == ([], ['t'])
    assert [event for event in journal.lifecycle if event.endswith('t')] == ['+t', '-t']
    assert all(event.toolset is not session for event in journal.of('enter', 'exit', 'call'))
    assert journal.lifecycle.count('+s') == 4


@methods
async def test_b33_runs_before_and_after_have_copies_of_their_own(method: str):
    journal = Journal()
    agent = calling(['t'], toolsets=[Session('t', journal)])
    await run_as('before', agent, method)
    async with ToolsetScope():
        await run_as('inside', agent, method)
    await run_as('after', agent, method)
    assert [event.toolset.values for event in journal.of('call')] == [['before'], ['inside'], ['after']]


@pytest.mark.parametrize('wrapper', WRAPPERS)
async def test_b33_toolset_in_any_wrapper_and_place_is_the_same(wrapper: str):
    journal = Journal()
    session = Session('t', journal)
    wrapped: Any = WRAPPERS[wrapper](session)
    async with ToolsetScope(wrapped) as scope:
        for toolsets in ([wrapped], [session], [CombinedToolset([session, Server('s', journal)])]):
            await run_as('run', calling(toolsets=toolsets))
            assert scope.instance_of(session).original is session
    assert journal.names('copy') == ['t']
    assert [event for event in journal.lifecycle if event.endswith('t')] == ['+t', '-t']


async def test_b33_only_what_was_named_is_kept_and_factories_never():
    journal = Journal()
    one, two = Session('one', journal), Session('two', journal)
    made = once_per_run(lambda: Session('made', journal))
    agent = calling(['one', 'two', 'made'], toolsets=[one, two, made])
    async with ToolsetScope(one):
        for _ in range(3):
            await run_as('run', agent)
    for name, number in (('one', 1), ('two', 3), ('made', 3)):
        assert journal.lifecycle.count(f'+{name}') == journal.lifecycle.count(f'-{name}') == number
    for toolset in (made, Server('server', journal)):
        with pytest.raises(UserError) as caught:
            ToolsetScope(toolset)
        assert toolset.label in str(caught.value)


@pytest.mark.parametrize('answer', [None, fresh])
async def test_b33_nested_runs_get_what_the_run_around_them_says(answer: Any):
    journal = Journal()
    notes, own = Notes('t', journal, answer=answer), Session('own', journal)
    child = calling(['t'], ['own'], toolsets=[notes, own])
    parent = calling(['t'], ['delegate'], toolsets=[notes, delegating(child)], name='parent')
    async with ToolsetScope() as scope:
        for _ in range(2):
            await run_as('parent', parent)
        expected = ['parent', 'child'] * 2 if answer is None else ['parent'] * 2
        assert scope.instance_of(notes).values == expected
    assert journal.lifecycle.count('+own') == journal.lifecycle.count('-own') == 2


async def test_b33_agent_that_calls_itself_has_fresh_copies_inside():
    journal = Journal()
    session = Session('t', journal)
    agent: Any = None
    rounds = iter([True])

    async def again(value: str) -> None:
        if next(rounds, False):
            await run_as('inner', agent)

    agent = calling(['t'], ['again'], toolsets=[session], tools=[again], name='self')
    async with ToolsetScope() as scope:
        await run_as('outer', agent)
        assert scope.instance_of(session).values == ['outer']
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']


async def test_b33_two_runs_of_an_approval_that_is_answered_by_hand():
    """What the first run collected is there when the answer arrives."""
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    async with ToolsetScope():
        first = await agent.run('go')
        second = await agent.run('go on')
    assert first.instance_of(session) is second.instance_of(session)
    assert second.instance_of(session).values == ['', '']


async def test_b33_context_run_and_result_find_the_instance():
    session = Session('t', Journal())
    agent = calling(['t'], toolsets=[session.prefixed('p')])
    async with ToolsetScope() as scope:
        async with agent.iter('go') as agent_run:
            during = agent_run.instance_of(session)
            async for _ in agent_run:
                pass
        assert agent_run.result is not None
        assert agent_run.result.instance_of(session) is during is scope.instance_of(session) is not session
