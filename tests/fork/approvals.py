"""Tools that need an answer before they can run, a model that calls them, and handlers that answer.

>>> tools, handler = Tools(), Handler(approve)
>>> agent = agent_of(tools, ['look', 'delete'], ['delete.again'], deferred_tool_handler=handler)
>>> asyncio.run(agent.run('go')).output
'all done'
>>> handler.asked
[['delete'], ['delete.again']]
>>> tools.done
['look', 'delete', 'delete.again']
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

OUTPUTS: list[Any] = [str, DeferredToolRequests]
"""The output type of an agent that can return what is left over."""


class Tools:
    """One tool of each kind. A call's id is the tool's name, and what follows a dot in it, so that one tool can be called twice."""

    def __init__(self) -> None:
        self.done: list[str] = []
        """The ids of the calls that were carried out, in order."""
        self.tried: list[str] = []
        """Those and the ones that asked for something first."""

    @property
    def toolset(self) -> FunctionToolset[Any]:
        """Return a toolset with all of them."""
        toolset = FunctionToolset[Any]()
        toolset.add_function(self.look, takes_ctx=True)
        toolset.add_function(self.delete, takes_ctx=True, requires_approval=True)
        toolset.add_function(self.write, takes_ctx=True)
        toolset.add_function(self.send, takes_ctx=True)
        return toolset

    async def look(self, ctx: RunContext[Any], value: str = '') -> str:
        """Need nothing."""
        return await self._do(ctx, value)

    async def delete(self, ctx: RunContext[Any], value: str = '') -> str:
        """Need an approval always."""
        assert ctx.tool_call_approved
        return await self._do(ctx, value)

    async def write(self, ctx: RunContext[Any], value: str = '') -> str:
        """Need an approval, which the tool itself finds out."""
        if not ctx.tool_call_approved:
            self.tried.append(str(ctx.tool_call_id))
            raise ApprovalRequired(metadata={'why': 'write'})
        return await self._do(ctx, value)

    async def send(self, ctx: RunContext[Any], value: str = '') -> str:
        """Be carried out elsewhere."""
        self.tried.append(str(ctx.tool_call_id))
        raise CallDeferred(metadata={'why': 'send'})

    async def _do(self, ctx: RunContext[Any], value: str) -> str:
        await asyncio.sleep(0)
        self.tried.append(str(ctx.tool_call_id))
        self.done.append(str(ctx.tool_call_id))
        return f'{ctx.tool_call_id} done {value}'.strip()


def calling(*responses: Sequence[str]) -> FunctionModel:
    """Make a model that makes the calls with these ids in each response in turn, and then answers with a text."""

    def step(messages: list[ModelMessage]) -> Sequence[str]:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return responses[done] if done < len(responses) else ()

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = [ToolCallPart(id_.partition('.')[0], {'value': ''}, tool_call_id=id_) for id_ in step(messages)]
        return ModelResponse(parts=[*calls] or [TextPart('all done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        ids = step(messages)
        for index, id_ in enumerate(ids):
            args = json.dumps({'value': ''})
            yield {index: DeltaToolCall(name=id_.partition('.')[0], json_args=args, tool_call_id=id_)}
        for word in () if ids else ('all ', 'done'):
            yield word

    return FunctionModel(respond, stream_function=stream)


class Handler:
    """A handler that writes down what it is asked, and answers as it's told."""

    def __init__(self, answer: Callable[[DeferredToolRequests], DeferredToolResults | None]) -> None:
        self.answer = answer
        self.contexts: list[RunContext[Any]] = []
        self.requests: list[DeferredToolRequests] = []

    async def __call__(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults | None:
        self.contexts.append(ctx)
        self.requests.append(requests)
        await asyncio.sleep(0)
        return self.answer(requests)

    @property
    def asked(self) -> list[list[str]]:
        """Return the ids that it was asked for, each time."""
        return [
            sorted(call.tool_call_id for call in [*requests.calls, *requests.approvals]) for requests in self.requests
        ]


def approve(requests: DeferredToolRequests) -> DeferredToolResults:
    """Approve all that needs an approval."""
    return DeferredToolResults(approvals={call.tool_call_id: True for call in requests.approvals})


def answer_all(requests: DeferredToolRequests) -> DeferredToolResults:
    """Approve all, and say of each external call that it was carried out."""
    results = approve(requests)
    results.calls = {call.tool_call_id: f'{call.tool_call_id} sent' for call in requests.calls}
    return results


def answer_none(requests: DeferredToolRequests) -> None:
    """Answer nothing."""


def returned(messages: Sequence[ModelMessage]) -> dict[str, Any]:
    """Return what the model was told of each call, by id. Each has to have been told once."""
    parts = [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    contents = {part.tool_call_id: part.content for part in parts}
    assert len(contents) == len(parts)
    return contents


def agent_of(tools: Tools, *responses: Sequence[str], **options: Any) -> Agent[Any, Any]:
    """Make an agent with these tools that makes these calls."""
    return Agent(calling(*responses), toolsets=[tools.toolset], **options)
