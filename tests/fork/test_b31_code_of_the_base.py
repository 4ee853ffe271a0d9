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
