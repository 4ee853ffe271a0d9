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
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    CallDeferred,
    FunctionToolset,
    RunContext,
    ToolApproved,
    UserError,
)
from pydantic_ai.messages import ModelRequest, ToolCallPart, UserPromptPart
from pydantic_ai.toolsets import ToolsetScopePool

from hookable_toolset import (
    AgentContext,
    BaseTool,
    ResumableState,
    Session,
    SessionBusyError,
    SessionStore,
    StaleSessionError,
    Toolset,
)

from .conftest import asking, returns, script, stored


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


toolset = Toolset[AgentContext](tools=[Count, Pay, Elsewhere, Broken])
agent = asking(script([('count', {}), ('pay', {'amount': 5})]), toolset)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    async with SessionStore(tmp_path / 'sessions.db') as store:
        yield store


def never(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
    raise AssertionError('nobody is to be asked')


def careful() -> AgentContext:
    return AgentContext(need_user_approve_tools=['pay'])


@pytest.mark.anyio
async def test_turns_are_stored_and_go_on_in_another_process(store: SessionStore, tmp_path: Path) -> None:
    first = await Session.open(store, 'ada')
    assert await first.run(agent, 'Go', never) == '1 | paid 5'
    async with SessionStore(tmp_path / 'sessions.db') as other:
        second = await Session.open(other, 'ada')
        assert second.context == first.context
        assert await second.run(agent, 'Go on', never) == '2 | paid 5'
        assert second.revision == 2
    assert (await Session.open(store, 'ada')).context == second.context
    assert (await Session.open(store, 'grace')).context == AgentContext()


class Connection(BaseTool):
    """What no state can be exported of."""

    name = 'send'
    stateful = True

    def __init__(self) -> None:
        self.sent: list[str] = []

    def call(self, ctx: RunContext[AgentContext], text: str) -> str:
        self.sent.append(text)
        return ','.join(self.sent)


@pytest.mark.anyio
async def test_scope_keeps_live_tools_through_the_questions_and_turns_of_a_session(store: SessionStore) -> None:
    toolset = Toolset[AgentContext](tools=[Connection, Count, Pay, Broken])
    first: Any = [('send', {'text': 'a'}), ('count', {}), ('pay', {'amount': 5})]
    sending = asking(script(first, ('send', {'text': 'c'})), toolset)
    failing = asking(script(('send', {'text': 'b'}), ('broken', {})), toolset)
    chats = ToolsetScopePool(toolset)
    session = await Session.open(store, 'ada', careful())
    async with chats('ada') as chat:
        said = await session.run(sending, 'Go', lambda call, metadata: True, toolsets=[chat])
        assert said == 'a | 1 | paid 5 | a,c'
        with pytest.raises(ConnectionError):
            await session.run(failing, 'Go', never, toolsets=[chat])
    async with chats('ada') as chat:
        last = asking(script(('send', {'text': 'd'})), toolset)
        assert (await session.run(last, 'Go', never, toolsets=[chat]))[-1] == 'd'
        # What a failed run has sent was sent
        assert chat.instance_of(toolset).tools[0].sent == ['a', 'c', 'b', 'd']  # type: ignore[attr-defined]
    await chats.aclose()
    assert (await Session.open(store, 'ada')).context.toolset_states == {'': {'count': 1}}


@pytest.mark.anyio
async def test_questions_are_stored_before_they_are_asked_and_answers_as_they_come(store: SessionStore) -> None:
    asked: list[Any] = []

    async def ask(call: ToolCallPart, metadata: dict[str, Any]) -> Any:
        stored = (await Session.open(store, 'ada')).context
        asked.append((call.args_as_dict(), metadata, returns(stored.message_history), len(stored.answers.approvals)))
        return ToolApproved(override_args={'amount': 7}) if len(asked) == 1 else False

    twice = asking(script([('count', {}), ('pay', {'amount': 5}), ('pay', {'amount': 6})]), toolset)
    session = await Session.open(store, 'ada', careful())
    said = await session.run(twice, 'Go', ask)
    assert sorted(said.split(' | ')) == ['1', 'The tool call was denied.', 'paid 7']
    # The tool that needs no approval has run and is stored, and the second question finds the first answer.
    assert asked == [({'amount': 5}, {'currency': 'EUR'}, [1], 0), ({'amount': 6}, {'currency': 'EUR'}, [1], 1)]
    assert session.revision == 4
    assert session.context.pending is None


@pytest.mark.anyio
@pytest.mark.parametrize('answer', ['y', 1, ToolApproved, {'approved': True}])
async def test_answer_that_is_none_counts_for_nothing(store: SessionStore, answer: Any) -> None:
    session = await Session.open(store, 'ada', careful())
    with pytest.raises(UserError, match='counts for nothing'):
        await session.run(agent, 'Go', lambda call, metadata: answer)
    assert await session.run(agent, None, lambda call, metadata: True) == '1 | paid 5'


@pytest.mark.anyio
async def test_tool_that_would_not_ask_is_refused_where_the_agent_has_no_toolset(store: SessionStore) -> None:
    def pay() -> None:
        raise AssertionError('nobody has approved it')

    plain = asking(script(('pay', {})), FunctionToolset([pay]))
    session = await Session.open(store, 'ada', careful())
    with pytest.raises(UserError, match=r"names 'pay', and the run has another tool of this name"):
        await session.run(plain, 'Go', never)


@pytest.mark.anyio
async def test_result_of_a_call_that_is_executed_elsewhere_can_come_later(store: SessionStore) -> None:
    external = asking(script(('elsewhere', {})), toolset)
    left = await (await Session.open(store, 'ada')).run(external, 'Go', never)
    assert [call.tool_name for call in left.calls] == ['elsewhere']
    session = await Session.open(store, 'ada')
    session.context.answers.calls[left.calls[0].tool_call_id] = 'from elsewhere'
    assert await session.run(external, None, never) == 'from elsewhere'


@pytest.mark.anyio
async def test_failed_turn_leaves_the_session_as_it_was(store: SessionStore) -> None:
    session = await Session.open(store, 'ada')
    await session.run(agent, 'Go', never)
    before = session.context.export_state()
    broken = asking(script(('count', {}), ('broken', {})), toolset)
    with pytest.raises(ConnectionError):
        await session.run(broken, 'Go', never)
    assert session.context.export_state() == before == (await store.load('ada'))[1]


@pytest.mark.anyio
async def test_concurrent_writer_is_refused_and_writes_nothing(store: SessionStore, tmp_path: Path) -> None:
    await (await Session.open(store, 'ada')).run(agent, 'Go', never)
    async with SessionStore(tmp_path / 'sessions.db') as other:
        first, second = await Session.open(store, 'ada'), await Session.open(other, 'ada')
        await first.run(agent, 'First', never)
        with pytest.raises(StaleSessionError) as caught:
            await second.run(agent, 'Second', never)
    assert str(caught.value) == (
        "Session 'ada' was written by someone else: it is at revision 2, and revision 1 was read. "
        'Open it again, and repeat what you did.'
    )
    assert (await store.load('ada'))[1] == first.context.export_state()
    with pytest.raises(StaleSessionError, match='it is at revision 2, and revision 0 was read'):
        await store.save('ada', ResumableState(), 0)
    with pytest.raises(StaleSessionError, match='it is at revision 0, and revision 3 was read'):
        await store.save('nobody', ResumableState(), 3)


# Two at once.


class Gate(BaseTool):
    """Says that it was called, and has the first call wait until it may go on."""

    name = 'gate'

    def __init__(self) -> None:
        self.calls = 0
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def call(self, ctx: RunContext[AgentContext]) -> str:
        self.calls += 1
        self.reached.set()
        if self.calls == 1:
            await self.open.wait()
        return 'through'


@pytest.mark.anyio
@pytest.mark.parametrize('objects', ['one object', 'two objects'])
async def test_turn_in_the_middle_of_another_one_is_refused_before_anything_runs(
    store: SessionStore, objects: str
) -> None:
    gate = Gate()
    slow = asking(script(('gate', {})), Toolset[AgentContext](tools=[gate]))
    first = await Session.open(store, 'ada')
    second = first if objects == 'one object' else await Session.open(store, 'ada')
    turn = asyncio.create_task(first.run(slow, 'First', never))
    await gate.reached.wait()
    with pytest.raises(SessionBusyError, match="Session 'ada' is in the middle of a turn"):
        await second.run(slow, 'Second', never)
    # Other sessions have their turns meanwhile.
    assert await (await Session.open(store, 'grace')).run(agent, 'Go', never) == '1 | paid 5'
    gate.open.set()
    assert await turn == 'through'
    assert (prompts(first), gate.calls) == (['First'], 1)
    assert await first.run(slow, 'Second', never) == 'through'
    assert prompts(await Session.open(store, 'ada')) == ['First', 'Second']


@pytest.mark.anyio
async def test_turn_that_failed_or_was_cancelled_leaves_the_way_to_the_next(store: SessionStore) -> None:
    gate = Gate()
    slow = asking(script(('gate', {})), Toolset[AgentContext](tools=[gate]))
    session = await Session.open(store, 'ada')
    turn = asyncio.create_task(session.run(slow, 'First', never))
    await gate.reached.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    broken = asking(script(('broken', {})), toolset)
    with pytest.raises(ConnectionError):
        await session.run(broken, 'Second', never)
    assert await session.run(agent, 'Third', never) == '1 | paid 5'
    assert prompts(session) == ['Third']


# A file that is locked, and threads.


@pytest.mark.anyio
@pytest.mark.parametrize('cancelled', [False, True])
async def test_event_loop_goes_on_while_the_file_is_locked_and_a_save_that_is_cancelled_can_be_repeated(
    store: SessionStore, tmp_path: Path, cancelled: bool
) -> None:
    session = await Session.open(store, 'ada')
    with closing(sqlite3.connect(tmp_path / 'sessions.db', isolation_level=None)) as other:
        other.execute('BEGIN IMMEDIATE')
        saving = asyncio.create_task(session.save())
        await asyncio.sleep(0.05)  # It gets here while the other one has the lock.
        assert not saving.done()
        if cancelled:
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
        other.execute('ROLLBACK')
        await (session.save() if cancelled else saving)
    assert session.revision == (await Session.open(store, 'ada')).revision > 0


@pytest.mark.anyio
async def test_threads_with_loops_of_their_own_use_one_store(store: SessionStore) -> None:
    session = await Session.open(store, 'shared')

    async def use(number: int) -> str:
        await session.save()
        return await (await Session.open(store, f'session {number}')).run(agent, 'Go', never)

    outputs = await asyncio.gather(*(asyncio.to_thread(asyncio.run, use(number)) for number in range(8)))
    assert outputs == ['1 | paid 5'] * 8
    assert session.revision == (await Session.open(store, 'shared')).revision == 8


@pytest.mark.anyio
async def test_store_that_is_not_open_says_how_to_open_it(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / 'sessions.db')
    for _ in range(2):
        with pytest.raises(UserError, match=r'is not open. Use it in `async with SessionStore\(...\) as store:`.'):
            await store.load('ada')
        async with store:
            with pytest.raises(UserError, match='is open already'):
                await store.__aenter__()
            await store.load('ada')


# Processes that are killed. They are forked from this one, which has imported everything, so that each takes milliseconds.


@pytest.fixture
def warm(tmp_path: Path) -> None:
    """Have all that is built at the first use, so that not each process builds it again."""

    async def turn() -> None:
        async with SessionStore(tmp_path / 'warm.db') as store:
            await (await Session.open(store, 'ada')).run(agent, 'Go', never)
            await Session.open(store, 'ada')

    asyncio.run(turn())


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
            async with SessionStore(path) as store:
                session = await Session.open(store, 'ada')
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
        session = stored(path)
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
def test_answer_that_was_stored_is_not_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / 'sessions.db'

    class Slow(Pay):
        def call(self, ctx: RunContext[AgentContext], amount: int) -> str:
            REPORT[0]('running')
            time.sleep(60)
            return 'never'

    slow = asking(script(('pay', {'amount': 5})), Toolset[AgentContext](tools=[Slow]))

    def turn(report: Callable[[str], None]) -> None:
        REPORT[:] = [report]
        asyncio.run(talk(slow, 'Go', lambda call, metadata: ToolApproved(override_args={'amount': 8})))

    async def talk(agent: Any, prompt: str | None, ask: Callable[[ToolCallPart, dict[str, Any]], Any]) -> Any:
        async with SessionStore(path) as store:
            return await (await Session.open(store, 'ada', careful())).run(agent, prompt, ask)

    assert killed(*forked(turn), at='running') == ['running']
    assert not stored(path).context.unanswered().approvals
    assert asyncio.run(talk(agent, None, never)) == 'paid 8'


REPORT: list[Callable[[str], None]] = []


@posix
def test_of_processes_that_write_one_session_at_once_none_overwrites_another(tmp_path: Path) -> None:
    path = tmp_path / 'sessions.db'

    def write(report: Callable[[str], None]) -> None:
        async def write_often() -> None:
            written = 0
            async with SessionStore(path) as store:
                report('ready')
                while written < 20:
                    session = await Session.open(store, 'ada')
                    session.context.need_user_approve_tools.append(f'{os.getpid()} {written}')
                    try:
                        await session.save()
                    except StaleSessionError:
                        continue
                    written += 1

        asyncio.run(write_often())

    processes = [forked(write) for _ in range(4)]
    for process, reading in processes:
        _, status = os.waitpid(process, 0)
        os.close(reading)
        assert status == 0
    intact(path)
    session = stored(path)
    assert session.revision == 80
    expected = [f'{process} {number}' for process, _ in processes for number in range(20)]
    assert sorted(session.context.need_user_approve_tools) == sorted(expected)


class Vague(BaseTool):
    name = 'vague'
    stateful = True

    def call(self, ctx: RunContext[AgentContext]) -> str:
        return 'done'

    def get_approval_metadata(self) -> dict[str, Any]:
        return {'folder': object()}

    def export_state(self) -> Any:
        return object()


@pytest.mark.anyio
@pytest.mark.parametrize('needing', [['vague'], []])
async def test_turn_that_can_not_be_stored_is_none(tmp_path: Path, needing: list[str]) -> None:
    agent, fine = asking(script(('vague', {})), Toolset[AgentContext](tools=[Vague])), asking(script('fine'))
    async with SessionStore(tmp_path / 's.db') as store:
        session = await Session.open(store, 'ada', AgentContext(need_user_approve_tools=needing))
        await session.run(fine, 'Hello', lambda call, metadata: True)
        with pytest.raises(UserError, match=r'can not be stored|context is no'):
            await session.run(agent, 'Go', lambda call, metadata: True)
        assert await session.run(fine, 'And now?', lambda call, metadata: True) == 'fine'
        assert len((await store.load('ada'))[1].message_history) == 4
