"""Runs that are cancelled at every step of the event loop: what was entered is exited once, nothing is used after that, no task is left."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pydantic_ai import Agent

from ..fork.cancelling import TOOLSETS, agent_of, cancel_at, faults_of
from ..fork.toolsets import Journal, run_as

pytestmark = pytest.mark.anyio

Figures = Callable[[str], Counter[str]]
WAYS = ('run', 'iter', 'run_stream', 'run_stream_events')
TITLE = 'Runs cancelled at every step of the event loop'


def count(row: Counter[str], journal: Journal, *, faults: int, runs: int = 1) -> None:
    """Put what happened to toolsets into the table."""
    row.update(
        runs=runs,
        faults=faults,
        entered=len(journal.of('enter')),
        exited=len(journal.of('exit')),
        outside=len(faults_of(journal)),
        tasks=0,
    )


def steps(full: bool, begin: int) -> Iterator[int]:
    """Give each step at which to cancel a run, from the first; in the short version those of the start and some further ones."""
    return iter(range(2_000)) if full else iter([0, 1, *range(2 + begin, 2_000, 17)])


@pytest.mark.parametrize('kind', TOOLSETS)
@pytest.mark.parametrize('nested', [False, True], ids=['alone', 'nested'])
@pytest.mark.parametrize('way', WAYS)
async def test_run_that_is_cancelled_at_every_step_leaves_nothing(
    kind: str, nested: bool, way: str, full: bool, figures: Figures
) -> None:
    """The full version tries each step with two cancellations as well. With a third, streams of 2.68.0's base report errors of generators."""
    row = figures(f'{TITLE}, `{way}()`')
    for times in (1, 2) if full else (1,):
        for step in steps(full, list(TOOLSETS).index(kind)):
            journal = Journal()
            agent = agent_of(kind, journal, nested=nested)
            cancelled = await cancel_at(step, partial(run_as, 'run', agent, way), times=times)
            count(row, journal, faults=times * cancelled)
            assert faults_of(journal) == [], step
            if not cancelled:
                break
        else:
            pytest.fail('The run never ended')


def cancel_run_sync_at(step: int, agent: Agent[Any, Any]) -> bool:
    """Cancel a `run_sync()` in this thread after so many steps, and return whether it had not ended before."""

    async def watch() -> None:
        (run,) = asyncio.all_tasks() - {asyncio.current_task()}
        for _ in range(step):
            await asyncio.sleep(0)
        run.cancel()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        watcher = loop.create_task(watch())
        try:
            agent.run_sync('go')
        except asyncio.CancelledError:
            cancelled = True
        else:
            cancelled = False
        watcher.cancel()
        for _ in range(5):
            loop.run_until_complete(asyncio.sleep(0))
        assert asyncio.all_tasks(loop) == set()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return cancelled


def in_threads(*functions: Callable[[], None]) -> None:
    """Call each function in a thread of its own, all at once, and raise what the first that fails does."""

    def call(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 (it's raised below)
            errors.append(error)

    errors: list[BaseException] = []
    threads = [threading.Thread(target=call, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize('kind', TOOLSETS)
def test_run_sync_that_is_cancelled_at_every_step_leaves_nothing(kind: str, full: bool, figures: Figures) -> None:
    row = figures(f'{TITLE}, `run_sync()`')

    def cancel() -> None:
        for step in steps(full, list(TOOLSETS).index(kind)):
            journal = Journal()
            cancelled = cancel_run_sync_at(step, agent_of(kind, journal, nested=True))
            count(row, journal, faults=cancelled)
            assert faults_of(journal) == [], step
            if not cancelled:
                return
        pytest.fail('The run never ended')

    in_threads(cancel)


@pytest.mark.parametrize('kind', TOOLSETS)
async def test_runs_at_once_that_are_cancelled_at_different_steps_leave_nothing(
    kind: str, full: bool, figures: Figures
) -> None:
    """All runs are of one agent, and some are cancelled before they have begun."""
    row = figures('Runs at once, each cancelled at another step')
    number = 400 if full else 40
    journal = Journal()
    agent = agent_of(kind, journal, nested=True)
    before = asyncio.all_tasks()
    tasks = [asyncio.create_task(run_as('run', agent, WAYS[index % len(WAYS)])) for index in range(number)]
    for task in tasks:
        task.cancel()
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(5):
        await asyncio.sleep(0)

    cancelled = sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    count(row, journal, faults=cancelled, runs=number)
    row['tasks'] += len(asyncio.all_tasks() - before)
    assert cancelled and {outcome for outcome in outcomes if not isinstance(outcome, asyncio.CancelledError)} <= {
        'done'
    }
    assert faults_of(journal) == []
    assert asyncio.all_tasks() <= before


def test_runs_in_threads_with_loops_of_their_own_that_are_cancelled_leave_nothing(full: bool, figures: Figures) -> None:
    """Each thread cancels its runs at its own steps, all of them of agents that are used by all threads."""
    row = figures('Runs cancelled in threads with event loops of their own')
    journals = {kind: Journal() for kind in TOOLSETS}
    agents = {kind: agent_of(kind, journal, nested=True) for kind, journal in journals.items()}
    number = 8 if full else 3
    cancelled: list[bool] = []

    async def cancel(thread: int) -> None:
        for step in range(thread, 120, number if full else 20):
            for kind, agent in agents.items():
                way = WAYS[step % len(WAYS)]
                cancelled.append(await cancel_at(step, partial(run_as, f'{kind} in {thread}', agent, way)))

    def cancel_in(thread: int) -> None:
        asyncio.run(cancel(thread))

    in_threads(*(partial(cancel_in, thread) for thread in range(number)))

    row['runs'] += len(cancelled)
    for journal in journals.values():
        count(row, journal, faults=0, runs=0)
        assert faults_of(journal) == []
    row['faults'] += sum(cancelled)
    assert row['faults']
