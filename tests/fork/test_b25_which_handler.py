"""B25: a run's handler beats the agent's, `override` beats both and can switch it off, and without one nothing changes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, UserError
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.models.test import TestModel

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, answer_none, approve
from .toolsets import METHODS, run

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)


@methods
async def test_b25_the_nearest_handler_is_used(method: str):
    on_agent, on_run, on_override = Handler(approve), Handler(approve), Handler(approve)
    agent = agent_of(Tools(), ['delete'], output_type=OUTPUTS, deferred_tool_handler=on_agent)

    async def asks(handler: Handler | None, **options: Any) -> None:
        output = await METHODS[method](agent, **options)
        assert (output == 'all done') is (handler is not None)
        for some in (on_agent, on_run, on_override):
            assert len(some.asked) == (1 if some is handler else 0)
            some.requests.clear()

    await asks(on_agent)
    await asks(on_run, deferred_tool_handler=on_run)
    await asks(on_agent, deferred_tool_handler=None)
    with agent.override(deferred_tool_handler=on_override):
        await asks(on_override)
        await asks(on_override, deferred_tool_handler=on_run)
        with agent.override(deferred_tool_handler=None):
            await asks(None)
            await asks(None, deferred_tool_handler=on_run)
        with agent.override(deps=None):
            await asks(on_override)
    await asks(on_agent)


async def test_b25_override_holds_for_its_own_task_only():
    handler = Handler(approve)
    agent = agent_of(Tools(), ['delete'], output_type=OUTPUTS, deferred_tool_handler=handler)
    inside = asyncio.Event()
    outside = asyncio.Event()

    async def overridden() -> Any:
        with agent.override(deferred_tool_handler=None):
            inside.set()
            await outside.wait()
            return await run(agent)

    task = asyncio.create_task(overridden())
    await inside.wait()
    assert await run(agent) == 'all done'
    outside.set()
    assert isinstance(await task, DeferredToolRequests)
    assert len(handler.asked) == 1


@methods
async def test_b25_without_a_handler_calls_are_returned(method: str):
    tools = Tools()
    output = await METHODS[method](agent_of(tools, ['delete', 'look'], output_type=OUTPUTS))
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_call_id for call in output.approvals] == ['delete']
    assert 'delete' not in tools.tried


async def test_b25_without_a_handler_tools_that_require_approval_are_refused():
    """When they are registered on 1.x, when they are called on 2.x."""
    agent = Agent(TestModel())
    with pytest.raises(UserError, match='add `DeferredToolRequests` to the list of output types'):
        agent.tool(requires_approval=True)(Tools().delete)
        await run(agent)


async def test_b25_tools_given_by_override_are_accepted_where_there_is_a_handler():
    tools, handler = Tools(), Handler(approve)
    from pydantic_ai import Tool

    agent = Agent(agent_of(tools, ['delete']).model)
    replaced = [Tool(tools.delete, takes_ctx=True, requires_approval=True)]
    with agent.override(tools=replaced, deferred_tool_handler=handler):
        assert await run(agent) == 'all done'
    with agent.override(tools=replaced), pytest.raises(UserError, match='add `DeferredToolRequests`'):
        await run(agent)


@methods
async def test_b25_agents_written_before_keep_working(method: str):
    """A subclass whose methods don't know the argument is only given it when somebody uses it."""
    known = inspect.signature(AbstractAgent[Any, Any].iter).parameters.keys() - {'deferred_tool_handler'}

    class Old(WrapperAgent[Any, Any]):
        @asynccontextmanager
        async def iter(self, user_prompt: Any = None, **options: Any) -> AsyncGenerator[Any, None]:
            for name in options.keys() - known:
                raise TypeError(f'iter() got an unexpected keyword argument {name!r}')
            async with self.wrapped.iter(user_prompt, output_type=options.get('output_type')) as agent_run:
                yield agent_run

    handler = Handler(answer_all)
    inner = agent_of(Tools(), ['delete'], output_type=OUTPUTS, deferred_tool_handler=handler)
    old: AbstractAgent[Any, Any] = Old(inner)
    for agent in (old, WrapperAgent(old)):
        assert await METHODS[method](agent) == 'all done'
        with pytest.raises(TypeError, match='deferred_tool_handler'):
            await METHODS[method](agent, deferred_tool_handler=Handler(answer_none))
    assert len(handler.asked) == 2
