"""B14: a run that is cancelled at any step of the event loop exits each toolset that was entered once, and uses none after that."""

from __future__ import annotations

from functools import partial

import pytest

from .cancelling import TOOLSETS, agent_of, cancel_at, faults_of
from .toolsets import Journal, run_as

pytestmark = pytest.mark.anyio


async def cancel_at_each_step(kind: str, *, nested: bool, way: str = 'run', times: int = 1) -> None:
    """Cancel a run at each step of the loop, a new one each time, until one ends before."""
    for step in range(1000):
        journal = Journal()
        agent = agent_of(kind, journal, nested=nested)
        cancelled = await cancel_at(step, partial(run_as, 'run', agent, way), times=times)
        assert faults_of(journal) == []
        if not cancelled:
            break
    else:
        pytest.fail('The run never ended')


@pytest.mark.parametrize('kind', TOOLSETS)
@pytest.mark.parametrize(('nested', 'times'), [(False, 2), (True, 1)])
async def test_b14_run_cancelled_at_any_step_of_the_loop_exits_what_was_entered(kind: str, nested: bool, times: int):
    await cancel_at_each_step(kind, nested=nested, times=times)


async def test_b14_stream_cancelled_at_any_step_of_the_loop_exits_what_was_entered():
    await cancel_at_each_step('factories at each step', nested=True, way='run_stream')
