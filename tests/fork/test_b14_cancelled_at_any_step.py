"""B14: a run that is cancelled at any step of the event loop exits each toolset that was entered once, and uses none after that."""

from __future__ import annotations

from functools import partial

import pytest

from .cancelling import TOOLSETS, agent_of, cancel_at, faults_of
from .toolsets import Journal, run_as

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('kind', TOOLSETS)
@pytest.mark.parametrize('nested', [False, True])
@pytest.mark.parametrize('times', [1, 2])
async def test_b14_run_cancelled_at_any_step_of_the_loop_exits_what_was_entered(kind: str, nested: bool, times: int):
    for step in range(1000):
        journal = Journal()
        agent = agent_of(kind, journal, nested=nested)
        cancelled = await cancel_at(step, partial(run_as, 'run', agent), times=times)
        assert faults_of(journal) == []
        if not cancelled:
            break
    else:
        pytest.fail('The run never ended')


async def test_b14_stream_cancelled_at_any_step_of_the_loop_exits_what_was_entered():
    for step in range(1000):
        journal = Journal()
        agent = agent_of('factories at each step', journal, nested=True)
        cancelled = await cancel_at(step, partial(run_as, 'run', agent, 'run_stream'))
        assert faults_of(journal) == []
        if not cancelled:
            break
    else:
        pytest.fail('The run never ended')
