"""B37: a pool opens or continues the scope of a key, and ends those that are idle or least recently used, never one in use."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic_ai import FunctionToolCallEvent
from pydantic_ai.toolsets import ToolsetScopePool
from typing_extensions import Self

from .cancelling import cancelled_after
from .delegation import calling
from .line import stream_events
from .test_b34_entered_and_exited_by_the_scope import Grouped
from .test_b36_end_of_a_scope import TidiesUp
from .toolsets import Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


async def until(condition: Any) -> None:
    """Wait until something is so, however slow the machine is."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError('It never was')


async def test_b37_end_of_a_key_cancels_its_stream_and_not_who_reads_that():
    """One task reads two chats, each chunk in a task of its own, and goes on when one of them is ended."""
    journal = Journal()
    session = TidiesUp('t', journal)
    agent = calling(['t'], toolsets=[session])

    async def stream(key: str) -> AsyncGenerator[Any, None]:
        async with chats(key) as chat, stream_events(agent, 'go', toolsets=[chat]) as events:
            async for event in events:
                yield event

    async with ToolsetScopePool(session) as chats:
        ada, bob = stream('Ada'), stream('Bob')
        for chunks in (ada, bob):
            while not isinstance(await asyncio.ensure_future(anext(chunks)), FunctionToolCallEvent):
                pass
        await until(lambda: len(journal.of('call')) == 2)
        await chats.end('Ada')
        assert [event.kind for event in journal.of('tidy', 'exit')] == ['tidy', 'exit']
        assert chats.keys == ['Bob']
        await asyncio.sleep(0)
        for chunks in (ada, bob):
            await chunks.aclose()
    assert len(journal.of('tidy')) == len(journal.of('exit')) == 2


# Faults of the pools before


async def test_b37_caller_who_is_cancelled_as_he_is_served_cancels_nobody_else():
    """Two open the same key while it's entered, and one of them is cancelled at any step."""

    class Slow(Session):
        async def __aenter__(self) -> Self:
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().__aenter__()

    before = asyncio.all_tasks()
    for victim in (0, 1):
        for step in range(1000):
            journal = Journal()
            slow = Slow('t', journal)

            async def request(name: str) -> str:
                async with chats('Ada') as chat, lock:  # noqa: B023
                    return await run_as(name, calling(['t'], toolsets=[slow]), toolsets=[chat])  # noqa: B023

            lock = asyncio.Lock()
            async with ToolsetScopePool(slow) as chats:
                others: list[Any] = []
                if victim:
                    others.append(asyncio.ensure_future(request('other')))

                async def start() -> str:
                    return await request('victim')

                task = asyncio.ensure_future(start())
                if not victim:
                    await asyncio.sleep(0)
                    others.append(asyncio.ensure_future(request('other')))
                for _ in range(step):
                    await asyncio.sleep(0)
                ended = task.done()
                task.cancel()
                await asyncio.wait([task, *others])
                assert others[0].result() == 'done'
                assert await request('next') == 'done'
            assert len(journal.of('enter')) == len(journal.of('exit'))
            assert asyncio.all_tasks() <= before
            if ended:
                break
        else:
            pytest.fail('The request never ended')


@pytest.mark.parametrize('times', [1, 2])
async def test_b37_request_cancelled_at_any_step_leaves_the_pool_usable(times: int):
    before = asyncio.all_tasks()
    for step in range(1000):
        journal = Journal()
        a, b = Session('a', journal), Grouped('b', journal)
        agent = calling(['a'], ['b'], toolsets=[a, b])

        async def request() -> list[list[str]]:
            async with chats('Ada') as chat:
                await run_as('run', agent, toolsets=[chat])  # noqa: B023
                return [chat.instance_of(t).values for t in (a, b)]  # noqa: B023

        async with ToolsetScopePool(a, b) as chats:
            task, done = await cancelled_after(step, request, times)
            await asyncio.wait([task])
            assert [values[-1] for values in await request()] == ['run', 'run']
        assert sorted(journal.names('enter')) == sorted(journal.names('exit'))
        assert asyncio.all_tasks() <= before
        if done:
            break
    else:
        pytest.fail('The request never ended')


async def test_b37_under_load_nothing_is_mixed_up_and_nothing_is_left():
    """500 conversations of which 50 are live at once, some of them cancelled, some continued."""
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], ['t'], toolsets=[session])
    choose = random.Random(0)
    before = asyncio.all_tasks()
    gate = asyncio.Semaphore(40)
    most = 0

    async def conversation(key: int, cancelled: bool) -> None:
        nonlocal most
        async with gate:
            async with chats(key) as chat:
                task = asyncio.ensure_future(run_as(str(key), agent, toolsets=[chat]))
                if cancelled:
                    await asyncio.sleep(0)
                    task.cancel()
                await asyncio.wait([task])
                await run_as(str(key), agent, toolsets=[chat])
                assert set(chat.instance_of(session).values) == {str(key)}
            most = max(most, len(chats.keys))

    async with ToolsetScopePool(session, limit=50) as chats:
        await asyncio.gather(*(conversation(key, choose.random() < 0.1) for key in range(500)))
    assert most <= 50
    assert chats.keys == []
    assert len(journal.names('enter')) == len(journal.names('exit')) == 500
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
