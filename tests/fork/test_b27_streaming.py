"""B27: streaming works alike, and deferred calls have the events that others have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, cast

import pytest
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolResults,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, answer_none, approve, returned
from .line import stream_events
from .toolsets import METHODS

pytestmark = pytest.mark.anyio

ALL = ['delete', 'look', 'write', 'send']


class Told:
    """What the events of a run tell, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def note(self, event: Any) -> None:
        if isinstance(event, FunctionToolCallEvent):
            self.log.append(f'call {event.part.tool_call_id}')
        elif isinstance(event, FunctionToolResultEvent):
            self.log.append(f'result {event.tool_call_id}')
        elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            self.log.append(event.part.content)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            self.log.append(event.delta.content_delta)
        elif isinstance(event, FinalResultEvent):
            self.log.append('final')
        elif isinstance(event, AgentRunResultEvent):
            self.log.append('end')

    async def handle(self, ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        async for event in events:
            self.note(event)

    async def answer(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        self.log.append('asked')
        await asyncio.sleep(0.01)
        self.log.append('answered')
        return answer_all(requests)

    def check(self, *after: str) -> None:
        """Check that each call was announced once and answered once, and that nothing was announced too early."""
        # The model's stream announces the first deferred call as a final result, as on the base.
        assert self.log.pop(0) == 'final'
        asked, answered = self.log.index('asked'), self.log.index('answered')
        assert answered == asked + 1
        assert sorted(self.log[:asked]) == ['call delete', 'call look', 'call send', 'call write', 'result look']
        results = self.log[answered + 1 : answered + 4]
        assert sorted(results) == ['result delete', 'result send', 'result write']
        assert self.log[answered + 4 :] == list(after)


async def iterate(agent: Agent[Any, Any], told: Told) -> None:
    async with agent.iter('go') as agent_run:
        async for node in agent_run:
            if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                async with node.stream(agent_run.ctx) as events:
                    async for event in events:
                        told.note(event)
    assert agent_run.result is not None
    assert agent_run.result.output == 'all done'


async def test_b27_events_of_deferred_calls_appear_as_for_others():
    told = Told()
    agent = agent_of(Tools(), ALL, deferred_tool_handler=told.answer)

    await agent.run('go', event_stream_handler=told.handle)
    told.check('all ', 'final', 'done')

    told.log.clear()
    async with stream_events(agent, 'go') as events:
        async for event in events:
            told.note(event)
    told.check('all ', 'final', 'done', 'end')

    told.log.clear()
    await iterate(agent, told)
    told.check('all ', 'final', 'done')

    told.log.clear()
    async with agent.run_stream('go', event_stream_handler=told.handle) as result:
        assert [text async for text in result.stream_text(debounce_by=None)] == ['all ', 'all done']
    told.check('all ', 'final')  # After that, the caller gets the text


async def test_b27_the_next_response_streams():
    """Its text arrives piece by piece, after the handler has answered."""
    more = asyncio.Event()
    answered: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        if not any(isinstance(message, ModelResponse) for message in messages):
            yield {0: DeltaToolCall(name='delete', json_args='{}', tool_call_id='delete')}
            return
        assert answered
        yield 'one '
        await more.wait()
        yield 'two'

    async def handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        await asyncio.sleep(0.01)
        answered.append('yes')
        return approve(requests)

    agent = Agent(
        FunctionModel(stream_function=stream),
        toolsets=[Tools().toolset],
        output_type=OUTPUTS,
        deferred_tool_handler=handler,
    )
    async with agent.run_stream('go') as result:
        pieces: list[str] = []
        async for output in result.stream_output(debounce_by=None):
            assert isinstance(output, str)
            pieces.append(output)
            more.set()
    assert pieces[0] == 'one '
    assert pieces[-1] == 'one two'
    assert returned(result.all_messages()) == {'delete': 'delete done'}


async def test_b27_leftovers_are_the_streamed_output():
    agent = agent_of(Tools(), ALL, output_type=OUTPUTS)
    handler = Handler(lambda requests: DeferredToolResults(approvals={'delete': True}))
    async with agent.run_stream('go', deferred_tool_handler=handler) as result:
        outputs = [output async for output in result.stream_output(debounce_by=None)]
    assert isinstance(outputs[-1], DeferredToolRequests)
    assert [call.tool_call_id for call in outputs[-1].approvals] == ['write']
    assert returned(result.all_messages()) == {'look': 'look done', 'delete': 'delete done'}


@pytest.mark.parametrize('end_strategy', ['early', 'exhaustive'])
async def test_b27_a_text_before_the_call_is_the_output_of_run_stream(end_strategy: Any):
    """The call isn't run, and the history says so; the other methods go on to the next response."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        if any(isinstance(message, ModelResponse) for message in messages):
            yield 'all done'
            return
        yield 'One moment'
        for index, name in enumerate(['look', 'delete'], 1):
            yield {index: DeltaToolCall(name=name, json_args='{}', tool_call_id=name)}

    tools, handler = Tools(), Handler(approve)
    agent = Agent(
        FunctionModel(stream_function=stream),
        toolsets=[tools.toolset],
        end_strategy=end_strategy,
        deferred_tool_handler=handler,
    )
    async with agent.run_stream('go') as result:
        assert await result.get_output() == 'One moment'
    done = [] if end_strategy == 'early' else ['look']
    assert (tools.done, handler.asked) == (done, [])
    assert len(returned(result.all_messages())) == 2

    told = Told()
    assert (await agent.run('go', event_stream_handler=told.handle)).output == 'all done'
    assert tools.done == [*done, 'look', 'delete']


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


@pytest.mark.parametrize('end_strategy', ['early', 'exhaustive'])
async def test_b27_calls_beside_a_streamed_text_run_once_however_often_it_is_read(end_strategy: Any):
    tools = Tools()
    agent = Agent(
        answering('One moment', 'look', 'delete', 'write'), toolsets=[tools.toolset], end_strategy=end_strategy
    )
    async with agent.run_stream('go', deferred_tool_handler=Handler(approve)) as stream:
        text = [text async for text in stream.stream_text()][-1]
        assert [await stream.get_output(), await stream.get_output()] == [text, text]
    assert sorted(tools.done) == ([] if end_strategy == 'early' else ['look'])
    assert set(returned(stream.all_messages())) == {'look', 'delete', 'write'}


@pytest.mark.parametrize('method', METHODS)
async def test_b27_a_text_after_the_call_is_no_output(method: str):
    """The run goes on to the next response, by each method."""
    tools, handler = Tools(), Handler(approve)
    agent = Agent(answering('delete', 'Here you are'), toolsets=[tools.toolset], deferred_tool_handler=handler)
    assert await METHODS[method](agent) == 'all done'
    assert (tools.done, handler.asked) == (['delete'], [['delete']])
