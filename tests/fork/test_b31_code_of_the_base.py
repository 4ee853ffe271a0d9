"""B31, B12: code that was found to work on the base, and not on an earlier fork."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock, patch

import anyio
import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import CombinedToolset
from pydantic_ai.toolsets._dynamic import DynamicToolset

from .toolsets import METHODS, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio


class Proxy:
    """An object with the methods of a toolset that is none."""

    def __init__(self, toolset: AbstractToolset[Any]):
        self.toolset = toolset

    async def for_run(self, ctx: RunContext[Any]) -> Any:
        return self

    async def for_run_step(self, ctx: RunContext[Any]) -> Any:
        return self

    def visit_and_replace(self, visitor: Any) -> Any:
        return self

    async def __aenter__(self) -> Any:
        return await self.toolset.__aenter__()

    async def __aexit__(self, *args: object) -> Any:
        return await self.toolset.__aexit__(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.toolset, name)


def proxy(journal: Journal) -> Any:
    return Proxy(Server('t', journal))


@pytest.mark.parametrize('method', METHODS)
async def test_b12_object_with_the_methods_of_a_toolset_is_taken_where_the_base_takes_it(method: str):
    journal = Journal()
    await run_as('run', Agent(scripted(['t'])), method, toolsets=[proxy(journal)])
    agent = Agent(scripted(['t']))
    with agent.override(toolsets=[proxy(journal)]):
        await run_as('override', agent, method)
    await run_as('factory', Agent(scripted(['t']), toolsets=[lambda ctx: proxy(journal)]), method)
    assert [event.run for event in journal.of('call')] == ['run', 'override', 'factory']
    assert journal.names('enter') == journal.names('exit')


@pytest.mark.parametrize('method', METHODS)
async def test_b31_iterator_of_toolsets_is_taken_where_the_base_takes_it(method: str):
    server = Server('t', Journal())
    await run_as('run', Agent(scripted(['t'])), method, toolsets=cast(Any, iter([server])))
    given: list[Any] = [server, lambda ctx: None]  # pyright: ignore[reportUnknownLambdaType]
    agent = Agent(scripted(['t']), toolsets=cast(Any, iter(given)))
    await run_as('agent', agent, method)
    assert server.values == ['run', 'agent']


@pytest.mark.parametrize('method', ['run', 'run_stream', 'iter'])
async def test_b31_run_awaits_no_sleep(method: str):
    def look() -> str:
        """Look."""
        return 'seen'

    agent = Agent(TestModel(), toolsets=[FunctionToolset[Any]([look])])
    with patch.object(asyncio, 'sleep', AsyncMock(side_effect=AssertionError('slept'))) as sleep:
        assert await METHODS[method](agent) == '{"look":"seen"}'
    assert sleep.await_count == 0


class WithTaskGroup(Session):
    """A toolset that has to be entered and exited in one task, like an MCP server."""

    async def __aenter__(self) -> Any:
        self.task_group = await anyio.create_task_group().__aenter__()
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> Any:
        await super().__aexit__(*args)
        return await cast(Any, self.task_group).__aexit__(*args)


@pytest.mark.parametrize('takes_context', [True, False])
@pytest.mark.parametrize('method', METHODS)
async def test_b12_dynamic_toolset_of_the_run_can_return_what_has_a_task_group(method: str, takes_context: bool):
    journal = Journal()

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return WithTaskGroup('t', journal)

    factory = make if takes_context else lambda: WithTaskGroup('t', journal)
    dynamic = cast(Any, DynamicToolset)(factory, per_run_step=False)
    for toolset in (dynamic, dynamic.prefixed('x'), CombinedToolset([dynamic])):
        await run_as('run', Agent(scripted(['t']), toolsets=[Server('s', journal), toolset]), method)
    assert journal.lifecycle == ['+s', '+t', '-t', '-s'] * 3
