"""B20: a session that is borrowed in another event loop answers there, rather than being waited for in vain."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic_ai import WrapperToolset
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
            async with asked:
                async for value, answer in asked:
                    await answer.send(value)

        self.group.start_soon(serve)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.asking.close()
        await self.group.__aexit__(None, None, None)
        return await super().__aexit__(*args)

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        answer, answered = anyio.create_memory_object_stream[str](0)
        async with answer, answered:
            await self.asking.send((tool_args['value'], answer))
            await answered.receive()
        return await super().call_tool(name, tool_args, ctx, tool)


class Counting(WrapperToolset[Any]):
    """A wrapper with state of its own, which child and parent share."""

    stateful = True

    def copy(self) -> Self:
        return type(self)(self.wrapped.copy())

    def for_sub_agent(self, ctx: Any) -> Any:
        return self


class Boom(Exception):
    pass


@pytest.mark.parametrize('inside', ['itself', 'a wrapper with state'])
@pytest.mark.parametrize('way', SYNC)
async def test_b20_session_that_is_borrowed_in_another_event_loop_answers(way: str, inside: str):
    """A tool in a thread runs the sub-agent in an event loop of its own."""
    journal = Journal()
    session = Connected('t', journal)
    toolset = session if inside == 'itself' else Counting(session)
    child = calling(['t'], toolsets=[toolset], name='child')
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[toolset, delegating(child, way)]))
    assert [event.run for event in journal.of('call')] == ['parent', 'child', 'parent']
    (live,) = {event.toolset for event in journal.of('call')}
    assert live.values == ['parent', 'child', 'parent']
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


@pytest.mark.parametrize('way', SYNC)
async def test_b20_error_of_a_session_in_another_event_loop_reaches_the_sub_agent(way: str):
    journal = Journal()
    error = Boom('call')
    session = Connected('t', journal, fail={'call': error})
    child = calling(['t'], toolsets=[session], name='child')
    with pytest.raises(Boom) as caught:
        await run_as('parent', calling(['delegate'], toolsets=[session, delegating(child, way)]))
    assert caught.value is error


@pytest.mark.parametrize('way', SYNC)
async def test_b20_session_of_its_own_works_in_another_event_loop(way: str):
    journal = Journal()
    session = Connected('t', journal, answer=fresh)
    child = calling(['t'], toolsets=[session], name='child')
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[session, delegating(child, way)]))
    assert [event.run for event in journal.of('call')] == ['parent', 'child', 'parent']
    assert len(journal.of('enter')) == len(journal.of('exit')) == 2
