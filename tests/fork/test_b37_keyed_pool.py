"""B37: a pool opens or continues the scope of a key, and ends those that are idle or least recently used, never one in use."""

from __future__ import annotations

import asyncio
import random

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScopePool

from .delegation import calling
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b37_block_opens_or_continues_the_conversation_of_its_key(method: str):
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    pool = ToolsetScopePool()
    for number in range(3):
        for key in ('Ada', 'Bob'):
            async with pool(key) as scope:
                await run_as(f'{key}{number}', agent, method)
                assert scope.instance_of(session).values == [f'{key}{n}' for n in range(number + 1)]
    assert journal.lifecycle == ['+t', '+t']
    await pool.aclose()
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']
    with pytest.raises(UserError, match='closed'):
        await pool('Ada').__aenter__()


async def test_b37_two_runs_at_once_under_one_key_are_refused():
    journal = Journal()
    session = Session('t', journal)
    inside, go = asyncio.Event(), asyncio.Event()

    async def wait(value: str) -> None:
        inside.set()
        await go.wait()

    async def request(name: str, key: str) -> None:
        async with pool(key):
            await run_as(
                name, calling(['wait'] if name == 'slow' else ['t'], toolsets=[session], tools=[wait], name=name)
            )

    async with ToolsetScopePool() as pool:
        slow = asyncio.ensure_future(request('slow', 'Ada'))
        await inside.wait()
        await request('fast', 'Bob')
        with pytest.raises(UserError) as caught:
            await request('fast', 'Ada')
        for part in ("'slow'", "'fast'", "'Ada'", session.label):
            assert part in str(caught.value)
        go.set()
        await slow


async def test_b37_idle_and_least_recently_used_are_ended_but_none_in_use():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    pool = ToolsetScopePool(limit=2, idle_timeout=0.05)
    async with pool('held') as held:
        await run_as('held', agent)
        for key in 'abc':
            async with pool(key):
                await run_as(key, agent)
        assert pool.keys == ['held', 'c']
        while pool.keys != ['held']:
            await asyncio.sleep(0.01)
        await run_as('held', agent)
        assert held.instance_of(session).values == ['held', 'held']
    while pool.keys:
        await asyncio.sleep(0.01)
    assert journal.lifecycle.count('+t') == journal.lifecycle.count('-t') == 4


async def test_b37_named_toolsets_only():
    journal = Journal()
    kept, other = Session('kept', journal), Session('other', journal)
    async with ToolsetScopePool(kept) as pool:
        for _ in range(2):
            async with pool(1):
                await run_as('run', calling(['kept', 'other'], toolsets=[kept, other]))
    assert journal.lifecycle == ['+kept', '+other', '-other', '+other', '-other', '-kept']
    with pytest.raises(UserError, match="'s'"):
        ToolsetScopePool(Server('s', journal))


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
            async with pool(key) as scope:
                task = asyncio.ensure_future(run_as(str(key), agent))
                if cancelled:
                    await asyncio.sleep(0)
                    task.cancel()
                await asyncio.wait([task])
                await run_as(str(key), agent)
                assert set(scope.instance_of(session).values) == {str(key)}
            most = max(most, len(pool.keys))

    async with ToolsetScopePool(limit=50) as pool:
        await asyncio.gather(*(conversation(key, choose.random() < 0.1) for key in range(500)))
    assert most <= 50
    assert pool.keys == []
    assert len(journal.names('enter')) == len(journal.names('exit')) == 500
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
