"""B37 on the engines: a scope belongs inside of the workflow or flow, which begins with fresh copies when it's recovered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dbos import DBOS
from prefect import flow
from pydantic_ai import Agent, UserError
from pydantic_ai.toolsets import ToolsetScope, ToolsetScopePool

from ..toolsets import Journal, Session, run_as, scripted
from .agents import for_dbos, for_prefect

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


def durable(engine: str, name: str, toolsets: list[Any]) -> Any:
    make = for_dbos if engine == 'dbos' else for_prefect
    return make('wrapper', scripted(['t']), toolsets, name)


@pytest.mark.usefixtures('dbos', 'prefect')
@pytest.mark.parametrize('engine', ['dbos', 'prefect'])
async def test_b37_scope_inside_of_a_workflow_keeps_and_one_outside_is_refused(engine: str):
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['t']), toolsets=[session], name='plain')
    whole = durable(engine, 'durable', [session])
    pool = ToolsetScopePool(session)

    async def chat() -> list[str]:
        async with ToolsetScope(session) as scope:
            await run_as('a', agent, toolsets=[scope])
            await run_as('b', agent, toolsets=[scope])
            return scope.instance_of(session).values

    async def chat_of_pool() -> list[str]:
        async with pool('key') as scope:
            await run_as('c', agent, toolsets=[scope])
            return list(scope.instance_of(session).values)

    outside = ToolsetScope(session)

    async def one_run() -> None:
        await run_as('d', agent, toolsets=[outside])

    decorate: Any = DBOS.workflow() if engine == 'dbos' else flow
    chat, chat_of_pool, one_run = map(decorate, (chat, chat_of_pool, one_run))
    if engine == 'dbos':
        DBOS.launch()

    assert await chat() == ['a', 'b']
    # In this process, a pool goes on from one workflow to the next
    assert [await chat_of_pool() for _ in range(2)] == [['c'], ['c', 'c']]
    await pool.aclose()
    async with outside:
        with pytest.raises(UserError) as caught:
            await one_run()
        for part in ('scope', 'DBOS workflow' if engine == 'dbos' else 'Prefect flow run'):
            assert part in str(caught.value)
        # One that isn't given it knows nothing of it
        await run_as('f', whole)
    assert journal.lifecycle.count('+t') == journal.lifecycle.count('-t') == 4


@pytest.mark.usefixtures('dbos', 'prefect')
@pytest.mark.parametrize('engine', ['dbos', 'prefect'])
async def test_b37_block_outside_of_a_workflow_leaves_one_inside_alone(engine: str):
    """Both are open at once, as where a websocket holds a chat whose messages are answered in workflows."""
    session = Session('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[session], name='plain')
    pool = ToolsetScopePool(session)
    opened, other_opened = asyncio.Event(), asyncio.Event()

    async def message() -> None:
        async with pool('key') as scope:
            await run_as('a', agent, toolsets=[scope])
            opened.set()
            await other_opened.wait()
            await run_as('b', agent, toolsets=[scope])

    decorate: Any = DBOS.workflow() if engine == 'dbos' else flow
    message = decorate(message)
    if engine == 'dbos':
        DBOS.launch()

    task = asyncio.ensure_future(message())
    await opened.wait()
    async with pool('key') as scope:
        other_opened.set()
        await task
        await message()
        await run_as('c', agent, toolsets=[scope])
        assert scope.instance_of(session).values == ['a', 'b', 'a', 'b', 'c']
    await pool.aclose()


@pytest.mark.usefixtures('dbos', 'prefect')
@pytest.mark.parametrize('where', ['outside of a workflow', 'inside', 'in a pool'])
@pytest.mark.parametrize('method', ['run', 'run_sync', 'iter'])
@pytest.mark.parametrize('engine', ['dbos', 'prefect'])
async def test_b37_deprecated_agent_that_is_given_a_scope_names_the_capability(engine: str, method: str, where: str):
    session = Session('t', Journal())
    agent = durable(engine, 'durable', [session])
    pool = ToolsetScopePool(session)

    async def message() -> None:
        async with pool('chat') if where == 'in a pool' else ToolsetScope(session, name='chat') as chat:
            with pytest.raises(UserError) as caught:
                await run_as('a', agent, method, toolsets=[chat])
            name = 'DBOS' if engine == 'dbos' else 'Prefect'
            assert str(caught.value) == (
                f"`{name}Agent` cannot work with toolset scope 'chat'. Run an agent with the `{name}Durability` capability "
                'in a workflow or flow of your own, and open the scope there.'
            )

    decorate: Any = DBOS.workflow() if engine == 'dbos' else flow
    in_workflow = decorate(message)
    if engine == 'dbos':
        DBOS.launch()
    await (message() if where == 'outside of a workflow' else in_workflow())
    await pool.aclose()
    assert session.journal.of('call') == []
