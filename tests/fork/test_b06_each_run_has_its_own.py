"""B6: each run works with its own copy of each stateful toolset."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .toolsets import METHODS, PLACES, RUN, Journal, Session, run_as, scripted

pytestmark = pytest.mark.anyio

places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())
methods = pytest.mark.parametrize('method', METHODS)


def check_isolation(original: Session, runs: int) -> None:
    """Check that each run had one copy for itself, entered and exited once, and that nothing happened to the original."""
    journal = original.journal
    assert original.values == []
    copies = {event.run: event.got[0] for event in journal.of('copy') if event.toolset is original}
    assert len(copies) == len({id(copy) for copy in copies.values()}) == runs
    for event in journal.events:
        if event.kind == 'copy':
            assert event.toolset is original
        else:
            assert event.toolset is copies[event.run]
    assert all(set(copy.values) <= {run} for run, copy in copies.items())
    assert len(journal.of('enter')) == len(journal.of('exit')) == runs


@methods
@places
async def test_b06_runs_at_the_same_time_have_their_own(
    method: str, place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    session = Session('session', Journal())
    agent = Agent(scripted(['session', 'session'], ['session']), toolsets=[place(session)])
    await asyncio.gather(*(run_as(run, agent, method) for run in 'abcde'))
    check_isolation(session, 5)
    assert len(session.journal.of('call')) == 15


def calls_itself(session: Session, depth: int, together: int = 1) -> Agent[int, Any]:
    """Make an agent whose tool runs the agent again, down to a depth, several at once."""

    async def again(ctx: RunContext[int], value: str) -> str:
        if ctx.deps < depth:
            await asyncio.gather(*(run_as(f'{value}.{number}', agent, deps=ctx.deps + 1) for number in range(together)))
        return 'back'

    agent = Agent(
        scripted(['session'], ['again'], ['session']),
        deps_type=int,
        toolsets=[session, FunctionToolset([again])],
    )
    return agent


async def test_b06_agent_that_calls_itself_several_times_at_once_has_its_own_in_each():
    session = Session('session', Journal())
    await run_as('a', calls_itself(session, depth=2, together=3), deps=0)
    check_isolation(session, 1 + 3 + 9)


async def test_b06_runs_in_fifty_threads_at_once_have_their_own():
    number = 50
    barrier = threading.Barrier(number, timeout=60)

    class Gathering(Session):
        async def __aenter__(self) -> Any:
            await asyncio.to_thread(barrier.wait)
            return await super().__aenter__()

    session = Gathering('session', Journal())
    agent = Agent(scripted(['session']), toolsets=[session])
    with ThreadPoolExecutor(number) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        await asyncio.gather(*(run_as(f'run{index}', agent, 'run_sync') for index in range(number)))
    check_isolation(session, number)


@pytest.mark.usefixtures('without_garbage_collection')
async def test_b06_thousand_runs_at_once_have_their_own():
    number = 1_000  # ten times as many in `tests/endurance`
    entered = 0
    everyone = asyncio.Event()

    class Gathering(Session):
        async def __aenter__(self) -> Any:
            nonlocal entered
            entered += 1
            if entered == number:
                everyone.set()
            self.values.append(RUN.get())
            return await super().__aenter__()

    async def again() -> str:
        return await run_as(f'{RUN.get()}.inner', agent)

    async def calls_itself(messages: list[ModelMessage]) -> bool:
        """Say whether to call the agent's own tool. Every other request waits until all runs are alive."""
        if len(messages) == 1 and RUN.get().startswith('itself') and not RUN.get().endswith('inner'):
            return True
        await everyone.wait()
        return False

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart('again', {}) if await calls_itself(messages) else TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        await everyone.wait()
        yield 'done'

    session = Gathering('session', Journal())
    agent = Agent(FunctionModel(respond, stream_function=stream), toolsets=[session, FunctionToolset([again])])
    methods = ['run', 'iter', 'run_stream', 'run_stream_events']
    share = number // 5
    await asyncio.gather(
        *(run_as(f'{method}{index}', agent, method) for method in methods for index in range(share)),
        *(run_as(f'itself{index}', agent) for index in range(share // 2)),  # each of which is two runs
    )
    check_isolation(session, number)
    assert {len(event.toolset.values) for event in session.journal.of('exit')} == {1}
