"""B26: what is wrong with results is said by id, a handler's own exception ends the run, and an answer counts once."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
    UserError,
)

from .approvals import OUTPUTS, Handler, Tools, agent_of, answer_all, approve, calling
from .capabilities import handling_deferred_calls
from .toolsets import METHODS, Journal, Session

pytestmark = pytest.mark.anyio

NOT_ASKED: dict[str, Any] = {'nothing': {'who': 'Ada'}}
"""Metadata for a call that wasn't asked for."""

RESULTS: dict[str, tuple[Any, str]] = {
    'an approval of what was not asked': (DeferredToolResults(approvals={'nothing': True}), "'nothing'"),
    'a result of what was not asked': (DeferredToolResults(calls={'nothing': 1}), "'nothing'"),
    'metadata of what was not asked': (DeferredToolResults(metadata=NOT_ASKED), "'nothing'"),
    'an approval and a result': (DeferredToolResults(approvals={'delete': True}, calls={'delete': 1}), "'delete'"),
    'of what ran already': (DeferredToolResults(calls={'look': 1}), "'look'"),
    'an approval of an external call': (DeferredToolResults(approvals={'send': True}), "'send'"),
    'a denial as the result of an external call': (DeferredToolResults(calls={'send': ToolDenied()}), "'send'"),
    'an approval as the result of an external call': (DeferredToolResults(calls={'send': ToolApproved()}), "'send'"),
    'a result for an approval': (DeferredToolResults(calls={'delete': 'deleted'}), "'delete'"),
    'a result for an approval that a tool asked for': (DeferredToolResults(calls={'write': True}), "'write'"),
    'one': (DeferredToolResults(approvals={'delete': 1}), "'delete'"),  # pyright: ignore[reportArgumentType]
    'nothing': (DeferredToolResults(approvals={'delete': None}), "'delete'"),  # pyright: ignore[reportArgumentType]
    'a string': (DeferredToolResults(approvals={'delete': 'yes'}), "'delete'"),  # pyright: ignore[reportArgumentType]
    'a retry': (DeferredToolResults(approvals={'delete': ModelRetry('Again')}), "'delete'"),  # pyright: ignore[reportArgumentType]
    'the class': (DeferredToolResults(approvals={'delete': ToolApproved}), "'delete'"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize(('results', 'named'), RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize('method', ['run', 'run_stream'])
async def test_b26_bad_results_are_refused_by_id(method: str, results: Any, named: str):
    tools = Tools()
    agent = agent_of(tools, ['look', 'delete', 'write', 'send'], output_type=OUTPUTS)
    with pytest.raises(UserError) as error:
        await METHODS[method](agent, deferred_tool_handler=Handler(lambda requests: results))
    assert f'Tool call {named}' in str(error.value)
    assert tools.done == ['look']


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('is_async', [True, False])
async def test_b26_a_handlers_exception_ends_the_run_and_reaches_the_exits(is_async: bool, method: str):
    error = ConnectionError('nobody there')

    async def async_handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> None:
        raise error

    def sync_handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> None:
        raise error

    session = Session('session', Journal())
    agent = Agent(calling(['delete'], ['look']), toolsets=[Tools().toolset, session])
    with pytest.raises(ConnectionError) as caught:
        await METHODS[method](agent, deferred_tool_handler=async_handler if is_async else sync_handler)
    assert caught.value is error
    assert session.journal.exit_of('session')[1] is error


@pytest.mark.parametrize('is_async', [False, True])
@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b26_nothing_starts_that_was_approved_after_a_cancellation(method: str, is_async: bool):
    """A handler in a thread can't be cancelled, and an async one may catch the cancellation. Either may then approve."""
    if is_async and method in ('run_stream', 'run_stream_events') and sys.version_info < (3, 11):
        pytest.skip('Python 3.10 does not count cancellations, so nothing knows of one that a handler has caught')
    asked, cancelled = threading.Event(), threading.Event()
    toolset = FunctionToolset[Any]()
    started: list[str] = []

    @toolset.tool(requires_approval=True)
    async def delete(ctx: RunContext[Any], value: str) -> None:
        started.append(value)

    def sync_handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.set()
        cancelled.wait()
        return approve(requests)

    async def async_handler(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return approve(requests)

    agent = Agent(calling(['delete']), toolsets=[toolset], output_type=OUTPUTS)
    handler = async_handler if is_async else sync_handler
    task = asyncio.ensure_future(METHODS[method](agent, deferred_tool_handler=handler))
    await asyncio.to_thread(asked.wait)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started == []


@pytest.mark.parametrize('capability', [False, True])
@pytest.mark.parametrize('exception', [ApprovalRequired, CallDeferred])
@pytest.mark.parametrize('method', METHODS)
async def test_b26_what_asks_again_is_left_over(method: str, exception: type[Exception], capability: bool):
    """An answer counts once, of a capability as of a handler; the tools that were done aren't called again."""
    tools = Tools()
    toolset = FunctionToolset[Any]()
    paid: list[Any] = []

    @toolset.tool(retries=2)
    async def pay(ctx: RunContext[Any], value: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={'signatures': 0})
        if not paid:
            paid.append('once')
            raise (ApprovalRequired if exception is ApprovalRequired else CallDeferred)(metadata={'signatures': 1})
        return 'paid'

    handler = Handler(answer_all)

    def answer(ctx: Any, requests: Any) -> DeferredToolResults:
        handler.requests.append(requests)
        return answer_all(requests)

    given: dict[str, Any] = (
        {'capabilities': [handling_deferred_calls(answer)]} if capability else {'deferred_tool_handler': handler}
    )
    agent = Agent(calling(['pay', 'delete', 'look']), toolsets=[tools.toolset, toolset], output_type=OUTPUTS, **given)
    output = await METHODS[method](agent)
    assert handler.asked == [['delete', 'pay']]
    assert isinstance(output, DeferredToolRequests)
    calls = output.approvals if exception is ApprovalRequired else output.calls
    assert [call.tool_call_id for call in calls] == ['pay']
    assert output.metadata == {'pay': {'signatures': 1}}
    assert tools.done == ['look', 'delete']
