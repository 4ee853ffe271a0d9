"""B41: each run works with its own copy of a capability that declares to be stateful."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, UserError
from pydantic_ai.capabilities import AbstractCapability, CombinedCapability, WrapperCapability

from .capabilities import Counting
from .toolsets import METHODS, Journal, Session, run_as, scripted

pytestmark = pytest.mark.anyio


class Wrapper(WrapperCapability[Any]):
    pass


def _function(capability: Any) -> Callable[[RunContext[Any]], Any]:
    def make(ctx: RunContext[Any]) -> Any:
        return capability

    return make


PLACES: dict[str, Callable[[Any], list[Any]]] = {
    'alone': lambda capability: [capability],
    'wrapped': lambda capability: [Wrapper(Wrapper(capability))],
    'combined': lambda capability: [CombinedCapability([CombinedCapability([capability])])],
    'made by a function': lambda capability: [_function(capability)],
}


def agent_with(**options: Any) -> Agent[Any, Any]:
    return Agent(scripted(['session'], ['session']), toolsets=[Session('session', Journal())], **options)


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('method', METHODS)
async def test_b41_each_run_has_its_own_copy(method: str, place: str):
    counting = Counting()
    agent = agent_with(capabilities=PLACES[place](counting))

    for name in ('one', 'two'):
        await run_as(name, agent, method)

    assert counting.log == [1, 2, 1, 2]
    assert counting.calls == 0


@pytest.mark.parametrize('place', PLACES)
async def test_b41_runs_at_once_do_not_share(place: str):
    counting = Counting()
    agent = agent_with()

    await asyncio.gather(*(run_as(str(n), agent, capabilities=PLACES[place](counting)) for n in range(100)))

    assert sorted(counting.log) == [1] * 100 + [2] * 100


async def test_b41_sub_agent_has_its_own_copy():
    counting = Counting()
    child = agent_with(capabilities=[counting])
    parent = Agent(scripted(['delegate'], ['delegate']), capabilities=[counting])

    @parent.tool_plain
    async def delegate(value: str) -> str:
        return (await child.run(value)).output

    await run_as('parent', parent)

    assert sorted(counting.log) == [1, 1, 1, 2, 2, 2]


async def test_b41_what_declares_nothing_is_shared():
    class Unrelated(Counting):
        stateful: Any = 'yes'

        def copy(self, deep: bool) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise AssertionError('It is a method of something else')

    counting = Unrelated()
    agent = agent_with(capabilities=[counting])

    for name in ('one', 'two'):
        await run_as(name, agent)

    assert counting.log == [1, 2, 3, 4]


@pytest.mark.parametrize('place', [place for place in PLACES if place != 'made by a function'])
@pytest.mark.parametrize('given_to', ['agent', *METHODS])
async def test_b41_b02_what_cannot_be_copied_is_refused(given_to: str, place: str):
    class WithoutCopy(AbstractCapability[Any]):
        stateful = True

    capabilities = PLACES[place](WithoutCopy())
    with pytest.raises(UserError, match=r'^WithoutCopy is stateful, but does not implement `copy\(\)`'):
        if given_to == 'agent':
            agent_with(capabilities=capabilities)
        else:
            await run_as('run', agent_with(), given_to, capabilities=capabilities)
