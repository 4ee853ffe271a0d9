"""B26: two calls of one response with the same id are never answered by one answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .approvals import OUTPUTS, Handler

pytestmark = pytest.mark.anyio


class Files:
    """Tools that write down the values they were called with."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def agent(self, *names: str) -> Agent[Any, Any]:
        """Make an agent whose model calls these tools in one response, all with the same id and each with a value of its own."""
        toolset = FunctionToolset[Any]()
        toolset.add_function(self.delete, requires_approval=True)
        for function in (self.write, self.look, self.send):
            toolset.add_function(function)
        calls = [ToolCallPart(name, {'value': str(index)}, tool_call_id='same') for index, name in enumerate(names)]

        async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[*calls] if len(messages) == 1 else [TextPart('all done')])

        return Agent(FunctionModel(respond), toolsets=[toolset], output_type=OUTPUTS)

    async def delete(self, value: str) -> None:
        """Need an approval always."""
        self.done.append(value)

    async def write(self, ctx: RunContext[Any], value: str) -> None:
        """Need an approval, which the tool itself finds out."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        self.done.append(value)

    async def look(self, value: str) -> None:
        """Need nothing."""
        self.done.append(value)

    async def send(self, value: str) -> None:
        """Be carried out elsewhere."""
        raise CallDeferred


def answer(requests: DeferredToolRequests) -> DeferredToolResults:
    """Approve all approvals, and answer all external calls."""
    return DeferredToolResults(
        approvals={call.tool_call_id: True for call in requests.approvals},
        calls={call.tool_call_id: 'sent' for call in requests.calls},
    )


@pytest.mark.parametrize(
    'names', [('delete', 'delete'), ('write', 'write'), ('delete', 'write'), ('delete', 'send'), ('send', 'send')]
)
async def test_b26_calls_with_the_same_id_are_refused_before_the_handler_is_asked(names: tuple[str, str]):
    files, handler = Files(), Handler(answer)
    with pytest.raises(UnexpectedModelBehavior, match=r"must have unique .*tool_call_id.*: \['same'\]"):
        await files.agent(*names).run('go', deferred_tool_handler=handler)
    assert files.done == []
    assert handler.asked == []


@pytest.mark.parametrize('names', [('delete', 'delete'), ('write', 'write'), ('delete', 'write'), ('delete', 'send')])
@pytest.mark.parametrize('handled', [True, False])
async def test_b26_one_answer_is_not_for_two_calls_in_the_two_run_way(handled: bool, names: tuple[str, str]):
    """Whether the first run or the second says so, and whether or not the second has a handler."""
    files, handler = Files(), Handler(answer)
    agent = files.agent(*names)
    options: dict[str, Any] = {'deferred_tool_handler': handler} if handled else {}
    with pytest.raises((UserError, UnexpectedModelBehavior), match=r"tool_call_id.*: \['same'\]"):
        messages = (await agent.run('go')).all_messages()
        results = DeferredToolResults(approvals={'same': True})
        await agent.run(message_history=messages, deferred_tool_results=results, **options)
    assert (files.done, handler.asked) == ([], [])
