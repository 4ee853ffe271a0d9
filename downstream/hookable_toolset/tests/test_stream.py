"""Sessions whose turns are watched while they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext, ToolDenied
from pydantic_ai.messages import FunctionToolCallEvent, FunctionToolResultEvent, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from hookable_toolset import AgentContext, BaseTool, Session, SessionBusyError, SessionStore, Toolset

from .conftest import Log, script


class Count(BaseTool):
    name = 'count'
    stateful = True

    def __init__(self) -> None:
        self.count = 0

    def call(self, ctx: RunContext[AgentContext]) -> int:
        self.count += 1
        return self.count

    def export_state(self) -> int:
        return self.count

    def restore_state(self, state: int) -> None:
        self.count = state


class Pay(BaseTool):
    name = 'pay'

    def call(self, ctx: RunContext[AgentContext], amount: int) -> str:
        return f'paid {amount}'


class Broken(BaseTool):
    name = 'broken'

    def call(self, ctx: RunContext[AgentContext]) -> None:
        raise ConnectionError


toolset: Toolset[AgentContext] = Toolset(tools=[Count, Pay, Broken])


def build(*steps: Any) -> Agent[AgentContext, Any]:
    return Agent(script(*steps), deps_type=AgentContext, toolsets=[toolset], output_type=[str, DeferredToolRequests])


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    async with SessionStore(tmp_path / 'sessions.db') as store:
        yield await Session.open(store, 'ada')


def never(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
    raise AssertionError('nobody is to be asked')


async def stored(session: Session) -> Session:
    return await Session.open(session.store, session.name)


pytestmark = pytest.mark.anyio


async def test_text_comes_in_pieces_and_the_turn_is_stored(session: Session) -> None:
    async with session.stream(build('Hello there, Ada'), 'Hi', never) as turn:
        pieces = [piece async for piece in turn.text()]
        assert ''.join(pieces) == 'Hello there, Ada' and len(pieces) > 1
    assert turn.output == 'Hello there, Ada'
    assert session.revision == 1 and (await stored(session)).context == session.context


async def test_first_piece_is_there_before_the_model_has_said_the_second(session: Session) -> None:
    second = asyncio.Event()

    async def slow(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        yield 'first '
        await second.wait()
        yield 'second'

    agent = Agent(FunctionModel(stream_function=slow), deps_type=AgentContext)
    async with session.stream(agent, 'Hi', never) as turn:
        text = turn.text()
        assert await anext(text) == 'first '
        second.set()
        assert [piece async for piece in text] == ['second']


async def test_events_are_those_of_all_runs_of_the_turn_and_questions_come_between(session: Session) -> None:
    log: Log = []

    def ask(call: ToolCallPart, metadata: dict[str, Any]) -> bool:
        log.append(f'asked for {call.tool_name}')
        return True

    session.context.need_user_approve_tools.append('pay')
    async with session.stream(build([('count', {}), ('pay', {'amount': 5})]), 'Hi', ask) as turn:
        async for event in turn:
            if isinstance(event, FunctionToolCallEvent):
                log.append(f'call {event.part.tool_name}')
            elif isinstance(event, FunctionToolResultEvent):
                part: Any = getattr(event, 'part', None) or getattr(event, 'result', None)
                log.append(f'result {part.content}')
    assert log.index('result 1') < log.index('asked for pay') < log.index('result paid 5')
    assert sorted(turn.output.split(' | ')) == ['1', 'paid 5']
    assert session.revision == 3  # the question, the answer, and the end


async def test_turn_that_waits_for_an_answer_ends_with_the_question(session: Session) -> None:
    session.context.need_user_approve_tools.append('pay')
    agent = build(('pay', {'amount': 5}))
    async with session.stream(agent, 'Hi', lambda call, metadata: None) as turn:
        async for _ in turn:
            pass
    assert isinstance(turn.output, DeferredToolRequests)
    again = await stored(session)
    async with again.stream(agent, None, lambda call, metadata: ToolDenied('No.')) as turn:
        assert ''.join([piece async for piece in turn.text()]) == 'No.'
    assert turn.output == 'No.' and again.context.pending is None


async def test_turn_that_is_left_early_is_cancelled_and_leaves_the_session_as_it_was(session: Session) -> None:
    others = asyncio.all_tasks()
    agent = build(('count', {}), 'Hello there')
    await session.run(agent, 'First', never)
    before = session.context.export_state()
    for _ in range(2):
        async with session.stream(agent, 'Second', never) as turn:
            async for event in turn:
                if isinstance(event, FunctionToolResultEvent):
                    break
        assert turn.output is None
        async with session.stream(agent, 'Never begun', never):
            pass
    assert session.context.export_state() == before == (await stored(session)).context.export_state()
    assert asyncio.all_tasks() == others
    await session.run(agent, 'Third', never)
    assert session.context.toolset_states == {'': {'count': 2}}


async def test_turn_whose_time_is_over_while_it_streams_leaves_no_task_and_no_busy_session(session: Session) -> None:
    async def endless(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        yield 'first '
        await asyncio.Event().wait()

    others = asyncio.all_tasks()
    agent = Agent(FunctionModel(stream_function=endless), deps_type=AgentContext)
    with anyio.CancelScope() as scope:
        async with session.stream(agent, 'Hi', never) as turn:
            async for _ in turn.text():
                scope.cancel()
    assert scope.cancelled_caught and asyncio.all_tasks() == others
    assert await session.run(build('fine'), 'Go on', never) == 'fine'


async def test_exception_is_raised_as_it_is_where_the_events_are_taken(session: Session) -> None:
    others = asyncio.all_tasks()
    with pytest.raises(ConnectionError):
        async with session.stream(build(('count', {}), ('broken', {})), 'Hi', never) as turn:
            async for _ in turn:
                pass
    with pytest.raises(ValueError, match='my own'):
        async with session.stream(build('Hello there'), 'Hi', never) as turn:
            async for _ in turn:
                raise ValueError('my own')
    assert session.revision == 0 and not session.context.message_history
    assert asyncio.all_tasks() == others


async def test_session_is_busy_while_it_streams(session: Session) -> None:
    agent = build('Hello there')
    async with session.stream(agent, 'Hi', never) as turn:
        async for _ in turn.text():
            with pytest.raises(SessionBusyError):
                await (await stored(session)).run(agent, 'Second', never)
    assert await session.run(agent, 'Second', never) == 'Hello there'


async def test_events_can_go_to_a_handler(session: Session) -> None:
    seen: Log = []

    async def handler(ctx: RunContext[AgentContext], events: AsyncIterable[Any]) -> None:
        seen.extend([type(event) async for event in events])

    await session.run(build(('count', {})), 'Hi', never, event_stream_handler=handler)
    assert FunctionToolCallEvent in seen and FunctionToolResultEvent in seen
