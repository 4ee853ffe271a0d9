"""Point 5: the first agent that an entry calls goes on with the entry's history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelResponse, RunContext
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support import call, calling, echo, entry, script
from toolset_first import AgentSpec, CallRuntime, Runtime, agent_as_toolset


async def test_p05_each_turn_goes_on_with_what_was_said_before() -> None:
    async with Runtime([AgentSpec('one', model=echo())]).create_scope(calling('one')) as scope:
        assert [await scope.run_turn(text) for text in 'abc'] == ['1: a', '3: b', '5: c']
        assert len(scope.runtime.frame.messages) == 6


async def test_p05_history_can_be_given_and_is_not_changed() -> None:
    runtime = Runtime([AgentSpec('one', model=echo())])
    async with runtime.create_scope(calling('one')) as scope:
        await scope.run_turn('a')
        history = scope.runtime.frame.messages
    assert await runtime.run_entry(calling('one'), 'b', history) == '3: b'
    assert await runtime.run_entry(calling('one'), 'b', history) == '3: b'


async def test_p05_only_the_first_agent_of_a_turn_has_the_history() -> None:
    async def main(ctx: RunContext[CallRuntime], input: str) -> list[Any]:
        return [await ctx.deps.call_agent('one', input), await ctx.deps.call_agent('one', input)]

    async with Runtime([AgentSpec('one', model=echo())]).create_scope(entry(main)) as scope:
        assert await scope.run_turn('a') == ['1: a', '1: a']
        assert await scope.run_turn('b') == ['3: b', '1: b']


async def test_p05_of_agents_that_are_called_at_once_one_has_the_history() -> None:
    async def main(ctx: RunContext[CallRuntime], input: str) -> list[Any]:
        return list(await asyncio.gather(*(ctx.deps.call_agent('one', input) for _ in range(3))))

    async with Runtime([AgentSpec('one', model=echo())]).create_scope(entry(main)) as scope:
        await scope.run_turn('a')
        assert await scope.run_turn('b') == ['3: b', '1: b', '1: b']


async def test_p05_nested_agents_have_no_history() -> None:
    inner = AgentSpec('inner', model=echo())
    outer = AgentSpec(
        'outer', model=script(call('inner', input='In')), toolset_specs=[agent_as_toolset(inner, tool='inner')]
    )
    async with Runtime().create_scope(calling(outer)) as scope:
        assert [await scope.run_turn('a'), await scope.run_turn('b')] == ['1: In', '1: In']


def _failing_on(text: str) -> FunctionModel:
    good = echo()

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if text in str(messages[-1]):
            raise ConnectionError('The model is down.')
        assert good.function is not None
        response: Any = good.function(messages, info)
        return await response

    return FunctionModel(respond)


async def test_p05_failed_agent_leaves_the_history_as_it_was() -> None:
    async with Runtime([AgentSpec('one', model=_failing_on('wrong'))]).create_scope(calling('one')) as scope:
        await scope.run_turn('a')
        before = list(scope.runtime.frame.messages)
        with pytest.raises(ConnectionError):
            await scope.run_turn('wrong')
        assert scope.runtime.frame.messages == before
        assert await scope.run_turn('b') == '3: b'


async def test_p05_agent_after_a_failed_one_has_the_history() -> None:
    async def main(ctx: RunContext[CallRuntime], input: str) -> Any:
        try:
            return await ctx.deps.call_agent('one', f'{input} wrong')
        except ConnectionError:
            return await ctx.deps.call_agent('one', input)

    async with Runtime([AgentSpec('one', model=_failing_on('wrong'))]).create_scope(entry(main)) as scope:
        assert [await scope.run_turn('a'), await scope.run_turn('b')] == ['1: a', '3: b']


async def test_p05_cancelled_agent_leaves_the_history_as_it_was() -> None:
    async def wait(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.sleep(60)
        raise AssertionError('It is cancelled before.')

    async with Runtime([AgentSpec('one', model=FunctionModel(wait))]).create_scope(calling('one')) as scope:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(scope.run_turn('a'), 0.01)
        assert scope.runtime.frame.messages == []
