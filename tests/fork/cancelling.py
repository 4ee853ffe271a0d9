"""Runs that are cancelled at each step of the event loop, with toolsets in each kind of place and with factories of each kind.

>>> journal = Journal()
>>> agent = agent_of('in two places', journal, nested=True)
>>> asyncio.run(cancel_at(7, lambda: agent.run('go')))
True
>>> faults_of(journal)
[]
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import AbstractToolset, Agent, RunContext
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .delegation import Notes, calling, delegating
from .line import left_by_the_fork
from .toolsets import Journal, Server, Session, once_per_run

Start = Callable[[], Awaitable[Any]]


def _stateful(journal: Journal) -> list[Any]:
    return [Notes('a', journal), Notes('b', journal)]


def _shared(journal: Journal) -> list[Any]:
    return [Server('a', journal), Notes('b', journal).shared()]


def _in_two_places(journal: Journal) -> list[Any]:
    a, b = Notes('a', journal), Notes('b', journal)
    return [a, a.prefixed('x'), CombinedToolset([b, b.prefixed('y')])]


def _shared_in_two_places(journal: Journal) -> list[Any]:
    server = Server('a', journal)
    return [server, server.prefixed('x'), Notes('b', journal)]


def _per_run(journal: Journal) -> list[Any]:
    return [once_per_run(lambda: Session('a', journal)), lambda: Session('b', journal)]


def _class_and_async(journal: Journal) -> list[Any]:
    class OfTheRun(Session):
        def __init__(self) -> None:
            super().__init__('a', journal)

    async def later() -> AbstractToolset[Any]:
        await asyncio.sleep(0)
        return Session('b', journal)

    return [OfTheRun, later]


def _each_step(journal: Journal) -> list[Any]:
    def at_once(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return Session('a', journal)

    async def later(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        await asyncio.sleep(0)
        return Session('b', journal)

    return [at_once, later]


def _each_step_inside_others(journal: Journal) -> list[Any]:
    a, b = _each_step(journal)

    def inside(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return CombinedToolset([DynamicToolset[Any](a)])

    return [inside, DynamicToolset[Any](b).filtered(lambda ctx, tool_def: True)]


def _the_same_at_each_step(journal: Journal) -> list[Any]:
    server = Server('a', journal)

    def same(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return server

    return [same, Notes('b', journal)]


TOOLSETS: dict[str, Callable[[Journal], list[Any]]] = {
    'stateful': _stateful,
    'shared': _shared,
    'in two places': _in_two_places,
    'shared in two places': _shared_in_two_places,
    'factories per run': _per_run,
    'a class and an async factory': _class_and_async,
    'factories at each step': _each_step,
    'factories at each step inside others': _each_step_inside_others,
    'the same at each step': _the_same_at_each_step,
}
"""How to make a list of toolsets of each kind, with the tools `a` and `b`."""


def agent_of(kind: str, journal: Journal, *, nested: bool) -> Agent[Any, Any]:
    """Make an agent with toolsets of a kind, which calls both, or one that calls one and starts that agent in a tool."""
    toolsets = TOOLSETS[kind](journal)
    child = calling(['a'], ['b'], toolsets=toolsets, name='child')
    if not nested:
        return child
    return calling(['a'], ['delegate'], toolsets=[*toolsets, delegating(child)], name='parent')


async def cancelled_after(step: int, start: Start, times: int) -> tuple[asyncio.Future[Any], bool]:
    """Start something, and cancel it so many steps of the event loop later, as often as it says, with a step in between.

    Returns:
        What may go on for a while yet, and whether it had ended before it could be cancelled.
    """
    task = asyncio.ensure_future(start())
    for _ in range(step):
        await asyncio.sleep(0)
    done = task.done()
    for _ in range(0 if done else times):
        task.cancel()
        await asyncio.sleep(0)
    return task, done


async def cancel_at(step: int, start: Start, *, times: int = 1) -> bool:
    """Cancel what `start` returns after so many steps of the event loop.

    Args:
        step: After how many steps.
        start: Starts it.
        times: How often to cancel it, with a step in between.

    Returns:
        Whether it had not ended before.
    """
    before = asyncio.all_tasks()
    task, done = await cancelled_after(step, start, times)
    if done:
        await task
        return False
    try:
        await task
    except asyncio.CancelledError:
        pass
    else:
        raise AssertionError('What was cancelled succeeded')
    for _ in range(5):
        await asyncio.sleep(0)
    assert left_by_the_fork(asyncio.all_tasks() - before) == []
    return True


def faults_of(journal: Journal) -> list[list[str]]:
    """Return what happened to each toolset that was not exited as often as it was entered, or used otherwise than in between."""
    by_id: dict[int, list[str]] = {}
    for event in journal.of('enter', 'exit', 'get_tools', 'call'):
        by_id.setdefault(id(event.toolset), []).append(event.kind)
    return [kinds for kinds in by_id.values() if not _is_whole(kinds)]


def _is_whole(kinds: list[str]) -> bool:
    depth = 0
    for kind in kinds:
        depth += {'enter': 1, 'exit': -1}.get(kind, 0)
        if depth < (0 if kind == 'exit' else 1):
            return False
    return depth == 0
