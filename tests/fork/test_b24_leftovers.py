"""B24: what the handler doesn't answer is returned to the caller, who goes on from there in the two-run way."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, ToolOutput, UserError

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, answer_none, approve, returned
from .toolsets import METHODS, run

pytestmark = pytest.mark.anyio

ASKING = ['delete', 'send', 'write']
EVERY_PART = [set(part) for part in chain.from_iterable(combinations(ASKING, size) for size in range(4))]


def only(answered: set[str], results: DeferredToolResults) -> DeferredToolResults:
    return DeferredToolResults(
        approvals={id_: value for id_, value in results.approvals.items() if id_ in answered},
        calls={id_: value for id_, value in results.calls.items() if id_ in answered},
    )


@pytest.mark.parametrize('answered', EVERY_PART, ids=lambda answered: '+'.join(sorted(answered)) or 'none')
async def test_b24_leftovers_are_returned_and_the_run_is_resumed(answered: set[str]):
    tools = Tools()
    handler = Handler(lambda requests: only(answered, answer_all(requests)))
    agent = agent_of(tools, ['write', 'look', 'send', 'delete'], output_type=OUTPUTS)
    result = await agent.run('go', deferred_tool_handler=handler)
    told = {'look': 'look done', 'delete': 'delete done', 'send': 'send sent', 'write': 'write done'}
    if answered != set(ASKING):
        output = result.output
        assert isinstance(output, DeferredToolRequests)
        left = set(ASKING) - answered
        assert {call.tool_call_id for call in output.approvals} == left - {'send'}
        assert {call.tool_call_id for call in output.calls} == left & {'send'}
        assert output.metadata == {id_: {'why': id_} for id_ in left - {'delete'}}
        assert returned(result.all_messages()) == {id_: told[id_] for id_ in {'look', *answered}}
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answer_all(output))
    assert result.output == 'all done'
    assert returned(result.all_messages()) == told
    assert sorted(tools.done) == ['delete', 'look', 'write']
    assert len(handler.asked) == 1


@pytest.mark.parametrize('method', METHODS)
async def test_b24_none_leaves_all_over_as_without_a_handler(method: str):
    tools = Tools()
    agent = agent_of(tools, ['write', 'look', 'send', 'delete'], output_type=OUTPUTS)
    output = await METHODS[method](agent, deferred_tool_handler=Handler(answer_none))
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_call_id for call in output.approvals] == ['write', 'delete']
    assert [call.tool_call_id for call in output.calls] == ['send']
    assert output.metadata == {'write': {'why': 'write'}, 'send': {'why': 'send'}}
    assert tools.done == ['look']
    if method == 'run':
        assert output == await run(agent)


async def test_b24_leftovers_need_the_output_type():
    """Only then, and with the base's error."""
    with pytest.raises(UserError) as without:
        await run(agent_of(Tools(), ['write']))
    agent = agent_of(Tools(), ['write'], deferred_tool_handler=Handler(answer_none))
    with pytest.raises(UserError) as with_handler:
        await run(agent)
    assert str(with_handler.value) == str(without.value)
    assert '`DeferredToolRequests` is not among output types' in str(without.value)
    with agent.override(deferred_tool_handler=Handler(approve)):
        assert await run(agent) == 'all done'


async def test_b24_the_second_run_can_have_a_handler():
    """The results that it was given count first. The handler gets what they leave over, and what comes later."""
    tools, handler = Tools(), Handler(answer_all)
    agent = agent_of(tools, ['write', 'look', 'send', 'delete', 'delete.2'], ['delete.3'], output_type=OUTPUTS)
    messages = (await agent.run('go')).all_messages()
    result = await agent.run(
        message_history=messages,
        deferred_tool_results=DeferredToolResults(approvals={'delete': False}),
        deferred_tool_handler=handler,
    )
    assert result.output == 'all done'
    assert handler.asked == [['delete.2', 'send', 'write'], ['delete.3']]
    assert handler.requests[0].metadata == {'send': {'why': 'send'}, 'write': {'why': 'write'}}
    assert returned(result.all_messages()) == {
        'look': 'look done',
        'delete': 'The tool call was denied.',
        'send': 'send sent',
        'write': 'write done',
        'delete.2': 'delete.2 done',
        'delete.3': 'delete.3 done',
    }
    assert sorted(tools.done) == ['delete.2', 'delete.3', 'look', 'write']


async def test_b24_results_that_fit_no_call_are_refused_in_the_second_run_too():
    agent = agent_of(Tools(), ['write', 'delete'], output_type=OUTPUTS)
    messages = (await agent.run('go')).all_messages()
    results = DeferredToolResults(approvals={'delete': True, 'nothing': True})
    for handler in (None, Handler(answer_all)):
        with pytest.raises(UserError, match="'nothing'"):
            await agent.run(message_history=messages, deferred_tool_results=results, deferred_tool_handler=handler)


async def test_b24_leftovers_can_be_left_over_again():
    agent = agent_of(Tools(), ['write', 'send', 'delete'], output_type=OUTPUTS)
    result = await agent.run('go')
    for answered, left in [('delete', ['send', 'write']), ('write', ['send'])]:
        handler = Handler(lambda requests, answered=answered: only({answered}, answer_all(requests)))
        result = await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(),
            deferred_tool_handler=handler,
        )
        assert isinstance(result.output, DeferredToolRequests)
        calls = [*result.output.approvals, *result.output.calls]
        assert sorted(call.tool_call_id for call in calls) == left
    result = await agent.run(
        message_history=result.all_messages(), deferred_tool_results=DeferredToolResults(calls={'send': 'sent'})
    )
    assert returned(result.all_messages()) == {'delete': 'delete done', 'write': 'write done', 'send': 'sent'}


def final(value: str) -> str:
    """Be the output."""
    return 'final'


@pytest.mark.parametrize('end_strategy', ['early', 'exhaustive'])
async def test_b24_every_call_beside_a_final_result_is_answered(end_strategy: Any):
    """As on the base: the handler isn't asked, no deferred call runs, and the history says so."""
    tools = Tools()
    handler = Handler(lambda requests: DeferredToolResults(approvals={'delete': True}))
    agent = Agent(
        agent_of(tools, ['delete', 'look', 'write', 'send', 'final']).model,
        output_type=ToolOutput(final, name='final'),
        end_strategy=end_strategy,
        toolsets=[tools.toolset],
        deferred_tool_handler=handler,
    )
    result = await agent.run('go')
    assert result.output == 'final'
    not_executed = 'Tool not executed - a final result was already processed.'
    told = returned(result.all_messages())
    assert told.pop('final') == 'Final result processed.'
    assert handler.asked == []
    assert tools.done == ([] if end_strategy == 'early' else ['look'])
    looked = not_executed if end_strategy == 'early' else 'look done'
    assert told == {**dict.fromkeys(['delete', 'write', 'send'], not_executed), 'look': looked}


@pytest.mark.parametrize(
    'second', [None, Handler(answer_none), Handler(approve)], ids=['no_handler', 'none', 'approve']
)
async def test_b24_leftovers_beside_an_output_that_failed_are_resumed(second: Handler | None):
    tools = Tools()
    checked: list[str] = []

    def check(value: str) -> str:
        checked.append(value)
        raise ModelRetry('Not this one.')

    agent = agent_of(
        tools, ['look', 'delete', 'final_result'], output_type=[ToolOutput(check, name='final_result'), *OUTPUTS]
    )
    first = await agent.run('go', deferred_tool_handler=Handler(answer_none))
    assert isinstance(first.output, DeferredToolRequests)
    result = await agent.run(
        message_history=first.all_messages(), deferred_tool_results=approve(first.output), deferred_tool_handler=second
    )
    assert result.output == 'all done'
    # The output isn't checked again, and the model was told once that it failed.
    assert returned(result.all_messages()) == {
        'look': 'look done',
        'delete': 'delete done',
        'final_result': 'Not this one.',
    }
    assert (tools.done, checked) == (['look', 'delete'], [''])
    assert second is None or not second.asked
