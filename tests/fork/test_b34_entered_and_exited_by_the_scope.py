"""B34: the end of the block exits all copies, in the task that has entered them, with the exception of the block."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic_ai.toolsets import ToolsetScope
from typing_extensions import Self

from .cancelling import cancelled_after
from .delegation import calling
from .toolsets import SUCCESS, Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


class Boom(Exception):
    pass


class Grouped(Session):
    """A session with a task group and a cancel scope, which must be exited in the task that entered them."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.task = asyncio.current_task()
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(anyio.sleep_forever)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        assert asyncio.current_task() is self.task
        try:
            await super().__aexit__(*args)
        finally:
            self.group.cancel_scope.cancel()
            await self.group.__aexit__(None, None, None)
        return None

    def crash(self) -> None:
        """Have the session die, as that of a server which has gone."""

        async def fail() -> None:
            raise Boom('crashed')

        self.group.start_soon(fail)


async def test_b34_exits_run_in_reverse_order_and_all_of_them_with_the_exception_of_the_block():
    journal = Journal()
    failing = Session('b', journal, fail={'exit': RuntimeError('exit')})
    a, c = Session('a', journal), Session('c', journal)
    error = Boom()
    with pytest.raises(RuntimeError, match='exit') as caught:
        async with ToolsetScope(a, failing, c) as chat:
            await run_as('one', calling(toolsets=[a]), toolsets=[chat])
            await run_as('two', calling(toolsets=[failing, a, c]), toolsets=[chat])
            raise error
    assert caught.value.__context__ is error
    assert journal.lifecycle == ['+a', '+b', '+c', '-c', '-b', '-a']
    assert [event.got[0] for event in journal.of('exit')] == [Boom] * 3
    assert all(event.got[1] is error for event in journal.of('exit'))


async def test_b34_exits_of_a_block_that_succeeds_get_none():
    journal = Journal()
    a, b = Session('a', journal), Session('b', journal)
    async with ToolsetScope(a, b):
        pass
    assert journal.lifecycle == ['+a', '+b', '-b', '-a']
    assert [event.got for event in journal.of('exit')] == [SUCCESS, SUCCESS]


@pytest.mark.parametrize('how', ['tool', 'model', 'cancelled'])
async def test_b34_failed_run_exits_nothing_and_leaves_the_scope_usable(how: str):
    journal = Journal()
    session = Session('t', journal)

    async def fail(value: str) -> None:
        if how == 'cancelled':
            task.cancel()
            await asyncio.sleep(100)
        raise Boom

    steps: list[Any] = [['t'], Boom() if how == 'model' else ['fail']]
    async with ToolsetScope(session) as chat:
        agent = calling(*steps, toolsets=[session], tools=[fail])
        task = asyncio.ensure_future(run_as('run', agent, toolsets=[chat]))
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.exception(), Boom)
        assert journal.lifecycle == ['+t']
        await run_as('again', calling(['t'], toolsets=[session]), toolsets=[chat])
        assert chat.instance_of(session).values == ['run', 'again']
    assert journal.exit_of('t') == SUCCESS


async def test_b34_task_groups_work_across_the_tasks_of_runs():
    journal = Journal()
    one, two = Grouped('one', journal), Grouped('two', journal)
    before = asyncio.all_tasks()
    async with ToolsetScope(one, two) as chat:
        for _ in range(3):
            agent = calling(['one', 'two'], toolsets=[one, two])
            await asyncio.ensure_future(run_as('run', agent, toolsets=[chat]))
            await run_as('run', agent, toolsets=[chat])
    assert asyncio.all_tasks() <= before
    assert journal.lifecycle == ['+one', '+two', '-two', '-one']


async def test_b34_nothing_waits_for_ever_when_a_task_group_inside_fails():
    """It cancels the block, if that is the task which has entered it."""
    journal = Journal()
    session, grouped = Session('t', journal), Grouped('g', journal)

    async def block() -> None:
        async with ToolsetScope(session, grouped) as chat:
            await run_as('run', calling(['g'], toolsets=[session, grouped]), toolsets=[chat])
            chat.instance_of(grouped).crash()
            while not journal.of('exit'):
                await asyncio.sleep(0.001)

    before = asyncio.all_tasks()
    (outcome,) = await asyncio.gather(asyncio.wait_for(block(), 60), return_exceptions=True)
    assert not isinstance(outcome, asyncio.TimeoutError)
    assert sorted(journal.lifecycle) == ['+g', '+t', '-g', '-t']
    assert asyncio.all_tasks() <= before


@pytest.mark.parametrize('times', [1, 2])
async def test_b34_run_cancelled_at_any_step_leaves_the_scope_usable(times: int):
    before = asyncio.all_tasks()
    for step in range(1000):
        journal = Journal()
        a, b = Session('a', journal), Grouped('b', journal)
        agent = calling(['a'], ['b'], toolsets=[a, b.prefixed('x'), b])
        async with ToolsetScope(a, b) as chat:
            task, done = await cancelled_after(step, partial(run_as, 'run', agent, toolsets=[chat]), times)
            await asyncio.wait([task])
            await run_as('again', agent, toolsets=[chat])
            assert [chat.instance_of(t).values[-1] for t in (a, b)] == ['again', 'again']
        assert asyncio.all_tasks() <= before
        assert journal.lifecycle == ['+a', '+b', '-b', '-a']
        if done:
            break
    else:
        pytest.fail('The run never ended')


@pytest.mark.parametrize('times', [1, 2])
async def test_b34_block_cancelled_at_any_step_exits_what_was_entered(times: int):
    before = asyncio.all_tasks()
    for step in range(1000):
        journal = Journal()
        a, b = Session('a', journal), Session('b', journal)

        async def block() -> None:
            async with ToolsetScope(a, b) as chat:  # noqa: B023
                for _ in range(2):
                    await run_as('run', calling(['a'], ['b'], toolsets=[a, b]), toolsets=[chat])  # noqa: B023

        task, done = await cancelled_after(step, block, times)
        await asyncio.wait([task])
        assert asyncio.all_tasks() <= before
        assert sorted(journal.names('enter')) == sorted(journal.names('exit'))
        assert set(journal.names('enter')) <= {'a', 'b'}
        if done:
            break
    else:
        pytest.fail('The block never ended')
