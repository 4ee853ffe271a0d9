"""B33: conversations that are streamed, as chat servers do, never cross: not in generators that are left, interleaved, or awaited in tasks."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import pytest
from pydantic_ai.toolsets import ToolsetScope, ToolsetScopePool

from .delegation import calling
from .line import stream_events
from .test_b34_entered_and_exited_by_the_scope import Grouped
from .toolsets import RUN, Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


class Server:
    """A chat server: one agent for all users, whose messages are streamed to them."""

    def __init__(self, kind: str, toolset: Any):
        self.journal = toolset.journal
        self.toolset = toolset
        self.agent = calling(['t'], ['t'], toolsets=[toolset], name='agent')
        self.other = calling(['t'], toolsets=[toolset], name='other')
        self.pool = ToolsetScopePool(toolset)
        self.open: Callable[[str], AbstractAsyncContextManager[Any]] = (
            (lambda user: ToolsetScope(toolset)) if kind == 'scope' else self.pool
        )

    async def stream(self, user: str, messages: int = 1) -> AsyncGenerator[str, None]:
        """Answer messages of a user, each in chunks."""
        async with self.open(user) as chat:
            for _ in range(messages):
                RUN.set(user)
                async with stream_events(self.agent, 'go', toolsets=[chat]) as events:
                    async for _ in events:
                        yield user
                        # Who goes on in the generator has the context of whoever asks for the next chunk
                        RUN.set(user)
            yield ','.join(chat.instance_of(self.toolset).values)

    async def elsewhere(self, name: str = 'elsewhere') -> None:
        """Run another agent, which isn't given any conversation, and check that it works with nobody's state."""
        RUN.set('')
        before = len(self.journal.of('call'))
        await run_as(name, self.other)
        (event,) = (event for event in self.journal.of('call')[before:] if event.run == name)
        assert event.toolset.values == [name]

    async def end(self) -> None:
        await self.pool.aclose()

    def check(self, *users: str) -> None:
        """Check that nothing has crossed, and that all was exited that was entered."""
        for event in self.journal.of('call'):
            values = set(event.toolset.values)
            assert len(values) == 1, f'{values} in one toolset'
            assert values <= {*users, 'elsewhere'}
        assert len(self.journal.of('enter')) == len(self.journal.of('exit'))


kinds = pytest.mark.parametrize('kind', ['scope', 'pool'])


async def settle() -> None:
    """Let Python end the generators that nobody reads any more, and the tasks that it does that in."""
    gc.collect()
    for _ in range(200):
        await asyncio.sleep(0)


@kinds
@pytest.mark.parametrize('chunks', [1, 2, 4, 7])
async def test_b33_generator_left_by_break_leaves_the_readers_task_alone(kind: str, chunks: int):
    """Its reader is gone, and Python ends it in another task."""
    server = Server(kind, Session('t', Journal()))
    for user in ('Ada', 'Bob'):
        stream = server.stream(user)
        number = 0
        async for _ in stream:
            number += 1
            if number == chunks:
                break
        await server.elsewhere()
        del stream
        await settle()
        await server.elsewhere()
        # The same task serves another user next
        assert [chunk async for chunk in server.stream(f'{user}2')][-1] == f'{user}2,{user}2'
    await settle()
    await server.end()
    server.check('Ada', 'Ada2', 'Bob', 'Bob2')


@kinds
@pytest.mark.parametrize('chunks', range(1, 8))
async def test_b33_generator_that_is_closed_early_leaves_nothing(kind: str, chunks: int):
    server = Server(kind, Session('t', Journal()))
    before = asyncio.all_tasks()
    async with aclosing(server.stream('Ada')) as stream:
        number = 0
        async for _ in stream:
            number += 1
            if number == chunks:
                break
    await server.elsewhere()
    await server.end()
    server.check('Ada')
    assert asyncio.all_tasks() <= before


async def test_b33_task_group_in_a_toolset_of_a_pool_survives_generators_that_end_elsewhere():
    """The pool enters and exits in a task of the scope's own, so it doesn't matter which task ends a generator."""
    server = Server('pool', Grouped('t', Journal()))
    for number in range(3):
        stream = server.stream('Ada')
        async for _ in stream:
            if number < 2:
                break
        del stream
        await settle()
    async with server.pool('Ada') as chat:
        assert set(chat.instance_of(server.toolset).values) == {'Ada'}
    await server.end()
    server.check('Ada')
    assert server.journal.lifecycle.count('+t') == 1
