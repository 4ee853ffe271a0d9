from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, ToolCallPart

from examples import cache
from examples.support import call, script, scripts

pytestmark = pytest.mark.anyio


class Index:
    """A search that counts, and can be held up or fail."""

    def __init__(self, *failures: Exception) -> None:
        self.queries: list[str] = []
        self.cancelled: list[str] = []
        self.failures = list(failures)
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def find(self, query: str) -> str:
        self.queries.append(query)
        try:
            await self.go_on.wait()
            # Others get their turn, as with anything that takes time.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            # Ending it takes time, too.
            await asyncio.sleep(0.01)
            self.cancelled.append(query)
            raise
        if self.failures:
            raise self.failures.pop(0)
        return f'{query}!'

    async def asked(self) -> None:
        """Wait until it searches."""
        while not self.queries:
            await asyncio.sleep(0)


def search(query: str) -> ToolCallPart:
    return call('search', query=query)


async def test_main_searches_once_in_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    await cache.main(cache.SCRIPT)

    searching = "Searching for 'payment'"
    assert capsys.readouterr().out.splitlines() == ['Run 1', searching, 'webhook', 'Run 2', searching, 'webhook']


async def test_same_query_again_is_not_searched_for() -> None:
    index = Index()
    model = script([search('a'), search('a'), search('b')], search('a'))
    result = await Agent(model, toolsets=[cache.CachedSearchToolset(index.find)]).run('go')

    assert sorted(index.queries) == ['a', 'b']
    assert result.output == 'a!'


async def test_runs_at_once_search_each_for_themselves_and_leave_nothing() -> None:
    index = Index()
    toolset = cache.CachedSearchToolset(index.find)
    agent = Agent(script(search('a'), search('a')), toolsets=[toolset])
    await asyncio.gather(*(agent.run('go') for _ in range(5)))

    assert index.queries == ['a'] * 5
    assert toolset.searches == {}


@pytest.mark.parametrize('first', ['agent', 'sub-agents'])
async def test_sub_agents_share_the_cache_in_both_directions(first: str) -> None:
    index = Index()
    toolset = cache.CachedSearchToolset(index.find)
    delegating = [call('delegate'), call('delegate')]
    steps = [search('a'), delegating] if first == 'agent' else [delegating, search('a')]
    model = scripts({'go': steps, 'go on': [search('a')]})
    child = Agent(model, toolsets=[toolset])
    agent = Agent(model, toolsets=[toolset])

    @agent.tool
    async def delegate(ctx: RunContext[Any]) -> str:
        return (await child.run('go on', usage=ctx.usage)).output

    assert (await agent.run('go')).output == ('a!, a!' if first == 'agent' else 'a!')
    assert index.queries == ['a']


async def test_search_that_fails_is_repeated_by_the_next_call() -> None:
    index = Index(ModelRetry('Not now.'))
    agent = Agent(script(search('a'), search('a')), toolsets=[cache.CachedSearchToolset(index.find)])

    assert (await agent.run('go')).output == 'a!'
    assert index.queries == ['a', 'a']


async def test_search_that_fails_fails_for_all_who_wait() -> None:
    index = Index(ConnectionError('down'))
    toolset = cache.CachedSearchToolset(index.find)
    first, second = await asyncio.gather(toolset.search('a'), toolset.search('a'), return_exceptions=True)

    assert isinstance(first, ConnectionError)
    assert isinstance(second, ConnectionError)
    assert index.queries == ['a']


async def test_call_that_is_cancelled_leaves_the_search_to_the_others() -> None:
    index = Index()
    index.go_on.clear()
    toolset = cache.CachedSearchToolset(index.find)
    impatient = asyncio.create_task(toolset.search('a'))
    patient = asyncio.create_task(toolset.search('a'))
    await index.asked()
    impatient.cancel()
    await asyncio.wait([impatient])
    index.go_on.set()

    assert await patient == 'a!'
    assert impatient.cancelled()
    assert index.queries == ['a']


def fail() -> None:
    raise PermissionError('no')


def nothing() -> None:
    pass


@pytest.mark.parametrize(('then', 'outcome'), [(fail, PermissionError), (nothing, asyncio.CancelledError)])
async def test_end_of_a_run_ends_its_searches(then: Callable[[], None], outcome: type[BaseException]) -> None:
    index = Index()
    index.go_on.clear()
    agent = Agent(script([search('a'), call('stop')]), toolsets=[cache.CachedSearchToolset(index.find)])

    @agent.tool_plain
    async def stop() -> None:
        await index.asked()
        then()

    before = asyncio.all_tasks()
    run = asyncio.create_task(agent.run('go'))
    await index.asked()
    if then is nothing:
        run.cancel()
    with pytest.raises(outcome):
        await run

    assert index.cancelled == ['a']
    assert asyncio.all_tasks() == before
