"""B33: a scope makes and enters copies of the toolsets that it names, and a run works with them when it's given the scope."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
from pydantic_ai import Agent, UserError
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.toolsets import CombinedToolset, ToolsetScope

from .delegation import calling
from .line import WRAPPERS
from .toolsets import METHODS, Journal, Server, Session, run_as, scripted

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


@methods
async def test_b33_all_runs_that_are_given_the_scope_have_one_copy(method: str):
    journal = Journal()
    session, server = Session('t', journal), Server('s', journal)
    agents = [calling(['t'], ['s', 't'], toolsets=[session, server], name=name) for name in ('one', 'two')]
    async with ToolsetScope(session) as chat:
        assert journal.lifecycle == ['+t']
        for agent in agents:
            await run_as('run', agent, method, toolsets=[chat])
            await asyncio.ensure_future(run_as('task', agent, method, toolsets=[chat]))
            await run_as('wrapped', WrapperAgent[Any, Any](agent), method, toolsets=[chat])  # pyright: ignore[reportArgumentType]
    (copy,) = {event.toolset for event in journal.of('call') if event.toolset.name == 't'}
    assert copy.values == ['run', 'run', 'task', 'task', 'wrapped', 'wrapped'] * 2
    assert (session.values, journal.names('copy')) == ([], ['t'])
    assert [event for event in journal.lifecycle if event.endswith('t')] == ['+t', '-t']
    assert all(event.toolset is not session for event in journal.of('enter', 'exit', 'call'))
    assert journal.lifecycle.count('+s') == 6


@methods
async def test_b33_runs_that_were_not_given_it_know_nothing_of_it(method: str):
    """Whatever block, generator, task or thread they start in."""
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])

    async def chunks() -> AsyncIterator[Any]:
        async with ToolsetScope(session) as inner:
            yield await run_as('given', agent, method, toolsets=[inner])
            yield await run_as('in generator', agent, method)

    async with ToolsetScope(session) as chat:
        await run_as('in block', agent, method)
        await asyncio.ensure_future(run_as('in task', agent, method))
        await run_as('in thread', agent, 'run_sync')
        async for _ in chunks():
            await run_as('between chunks', agent, method)
        assert chat.instance_of(session).values == []
    await run_as('after', agent, method)
    for event in journal.of('call'):
        assert set(event.toolset.values) == {event.run}
    assert len({id(event.toolset) for event in journal.of('call')}) == 8


@pytest.mark.parametrize('wrapper', WRAPPERS)
async def test_b33_toolset_in_any_wrapper_and_place_is_the_same(wrapper: str):
    journal = Journal()
    session = Session('t', journal)
    wrapped: Any = WRAPPERS[wrapper](session)
    async with ToolsetScope(session) as chat:
        for toolsets in ([wrapped], [session], [CombinedToolset([session, Server('s', journal)])]):
            result = await calling(toolsets=toolsets).run('go', toolsets=[chat])
            assert result.instance_of(session) is chat.instance_of(session)
        assert chat.instance_of(session).original is session
    assert journal.names('copy') == ['t']
    assert [event for event in journal.lifecycle if event.endswith('t')] == ['+t', '-t']


@pytest.mark.parametrize('place', ['agent', 'decorator', 'run', 'override'])
@pytest.mark.parametrize('made', ['class', 'function', 'open', 'inside'])
async def test_b33_scope_that_a_factory_returns_is_refused(made: str, place: str):
    journal = Journal()
    session = Session('t', journal)
    async with ToolsetScope(session) as chat:
        makes: dict[str, Any] = {
            'class': ToolsetScope,
            'function': lambda: ToolsetScope(session),
            'open': lambda: chat,
            'inside': lambda ctx: CombinedToolset([Server('s', journal), chat.prefixed('x')]),
        }
        make = makes[made]
        agent = Agent(scripted(['t']), toolsets=[session, make] if place == 'agent' else [session])
        if place == 'decorator':
            agent.toolset(lambda ctx: make(ctx) if made == 'inside' else make())
        overriding = agent.override(toolsets=[session, make]) if place == 'override' else nullcontext()
        with overriding, pytest.raises(UserError, match=r'(?i)scope'):
            await agent.run('go', toolsets=[make] if place == 'run' else None)
    assert journal.names('enter') == journal.names('exit')
