"""B23: approved calls run, denied ones don't, results arrive as in the two-run way, and the other tools run once."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from pydantic_ai import (
    DeferredToolRequests,
    DeferredToolResults,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRetry,
    RetryPromptPart,
    ToolDenied,
    ToolReturn,
    UserPromptPart,
)

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all
from .toolsets import METHODS

pytestmark = pytest.mark.anyio

with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # it's deprecated in favour of `ModelRetry`
    RETRY_PROMPT: Any = RetryPromptPart('Try again')


@pytest.mark.parametrize('method', METHODS)
async def test_b23_other_tools_run_once_and_before_the_handler(method: str):
    tools = Tools()

    def answer(requests: DeferredToolRequests) -> DeferredToolResults:
        assert tools.done == ['look']
        return answer_all(requests)

    agent = agent_of(tools, ['delete', 'look', 'send', 'write'], ['look.2'])
    assert await METHODS[method](agent, deferred_tool_handler=Handler(answer)) == 'all done'
    assert sorted(tools.tried) == ['delete', 'look', 'look.2', 'send', 'write', 'write']


RESULTS: dict[str, Any] = {
    'value': {'any': ['value', 1]},
    'nothing': None,
    'ToolReturn': ToolReturn('value', content=['Look', ImageUrl('https://example.com/a.png')], metadata={'took': 3}),
    'ModelRetry': ModelRetry('Try again'),
    'RetryPromptPart': RETRY_PROMPT,
}


@pytest.mark.parametrize('value', RESULTS.values(), ids=RESULTS)
async def test_b23_results_arrive_as_in_two_runs(value: Any):
    """What the model is told doesn't differ, apart from times, when all is answered in the run instead of in a second one."""

    def told(messages: list[ModelMessage]) -> list[Any]:
        parts: list[Any] = []
        for message in messages[2:]:
            if isinstance(message, ModelRequest):
                parts += message.parts
        for part in parts:
            part.timestamp = None
        # Tools that ran in the first run are in a request of their own
        return sorted(parts, key=lambda part: (isinstance(part, UserPromptPart), repr(part)))

    results = DeferredToolResults(approvals={'delete': True, 'write': ToolDenied('No')}, calls={'send': value})
    agent = agent_of(Tools(), ['look', 'delete', 'send', 'write'], output_type=OUTPUTS)
    first = await agent.run('go')
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    handled = await agent.run('go', deferred_tool_handler=Handler(lambda requests: results))
    assert handled.output == second.output == 'all done'
    assert told(handled.all_messages()) == told(second.all_messages())
