"""B27: streaming works alike, and deferred calls have the events that others have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from .approvals import OUTPUTS, Handler, Tools, answer_none, approve, returned
from .toolsets import METHODS

pytestmark = pytest.mark.anyio


def parts_of(info: AgentInfo, messages: list[ModelMessage], parts: list[str]) -> list[Any]:
    """Return the next response: these texts, which have spaces, and calls, and then a text."""
    first = not any(isinstance(message, ModelResponse) for message in messages)
    return [
        TextPart(part) if ' ' in part else ToolCallPart(part, {}, part) for part in (parts if first else ['all done'])
    ]


def answering(*parts: str, kinds: list[list[str]] | None = None) -> FunctionModel:
    """Make a model that answers with these texts and calls, and notes the kinds of the tools that it sees."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if kinds is not None:
            kinds.append([tool_def.kind for tool_def in info.function_tools])
        return ModelResponse(parts=parts_of(info, messages, [*parts]))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate((await respond(messages, info)).parts):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(name=part.tool_name, json_args='{}', tool_call_id=part.tool_call_id)}
            else:
                yield cast(Any, part).content

    return FunctionModel(respond, stream_function=stream)


@pytest.mark.parametrize('method', METHODS)
async def test_b27_models_see_the_kinds_of_tools_that_they_see_without_a_handler(method: str):
    kinds: list[list[str]] = []
    agent = Agent(answering('look', 'delete', kinds=kinds), toolsets=[Tools().toolset], output_type=OUTPUTS)
    for handler in (None, Handler(approve)):
        await METHODS[method](agent, deferred_tool_handler=handler)
    assert [*map(tuple, kinds)] == [('function', 'unapproved', 'function', 'function')] * 3


@pytest.mark.parametrize('handler', [None, answer_none, approve])
@pytest.mark.parametrize('end_strategy', ['early', 'exhaustive'])
@pytest.mark.parametrize('calls', [('write',), ('write', 'delete'), ('delete', 'look', 'write')])
async def test_b27_no_call_beside_a_streamed_text_is_lost(calls: tuple[str, ...], end_strategy: Any, handler: Any):
    """It's in the output or the history, and the conversation goes on from there."""
    tools = Tools()
    agent = Agent(
        answering('One moment', *calls), toolsets=[tools.toolset], output_type=OUTPUTS, end_strategy=end_strategy
    )
    async with agent.run_stream('go', deferred_tool_handler=handler and Handler(handler)) as result:
        output = await result.get_output()
    messages = result.all_messages()
    left = [call.tool_call_id for call in output.approvals] if isinstance(output, DeferredToolRequests) else []
    assert sorted([*left, *returned(messages)]) == sorted(calls)
    if left:
        results = DeferredToolResults(approvals=dict.fromkeys(left, False))
        assert (await agent.run(message_history=messages, deferred_tool_results=results)).output == 'all done'
    else:
        assert (await agent.run('Go on', message_history=messages)).output == 'all done'


@pytest.mark.parametrize('method', METHODS)
async def test_b27_a_text_after_the_call_is_no_output(method: str):
    """The run goes on to the next response, by each method."""
    tools, handler = Tools(), Handler(approve)
    agent = Agent(answering('delete', 'Here you are'), toolsets=[tools.toolset], deferred_tool_handler=handler)
    assert await METHODS[method](agent) == 'all done'
    assert (tools.done, handler.asked) == (['delete'], [['delete']])
