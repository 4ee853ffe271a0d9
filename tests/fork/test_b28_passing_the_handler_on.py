"""B28: a tool finds its run's handler in the context and can pass it on; a child without one approves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, RunContext

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, approve, calling, returned
from .toolsets import METHODS, run

pytestmark = pytest.mark.anyio


def delegating(child: Agent[Any, Any], calls: list[str], method: str = 'run', **options: Any) -> Agent[Any, Any]:
    """Make an agent with two tools that run the child: `pass_on` with the run's handler, `keep` without."""
    toolset = FunctionToolset[Any]()

    @toolset.tool
    async def pass_on(ctx: RunContext[Any], value: str) -> str:
        return str(await METHODS[method](child, deferred_tool_handler=ctx.deferred_tool_handler))

    @toolset.tool
    async def keep(ctx: RunContext[Any], value: str) -> str:
        output = await METHODS[method](child)
        return 'left over' if isinstance(output, DeferredToolRequests) else output

    return Agent(calling(calls), toolsets=[toolset], **options)


@pytest.mark.parametrize('method', METHODS)
async def test_b28_a_tool_passes_the_handler_on(method: str):
    tools, handler = Tools(), Handler(answer_all)
    child = agent_of(tools, ['delete', 'send'])
    parent = delegating(child, ['pass_on'], method)
    result = await asyncio.wait_for(parent.run('go', deferred_tool_handler=handler), 300)
    assert returned(result.all_messages()) == {'pass_on': 'all done'}
    assert handler.asked == [['delete', 'send']]
    assert tools.done == ['delete']


@pytest.mark.parametrize('method', METHODS)
async def test_b28_a_child_without_one_approves_nothing_and_does_not_hang(method: str):
    tools, handler = Tools(), Handler(answer_all)
    child = agent_of(tools, ['delete', 'send'], output_type=OUTPUTS)
    parent = delegating(child, ['keep'], method, deferred_tool_handler=handler)
    result = await asyncio.wait_for(parent.run('go'), 300)
    assert returned(result.all_messages()) == {'keep': 'left over'}
    assert (handler.asked, tools.done) == ([], [])


async def test_b28_an_agent_that_calls_itself_has_none_of_its_own_run():
    tools = Tools()
    agent = agent_of(tools, ['again', 'delete'], output_type=OUTPUTS)
    outputs: list[Any] = []

    @agent.tool
    async def again(ctx: RunContext[Any], value: str) -> str:
        if ctx.deps == 'inner':
            return 'enough'
        outputs.append(await run(agent, deps='inner'))
        return 'done'

    assert await run(agent, deferred_tool_handler=Handler(approve)) == 'all done'
    (output,) = outputs
    assert isinstance(output, DeferredToolRequests)
    assert tools.done == ['delete']
