"""B36: reset, use after the end, the end while a run goes on, scopes that are opened twice and nested ones."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope, WrapperToolset
from typing_extensions import Self

from .delegation import calling
from .line import CANCELLED
from .toolsets import SUCCESS, Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


class Audited(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def __init__(self, wrapped: Any):
        super().__init__(wrapped)
        self.calls = 0

    def copy(self) -> Self:
        return type(self)(cast('Any', self.wrapped).copy())


async def test_b36_reset_exits_and_forgets():
    journal = Journal()
    one, two = Session('one', journal), Session('two', journal)
    agent = calling(['one', 'two'], toolsets=[one, two])
    async with ToolsetScope() as scope:
        await run_as('a', agent)
        await scope.reset(one)
        assert journal.exit_of('one') == SUCCESS
        await run_as('b', agent)
        assert (scope.instance_of(one).values, scope.instance_of(two).values) == (['b'], ['a', 'b'])
        await scope.reset()
        await run_as('c', agent)
        assert (scope.instance_of(one).values, scope.instance_of(two).values) == (['c'], ['c'])
    assert journal.lifecycle == [
        *('+one', '+two', '-one', '+one', '-one', '-two'),
        *('+one', '+two', '-two', '-one'),
    ]
    assert one.values == two.values == []


async def test_b36_reset_of_what_is_inside_resets_what_contains_it():
    journal = Journal()
    session = Session('t', journal)
    audited = Audited(session)
    agent = calling(['t'], toolsets=[audited])
    async with ToolsetScope() as scope:
        for toolset in (session, audited, audited.prefixed('x')):
            await run_as('run', agent)
            old = scope.instance_of(audited)
            await scope.reset(toolset)
            await run_as('again', agent)
            assert scope.instance_of(audited) is not old
            assert scope.instance_of(session).values == ['again']
            await scope.reset()
    assert journal.lifecycle == ['+t', '-t'] * 6


async def test_b36_reset_is_refused_while_a_run_goes_on():
    journal = Journal()
    session = Session('t', journal)

    async def reset(value: str) -> None:
        with pytest.raises(UserError, match="'Ada'"):
            await scope.reset(session)

    async with ToolsetScope() as scope:
        await run_as('run', calling(['reset'], ['t'], toolsets=[session], tools=[reset], name='Ada'))
        with pytest.raises(UserError, match='not stateful'):
            await scope.reset(Server('s', journal))


async def test_b36_use_after_the_end_names_the_scope():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session], name='Ada')
    go = asyncio.Event()

    async def later() -> None:
        await go.wait()
        await run_as('later', agent)

    async with ToolsetScope(name='chat'):
        await run_as('run', agent)
        task = asyncio.ensure_future(later())
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(UserError) as caught:
        await task
    for part in ("'chat'", "'Ada'", session.label):
        assert part in str(caught.value)
    assert journal.lifecycle == ['+t', '-t']


async def test_b36_run_that_outlives_the_block_in_the_same_task_gets_the_error():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session], name='Ada')
    scope = ToolsetScope(name='chat')
    await scope.__aenter__()
    with pytest.raises(UserError) as caught:
        async with agent.iter('go') as agent_run:
            await scope.__aexit__(None, None, None)
            async for _ in agent_run:
                pass
    for part in ("'chat'", "'Ada'", session.label):
        assert part in str(caught.value)
    assert journal.lifecycle == ['+t', '-t']


@pytest.mark.parametrize('method', ['run', 'iter', 'run_stream', 'run_stream_events'])
async def test_b36_end_of_the_block_cancels_the_run_waits_and_exits(method: str):
    journal = Journal()
    inside = asyncio.Event()
    cleaned = False

    async def wait(value: str) -> None:
        nonlocal cleaned
        inside.set()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.01)
            assert journal.lifecycle == ['+t', '+s']
            cleaned = True

    agent = calling(['wait'], toolsets=[Session('t', journal), Server('s', journal)], tools=[wait])
    async with ToolsetScope():
        task = asyncio.ensure_future(run_as('run', agent, method))
        await inside.wait()
    assert cleaned
    assert journal.lifecycle == ['+t', '+s', '-s', '-t']
    with pytest.raises(CANCELLED):
        await task


async def test_b36_opened_twice():
    scope = ToolsetScope(name='chat')
    async with scope:
        with pytest.raises(UserError, match='chat'):
            await scope.__aenter__()
    with pytest.raises(UserError, match='chat'):
        await scope.__aenter__()


async def test_b36_innermost_scope_decides():
    journal = Journal()
    one, two = Session('one', journal), Session('two', journal)
    agent = calling(['one', 'two'], toolsets=[one, two])
    async with ToolsetScope() as outer:
        await run_as('a', agent)
        async with ToolsetScope(one) as inner:
            for _ in range(2):
                await run_as('b', agent)
            assert inner.instance_of(one).values == ['b', 'b']
        await run_as('c', agent)
        assert outer.instance_of(one).values == outer.instance_of(two).values == ['a', 'c']
    assert journal.lifecycle.count('+two') == 3
