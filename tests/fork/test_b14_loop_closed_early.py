"""B14: what holds for a run whose event loop is stopped and closed before it has ended."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset

from .delegation import calling
from .toolsets import Journal, Session, run_as


def waiting(toolset: Any, *, until: Callable[[], None]) -> Agent[Any, Any]:
    """Make an agent that calls the tool `a` and then one that waits for ever, if the run is called so."""

    async def wait(value: str) -> None:
        if value == 'abandoned':
            until()
            await asyncio.Event().wait()

    return calling(['a'], ['wait'], toolsets=[toolset, FunctionToolset([wait])])


def abandon(agent: Agent[Any, Any], method: str) -> tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]:
    """Start a run, and stop its event loop in the middle of it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(run_as('abandoned', agent, method))
    loop.run_forever()
    return loop, task


def stop() -> None:
    """Stop the event loop that this is called in."""
    asyncio.get_running_loop().stop()


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
@pytest.mark.parametrize('method', ['run', 'iter', 'run_stream', 'run_stream_events'])
def test_b14_loop_that_is_closed_early_leaves_a_copy_entered_and_nothing_else(method: str):
    """Nothing can be awaited in it any more, so nothing is committed or rolled back. The next run, in another loop, is as ever."""
    journal = Journal()
    original = Session('a', journal)
    agent = waiting(original, until=stop)
    loop, task = abandon(agent, method)
    loop.close()
    assert not task.done()
    assert journal.lifecycle == ['+a']

    asyncio.run(run_as('next', agent, method))
    assert journal.lifecycle == ['+a', '+a', '-a']
    left, *others = [event.toolset for event in journal.of('enter', 'exit')]
    assert others == [others[0]] * 2
    assert left.values == ['abandoned']
    assert others[0].values == ['next']
    assert original.values == []

    del loop, task
    gc.collect()  # has Python complain about what can't end any more in this test, and not in another
    assert journal.lifecycle == ['+a', '+a', '-a']


@pytest.mark.parametrize('method', ['run', 'iter', 'run_stream', 'run_stream_events'])
def test_b14_run_that_is_cancelled_before_its_loop_is_closed_exits(method: str):
    """That is what `asyncio.run()` does with all tasks."""
    journal = Journal()
    loop, task = abandon(waiting(Session('a', journal), until=stop), method)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert journal.lifecycle == ['+a', '-a']
    assert journal.exit_of('a')[0] is asyncio.CancelledError


def test_b14_all_tasks_are_cancelled_at_once_when_the_loop_ends():
    """The tasks of the run's node and tool calls are, too, by `asyncio.run()`."""
    journal = Journal()

    async def main() -> None:
        reached = asyncio.Event()
        tasks.append(asyncio.create_task(run_as('abandoned', waiting(Session('a', journal), until=reached.set))))
        await reached.wait()

    tasks: list[asyncio.Task[Any]] = []
    asyncio.run(main())
    assert tasks[0].cancelled()
    assert journal.lifecycle == ['+a', '-a']
    assert journal.exit_of('a')[0] is asyncio.CancelledError
