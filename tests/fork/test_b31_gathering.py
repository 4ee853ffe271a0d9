"""B31: toolsets that wait at the same time fail, and are cancelled, as on the base, where each has a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.toolsets import CombinedToolset

from .toolsets import scripted

pytestmark = pytest.mark.anyio

Wait = Callable[[], Awaitable[None]]


class Waiting(FunctionToolset[Any]):
    """A toolset that waits before it lists its tools."""

    def __init__(self, wait: Wait):
        super().__init__()
        self.wait = wait

    async def get_tools(self, ctx: RunContext[Any]) -> Any:
        await self.wait()
        return await super().get_tools(ctx)


async def held(*waits: Wait) -> Callable[[], Awaitable[Any]]:
    """Return what lists the tools of toolsets in the current task, as a toolset that holds them does."""
    agent, contexts = Agent(scripted(['note'])), list[RunContext[Any]]()

    @agent.tool
    def note(ctx: RunContext[Any], value: str) -> None:
        contexts.append(ctx)

    await agent.run('go')
    return lambda: CombinedToolset([Waiting(wait) for wait in waits]).get_tools(contexts[0])


@pytest.mark.parametrize('rounds', [0, 1, 3])
async def test_b31_toolsets_that_fail_at_the_same_time_are_raised_together(rounds: int):
    def failing(message: str) -> Wait:
        async def fail() -> None:
            for _ in range(rounds):
                await asyncio.sleep(0)
            raise ValueError(message)

        return fail

    with pytest.raises(Exception) as raised:
        await Agent(scripted(), toolsets=[Waiting(failing('a')), Waiting(failing('b'))]).run('go')
    errors: Any = getattr(raised.value, 'exceptions', [raised.value])
    assert sorted(str(error) for error in errors) == ['a', 'b']


async def test_b31_toolset_that_would_fail_later_is_cancelled():
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError('first')

    async def fail_later() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        raise ValueError('later')

    with pytest.raises(ValueError, match='first'):
        await Agent(scripted(), toolsets=[Waiting(fail), Waiting(fail_later)]).run('go')


@asynccontextmanager
async def timeout() -> AsyncGenerator[Any]:
    async with cast(Any, asyncio).timeout(None) as outer:  # which Python 3.10 doesn't have
        yield lambda: outer.reschedule(0)


@asynccontextmanager
async def scope() -> AsyncGenerator[Any]:
    with anyio.CancelScope() as outer:
        yield outer.cancel
    if outer.cancelled_caught:
        raise TimeoutError


@asynccontextmanager
async def cancellation() -> AsyncGenerator[Any]:
    task = asyncio.current_task()
    assert task is not None
    try:
        yield task.cancel
    except asyncio.CancelledError:
        raise TimeoutError from None


def once_asleep(asleep: list[str], count: int, then: Callable[[], None]) -> None:
    """Do something when so many toolsets wait, which they do until they are cancelled."""
    if len(asleep) < count:
        asyncio.get_running_loop().call_soon(once_asleep, asleep, count, then)
    else:
        then()


OUTER: dict[str, Callable[[], Any]] = {'timeout': timeout, 'scope': scope, 'cancellation': cancellation}
outers = pytest.mark.parametrize('outer', OUTER.values(), ids=OUTER)


@outers
@pytest.mark.parametrize('position', [0, 1])
async def test_b31_toolset_that_absorbs_an_outer_cancellation_does_not_hide_it(outer: Any, position: int):
    asleep: list[str] = []
    cancelled: list[str] = []

    async def absorb() -> None:
        asleep.append('absorbing')
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            cancelled.append('absorbed')

    async def other() -> None:
        asleep.append('other')
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            cancelled.append('other')
            raise

    waits: list[Wait] = [other]
    waits.insert(position, absorb)
    list_tools = await held(*waits)
    with pytest.raises(TimeoutError):
        async with outer() as cancel:
            once_asleep(asleep, 2, cancel)
            await list_tools()
    assert sorted(cancelled) == ['absorbed', 'other']


@outers
@pytest.mark.parametrize('position', [0, 1])
@pytest.mark.parametrize('outer_first', [True, False])
@pytest.mark.parametrize('kind', ['timeout', 'scope'])
async def test_b31_timeout_of_a_toolset_does_not_hide_an_outer_one_at_the_same_time(
    outer: Any, position: int, outer_first: bool, kind: str
):
    asleep: list[str] = []
    inner: list[Any] = []

    async def time_out() -> None:
        try:
            async with OUTER[kind]() as cancel:
                inner.append(cancel)
                asleep.append('timing out')
                await asyncio.sleep(300)
        except TimeoutError:
            pass

    async def other() -> None:
        asleep.append('other')
        await asyncio.sleep(300)

    waits: list[Wait] = [other]
    waits.insert(position, time_out)
    list_tools = await held(*waits)
    with pytest.raises(TimeoutError):
        async with outer() as cancel:

            def both() -> None:
                for one in (cancel, inner[0]) if outer_first else (inner[0], cancel):
                    one()

            once_asleep(asleep, 2, both)
            await list_tools()
            raise AssertionError('nothing was cancelled')
