"""B14: a run that one task drives and another one leaves ends, and so does the task that drives it."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent

from .toolsets import Journal, Session, scripted

pytestmark = pytest.mark.anyio


async def drive(run: Any) -> None:
    async for _ in run:
        pass


@pytest.mark.parametrize(
    'error', [None, KeyError('body'), asyncio.CancelledError()], ids=['left', 'error', 'cancelled']
)
@pytest.mark.parametrize('steps', range(0, 40, 3))
async def test_b14_task_that_drives_a_run_ends_when_another_task_leaves_that(steps: int, error: BaseException | None):
    journal = Journal()
    agent = Agent(scripted(['toolset'], ['toolset']), toolsets=[Session('toolset', journal)])
    before = asyncio.all_tasks()
    raised: BaseException | None = None
    driver: asyncio.Task[None] | None = None
    try:
        async with agent.iter('go') as run:
            driver = asyncio.ensure_future(drive(run))
            for _ in range(steps):
                await asyncio.sleep(0)
            if error:
                raise error
    except (KeyError, asyncio.CancelledError) as caught:
        raised = caught
    except RuntimeError as caught:
        # As on the base: the graph can't be closed while another task waits for it
        assert 'aclose()' in str(caught)
        raised = error
    assert raised is error
    assert driver is not None
    await asyncio.wait([driver])
    # It's told, unless the run has ended for it already
    assert driver.cancelled() or isinstance(driver.exception(), anyio.ClosedResourceError | None)
    assert len(journal.of('enter')) == len(journal.of('exit')) == 1
    assert asyncio.all_tasks() == before
