"""B31: a run whose next node is asked for while a node runs refuses that, and goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_graph import End

pytestmark = pytest.mark.anyio


def waiting() -> tuple[Agent[None, str], asyncio.Event, asyncio.Event]:
    """Make an agent whose model waits, with the events that it waits and that it goes on."""
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        waits.set()
        await go_on.wait()
        return ModelResponse([TextPart('done')])

    return Agent(FunctionModel(respond)), waits, go_on


async def advance_to_request(run: Any) -> Any:
    while type(node := await anext(run)).__name__ != 'ModelRequestNode':
        pass
    return node


async def test_b31_second_anext_while_a_node_runs_is_refused_and_the_first_one_goes_on():
    agent, waits, go_on = waiting()
    async with agent.iter('go') as run:
        await advance_to_request(run)
        first = asyncio.ensure_future(anext(run))
        await waits.wait()
        for _ in range(2):
            with pytest.raises(RuntimeError, match='already running'):
                await anext(run)
        go_on.set()
        assert type(await first).__name__ == 'CallToolsNode'
        assert isinstance(await anext(run), End)
        with pytest.raises(StopAsyncIteration):
            await anext(run)
    assert run.result is not None
    assert run.result.output == 'done'


async def test_b31_next_while_a_node_runs_is_refused():
    agent, waits, go_on = waiting()
    async with agent.iter('go') as run:
        node = await advance_to_request(run)
        first = asyncio.ensure_future(run.next(node))
        await waits.wait()
        with pytest.raises(RuntimeError, match='already running'):
            await run.next(node)
        go_on.set()
        after: Any = await first
        assert type(after).__name__ == 'CallToolsNode'
        assert isinstance(await run.next(after), End)


async def test_b31_graph_run_whose_node_was_interrupted_is_at_its_end():
    """A node that nobody waits for any more isn't one that is running: as on the base, nothing comes after it."""
    agent, waits, go_on = waiting()
    async with agent.iter('go') as run:
        await advance_to_request(run)
        graph_run: Any = run._graph_run  # pyright: ignore[reportPrivateUsage]
        first = asyncio.ensure_future(graph_run.next())
        await waits.wait()
        first.cancel()
        await asyncio.wait([first])
        with pytest.raises(StopAsyncIteration):
            await graph_run.next()
        go_on.set()
