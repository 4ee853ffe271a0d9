"""B35: two runs at once in one scope are refused, and what is being entered when its run is cancelled is entered or undone."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope
from typing_extensions import Self

from .delegation import calling
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b35_second_run_is_refused_with_the_names_of_both_agents(method: str):
    journal = Journal()
    one, two = Session('one', journal), Session('two', journal)
    inside, go = asyncio.Event(), asyncio.Event()

    async def wait(value: str) -> None:
        inside.set()
        await go.wait()

    first = calling(['wait'], toolsets=[one, two], tools=[wait], name='Ada')
    second = calling(['one', 'two'], toolsets=[one, two], name='Bob')
    stateless = calling(['s'], toolsets=[Server('s', journal)], name='Eve')
    async with ToolsetScope():
        task = asyncio.ensure_future(run_as('first', first, method))
        await inside.wait()
        with pytest.raises(UserError) as caught:
            await run_as('second', second, method)
        assert "'Ada'" in str(caught.value)
        assert "'Bob'" in str(caught.value)
        assert one.label in str(caught.value)
        await run_as('third', stateless, method)
        go.set()
        await task
        await run_as('second', second, method)
    assert [event for event in journal.lifecycle if not event.endswith('s')] == ['+one', '+two', '-two', '-one']


async def test_b35_runs_in_scopes_of_their_own_go_on_at_once():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], ['t'], toolsets=[session])

    async def chat() -> list[str]:
        async with ToolsetScope() as scope:
            for _ in range(3):
                await run_as('run', agent)
            return scope.instance_of(session).values

    assert await asyncio.gather(*(chat() for _ in range(50))) == [['run'] * 6] * 50
    assert journal.names('copy') == ['t'] * 50


@pytest.mark.parametrize('stubborn', [False, True])
async def test_b35_what_is_being_entered_when_its_run_is_cancelled_is_entered_or_undone(stubborn: bool):
    class Slow(Session):
        async def __aenter__(self) -> Self:
            entering.set()
            try:
                await go.wait()
            except asyncio.CancelledError:
                for _ in range(5):
                    await asyncio.sleep(0)
                if not stubborn:
                    raise
            return await super().__aenter__()

    entering, go = asyncio.Event(), asyncio.Event()
    journal = Journal()
    slow = Slow('t', journal)
    agent = calling(['t'], toolsets=[slow])
    async with ToolsetScope() as scope:
        task = asyncio.ensure_future(run_as('cancelled', agent))
        await entering.wait()
        task.cancel()
        await asyncio.wait([task])
        entering.clear()
        go.set()
        await run_as('next', agent)
        assert task.cancelled()
        assert scope.instance_of(slow).values == ['next']
        assert entering.is_set() is not stubborn
    assert journal.lifecycle == ['+t', '-t']
    assert journal.names('copy') == ['t'] * (1 if stubborn else 2)
