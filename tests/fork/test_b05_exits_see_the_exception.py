"""B5: a toolset's exit gets the exception that ended the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, cast

import anyio
import pytest
from pydantic_ai import AbstractToolset, Agent
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .toolsets import METHODS, PLACES, SUCCESS, Boom, HandWritten, Journal, Server, Session, scripted

pytestmark = pytest.mark.anyio


EVERYWHERE: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **PLACES,
    'dynamic per run': lambda toolset: DynamicToolset(lambda ctx: toolset, per_run_step=False),
    'dynamic per step': lambda toolset: DynamicToolset(lambda ctx: toolset),
    'dynamic inside others': lambda toolset: CombinedToolset([HandWritten(DynamicToolset(lambda ctx: toolset))]),
    'combination inside dynamic': lambda toolset: DynamicToolset(lambda ctx: CombinedToolset([toolset.renamed({})])),
}
"""Where a toolset can stand."""

places = pytest.mark.parametrize('place', EVERYWHERE.values(), ids=EVERYWHERE)


def check(got: tuple[Any, ...], error: BaseException) -> None:
    """Check that an exit got this exception."""
    assert len(got) == 3
    assert got[0] is type(error)
    assert got[1] is error
    assert isinstance(got[2], TracebackType)


async def wait_until(happened: Callable[[], Any]) -> None:
    """Let others run until something has happened."""
    for _ in range(1000):
        if happened():
            return
        await asyncio.sleep(0)
    pytest.fail('It never happened')


class Hanging(Server):
    """A toolset whose tool never returns."""

    async def call_tool(self, *args: Any, **kwargs: Any) -> list[str]:
        self.journal.note('call', self)
        await asyncio.Event().wait()
        raise AssertionError


@places
@pytest.mark.parametrize('method', [name for name in METHODS if name not in ('run_sync', 'run_stream_events')])
async def test_b05_exit_after_cancellation_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], method: str
):
    journal = Journal()
    hanging = Hanging('hanging', Journal())
    agent = Agent(scripted(['hanging']), toolsets=[place(Session('toolset', journal)), hanging])
    task = asyncio.ensure_future(METHODS[method](agent))
    await wait_until(lambda: hanging.journal.of('call'))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    type_, value, traceback = journal.exit_of('toolset')
    assert type_ is asyncio.CancelledError
    assert isinstance(value, asyncio.CancelledError)
    assert isinstance(traceback, TracebackType)


class WithTaskGroup(Session):
    """A toolset that holds a task group as clients do that are written with the `mcp` package."""

    async def __aenter__(self) -> Any:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(anyio.create_task_group())
            await stack.enter_async_context(anyio.create_task_group())
            self.stack = stack.pop_all()
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> Any:
        await super().__aexit__(*args)
        return await cast(Any, self.stack).__aexit__(*args)


@pytest.mark.parametrize(
    'place',
    # At a step, it would be entered in another task than it's exited in
    [
        place
        for name, place in EVERYWHERE.items()
        if name not in ('dynamic per step', 'dynamic inside others', 'combination inside dynamic')
    ],
)
@pytest.mark.parametrize('kind', [Boom, KeyError, ValueError])
async def test_b05_exit_does_not_put_the_exception_of_the_run_into_a_group(
    kind: type[Exception], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    journal = Journal()
    error = kind('model')
    session = WithTaskGroup('toolset', journal)
    agent = Agent(scripted(error), toolsets=[Server('outer', journal), place(session)])
    with pytest.raises(kind) as caught:
        await agent.run('go')
    assert caught.value is error
    check(journal.exit_of('outer'), error)


@pytest.mark.parametrize('method', METHODS)
async def test_b05_exit_after_success_of_each_kind_of_run_gets_three_nones(method: str):
    journal = Journal()
    agent = Agent(scripted(['toolset']), toolsets=[Session('toolset', journal)])
    assert await METHODS[method](agent) == 'done'
    assert journal.exit_of('toolset') == SUCCESS


@pytest.mark.parametrize('method', METHODS)
async def test_b05_exit_after_failure_of_each_kind_of_run_gets_the_exception(method: str):
    journal = Journal()
    error = Boom('tool')
    agent = Agent(scripted(['toolset']), toolsets=[Session('toolset', journal, fail={'call': error})])
    with pytest.raises(Boom):
        await METHODS[method](agent)
    check(journal.exit_of('toolset'), error)


# The body of `async with agent`


@pytest.mark.parametrize('place', [place for name, place in PLACES.items() if name not in ('HandWritten', 'deeper')])
async def test_b05_exit_after_exception_in_the_body_of_async_with_agent_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    error = Boom('body')
    with pytest.raises(Boom):
        async with Agent(scripted(), toolsets=[place(Server('server', journal))]):
            assert journal.lifecycle == ['+server']
            raise error
    check(journal.exit_of('server'), error)


@pytest.mark.parametrize('nodes', [0, 1, 1000], ids=['at once', 'after a node', 'after the end'])
async def test_b05_exit_gets_what_the_block_of_iter_raises(nodes: int):
    journal, error = Journal(), Boom('in the block')
    agent = Agent(scripted(['toolset']), toolsets=[Session('toolset', journal)])
    with pytest.raises(Boom) as caught:
        async with agent.iter('go') as agent_run:
            for _ in range(nodes):
                await anext(agent_run, None)
            raise error
    assert caught.value is error
    check(journal.exit_of('toolset'), error)
