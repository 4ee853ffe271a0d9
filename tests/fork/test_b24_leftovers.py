"""B24: what the handler doesn't answer is returned to the caller, who goes on from there in the two-run way."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from pydantic_ai import DeferredToolRequests, DeferredToolResults

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, answer_none, returned
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
