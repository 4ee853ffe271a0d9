"""B14: a second cancellation doesn't interrupt what a tool does to clean up, and no toolset exits before that is done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import RunContext, ToolsetTool

from .delegation import calling, delegating
from .toolsets import Journal, Session, run_as

pytestmark = pytest.mark.anyio


class Cleaning(Session):
    """A session whose tool waits until it's cancelled, and then takes a few steps of the event loop to clean up."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> list[str]:
        self.journal.note('call', self)
        try:
            await asyncio.Event().wait()
        finally:
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
                self.journal.note('cleaned up', self)
            finally:
                self.journal.note('ended', self)
        return []


@pytest.mark.parametrize('after', range(1, 12))
@pytest.mark.parametrize('nested', [False, True])
@pytest.mark.parametrize('method', ['run', 'iter', 'run_stream', 'run_stream_events'])
async def test_b14_second_cancellation_does_not_interrupt_what_tools_do_to_clean_up(
    method: str, nested: bool, after: int
):
    journal = Journal()
    agent = calling(['a', 'b'], toolsets=[Cleaning('a', journal), Cleaning('b', journal)])
    if nested:
        agent = calling(['delegate'], toolsets=[delegating(agent), Session('c', journal)], name='parent')
    before = asyncio.all_tasks()

    task = asyncio.ensure_future(run_as('run', agent, method))
    while len(journal.of('call')) < 2:
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(after):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    if method not in ('run_stream', 'run_stream_events'):  # there it does on the base
        assert sorted(journal.names('cleaned up')) == ['a', 'b']
    kinds = [event.kind for event in journal.of('ended', 'exit')]
    assert kinds == ['ended'] * 2 + ['exit'] * (2 + nested)
    assert asyncio.all_tasks() <= before
