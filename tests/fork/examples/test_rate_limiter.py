from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, ModelRetry, RunContext, ToolReturnPart
from pydantic_ai.toolsets import DynamicToolset
from typing_extensions import Self

from examples import rate_limiter
from examples.rate_limiter import Quota, RateLimitedToolset, SharedRateLimitedToolset
from examples.support import Step, call, scripts

pytestmark = pytest.mark.anyio

REFUSED = 'The limit of {} calls is reached. Answer with what you have.'


class CountingToolset(FunctionToolset[Any]):
    """Counts the calls that reach it, in a state of its own."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.count])
        self.counted = 0

    def copy(self) -> Self:
        return type(self)()

    async def count(self) -> int:
        self.counted += 1
        await asyncio.sleep(0)
        return self.counted


async def returned(toolset: AbstractToolset[Any], *steps: Step, sub: tuple[Step, ...] = ()) -> list[Any]:
    """Run an agent and its sub-agent, and return what their tools returned, in the order of the calls."""
    results: list[Any] = []
    model = scripts({'go': steps, 'go on': sub})
    child = Agent(model, toolsets=[toolset])
    agent = Agent(model, toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> list[Any]:
        return returns(await child.run('go on'))

    def returns(result: Any) -> list[Any]:
        return [part.content for m in result.all_messages() for part in m.parts if isinstance(part, ToolReturnPart)]

    for content in returns(await agent.run('go')):
        results += content if isinstance(content, list) else [content]
    return results


def count() -> Step:
    return call('count')


async def test_main_refuses_calls_of_the_shared_quota_only(capsys: pytest.CaptureFixture[str]) -> None:
    await rate_limiter.main(rate_limiter.SCRIPT)

    titles = ['pure-functions', 'webhook', 'rate-limiter', 'audit', 'cache']
    assert capsys.readouterr().out.splitlines() == [
        'A quota each',
        *(f'Reading {title}' for title in titles),
        'A cache',
        'A shared quota',
        *(f'Reading {title}' for title in titles[:3]),
        REFUSED.format(3),
    ]


@pytest.mark.parametrize('limited', [RateLimitedToolset, SharedRateLimitedToolset])
async def test_calls_over_the_limit_do_not_reach_the_toolset(limited: type[RateLimitedToolset]) -> None:
    assert await returned(limited(CountingToolset(), Quota(2)), count(), count(), count()) == [1, 2, REFUSED.format(2)]


async def test_calls_in_parallel_cannot_pass_the_limit_together() -> None:
    calls = [call('count') for _ in range(5)]
    results = await returned(RateLimitedToolset(CountingToolset(), Quota(2)), calls)

    assert results.count(REFUSED.format(2)) == 3


async def test_each_run_has_the_whole_quota() -> None:
    limited = RateLimitedToolset(CountingToolset(), Quota(1))
    runs = await asyncio.gather(*(returned(limited, count(), count()) for _ in range(3)))

    assert runs == [[1, REFUSED.format(1)]] * 3
    assert limited.quota == Quota(1, used=0)


async def test_sub_agent_has_a_quota_of_its_own_and_what_the_inside_says() -> None:
    limited = RateLimitedToolset(CountingToolset(), Quota(2))
    results = await returned(limited, count(), call('delegate'), count(), count(), sub=(count(), count(), count()))

    assert results == [1, 2, 3, REFUSED.format(2), 4, REFUSED.format(2)]


async def test_sub_agent_shares_the_quota_and_what_the_inside_says() -> None:
    limited = SharedRateLimitedToolset(CountingToolset(), Quota(2))
    results = await returned(limited, count(), call('delegate'), count(), sub=(count(), count()))

    assert results == [1, 2, REFUSED.format(2), REFUSED.format(2)]


async def test_sub_agents_in_parallel_share_the_quota() -> None:
    limited = SharedRateLimitedToolset(CountingToolset(), Quota(3))
    calls = [call('delegate') for _ in range(3)]
    results = await returned(limited, calls, sub=(count(), count()))

    assert results.count(REFUSED.format(3)) == 3


async def test_calls_that_fail_count() -> None:
    async def fail() -> None:
        raise ModelRetry('Again.')

    limited = RateLimitedToolset(FunctionToolset([fail]), Quota(1))

    assert (await returned(limited, call('fail'), call('fail')))[-1] == REFUSED.format(1)


@pytest.mark.parametrize('limited', [RateLimitedToolset, SharedRateLimitedToolset])
async def test_count_outlives_a_toolset_that_is_made_anew_at_each_step(limited: type[RateLimitedToolset]) -> None:
    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return CountingToolset()

    results = await returned(
        limited(DynamicToolset(make), Quota(3)), count(), count(), call('delegate'), count(), sub=(count(), count())
    )

    shared = limited is SharedRateLimitedToolset
    assert [result == REFUSED.format(3) for result in results] == [False, False, False, shared, shared]


async def test_copy_keeps_the_limit_and_copies_the_inside() -> None:
    limited = RateLimitedToolset(CountingToolset(), Quota(2, used=1))
    copy = limited.copy()

    assert copy.quota == Quota(2)
    assert copy.wrapped is not limited.wrapped
