"""B14: a run that is cancelled at any step of the event loop exits each toolset that was entered once, and uses none after that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.toolsets import per_run

from .delegation import Notes, calling, delegating
from .line import CANCELLED
from .toolsets import Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


def trees(journal: Journal) -> dict[str, list[Any]]:
    """Make the lists of toolsets, each with the tools `a` and `b`.

    Toolsets in two places and factories of the run context are left out: what remains of the node of a cancelled run may still list
    their tools after the exit, as on the base.
    """
    a, b = Notes('a', journal), Notes('b', journal)
    return {
        'stateful': [a, b],
        'shared': [Server('a', journal), b.shared()],
        'per run': [per_run(lambda: Session('a', journal)), lambda: Session('b', journal)],
    }


def check(journal: Journal) -> None:
    """Check that each toolset's events are whole."""
    by_id: dict[int, list[str]] = {}
    for event in journal.of('enter', 'exit', 'get_tools', 'call'):
        by_id.setdefault(id(event.toolset), []).append(event.kind)
    for kinds in by_id.values():
        depth = 0
        for kind in kinds:
            depth += {'enter': 1, 'exit': -1}.get(kind, 0)
            assert depth >= (0 if kind == 'exit' else 1), kinds
        assert depth == 0, kinds


@pytest.mark.parametrize('tree', trees(Journal()))
@pytest.mark.parametrize('nested', [False, True])
@pytest.mark.parametrize('times', [1, 2])
async def test_b14_run_cancelled_at_any_step_of_the_loop_exits_what_was_entered(tree: str, nested: bool, times: int):
    before = asyncio.all_tasks()
    for step in range(1000):
        journal = Journal()
        toolsets = trees(journal)[tree]
        agent = calling(['a'], ['b'], toolsets=toolsets, name='child')
        if nested:
            agent = calling(['a'], ['delegate'], toolsets=[*toolsets, delegating(agent)], name='parent')
        task = asyncio.ensure_future(run_as('run', agent))
        for _ in range(step):
            await asyncio.sleep(0)
        if task.done():
            break
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(CANCELLED):
            await task
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        if times == 1:
            check(journal)
    else:
        pytest.fail('The run never ended')
