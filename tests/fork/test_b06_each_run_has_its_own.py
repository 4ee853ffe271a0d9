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
from pydantic_ai.toolsets import CombinedToolset

from .line import WRAPPERS
from .toolsets import METHODS, RUN, HandWritten, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'HandWritten': HandWritten,
    'CombinedToolset': lambda toolset: CombinedToolset([Server('server', Journal()), toolset]),
    'deeper': lambda toolset: CombinedToolset(
        [HandWritten(CombinedToolset([toolset.filtered(lambda ctx, tool: True)]))]
    ),
}
"""Where a toolset can stand without a change to its tool's name."""

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
async def test_b06_runs_one_after_another_have_their_own(
    method: str, place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    session = Session('session', Journal())
    agent = Agent(scripted(['session', 'session'], ['session']), toolsets=[place(session)])
    for run in 'abc':
        assert await run_as(run, agent, method) == 'done'
    check_isolation(session, 3)
    assert len(session.journal.of('call')) == 9


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


@methods
async def test_b06_runs_given_the_toolset_themselves_have_their_own(method: str):
    session = Session('session', Journal())
    agent = Agent(scripted(['session']))
    await asyncio.gather(*(run_as(run, agent, method, toolsets=[session]) for run in 'abc'))
    check_isolation(session, 3)


@methods
async def test_b06_runs_inside_an_override_have_their_own(method: str):
    session = Session('session', Journal())
    agent = Agent(scripted(['session']), toolsets=[Server('session', Journal())])
    with agent.override(toolsets=[session]):
        await asyncio.gather(*(run_as(run, agent, method) for run in 'abc'))
    check_isolation(session, 3)


async def test_b06_runs_of_different_agents_have_their_own():
    session = Session('session', Journal())
    agents = {name: Agent(scripted(['session']), toolsets=[session]) for name in 'abc'}
    await asyncio.gather(*(run_as(name, agent) for name, agent in agents.items()))
    check_isolation(session, 3)


async def test_b06_run_sees_in_its_later_steps_what_it_did_before():
    session = Session('session', Journal())
    agent = Agent(scripted(['session'], ['session', 'session']), toolsets=[session])
    await run_as('a', agent)
    (copied,) = session.journal.of('copy')
    assert copied.got[0].values == ['a', 'a', 'a']


async def test_b06_runs_after_failed_ones_have_their_own():
    session = Session('session', Journal())
    agent = Agent(scripted(['session'], RuntimeError('model')), toolsets=[session])
    for run in 'abc':
        with pytest.raises(RuntimeError):
            await run_as(run, agent)
    check_isolation(session, 3)


async def test_b06_original_that_has_state_keeps_it_and_copies_begin_as_they_say():
    class Counter(Session):
        def copy(self) -> Any:
            copy = super().copy()
            copy.values = ['begin']
            return copy

    counter = Counter('counter', Journal())
    counter.values = ['mine']
    agent = Agent(scripted(['counter']), toolsets=[counter])
    for _ in range(2):
        await agent.run('go')
    assert counter.values == ['mine']
    assert [event.got[0].values for event in counter.journal.of('copy')] == [['begin', '']] * 2


async def test_b06_function_toolset_with_state_has_its_own():
    class Counting(FunctionToolset[Any]):
        stateful = True

        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.add_function(self.add)

        def copy(self) -> Any:
            return type(self)()

        async def add(self, value: str) -> int:
            self.count += 1
            return self.count

    counting = Counting()
    agent = Agent(scripted(['add'], ['add']), toolsets=[counting])
    for _ in range(2):
        result = await agent.run('go')
        returned = [
            part.content
            for message in result.all_messages()
            for part in message.parts
            if part.part_kind == 'tool-return'
        ]
        assert returned == [1, 2]
    assert counting.count == 0


@methods
@places
async def test_b06_stateless_toolset_is_the_same_in_every_run(
    method: str, place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    server = Server('toolset', Journal())
    agent = Agent(scripted(['toolset']), toolsets=[place(server), Session('session', Journal())])
    for run in 'ab':
        await run_as(run, agent, method)
    assert all(event.toolset is server for event in server.journal.events)
    assert server.values == ['a', 'b']


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


async def test_b06_agent_that_calls_itself_has_its_own_at_each_depth():
    session = Session('session', Journal())
    await run_as('a', calls_itself(session, depth=3), deps=0)
    check_isolation(session, 4)
    assert session.journal.names('enter', 'exit') == ['session'] * 8
    assert [event.run for event in session.journal.of('exit')] == ['a.0.0.0', 'a.0.0', 'a.0', 'a']


async def test_b06_agent_that_calls_itself_several_times_at_once_has_its_own_in_each():
    session = Session('session', Journal())
    await run_as('a', calls_itself(session, depth=2, together=3), deps=0)
    check_isolation(session, 1 + 3 + 9)


async def test_b06_agent_that_calls_itself_through_another_has_its_own_in_each():
    async def ask_other(ctx: RunContext[int], value: str) -> str:
        return await run_as(f'{value}.other', other, deps=ctx.deps)

    async def ask_first(ctx: RunContext[int], value: str) -> str:
        return '' if ctx.deps else await run_as(f'{value}.first', first, deps=1)

    session = Session('session', Journal())
    first = Agent(scripted(['session'], ['ask_other']), deps_type=int, toolsets=[session, FunctionToolset([ask_other])])
    other = Agent(scripted(['ask_first']), deps_type=int, toolsets=[FunctionToolset([ask_first])])
    await run_as('a', first, deps=0)
    # The inner run of `first` asks `other` once more, which ends it there.
    check_isolation(session, 2)


async def test_b06_run_inside_the_body_of_iter_has_its_own():
    session = Session('session', Journal())
    agent = Agent(scripted(['session']), toolsets=[session])
    token = RUN.set('outer')
    async with agent.iter('go') as agent_run:
        async for _ in agent_run:
            inner = len({event.run for event in session.journal.events})
            await run_as(f'inner{inner}', agent)
    RUN.reset(token)
    check_isolation(session, len({event.run for event in session.journal.events}))


async def test_b06_run_inside_the_body_of_async_with_agent_has_its_own():
    session = Session('session', Journal())
    agent = Agent(scripted(['session']), toolsets=[session])
    async with agent:
        await asyncio.gather(*(run_as(run, agent) for run in 'abc'))
    check_isolation(session, 3)


async def test_b06_run_started_while_a_toolset_is_entered_has_its_own():
    class Enters(Session):
        async def __aenter__(self) -> Any:
            if RUN.get() == 'outer':
                await run_as('inner', agent)
            return await super().__aenter__()

    session = Enters('session', Journal())
    agent = Agent(scripted(['session']), toolsets=[session])
    await run_as('outer', agent)
    check_isolation(session, 2)


async def test_b06_task_left_behind_by_a_run_starts_runs_with_their_own():
    async def leave(value: str) -> str:
        tasks.append(asyncio.create_task(later()))
        return 'left'

    async def later() -> None:
        await ended.wait()
        await run_as('later', agent)

    tasks: list[asyncio.Task[None]] = []
    ended = asyncio.Event()
    session = Session('session', Journal())
    agent = Agent(scripted(['session']), toolsets=[session])
    first = Agent(scripted(['session', 'leave']), toolsets=[session, FunctionToolset([leave])])
    await run_as('first', first)
    ended.set()
    await asyncio.gather(*tasks)
    check_isolation(session, 2)


async def test_b06_two_originals_that_are_equal_have_their_own():
    class Equal(Session):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def copy(self) -> Any:
            copy = super().copy()
            copy.marker = self.marker
            return copy

        marker = ''

    journal = Journal()
    first, second = Equal('session', journal), Equal('session', journal)
    first.marker, second.marker = 'first', 'second'
    agent = Agent(scripted(['a_session', 'b_session']), toolsets=[first.prefixed('a'), second.prefixed('b')])
    await agent.run('go')
    assert [event.toolset.marker for event in journal.of('copy')] == ['first', 'second']
    assert [event.toolset.marker for event in journal.of('enter')] == ['first', 'second']
    assert all(event.toolset.values == [''] for event in journal.of('exit'))


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
