"""B22: a handler, on the agent, on each run method and in `override`, gets all deferred calls of one response, once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, answer_none, approve
from .toolsets import METHODS, run

pytestmark = pytest.mark.anyio

ALL = ['delete', 'look', 'write', 'send']
"""A call of each kind, in one response."""


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('place', ['agent', 'run', 'override'])
async def test_b22_works_in_each_place_and_with_each_method(place: str, method: str):
    tools, handler = Tools(), Handler(answer_all)
    on_agent: dict[str, Any] = {'deferred_tool_handler': handler} if place == 'agent' else {}
    on_run: dict[str, Any] = {'deferred_tool_handler': handler} if place == 'run' else {}
    agent = agent_of(tools, ALL, ['delete.2'], **on_agent)
    if place == 'override':
        with agent.override(deferred_tool_handler=handler):
            assert await METHODS[method](agent, **on_run) == 'all done'
    else:
        assert await METHODS[method](agent, **on_run) == 'all done'
    assert handler.asked == [['delete', 'send', 'write'], ['delete.2']]
    assert sorted(tools.done) == ['delete', 'delete.2', 'look', 'write']


@pytest.mark.parametrize('method', METHODS)
async def test_b22_works_through_a_wrapper_agent(method: str):
    tools, handler = Tools(), Handler(answer_all)
    agent: Any = WrapperAgent(agent_of(tools, ALL))
    assert await METHODS[method](agent, deferred_tool_handler=handler) == 'all done'
    with agent.override(deferred_tool_handler=handler):
        assert await METHODS[method](agent) == 'all done'
    assert len(handler.asked) == 2


def test_b22_works_with_run_stream_sync():
    handler = Handler(answer_all)
    agent = agent_of(Tools(), ALL)
    loop = asyncio.new_event_loop()  # otherwise it makes one that nothing closes
    asyncio.set_event_loop(loop)
    try:
        assert agent.run_stream_sync('go', deferred_tool_handler=handler).get_output() == 'all done'
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert len(handler.asked) == 1


async def test_b22_gets_the_run_context_and_the_metadata():
    handler = Handler(answer_all)
    agent = agent_of(Tools(), ALL)
    await run(agent, deps='deps', deferred_tool_handler=handler)
    (ctx,), (requests,) = handler.contexts, handler.requests
    assert ctx.deps == 'deps'
    assert ctx.tool_call_id is None
    assert any(isinstance(message, ModelResponse) for message in ctx.messages)
    assert sorted(call.tool_name for call in requests.approvals) == ['delete', 'write']
    assert [call.tool_name for call in requests.calls] == ['send']
    assert requests.metadata == {'write': {'why': 'write'}, 'send': {'why': 'send'}}


async def test_b22_is_not_called_without_need():
    handler = Handler(answer_none)
    assert await run(agent_of(Tools(), ['look'], ['look.2']), deferred_tool_handler=handler) == 'all done'
    assert handler.asked == []


def sync_handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
    assert threading.current_thread() is not threading.main_thread(), 'it would block all other runs'
    return approve(requests)


async def async_handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
    return approve(requests)


async def keyword_handler(
    ctx: RunContext[Any], requests: DeferredToolRequests, *, decide: Callable[[Any], DeferredToolResults]
) -> DeferredToolResults:
    return decide(requests)


class HasMethods:
    def sync_method(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return sync_handler(ctx, requests)

    async def async_method(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return approve(requests)

    def __call__(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return sync_handler(ctx, requests)

    def __bool__(self) -> bool:
        return False


HANDLERS: dict[str, Any] = {
    'function': sync_handler,
    'async function': async_handler,
    'method': HasMethods().sync_method,
    'async method': HasMethods().async_method,
    'object that is false': HasMethods(),
    'partial': partial(keyword_handler, decide=approve),
    'function that returns a coroutine': lambda ctx, requests: async_handler(ctx, requests),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
}


@pytest.mark.parametrize('handler', HANDLERS.values(), ids=HANDLERS)
async def test_b22_takes_any_callable(handler: Any):
    tools = Tools()
    agent = agent_of(tools, ['delete'])
    assert await run(agent, deferred_tool_handler=handler) == 'all done'
    assert await run(agent_of(tools, ['delete'], deferred_tool_handler=handler)) == 'all done'
    assert tools.done == ['delete', 'delete']


async def test_b22_may_change_what_it_gets():
    def answer(requests: DeferredToolRequests) -> None:
        requests.approvals.clear()
        requests.calls.clear()

    agent = agent_of(Tools(), ALL, output_type=OUTPUTS)
    expected = await run(agent)
    assert await run(agent, deferred_tool_handler=Handler(answer)) == expected


def test_b22_is_exported():
    import pydantic_ai
    from pydantic_ai.tools import DeferredToolHandler

    assert 'DeferredToolHandler' in pydantic_ai.__all__
    assert pydantic_ai.DeferredToolHandler is DeferredToolHandler


async def test_b22_tools_that_require_approval_can_be_given_to_the_agent_itself():
    agent = Agent(agent_of(Tools(), ['delete']).model, deferred_tool_handler=Handler(approve))
    tools = Tools()
    agent.tool(requires_approval=True)(tools.delete)
    assert await run(agent) == 'all done'
    assert tools.done == ['delete']


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('args', ['{"value": ', '{"value": []}', '[1]'])
async def test_b22_it_is_not_asked_about_calls_that_do_not_fit(args: str, method: str):
    """The model is told what's wrong and tries again, as with other tools."""
    first = [ToolCallPart('delete', args, tool_call_id='bad'), ToolCallPart('write', {}, tool_call_id='write')]

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        parts = [first, [ToolCallPart('delete', {}, tool_call_id='good')], [TextPart('all done')]]
        return ModelResponse(parts=parts[done])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate((await respond(messages, info)).parts):
            if isinstance(part, ToolCallPart):
                json_args = part.args if isinstance(part.args, str) else '{}'
                yield {index: DeltaToolCall(name=part.tool_name, json_args=json_args, tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    tools, handler = Tools(), Handler(approve)
    model = FunctionModel(respond, stream_function=stream)
    agent = Agent(model, toolsets=[tools.toolset], deferred_tool_handler=handler)
    assert await METHODS[method](agent) == 'all done'
    assert handler.asked == [['write'], ['good']]
    assert tools.done == ['write', 'good']
