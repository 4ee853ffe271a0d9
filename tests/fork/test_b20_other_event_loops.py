"""B20: a session of one event loop that would be borrowed in another one is refused, rather than waited for in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from pydantic_ai import UserError
from typing_extensions import Self

from .delegation import SYNC, Notes, calling, delegating, entries_and_exits, fresh
from .toolsets import Journal, run_as

pytestmark = pytest.mark.anyio


class Connected(Notes):
    """A session as clients have it: a task in its event loop answers what it's asked over streams."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.asking, asked = anyio.create_memory_object_stream[tuple[str, Any]](0)
        self.group = anyio.create_task_group()
        await self.group.__aenter__()

        async def serve() -> None:
            async for value, answer in asked:
                await answer.send(value)

        self.group.start_soon(serve)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.group.cancel_scope.cancel()
        await self.group.__aexit__(None, None, None)
        return await super().__aexit__(*args)

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        answer, answered = anyio.create_memory_object_stream[str](0)
        await self.asking.send((tool_args['value'], answer))
        await answered.receive()
        return await super().call_tool(name, tool_args, ctx, tool)


@pytest.mark.parametrize('way', SYNC)
async def test_b20_session_that_is_borrowed_in_another_event_loop_is_refused(way: str):
    """A tool in a thread runs the sub-agent in an event loop of its own."""
    journal = Journal()
    session = Connected('t', journal)
    child = calling(['t'], toolsets=[session], name='child')
    parent = calling(['t'], ['delegate'], toolsets=[session, delegating(child, way)], name='boss')
    task = asyncio.ensure_future(run_as('parent', parent))
    # In which it has failed, unless it waits for good
    await asyncio.wait([task], timeout=30)
    if not task.done():
        task.cancel()
        pytest.fail('The sub-agent waits for good')
    with pytest.raises(UserError, match='event loop') as caught:
        await task
    assert session.label in str(caught.value)
    (live,) = {event.toolset for event in journal.of('enter')}
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


@pytest.mark.parametrize('way', SYNC)
async def test_b20_session_of_its_own_works_in_another_event_loop(way: str):
    journal = Journal()
    session = Connected('t', journal, answer=fresh)
    child = calling(['t'], toolsets=[session], name='child')
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[session, delegating(child, way)]))
    assert [event.run for event in journal.of('call')] == ['parent', 'child', 'parent']
    assert len(journal.of('enter')) == len(journal.of('exit')) == 2
