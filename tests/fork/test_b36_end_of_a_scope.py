"""B36: use after the end, the end while a run goes on, scopes that are opened twice or not at all, and two of them in one run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope

from .delegation import calling
from .line import RunCancelled, not_on_1
from .toolsets import Journal, Server, Session, run_as

pytestmark = [pytest.mark.anyio, not_on_1, pytest.mark.filterwarnings('ignore:No agent run has worked')]


@pytest.mark.parametrize('method', ['run', 'iter', 'run_stream', 'run_stream_events'])
@pytest.mark.parametrize('error', [None, RuntimeError('body')])
async def test_b36_end_of_the_block_cancels_the_run_waits_and_exits(method: str, error: Exception | None):
    journal = Journal()
    inside = asyncio.Event()
    cleaned = False

    async def wait(value: str) -> None:
        nonlocal cleaned
        inside.set()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.01)
            assert journal.lifecycle == ['+t', '+s']
            cleaned = True

    agent = calling(['wait'], toolsets=[Server('s', journal), session := Session('t', journal)], tools=[wait])
    task: Any = None
    try:
        async with ToolsetScope(session) as chat:
            task = asyncio.ensure_future(run_as('run', agent, method, toolsets=[chat]))
            await inside.wait()
            if error:
                raise error
    except RuntimeError as caught:
        assert caught is error
    assert cleaned
    assert journal.lifecycle == ['+t', '+s', '-s', '-t']
    with pytest.raises(RunCancelled):
        await task
    assert journal.of('exit')[-1].got[1] is error


@pytest.mark.parametrize('method', ['run', 'run_stream', 'run_stream_events'])
async def test_b36_end_at_any_step_cancels_the_run_and_does_not_fail_it(method: str):
    for step in range(1000):
        journal = Journal()
        one, two = Session('one', journal), Session('two', journal)
        agent = calling(['one'], ['two'], toolsets=[one, two])
        async with ToolsetScope(one, two) as chat:
            task = asyncio.ensure_future(run_as('run', agent, method, toolsets=[chat]))
            for _ in range(step):
                await asyncio.sleep(0)
            done = task.done()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        # One that had not begun is refused
        begun = bool(journal.of('get_tools'))
        assert outcome == 'done' or isinstance(outcome, RunCancelled) or (type(outcome) is UserError and not begun), (
            step
        )
        assert journal.lifecycle == ['+one', '+two', '-two', '-one']
        if done:
            break
    else:
        pytest.fail('The run never ended')
