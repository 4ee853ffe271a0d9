"""B23: approved calls run with the metadata of the results, from a handler as in the two-run way."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    ToolApproved,
    ToolDenied,
    UserError,
)

from .approvals import OUTPUTS, Handler, Tools, agent_of, calling
from .toolsets import METHODS

pytestmark = pytest.mark.anyio


class Notes:
    """A toolset whose tools write down the metadata that they are called with, by tool call id."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Any]] = {}
        self.toolset = FunctionToolset[Any]()
        self.toolset.add_function(self.pay, requires_approval=True)
        self.toolset.add_function(self.order, retries=2)
        self.toolset.add_function(self.look)

    def _note(self, ctx: RunContext[Any]) -> Any:
        self.seen.setdefault(str(ctx.tool_call_id), []).append(ctx.tool_call_metadata)
        return ctx.tool_call_metadata

    async def pay(self, ctx: RunContext[Any], value: str) -> str:
        """Need an approval always."""
        self._note(ctx)
        return value

    async def order(self, ctx: RunContext[Any], value: str) -> str:
        """Need two approvals, which the tool itself finds out."""
        metadata = self._note(ctx)
        if not ctx.tool_call_approved or metadata == {'by': 'Ada'}:
            raise ApprovalRequired
        return value

    async def look(self, ctx: RunContext[Any], value: str) -> str:
        """Need nothing."""
        self._note(ctx)
        return value


@pytest.mark.parametrize('method', METHODS)
async def test_b23_approved_calls_see_their_own_metadata(method: str):
    notes = Notes()
    answer = DeferredToolResults(
        approvals={'pay': True, 'pay.2': ToolApproved(override_args={'value': 'x'}), 'pay.3': True, 'pay.4': False},
        metadata={'pay': {'by': 'Ada'}, 'pay.2': {'by': 'Grace'}, 'pay.4': {'by': 'nobody'}},
    )
    agent = Agent(calling(['look', 'pay', 'pay.2', 'pay.3', 'pay.4'], ['look.2']), toolsets=[notes.toolset])
    assert await METHODS[method](agent, deferred_tool_handler=Handler(lambda requests: answer)) == 'all done'
    assert notes.seen == {
        'look': [None],
        'pay': [{'by': 'Ada'}],
        'pay.2': [{'by': 'Grace'}],
        'pay.3': [None],
        'look.2': [None],
    }


async def test_b23_metadata_is_the_same_in_two_runs():
    notes = Notes()
    results = DeferredToolResults(
        approvals={'pay': True, 'pay.2': ToolDenied('No'), 'order': True},
        metadata={'pay': {'by': 'Ada'}, 'order': {'by': 'Grace'}},
    )
    agent = Agent(calling(['pay', 'pay.2', 'order', 'look']), toolsets=[notes.toolset], output_type=OUTPUTS)
    first = await agent.run('go')
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert second.output == 'all done'
    seen, notes.seen = notes.seen, {}
    handled = await agent.run('go', deferred_tool_handler=Handler(lambda requests: results))
    assert handled.output == 'all done'
    assert notes.seen == seen == {'look': [None], 'order': [None, {'by': 'Grace'}], 'pay': [{'by': 'Ada'}]}


@pytest.mark.parametrize('id_', ['nothing', 'look'])
async def test_b23_metadata_for_what_was_not_asked_is_refused_by_id(id_: str):
    tools = Tools()
    agent = agent_of(tools, ['look', 'delete'], output_type=OUTPUTS)
    results = DeferredToolResults(approvals={'delete': True}, metadata={'delete': {}, id_: {}})
    with pytest.raises(UserError) as error:
        await agent.run('go', deferred_tool_handler=Handler(lambda requests: results))
    assert repr(id_) in str(error.value)
    assert 'delete' not in tools.done


async def test_b23_metadata_of_the_requests_can_be_returned_as_it_is():
    """Even if some of the calls are left over, whose metadata is then the caller's."""
    tools = Tools()
    handler = Handler(lambda requests: DeferredToolResults(approvals={'delete': True}, metadata=requests.metadata))
    result = await agent_of(tools, ['write', 'delete', 'send'], output_type=OUTPUTS).run(
        'go', deferred_tool_handler=handler
    )
    assert tools.done == ['delete']
    assert result.output.metadata == {'write': {'why': 'write'}, 'send': {'why': 'send'}}
