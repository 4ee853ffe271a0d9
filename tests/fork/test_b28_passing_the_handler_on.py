"""B28: a tool finds its run's handler in the context and can pass it on; a child without one approves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, FunctionToolset, RunContext, UserError

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, answer_none, approve, calling, returned
from .capabilities import handling_deferred_calls
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


async def test_b28_a_child_without_one_that_cannot_return_calls_is_refused():
    tools = Tools()
    parent = delegating(agent_of(tools, ['delete']), ['keep'], deferred_tool_handler=Handler(approve))
    with pytest.raises(UserError, match='`DeferredToolRequests` is not among output types'):
        await run(parent)
    assert tools.done == []


async def test_b28_a_child_uses_its_own():
    """Even if the parent has none to pass on."""
    own, of_parent = Handler(approve), Handler(answer_none)
    child = agent_of(Tools(), ['delete'], deferred_tool_handler=own)
    assert await run(delegating(child, ['keep']), deferred_tool_handler=of_parent) == 'all done'
    assert await run(delegating(child, ['pass_on'])) == 'all done'
    assert (len(own.asked), len(of_parent.asked)) == (2, 0)


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


async def test_b28_the_context_has_the_handler_of_the_run():
    """Whichever it is, in tools, in the handler itself, and in all else that gets the context."""
    seen: list[Any] = []
    toolset = FunctionToolset[Any]()

    @toolset.tool
    async def look(ctx: RunContext[Any], value: str) -> None:
        seen.append(ctx.deferred_tool_handler)

    @toolset.tool(requires_approval=True)
    async def delete(ctx: RunContext[Any], value: str) -> None:
        seen.append(ctx.deferred_tool_handler)

    on_agent, on_run = Handler(approve), Handler(approve)
    agent = Agent(calling(['look', 'delete']), toolsets=[toolset], deferred_tool_handler=on_agent)

    @agent.instructions
    def instructions(ctx: RunContext[Any]) -> str:
        seen.append(ctx.deferred_tool_handler)
        return 'Do it'

    for options, handler in [({}, on_agent), ({'deferred_tool_handler': on_run}, on_run)]:
        seen.clear()
        await run(agent, **options)
        assert seen == [handler] * 4
        assert [ctx.deferred_tool_handler for ctx in handler.contexts] == [handler]
    with agent.override(deferred_tool_handler=None), pytest.raises(UserError):
        seen.clear()
        await run(agent)
    assert set(seen) == {None}


async def test_b28_a_handler_can_run_an_agent():
    """For instance one that judges the call."""
    judge = Agent(calling(), deferred_tool_handler=Handler(answer_none))

    async def handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> Any:
        return approve(requests) if await run(judge) == 'all done' else None

    tools = Tools()
    assert await run(agent_of(tools, ['delete'], deferred_tool_handler=handler)) == 'all done'
    assert tools.done == ['delete']


async def test_b28_parallel_children_are_asked_for_each_on_its_own():
    handler = Handler(answer_all)
    child = agent_of(Tools(), ['delete', 'delete.2'])
    parent = delegating(child, ['pass_on', 'pass_on.2', 'pass_on.3'], deferred_tool_handler=handler)
    assert await run(parent) == 'all done'
    assert handler.asked == [['delete', 'delete.2']] * 3


@pytest.mark.parametrize(
    ('position', 'wraps'),
    [
        (None, ()),
        ('innermost', ()),
        ('outermost', ()),
        (None, ('HandleDeferredToolCalls',)),
        ('outermost', ('HandleDeferredToolCalls',)),
        ('outermost', ('AbstractCapability',)),
    ],
)
async def test_b28_the_handler_is_asked_before_all_capabilities(position: str | None, wraps: tuple[str, ...]):
    """Whatever order they ask for, so what it denies isn't approved by them."""
    tools, asked = Tools(), Handler(approve)
    capability = handling_deferred_calls(asked, position, wraps)
    agent = agent_of(tools, ['delete', 'write'], capabilities=[handling_deferred_calls(asked), capability])
    handler = Handler(lambda requests: DeferredToolResults(approvals={'delete': False}))
    assert await run(agent, deferred_tool_handler=handler) == 'all done'
    assert (handler.asked, asked.asked) == ([['delete', 'write']], [['write']])
    assert tools.done == ['write']
