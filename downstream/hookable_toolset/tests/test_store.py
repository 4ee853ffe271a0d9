"""Point 8: sessions in SQLite, and processes that are killed."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, RunContext, ToolApproved, UserError
from pydantic_ai.messages import ModelRequest, ToolCallPart, UserPromptPart

from hookable_toolset import (
    AgentContext,
    BaseTool,
    ResumableState,
    Session,
    SessionStore,
    StaleSessionError,
    Toolset,
)

from .conftest import returns, script


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

    def get_approval_metadata(self) -> dict[str, Any]:
        return {'currency': 'EUR'}

    def call(self, ctx: RunContext[AgentContext], amount: int) -> str:
        return f'paid {amount}'


class Elsewhere(BaseTool):
    name = 'elsewhere'

    def call(self, ctx: RunContext[AgentContext]) -> None:
        raise CallDeferred


class Broken(BaseTool):
    name = 'broken'

    def call(self, ctx: RunContext[AgentContext]) -> None:
        raise ConnectionError


agent = Agent(
    script([('count', {}), ('pay', {'amount': 5})]),
    deps_type=AgentContext,
    toolsets=[Toolset[AgentContext](tools=[Count, Pay, Elsewhere, Broken])],
    output_type=[str, DeferredToolRequests],
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    with SessionStore(tmp_path / 'sessions.db') as store:
        yield store


def never(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
    raise AssertionError('nobody is to be asked')


def careful() -> AgentContext:
    return AgentContext(need_user_approve_tools=['pay'])


@pytest.mark.anyio
async def test_turns_are_stored_and_go_on_in_another_process(store: SessionStore, tmp_path: Path) -> None:
    first = Session.open(store, 'ada')
    assert await first.run(agent, 'Go', never) == '1 | paid 5'
    with SessionStore(tmp_path / 'sessions.db') as other:
        second = Session.open(other, 'ada')
        assert second.context == first.context
        assert await second.run(agent, 'Go on', never) == '2 | paid 5'
        assert second.revision == 2
    assert Session.open(store, 'ada').context == second.context
    assert Session.open(store, 'grace').context == AgentContext()


@pytest.mark.anyio
async def test_questions_are_stored_before_they_are_asked_and_answers_as_they_come(store: SessionStore) -> None:
    asked: list[Any] = []

    async def ask(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
        stored = Session.open(store, 'ada').context
        asked.append((call.args_as_dict(), metadata, returns(stored.message_history), len(stored.answers.approvals)))
        return ToolApproved(override_args={'amount': 7}) if len(asked) == 1 else False

    twice = Agent(
        script([('count', {}), ('pay', {'amount': 5}), ('pay', {'amount': 6})]),
        deps_type=AgentContext,
        toolsets=agent.toolsets[1:],
        output_type=[str, DeferredToolRequests],
    )
    session = Session.open(store, 'ada', careful())
    assert sorted((await session.run(twice, 'Go', ask)).split(' | ')) == [
        '1',
        'The tool call was denied.',
        'paid 7',
    ]
    # The tool that needs no approval has run and is stored, and the second question finds the first answer.
    assert asked == [({'amount': 5}, {'currency': 'EUR'}, [1], 0), ({'amount': 6}, {'currency': 'EUR'}, [1], 1)]
    assert session.revision == 4
    assert session.context.pending is None


@pytest.mark.anyio
async def test_question_without_an_answer_waits_in_the_store(store: SessionStore) -> None:
    session = Session.open(store, 'ada', careful())
    left = await session.run(agent, 'Go', lambda call, metadata: None)
    assert isinstance(left, DeferredToolRequests) and [call.tool_name for call in left.approvals] == ['pay']
    again = Session.open(store, 'ada', AgentContext())
    assert again.context.need_user_approve_tools == ['pay']
    assert again.context.unanswered() == left
    assert sorted((await again.run(agent, None, lambda call, metadata: True)).split(' | ')) == ['1', 'paid 5']
    assert again.context.toolset_states == {'': {'count': 1}}


@pytest.mark.anyio
async def test_result_of_a_call_that_is_executed_elsewhere_can_come_later(store: SessionStore) -> None:
    external = Agent(
        script(('elsewhere', {})),
        deps_type=AgentContext,
        toolsets=agent.toolsets[1:],
        output_type=[str, DeferredToolRequests],
    )
    left = await Session.open(store, 'ada').run(external, 'Go', never)
    assert [call.tool_name for call in left.calls] == ['elsewhere']
    session = Session.open(store, 'ada')
    session.context.answers.calls[left.calls[0].tool_call_id] = 'from elsewhere'
    assert await session.run(external, None, never) == 'from elsewhere'


@pytest.mark.anyio
async def test_failed_turn_leaves_the_session_as_it_was(store: SessionStore) -> None:
    session = Session.open(store, 'ada')
    await session.run(agent, 'Go', never)
    before = session.context.export_state()
    broken = Agent(script(('count', {}), ('broken', {})), deps_type=AgentContext, toolsets=agent.toolsets[1:])
    with pytest.raises(ConnectionError):
        await session.run(broken, 'Go', never)
    assert session.context.export_state() == before == store.load('ada')[1]


@pytest.mark.anyio
async def test_concurrent_writer_is_refused_and_writes_nothing(store: SessionStore, tmp_path: Path) -> None:
    await Session.open(store, 'ada').run(agent, 'Go', never)
    with SessionStore(tmp_path / 'sessions.db') as other:
        first, second = Session.open(store, 'ada'), Session.open(other, 'ada')
        await first.run(agent, 'First', never)
        with pytest.raises(StaleSessionError) as caught:
            await second.run(agent, 'Second', never)
    assert str(caught.value) == (
        "Session 'ada' was written by someone else: it is at revision 2, and revision 1 was read. "
        'Open it again, and repeat what you did.'
    )
    assert store.load('ada')[1] == first.context.export_state()
    with pytest.raises(StaleSessionError, match='it is at revision 2, and revision 0 was read'):
        store.save('ada', ResumableState(), 0)
    with pytest.raises(StaleSessionError, match='it is at revision 0, and revision 3 was read'):
        store.save('nobody', ResumableState(), 3)


def test_write_that_fails_half_way_leaves_what_was_there(store: SessionStore) -> None:
    store.save('ada', ResumableState(need_user_approve_tools=['a']), 0)

    class Unwritable(ResumableState):
        def to_json(self) -> str:
            raise RuntimeError('while it is written')

    with pytest.raises(RuntimeError):
        store.save('ada', Unwritable(), 1)
    assert store.load('ada') == (1, ResumableState(need_user_approve_tools=['a']))
    assert store.save('ada', ResumableState(), 1) == 2


def test_file_is_a_write_ahead_log_that_is_flushed_with_each_write(store: SessionStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / 'sessions.db')) as connection:
        assert connection.execute('PRAGMA journal_mode').fetchone() == ('wal',)
    assert store._db.execute('PRAGMA synchronous').fetchone() == (2,)  # pyright: ignore[reportPrivateUsage]


def test_stored_state_of_a_newer_version_is_refused(store: SessionStore) -> None:
    store.save('ada', ResumableState().model_copy(update={'version': 9}), 0)
    with pytest.raises(UserError, match='The state is of version 9'):
        Session.open(store, 'ada')


# Processes that are killed. They are forked from this one, which has imported everything, so that each takes milliseconds.


@pytest.fixture
def warm(tmp_path: Path) -> None:
    """Have all that is built at the first use, so that not each process builds it again."""
    with SessionStore(tmp_path / 'warm.db') as store:
        asyncio.run(Session.open(store, 'ada').run(agent, 'Go', never))
        Session.open(store, 'ada')


posix = pytest.mark.skipif(not hasattr(os, 'fork'), reason='a process is forked')


def forked(work: Callable[[Callable[[str], None]], None]) -> tuple[int, int]:
    """Start a process that reports lines, and return its ID and where to read them."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)  # Threads of other tests may be there; we use none of them.
        process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    status = 1
    try:
        os.close(reading)
        work(lambda line: os.write(writing, f'{line}\n'.encode()) and None)  # type: ignore
        status = 0
    except BaseException as error:  # noqa: BLE001 (the status says it)
        print(f'in the process: {error!r}', file=sys.stderr)
    finally:
        os._exit(status)


def killed(process: int, reading: int, *, after: float = 0, at: str | None = None) -> list[str]:
    """Kill a process after some time, or once it has reported a line, and return the lines that it has reported."""
    data = b''
    if at:
        while f'{at}\n'.encode() not in data:
            chunk = os.read(reading, 65536)
            assert chunk, f'The process has ended without reporting {at!r}: {data!r}'
            data += chunk
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    while select.select([reading], [], [], 10)[0] and (chunk := os.read(reading, 65536)):
        data += chunk
    os.close(reading)
    return data.decode().splitlines()


def prompts(session: Session) -> list[str]:
    return [
        str(part.content)
        for message in session.context.message_history
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def intact(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute('PRAGMA integrity_check').fetchone() == ('ok',)


@posix
def test_process_killed_at_any_moment_loses_no_turn_that_was_reported(tmp_path: Path, request: Any, warm: None) -> None:
    path = tmp_path / 'sessions.db'
    chance = random.Random(19)
    reported, kept_unreported = 0, 0

    def turns(report: Callable[[str], None]) -> None:
        async def talk() -> None:
            with SessionStore(path) as store:
                session = Session.open(store, 'ada')
                report('ready')
                while True:
                    number = len(prompts(session))
                    await session.run(agent, f'turn {number}', never)
                    report(f'done {number}')

        asyncio.run(talk())

    for _ in range(request.config.getoption('kills')):
        lines = killed(*forked(turns), at='ready', after=chance.uniform(0, 0.05))
        done = [int(line.split()[1]) for line in lines if line.startswith('done')]
        intact(path)
        with SessionStore(path) as store:
            session = Session.open(store, 'ada')
            found = prompts(session)
        reported = max([reported - 1, *done]) + 1
        assert found == [f'turn {number}' for number in range(len(found))]
        # One turn may be stored and not yet reported.
        assert len(found) - reported in (0, 1)
        kept_unreported += len(found) - reported
        reported = len(found)
        assert session.revision == len(found)
        assert session.context.toolset_states == ({'': {'count': len(found)}} if found else {})
        assert returns(session.context.message_history) == ([len(found), 'paid 5'] if found else [])
        if len(found) > 60:  # A history that grows for ever makes the test slow.
            reported = 0
            path.unlink()
            for rest in tmp_path.glob('sessions.db-*'):
                rest.unlink()


@posix
def test_process_killed_while_it_waits_for_an_approval_asks_again_and_has_done_all_else(
    tmp_path: Path, request: Any, warm: None
) -> None:
    path = tmp_path / 'sessions.db'
    chance = random.Random(3)

    def turn(report: Callable[[str], None]) -> None:
        def ask(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
            report('asked')
            time.sleep(60)

        with SessionStore(path) as store:
            asyncio.run(Session.open(store, name, careful()).run(agent, 'Go', ask))

    def resume(report: Callable[[str], None]) -> None:
        def ask(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
            report(f'asked again for {call.args_as_dict()} {metadata}')
            return ToolApproved(override_args={'amount': 6})

        with SessionStore(path) as store:
            output = asyncio.run(Session.open(store, name).run(agent, None, ask))
            report('done ' + ' | '.join(sorted(output.split(' | '))))
            time.sleep(60)

    for number in range(request.config.getoption('kills')):
        name = f'session {number}'
        assert killed(*forked(turn), at='asked', after=chance.uniform(0, 0.005)) == ['asked']
        intact(path)
        with SessionStore(path) as store:
            session = Session.open(store, name)
        assert [call.tool_name for call in session.context.unanswered().approvals] == ['pay']
        assert returns(session.context.message_history) == [1]
        assert session.context.toolset_states == {'': {'count': 1}}

        lines = killed(*forked(resume), at='done 1 | paid 6')
        assert lines == ["asked again for {'amount': 5} {'currency': 'EUR'}", 'done 1 | paid 6']
        with SessionStore(path) as store:
            session = Session.open(store, name)
        assert session.context.pending is None
        assert sorted(map(str, returns(session.context.message_history))) == ['1', 'paid 6']


@posix
def test_answer_that_was_stored_is_not_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / 'sessions.db'

    class Slow(Pay):
        def call(self, ctx: RunContext[AgentContext], amount: int) -> str:
            REPORT[0]('running')
            time.sleep(60)
            return 'never'

    slow = Agent(
        script(('pay', {'amount': 5})),
        deps_type=AgentContext,
        toolsets=[Toolset[AgentContext](tools=[Slow])],
        output_type=[str, DeferredToolRequests],
    )

    def turn(report: Callable[[str], None]) -> None:
        REPORT[:] = [report]
        with SessionStore(path) as store:
            session = Session.open(store, 'ada', careful())
            asyncio.run(session.run(slow, 'Go', lambda call, metadata: ToolApproved(override_args={'amount': 8})))

    assert killed(*forked(turn), at='running') == ['running']
    with SessionStore(path) as store:
        session = Session.open(store, 'ada')
        assert not session.context.unanswered().approvals
        assert asyncio.run(session.run(agent, None, never)) == 'paid 8'


REPORT: list[Callable[[str], None]] = []


@posix
def test_of_processes_that_write_one_session_at_once_none_overwrites_another(tmp_path: Path) -> None:
    path = tmp_path / 'sessions.db'

    def write(report: Callable[[str], None]) -> None:
        written = 0
        with SessionStore(path) as store:
            report('ready')
            while written < 20:
                session = Session.open(store, 'ada')
                session.context.need_user_approve_tools.append(f'{os.getpid()}')
                try:
                    session.save()
                except StaleSessionError:
                    continue
                written += 1

    processes = [forked(write) for _ in range(4)]
    for process, reading in processes:
        _, status = os.waitpid(process, 0)
        os.close(reading)
        assert status == 0
    intact(path)
    with SessionStore(path) as store:
        revision, state = store.load('ada')
    assert revision == len(state.need_user_approve_tools) == 80
    assert {state.need_user_approve_tools.count(f'{process}') for process, _ in processes} == {20}
