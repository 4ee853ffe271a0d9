"""B23: approved calls run, denied ones don't, results arrive as in the two-run way, and the other tools run once."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RetryPromptPart,
    RunContext,
    TextPart,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, approve, calling, returned
from .toolsets import METHODS, run

pytestmark = pytest.mark.anyio

with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # it's deprecated in favour of `ModelRetry`
    RETRY_PROMPT: Any = RetryPromptPart('Try again')


async def test_b23_approved_calls_run_and_denied_ones_do_not():
    tools = Tools()
    answer = DeferredToolResults(
        approvals={'delete': True, 'delete.2': False, 'delete.3': ToolDenied('Never'), 'write': False}
    )
    agent = agent_of(tools, ['look', 'delete', 'delete.2', 'delete.3', 'write'])
    result = await agent.run('go', deferred_tool_handler=Handler(lambda requests: answer))
    assert result.output == 'all done'
    assert tools.done == ['look', 'delete']
    assert returned(result.all_messages()) == {
        'look': 'look done',
        'delete': 'delete done',
        'delete.2': 'The tool call was denied.',
        'delete.3': 'Never',
        'write': 'The tool call was denied.',
    }


@pytest.mark.parametrize('method', METHODS)
async def test_b23_other_tools_run_once_and_before_the_handler(method: str):
    tools = Tools()

    def answer(requests: DeferredToolRequests) -> DeferredToolResults:
        assert tools.done == ['look']
        return answer_all(requests)

    agent = agent_of(tools, ['delete', 'look', 'send', 'write'], ['look.2'])
    assert await METHODS[method](agent, deferred_tool_handler=Handler(answer)) == 'all done'
    assert sorted(tools.tried) == ['delete', 'look', 'look.2', 'send', 'write', 'write']


async def test_b23_arguments_are_overridden():
    tools = Tools()
    answer = DeferredToolResults(
        approvals={
            'delete': ToolApproved(override_args={'value': 'other'}),
            'write': ToolApproved(override_args={'value': 'others'}),
        }
    )
    result = await agent_of(tools, ['delete', 'write']).run('go', deferred_tool_handler=Handler(lambda _: answer))
    assert returned(result.all_messages()) == {'delete': 'delete done other', 'write': 'write done others'}


@pytest.mark.parametrize('method', METHODS)
async def test_b23_arguments_that_were_overridden_are_not_those_of_what_asks_again(method: str):
    """The call that is left over has the model's arguments, as the history has that a second run starts from."""
    values: list[str] = []
    toolset = FunctionToolset[Any]()

    @toolset.tool
    async def pay(ctx: RunContext[Any], value: str) -> str:
        values.append(value)
        raise ApprovalRequired

    def answer(requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(approvals={'pay': ToolApproved(override_args={'value': 'other'})})

    agent = Agent(calling(['pay']), toolsets=[toolset], output_type=OUTPUTS)
    output = await METHODS[method](agent, deferred_tool_handler=Handler(answer))
    assert isinstance(output, DeferredToolRequests)
    assert [call.args_as_dict() for call in output.approvals] == [{'value': ''}]
    assert values == ['', 'other']


async def test_b23_bad_arguments_are_returned_to_the_model():
    answers = [{'value': ['not', 'a', 'string']}, {'value': 'good'}]

    def answer(requests: DeferredToolRequests) -> DeferredToolResults:
        (call,) = requests.approvals
        return DeferredToolResults(approvals={call.tool_call_id: ToolApproved(override_args=answers.pop(0))})

    result = await agent_of(Tools(), ['delete'], ['delete.2']).run('go', deferred_tool_handler=Handler(answer))
    contents = returned(result.all_messages())
    assert list(contents['delete'][0]['loc']) == ['value']
    assert contents['delete.2'] == 'delete.2 done good'


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


async def test_b23_what_answers_calls_comes_before_other_content():
    """Providers want the results of all calls directly after the calls."""
    toolset = FunctionToolset[Any]()
    sent: list[ModelMessage] = []

    async def model_function(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart(id_, {'value': ''}, tool_call_id=id_) for id_ in ['look', 'send']])
        sent.extend(messages)
        return ModelResponse(parts=[TextPart('all done')])

    @toolset.tool
    async def look(ctx: RunContext[Any], value: str) -> ToolReturn:
        return ToolReturn('look', content=['content of look'])

    results = DeferredToolResults(calls={'send': ToolReturn('send', content=['content of send'])})
    agent = Agent(
        FunctionModel(model_function),
        toolsets=[toolset, Tools().toolset.filtered(lambda _, tool: tool.name == 'send')],
    )
    assert await run(agent, deferred_tool_handler=Handler(lambda requests: results)) == 'all done'
    assert [type(part) for part in sent[2].parts] == [ToolReturnPart, ToolReturnPart, UserPromptPart, UserPromptPart]


async def test_b23_a_retry_prompt_can_answer_several_calls():
    prompt = RETRY_PROMPT
    handler = Handler(lambda requests: DeferredToolResults(calls={'send': prompt, 'send.2': prompt}))
    result = await agent_of(Tools(), ['send', 'send.2']).run('go', deferred_tool_handler=handler)
    assert returned(result.all_messages()) == {'send': 'Try again', 'send.2': 'Try again'}


@pytest.mark.parametrize('sequential', [False, True])
async def test_b23_approved_calls_run_in_parallel_where_calls_do(sequential: bool):
    running: set[str | None] = set()
    most = 0
    toolset = FunctionToolset[Any]()

    @toolset.tool(requires_approval=True, sequential=sequential)
    async def work(ctx: RunContext[Any], value: str) -> None:
        nonlocal most
        running.add(ctx.tool_call_id)
        most = max(most, len(running))
        await asyncio.sleep(0.02)
        running.discard(ctx.tool_call_id)

    agent = Agent(calling(['work', 'work.2', 'work.3']), toolsets=[toolset], deferred_tool_handler=Handler(approve))
    assert await run(agent) == 'all done'
    assert most == (1 if sequential else 3)


async def test_b23_many_runs_at_once_get_their_own_answers():
    tools = Tools()

    async def handler(ctx: RunContext[int], requests: DeferredToolRequests) -> DeferredToolResults:
        await asyncio.sleep(0.001 * (ctx.deps % 7))
        return DeferredToolResults(approvals={'delete': ToolApproved(override_args={'value': str(ctx.deps)})})

    agent = agent_of(tools, ['delete'], deferred_tool_handler=handler)
    results = await asyncio.gather(*(agent.run('go', deps=number) for number in range(200)))
    assert [returned(result.all_messages())['delete'] for result in results] == [
        f'delete done {number}' for number in range(200)
    ]
