"""B37: a pool opens or continues the scope of a key, and ends those that are idle or least recently used, never one in use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.toolsets import ToolsetScopePool
from typing_extensions import Self

from .cancelling import cancelled_after
from .delegation import calling
from .test_b34_entered_and_exited_by_the_scope import Grouped
from .toolsets import Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


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
