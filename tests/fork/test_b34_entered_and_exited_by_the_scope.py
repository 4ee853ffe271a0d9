"""B34: the first run that needs a toolset has it entered; the end of the block exits all, in one task."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope
from typing_extensions import Self

from .cancelling import cancelled_after
from .delegation import calling
from .toolsets import SUCCESS, Journal, Session, run_as

pytestmark = pytest.mark.anyio


class Boom(Exception):
    pass


class Grouped(Session):
    """A session with a task group and a cancel scope, which must be exited in the task that entered them."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(anyio.sleep_forever)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        try:
            await super().__aexit__(*args)
        finally:
            self.group.cancel_scope.cancel()
            await self.group.__aexit__(None, None, None)
        return None

    async def crash(self) -> None:
        async def fail() -> None:
            raise Boom

        self.group.start_soon(fail)
        await asyncio.sleep(0.01)


async def test_b34_exits_run_in_reverse_order_and_all_of_them_with_an_exception():
    journal = Journal()
    failing = Session('b', journal, fail={'exit': RuntimeError('exit')})
    a, c = Session('a', journal), Session('c', journal)
    with pytest.raises(RuntimeError, match='exit'):
        async with ToolsetScope():
            await run_as('one', calling(toolsets=[a]))
            await run_as('two', calling(toolsets=[failing, a, c]))
            raise Boom
    assert journal.lifecycle == ['+a', '+b', '+c', '-c', '-b', '-a']
    assert [event.got[0] for event in journal.of('exit')] == [Boom, Boom, RuntimeError]


@pytest.mark.parametrize('how', ['tool', 'model', 'cancelled'])
async def test_b34_failed_run_exits_nothing_and_leaves_the_scope_usable(how: str):
    journal = Journal()
    session = Session('t', journal)

    async def fail(value: str) -> None:
        if how == 'cancelled':
            current = asyncio.current_task()
            assert current is not None
            task.cancel()
            await asyncio.sleep(100)
        raise Boom

    steps: list[Any] = [['t'], Boom() if how == 'model' else ['fail']]
    async with ToolsetScope() as scope:
        task = asyncio.ensure_future(run_as('run', calling(*steps, toolsets=[session], tools=[fail])))
        await asyncio.wait([task])
        assert task.cancelled() or isinstance(task.exception(), Boom)
        assert journal.lifecycle == ['+t']
        await run_as('again', calling(['t'], toolsets=[session]))
        assert scope.instance_of(session).values == ['run', 'again']
    assert journal.exit_of('t') == SUCCESS


async def test_b34_task_groups_work_across_tasks_and_resets():
    journal = Journal()
    one, two = Grouped('one', journal), Grouped('two', journal)
    before = asyncio.all_tasks()
    async with ToolsetScope() as scope:
        for _ in range(3):
            await asyncio.ensure_future(run_as('run', calling(['one', 'two'], toolsets=[one, two])))
            await asyncio.ensure_future(scope.reset(two))
    assert asyncio.all_tasks() <= before
    assert journal.lifecycle == ['+one', *['+two', '-two'] * 3, '-one']


async def test_b34_no_call_waits_for_ever_when_the_task_dies():
    journal = Journal()
    session, grouped = Session('t', journal), Grouped('g', journal)
    agent = calling(['g'], toolsets=[session, grouped])
    scope = ToolsetScope(name='chat')
    with pytest.raises(UserError) as caught:
        async with scope:
            await run_as('run', agent)
            await scope.instance_of(grouped).crash()
            assert journal.lifecycle == ['+t', '+g', '-g', '-t']
            for call in (run_as('again', agent), scope.reset()):
                with pytest.raises(UserError, match='chat'):
                    await asyncio.wait_for(call, 300)
    assert "'chat'" in str(caught.value)


def test_b34_loop_that_ends_before_the_block_is_named():
    journal = Journal()
    agent = calling(['t'], toolsets=[Session('t', journal)])
    scope = ToolsetScope(name='chat')

    async def begin() -> None:
        await scope.__aenter__()
        await run_as('run', agent)

    asyncio.run(begin())
    assert journal.lifecycle == ['+t', '-t']
    with pytest.raises(UserError, match=r"'chat' was opened in was closed"):
        asyncio.run(scope.__aexit__(None, None, None))


@pytest.mark.parametrize('times', [1, 2])
async def test_b34_run_cancelled_at_any_step_leaves_the_scope_usable(times: int):
    before = asyncio.all_tasks()
    for step in range(1000):
        journal = Journal()
        a, b = Session('a', journal), Grouped('b', journal)
        agent = calling(['a'], ['b'], toolsets=[a, b.prefixed('x'), b])
        async with ToolsetScope() as scope:
            task, done = await cancelled_after(step, partial(run_as, 'run', agent), times)
            await asyncio.wait([task])
            await run_as('again', agent)
            assert [scope.instance_of(t).values[-1] for t in (a, b)] == ['again', 'again']
        assert asyncio.all_tasks() <= before
        by_id: dict[int, list[str]] = {}
        for event in journal.of('enter', 'exit', 'call'):
            by_id.setdefault(id(event.toolset), []).append(event.kind)
        for kinds in by_id.values():
            assert (kinds[0], kinds[-1]) == ('enter', 'exit')
            assert set(kinds[1:-1]) <= {'call'}
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

        async def chat() -> None:
            async with ToolsetScope():
                for _ in range(2):
                    await run_as('run', calling(['a'], ['b'], toolsets=[a, b]))  # noqa: B023

        task, done = await cancelled_after(step, chat, times)
        await asyncio.wait([task])
        assert asyncio.all_tasks() <= before
        assert sorted(journal.names('enter')) == sorted(journal.names('exit'))
        if done:
            break
    else:
        pytest.fail('The block never ended')
