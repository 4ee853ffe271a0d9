from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import asyncpg
import pytest
from pydantic_ai import Agent, UnexpectedModelBehavior

from examples import pool
from examples.pool import PoolToolset
from examples.support import call, script

from .watching import Watcher, told, watching

pytestmark = pytest.mark.anyio


async def test_main_answers_20_runs_on_3_connections(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    await pool.main(pool.SCRIPT)

    assert capsys.readouterr().out == '20 runs on 3 connections\n'


async def test_200_runs_at_once_are_answered_on_10_connections(database: str) -> None:
    numbers = range(200)
    toolset = PoolToolset(database)
    agent = Agent(toolsets=[toolset])
    seen: list[int] = []

    async def ask(number: int) -> list[dict[str, int]]:
        model = script(call('query', sql=f'SELECT {number} AS number, pg_backend_pid() AS pid, pg_sleep(0.01)::text'))
        return json.loads((await agent.run('go', model=model)).output)

    async def watch(watcher: Watcher) -> None:
        while True:
            seen.append(await watcher.count_connections())
            await asyncio.sleep(0.005)

    async with watching(database) as watcher:
        task = asyncio.create_task(watch(watcher))
        async with agent:
            answers = await asyncio.gather(*map(ask, numbers))
        task.cancel()
        await asyncio.wait([task])
        await watcher.wait_until_alone()

    assert [rows[0]['number'] for rows in answers] == list(numbers)
    # Had the pool been opened more than once, there would be others among the processes of the server.
    assert len({rows[0]['pid'] for rows in answers}) == max(seen) == 10


async def test_agent_that_is_entered_keeps_the_pool_open_between_runs(database: str) -> None:
    agent = Agent(script(call('query', sql='SELECT pg_backend_pid()')), toolsets=[PoolToolset(database)])

    async with agent, watching(database) as watcher:
        outputs = {(await agent.run('go')).output for _ in range(3)}

        assert len(outputs) == 1
        assert await watcher.count_connections() == 1


async def test_agent_that_is_not_entered_opens_the_pool_for_runs_that_overlap(database: str) -> None:
    agent = Agent(toolsets=[PoolToolset(database, max_size=1)])
    model = script(call('query', sql='SELECT pg_backend_pid()'))

    async with watching(database) as watcher:
        at_once = await asyncio.gather(*(agent.run('go', model=model) for _ in range(3)))
        await watcher.wait_until_alone()
        later = await agent.run('go', model=model)
        await watcher.wait_until_alone()

    assert len({result.output for result in at_once}) == 1
    assert later.output != at_once[0].output


async def test_sub_agent_shares_the_pool(database: str) -> None:
    toolset = PoolToolset(database, max_size=1)
    query = call('query', sql='SELECT pg_backend_pid()')
    child = Agent(script(query), toolsets=[toolset])
    agent = Agent(script([query, call('delegate')]), toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> str:
        return (await child.run('go')).output

    of_agent, of_child = (await agent.run('go')).output.split(', ')

    assert of_agent == of_child


async def test_run_that_fails_or_is_cancelled_leaves_the_pool(database: str) -> None:
    agent = Agent(toolsets=[PoolToolset(database)])
    slow = script(call('query', sql='SELECT pg_sleep(60)::text'))
    wrong = script(call('query', sql='nonsense'), call('query', sql='nonsense'))

    async with watching(database) as watcher:
        with pytest.raises(UnexpectedModelBehavior):
            await agent.run('go', model=wrong)
        await watcher.wait_until_alone()

        run = asyncio.create_task(agent.run('go', model=slow))
        await watcher.wait_until_asleep()
        run.cancel()
        await asyncio.wait([run])
        await watcher.wait_until_alone()

        with anyio.CancelScope() as scope:
            watch = asyncio.create_task(watcher.wait_until_asleep())
            watch.add_done_callback(lambda _: scope.cancel())
            await agent.run('go', model=slow)
        await watcher.wait_until_alone()


async def test_pool_that_cannot_be_opened_is_opened_by_the_next_run(database: str) -> None:
    agent = Agent(script(call('query', sql='SELECT 1')), toolsets=[PoolToolset(f'{database.rpartition("/")[0]}/later')])

    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await agent.run('go')
    async with watching(database) as watcher:
        await watcher.connection.execute('CREATE DATABASE later')
        result = await agent.run('go')
        await watcher.connection.execute('DROP DATABASE later')

    assert result.output == '[{"?column?":1}]'


async def test_query_that_fails_is_told_to_the_model(database: str) -> None:
    agent = Agent(
        script(call('query', sql='SELECT * FROM no_such_table'), call('query', sql='SELECT 1')),
        toolsets=[PoolToolset(database)],
    )
    result = await agent.run('go')

    assert told(result.all_messages())[0] == 'relation "no_such_table" does not exist'


@pytest.mark.parametrize('first', ['SELECT 1', 'COMMIT', 'SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE'])
async def test_query_that_writes_is_refused(database: str, first: str) -> None:
    write = call('query', sql='CREATE TABLE t ()')
    both = call('query', sql='COMMIT; CREATE TABLE t ()')
    agent = Agent(script(call('query', sql=first), write, both), toolsets=[PoolToolset(database, max_size=1)])

    with pytest.raises(UnexpectedModelBehavior):
        await agent.run('go')

    async with watching(database) as watcher:
        assert await watcher.column("SELECT to_regclass('t')") == [None]


def test_pool_is_used_in_one_event_loop_after_the_other(database: str) -> None:
    agent = Agent(script(call('query', sql='SELECT 1')), toolsets=[PoolToolset(database)])

    async def run_several() -> list[Any]:
        return await asyncio.gather(*(agent.run('go') for _ in range(3)))

    for _ in range(2):
        assert {result.output for result in asyncio.run(run_several())} == {'[{"?column?":1}]'}
