"""B14: a step-wise factory's old toolset is exited exactly once, and what was never entered is never exited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.toolsets import DynamicToolset

from .factories import AT_EACH_STEP
from .toolsets import PLACES, Boom, Journal, Server, Session, scripted

pytestmark = pytest.mark.anyio

factories = pytest.mark.parametrize('factory', AT_EACH_STEP)


def in_turn(*results: Any) -> Callable[[], Any]:
    """Make a function that returns these in turn, or raises those that are exceptions."""
    left = list(results)

    def make() -> Any:
        result = left.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    return make


def check_exited_once(journal: Journal) -> None:
    """Check that each toolset was exited as often as it was entered, and after it was."""
    entered: list[Any] = []
    for event in journal.of('enter', 'exit'):
        if event.kind == 'enter':
            entered.append(event.toolset)
        else:
            entered.remove(event.toolset)
    assert entered == []


INSIDE = {**PLACES, 'DynamicToolset': lambda toolset: DynamicToolset(lambda ctx: toolset, per_run_step=False)}


@pytest.mark.parametrize('inside', INSIDE)
@pytest.mark.parametrize('fails', ['factory', 'enter', 'exit', 'nothing'])
@factories
async def test_b14_holds_in_wrappers_and_combinations(factory: str, fails: str, inside: str):
    journal = Journal()
    error = Boom(fails)
    results: dict[str, list[Any]] = {
        'factory': [Session('a', journal), error],
        'enter': [Session('a', journal), Session('b', journal, fail={'enter': error})],
        'exit': [Session('a', journal, fail={'exit': error}), Session('spare', journal)],
        'nothing': [Session('a', journal), Session('b', journal)],
    }
    toolset = DynamicToolset(AT_EACH_STEP[factory](in_turn(*results[fails])))
    agent = Agent(scripted(['a']), toolsets=[INSIDE[inside](toolset)])
    if fails == 'nothing':
        await agent.run('go')
        assert journal.lifecycle == ['+a', '-a', '+b', '-b']
    else:
        with pytest.raises(Boom) as caught:
            await agent.run('go')
        assert caught.value is error
        assert journal.lifecycle == ['+a', '-a']


@pytest.mark.parametrize('waits', [0, 1, 2, 5])
@pytest.mark.parametrize('slow_at', ['enter', 'exit', 'factory'])
async def test_b14_failure_of_a_factory_beside_it_leaves_nothing_entered(slow_at: str, waits: int):
    class Slow(Session):
        async def _happen(self, kind: str) -> None:
            if kind == slow_at:
                await wait()
            await super()._happen(kind)

    async def wait() -> None:
        for _ in range(waits):
            await asyncio.sleep(0)

    async def slow(ctx: RunContext[Any]) -> Session:
        if slow_at == 'factory':
            await wait()
        return Slow('a', journal)

    async def fails(ctx: RunContext[Any]) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        if ctx.run_step == 2:
            raise Boom('beside')

    journal = Journal()
    with pytest.raises(Boom):
        await Agent(scripted(['a']), toolsets=[slow, fails, Server('s', journal)]).run('go')
    changes = list(journal.lifecycle)
    for _ in range(10):
        await asyncio.sleep(0)
    assert journal.lifecycle == changes
    check_exited_once(journal)
    assert len({id(event.toolset) for event in journal.of('exit')}) == len(journal.of('exit'))
