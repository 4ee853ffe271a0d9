"""B34: the end of the block exits all copies, in the task that has entered them, with the exception of the block."""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import pytest
from pydantic_ai.toolsets import ToolsetScope
from typing_extensions import Self

from .cancelling import cancelled_after
from .delegation import calling
from .toolsets import Boom, Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


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
