"""B36: use after the end, the end while a run goes on, scopes that are opened twice or not at all, and two of them in one run."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from anyio import CancelScope
from pydantic_ai import UserError
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.toolsets import ToolsetScope, ToolsetScopePool

from .delegation import Notes, calling
from .test_b20_after_the_owner_has_ended import Background
from .toolsets import METHODS, Journal, Requests, Server, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


@methods
@pytest.mark.parametrize('opened', [False, True])
async def test_b36_scope_that_is_not_open_is_refused(method: str, opened: bool):
    requests, journal = Requests(), Journal()
    session = Session('t', journal)
    chat = ToolsetScope(session)
    if opened:
        async with chat:
            pass
    before = list(journal.events)
    agent = calling(toolsets=[session, Server('s', journal)], name='Ada')
    with pytest.raises(UserError, match=r'(?i)scope'), agent.override(model=requests.model):
        await run_as('run', agent, method, toolsets=[chat])
    assert requests.count == 0
    assert journal.events == before


@pytest.mark.parametrize('names', [['t'], ['t', 'u']])
async def test_b36_run_that_outlives_the_block_in_the_same_task_gets_the_error_alone(names: list[str]):
    journal = Journal()
    sessions = [Session(name, journal) for name in names]
    agent = calling(['t'], toolsets=sessions, name='Ada')
    chat = ToolsetScope(*sessions)
    await chat.__aenter__()
    with pytest.raises(UserError, match=r'(?i)scope') as caught:
        async with agent.iter('go', toolsets=[chat]) as agent_run:
            await chat.__aexit__(None, None, None)
            async for _ in agent_run:
                pass
    assert sessions[0].label in str(caught.value)
    assert journal.lifecycle == [*(f'+{name}' for name in names), *(f'-{name}' for name in reversed(names))]


async def test_b36_background_child_gets_the_error_when_the_scope_has_ended():
    journal = Journal()
    background = Background()
    notes = Notes('t', journal)
    child = calling(['t'], ['wait'], ['t'], toolsets=[notes], tools=[background.wait])
    parent = calling(['t'], ['start'], toolsets=[notes, background.starting(child)], name='boss')
    async with ToolsetScope(notes) as chat:
        await run_as('parent', parent, toolsets=[chat])
        (live,) = {event.toolset for event in journal.of('call')}
    before = list(journal.events)
    outcome = await background.outcome()
    assert isinstance(outcome, (UserError, asyncio.CancelledError))
    assert journal.events == before
    assert live.values == ['parent', 'child']


@pytest.mark.parametrize('method', ['run', 'iter', 'run_stream', 'run_stream_events'])
@pytest.mark.parametrize('error', [None, RuntimeError('body')])
async def test_b36_end_of_the_block_cancels_the_run_waits_and_exits(method: str, error: Exception | None):
    journal = Journal()
    inside = asyncio.Event()
    cleaned = False

    async def wait(value: str) -> None:
        nonlocal cleaned
        inside.set()
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.01)
            assert journal.lifecycle == ['+t', '+s']
            cleaned = True

    agent = calling(['wait'], toolsets=[Server('s', journal), session := Session('t', journal)], tools=[wait])
    task: Any = None
    try:
        async with ToolsetScope(session) as chat:
            task = asyncio.ensure_future(run_as('run', agent, method, toolsets=[chat]))
            await inside.wait()
            if error:
                raise error
    except RuntimeError as caught:
        assert caught is error
    assert cleaned
    assert journal.lifecycle == ['+t', '+s', '-s', '-t']
    with pytest.raises(RunCancelled):
        await task
    assert journal.of('exit')[-1].got[1] is error


@pytest.mark.parametrize('method', ['run', 'run_stream', 'run_stream_events'])
async def test_b36_end_at_any_step_cancels_the_run_and_does_not_fail_it(method: str):
    for step in range(1000):
        journal = Journal()
        one, two = Session('one', journal), Session('two', journal)
        agent = calling(['one'], ['two'], toolsets=[one, two])
        async with ToolsetScope(one, two) as chat:
            task = asyncio.ensure_future(run_as('run', agent, method, toolsets=[chat]))
            for _ in range(step):
                await asyncio.sleep(0)
            done = task.done()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        # One that had not begun is refused
        begun = bool(journal.of('get_tools'))
        assert outcome == 'done' or isinstance(outcome, RunCancelled) or (type(outcome) is UserError and not begun), (
            step
        )
        assert journal.lifecycle == ['+one', '+two', '-two', '-one']
        if done:
            break
    else:
        pytest.fail('The run never ended')


class TidiesUp(Session):
    """Its calls wait, and clean up with what it holds when they are cancelled."""

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        self.journal.note('call', self)
        try:
            await asyncio.Event().wait()
        finally:
            with CancelScope(shield=True):
                for _ in range(20):
                    await asyncio.sleep(0)
            self.journal.note('tidy', self)


@pytest.mark.parametrize('times', [1, 2, 3])
@pytest.mark.parametrize('pooled', [False, True])
async def test_b36_end_that_is_cancelled_waits_for_the_run_before_it_exits(pooled: bool, times: int):
    journal = Journal()
    session = TidiesUp('t', journal)
    agent = calling(['t'], toolsets=[session])
    chats = ToolsetScopePool(session)
    runs: list[asyncio.Task[Any]] = []
    leave = asyncio.Event()

    async def block() -> None:
        async with chats('key') if pooled else ToolsetScope(session) as chat:
            runs.append(asyncio.create_task(agent.run('go', toolsets=[chat])))
            await leave.wait()
        await chats.aclose()

    task = asyncio.create_task(block())
    while not journal.of('call'):
        await asyncio.sleep(0)
    leave.set()
    for _ in range(times):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await chats.aclose()
    await asyncio.wait(runs)
    assert [event.kind for event in journal.events if event.kind in ('call', 'tidy', 'exit')] == [
        'call',
        'tidy',
        'exit',
    ]


async def test_b36_tool_that_ends_the_scope_of_its_own_run_does_not_wait_for_itself():
    journal = Journal()
    session = Session('t', journal)
    stack = AsyncExitStack()

    async def stop(value: str) -> None:
        await stack.aclose()

    agent = calling(['t'], ['stop'], toolsets=[session], tools=[stop])
    chat = await stack.enter_async_context(ToolsetScope(session))
    with pytest.raises(UserError, match="'t' belongs to the toolset scope"):
        await asyncio.create_task(agent.run('go', toolsets=[chat]))
    assert journal.lifecycle == ['+t', '-t']


async def test_b36_opened_twice():
    session = Session('t', Journal())
    chat = ToolsetScope(session)
    async with chat:
        with pytest.raises(UserError, match=r'(?i)scope'):
            await chat.__aenter__()
        await run_as('run', calling(['t'], toolsets=[session]), toolsets=[chat])
    with pytest.raises(UserError, match=r'(?i)scope'):
        await chat.__aenter__()
    assert session.journal.lifecycle == ['+t', '-t']


@methods
async def test_b36_two_scopes_that_keep_the_same_toolset_are_refused(method: str):
    requests, journal = Requests(), Journal()
    one, two, three = (Session(name, journal) for name in ('one', 'two', 'three'))
    agent = calling(toolsets=[one, two, three], name='Ada')
    async with ToolsetScope(one, two) as first, ToolsetScope(two, three) as second, ToolsetScope(three) as third:
        with pytest.raises(UserError, match="'two'"), agent.override(model=requests.model):
            await run_as('run', agent, method, toolsets=[first, second])
        assert requests.count == 0
        await run_as('run', calling(['one', 'three'], toolsets=[one, two, three]), method, toolsets=[first, third])
        assert [scope.instance_of(t).values for scope, t in ((first, one), (third, three))] == [['run'], ['run']]


async def test_b36_new_scope_starts_afresh():
    session = Session('t', Journal())
    agent = calling(['t'], toolsets=[session])
    for _ in range(3):
        async with ToolsetScope(session) as chat:
            await run_as('run', agent, toolsets=[chat])
            assert chat.instance_of(session).values == ['run']


async def test_b36_scope_given_twice_to_one_run_is_one():
    session = Session('t', Journal())
    async with ToolsetScope(session) as chat:
        try:
            await run_as('run', calling(['t'], toolsets=[session]), toolsets=[chat, chat])
        except UserError:
            # That may be a scope too many as well
            pass
        else:
            assert chat.instance_of(session).values == ['run']
