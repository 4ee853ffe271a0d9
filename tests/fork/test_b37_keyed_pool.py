"""B37: a pool opens or continues the scope of a key, and ends those that are idle or least recently used, never one in use."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import FunctionToolCallEvent, UserError
from pydantic_ai.toolsets import ToolsetScopePool
from typing_extensions import Self

from .cancelling import cancelled_after
from .delegation import calling
from .line import stream_events
from .test_b34_entered_and_exited_by_the_scope import Grouped
from .test_b36_end_of_a_scope import TidiesUp
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


async def until(condition: Any) -> None:
    """Wait until something is so, however slow the machine is."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError('It never was')


async def say_in(chats: ToolsetScopePool, key: str, agent: Any, session: Any) -> list[str]:
    """Run an agent in the scope of a key, and return what the scope's copy of a session has then."""
    async with chats(key) as chat:
        await run_as(key, agent, toolsets=[chat])
        return list(chat.instance_of(session).values)


@methods
async def test_b37_block_opens_or_continues_the_conversation_of_its_key(method: str):
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    chats = ToolsetScopePool(session)
    for number in range(3):
        for key in ('Ada', 'Bob'):
            async with chats(key) as chat:
                await run_as(f'{key}{number}', agent, method, toolsets=[chat])
                await run_as('not given', agent, method)
                assert chat.instance_of(session).values == [f'{key}{n}' for n in range(number + 1)]
    kept = {id(event.toolset) for event in journal.of('enter') if event.run != 'not given'}
    assert len(kept) == 2
    await chats.aclose()
    assert len(journal.of('enter')) == len(journal.of('exit')) == 8
    with pytest.raises(UserError, match='closed'):
        await chats('Ada').__aenter__()


@methods
async def test_b37_a_run_that_is_given_the_pool_or_what_opens_its_scope_is_told_what_to_pass(method: str):
    session = Session('t', Journal())
    agent = calling(toolsets=[session])
    async with ToolsetScopePool(session) as chats:
        for given, told in (
            (chats, r'Use `async with pool\(key\) as chat:` and pass `chat`'),
            (chats('Ada'), 'Pass a toolset, a toolset class'),
        ):
            with pytest.raises(UserError, match=told):
                await run_as('run', agent, method, toolsets=[given])
        assert chats.keys == []


@methods
async def test_b37_requests_in_tasks_and_contexts_of_their_own_have_one_task_for_the_toolset(method: str):
    """A task group in a toolset is exited in the task that has entered it, whoever opens and ends the scope."""
    journal = Journal()
    grouped = Grouped('g', journal)
    agent = calling(['g'], toolsets=[grouped])
    before = asyncio.all_tasks()

    async def request(number: int) -> None:
        async with chats('Ada') as chat:
            await run_as(f'run{number}', agent, method, toolsets=[chat])

    async with ToolsetScopePool(grouped) as chats:
        for number in range(3):
            context = contextvars.Context()
            await context.run(asyncio.ensure_future, request(number))
        await asyncio.ensure_future(chats.end('Ada'))
        await request(3)
    assert journal.lifecycle == ['+g', '-g', '+g', '-g']
    assert [event.toolset.values for event in journal.of('exit')] == [['run0', 'run1', 'run2'], ['run3']]
    assert asyncio.all_tasks() <= before


async def test_b37_two_runs_at_once_under_one_key_are_refused():
    journal = Journal()
    session = Session('t', journal)
    inside, go = asyncio.Event(), asyncio.Event()

    async def wait(value: str) -> None:
        inside.set()
        await go.wait()

    async def request(name: str, key: str) -> None:
        agent = calling(['wait'] if name == 'slow' else ['t'], toolsets=[session], tools=[wait], name=name)
        async with chats(key) as chat:
            await run_as(name, agent, toolsets=[chat])

    async with ToolsetScopePool(session) as chats:
        slow = asyncio.ensure_future(request('slow', 'Ada'))
        await inside.wait()
        await request('fast', 'Bob')
        with pytest.raises(UserError) as caught:
            await request('fast', 'Ada')
        for part in ("'slow'", "'fast'"):
            assert part in str(caught.value)
        go.set()
        await slow
        await request('fast', 'Ada')


async def test_b37_end_of_a_key_lets_its_next_use_start_afresh():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])

    async with ToolsetScopePool(session) as chats:
        for key in ('Ada', 'Ada', 'Bob'):
            await say_in(chats, key, agent, session)
        await chats.end('Ada')
        await chats.end('nobody')
        assert journal.lifecycle == ['+t', '+t', '-t']
        assert await say_in(chats, 'Ada', agent, session) == ['Ada']
        assert await say_in(chats, 'Bob', agent, session) == ['Bob', 'Bob']
        await chats.end('Ada')
        await chats.end('Ada')
    assert len(journal.of('enter')) == len(journal.of('exit')) == 3


async def test_b37_end_of_a_key_in_use_cancels_its_run_and_exits():
    journal = Journal()
    session = Session('t', journal)
    inside = asyncio.Event()

    async def wait(value: str) -> None:
        inside.set()
        await asyncio.Event().wait()

    async def request() -> None:
        async with chats('Ada') as chat:
            await run_as('run', calling(['wait'], toolsets=[session], tools=[wait]), toolsets=[chat])

    async with ToolsetScopePool(session) as chats:
        task = asyncio.ensure_future(request())
        await inside.wait()
        await chats.end('Ada')
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is not None
        assert journal.lifecycle == ['+t', '-t']
        async with chats('Ada') as chat:
            await run_as('again', calling(['t'], toolsets=[session]), toolsets=[chat])
            assert chat.instance_of(session).values == ['again']


async def test_b37_end_of_a_key_cancels_its_stream_and_not_who_reads_that():
    """One task reads two chats, each chunk in a task of its own, and goes on when one of them is ended."""
    journal = Journal()
    session = TidiesUp('t', journal)
    agent = calling(['t'], toolsets=[session])

    async def stream(key: str) -> AsyncGenerator[Any, None]:
        async with chats(key) as chat, stream_events(agent, 'go', toolsets=[chat]) as events:
            async for event in events:
                yield event

    async with ToolsetScopePool(session) as chats:
        ada, bob = stream('Ada'), stream('Bob')
        for chunks in (ada, bob):
            while not isinstance(await asyncio.ensure_future(anext(chunks)), FunctionToolCallEvent):
                pass
        await until(lambda: len(journal.of('call')) == 2)
        await chats.end('Ada')
        assert [event.kind for event in journal.of('tidy', 'exit')] == ['tidy', 'exit']
        assert chats.keys == ['Bob']
        await asyncio.sleep(0)
        for chunks in (ada, bob):
            await chunks.aclose()
    assert len(journal.of('tidy')) == len(journal.of('exit')) == 2


@pytest.mark.parametrize('idle_timeout', [0.05, timedelta(milliseconds=50)])
async def test_b37_idle_and_least_recently_used_are_ended_but_none_in_use(idle_timeout: float | timedelta):
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    chats = ToolsetScopePool(session, limit=2, idle_timeout=idle_timeout)
    async with chats('held') as held:
        await run_as('held', agent, toolsets=[held])
        for key in 'abc':
            async with chats(key) as chat:
                await run_as(key, agent, toolsets=[chat])
        assert set(chats.keys) <= {'held', 'c'}
        await until(lambda: chats.keys == ['held'])
        await run_as('held', agent, toolsets=[held])
        assert held.instance_of(session).values == ['held', 'held']
    await until(lambda: chats.keys == [] and len(journal.of('exit')) == 4)
    assert journal.lifecycle.count('+t') == journal.lifecycle.count('-t') == 4
    await chats.aclose()


async def test_b37_what_has_ended_is_freed_long_before_it_would_have_been_idle():
    chats = ToolsetScopePool(Session('t', Journal()), limit=1, idle_timeout=3600)
    agent = calling(toolsets=[])
    kept: list[weakref.ref[Any]] = []
    for key in ('ended', 'least recently used', 'closed'):
        async with chats(key) as chat:
            await agent.run('go', toolsets=[chat])
            kept.append(weakref.ref(chat))
        if key == 'ended':
            await chats.end(key)
        del chat
    await chats.aclose()
    gc.collect()
    assert [ref() for ref in kept] == [None, None, None]


async def test_b37_scope_that_a_tool_opens_keeps_nothing_of_the_run_of_that_tool():
    """It goes on when the run has ended, so it doesn't hold what the run has held, and what it starts is no sub-agent of that run."""
    journal = Journal()
    notes = Session('n', journal)
    inner = calling(['n'], toolsets=[notes])

    class Starting(Session):
        async def __aenter__(self) -> Self:
            await run_as('inner', inner)
            return await super().__aenter__()

    starting = Starting('t', journal)
    child = calling(['t'], toolsets=[starting], name='child')
    chats = ToolsetScopePool(starting, idle_timeout=3600)

    async def ask(value: str) -> None:
        async with chats('Ada') as chat:
            await run_as('child', child, toolsets=[chat])

    async def request() -> weakref.ref[Any]:
        await run_as('parent', calling(['n'], ['ask'], ['n'], toolsets=[notes], tools=[ask]))
        return weakref.ref(next(event.toolset for event in journal.of('call') if event.run == 'parent'))

    kept = await asyncio.ensure_future(request())
    by_run = {event.run: event.toolset.values for event in journal.of('call')}
    assert by_run == {'parent': ['parent', 'parent'], 'inner': ['inner'], 'child': ['child']}
    journal.events.clear()
    del by_run
    gc.collect()
    assert chats.keys == ['Ada']
    assert kept() is None
    await chats.aclose()


async def test_b37_more_than_the_limit_are_open_only_if_all_are_in_use():
    session = Session('t', Journal())
    async with ToolsetScopePool(session, limit=1) as chats:
        async with chats('a') as a, chats('b') as b:
            for chat in (a, b):
                await run_as('run', calling(['t'], toolsets=[session]), toolsets=[chat])
            assert set(chats.keys) == {'a', 'b'}
        async with chats('c'):
            assert chats.keys == ['c']
    assert session.journal.lifecycle.count('+t') == session.journal.lifecycle.count('-t') == 3


async def test_b37_what_a_pool_cannot_keep_is_refused():
    kept = Session('kept', Journal())
    for wrong, said in (
        (Server('s', Journal()), "'s'"),
        (Session, 'Session'),
        (calling(), 'Agent'),
        ([kept], 'list'),
    ):
        with pytest.raises(UserError) as caught:
            ToolsetScopePool(kept, wrong)  # pyright: ignore[reportArgumentType]
        assert said in str(caught.value)
    for limit in (0, -1):
        with pytest.raises(UserError, match=r'^`limit` must be positive'):
            ToolsetScopePool(kept, limit=limit)
    for idle_timeout in (0, -1, -0.5, timedelta(0), timedelta(seconds=-1), float('nan')):
        with pytest.raises(UserError, match=r'^`idle_timeout` must be positive'):
            ToolsetScopePool(kept, idle_timeout=idle_timeout)


@pytest.mark.parametrize('used_before', [False, True])
async def test_b37_key_that_is_not_hashable_opens_nothing(used_before: bool):
    journal = Journal()
    session = Session('t', journal)
    before = asyncio.all_tasks()
    async with ToolsetScopePool(session, limit=1) as chats:
        if used_before:
            async with chats('Ada'):
                pass
        for key in (['Ada'], ('Ada', ['Bob'])):
            with pytest.raises(TypeError, match='unhashable'):
                async with chats(key):  # pyright: ignore[reportArgumentType]
                    pytest.fail('The block was entered')
            for _ in range(5):
                await asyncio.sleep(0)
            assert chats.keys == ['Ada'][:used_before]
            assert journal.lifecycle == ['+t'][:used_before]
    assert journal.lifecycle == ['+t', '-t'][: 2 * used_before]
    assert asyncio.all_tasks() <= before


async def test_b37_entry_that_fails_is_the_callers_and_the_next_one_tries_again():
    journal = Journal()
    fail: dict[str, BaseException] = {'enter': RuntimeError('enter')}
    first, session = Session('first', journal), Session('t', journal, fail=fail)
    before = asyncio.all_tasks()
    async with ToolsetScopePool(first, session) as chats:
        for _ in range(2):
            with pytest.raises(RuntimeError) as caught:
                async with chats('Ada'):
                    pytest.fail('The block was entered')
            assert caught.value is fail['enter']
        assert journal.lifecycle == ['+first', '-first'] * 2
        fail.clear()
        async with chats('Ada') as chat:
            await run_as('run', calling(['t'], toolsets=[session]), toolsets=[chat])
    assert journal.names('enter') == ['first', 'first', 'first', 't']
    assert asyncio.all_tasks() <= before


async def test_b37_session_that_died_is_started_anew_by_the_end_of_its_key():
    journal = Journal()
    grouped = Grouped('g', journal)
    agent = calling(['g'], toolsets=[grouped])
    before = asyncio.all_tasks()

    async def request(name: str) -> Any:
        async with chats('Ada') as chat:
            await run_as(name, agent, toolsets=[chat])
            return chat.instance_of(grouped)

    with suppress(Exception):  # Whether the end of what died tells of it is left open
        async with ToolsetScopePool(grouped) as chats:
            (await request('one')).crash()
            await until(lambda: journal.lifecycle == ['+g', '-g'])
            try:
                await asyncio.wait_for(request('two'), 60)
            except UserError:
                await chats.end('Ada')
                await asyncio.wait_for(request('two'), 60)
    assert journal.of('call')[-1].toolset.values == ['two']
    assert journal.lifecycle == ['+g', '-g'] * 2
    assert asyncio.all_tasks() <= before


# Faults of the pools before


async def test_b37_worker_goes_on_when_the_chat_that_it_serves_is_ended():
    """Its task is never cancelled, and is as good as new for the runs of all other chats."""
    journal = Journal()
    session = TidiesUp('t', journal)
    slow, quick = calling(['t'], toolsets=[session]), calling(toolsets=[session])
    queue, failed, served = asyncio.Queue[str](), list[str](), list[str]()

    async def work() -> None:
        while True:
            key = await queue.get()
            try:
                async with chats(key) as chat:
                    await (slow if key == 'slow' else quick).run('go', toolsets=[chat])
                    served.append(key)
            except Exception as error:  # noqa: BLE001 (that is what such workers do)
                failed.append(type(error).__name__)

    chats = ToolsetScopePool(session)
    worker = asyncio.create_task(work())
    for number in range(1, 4):
        await queue.put('slow')
        await until(lambda: len(journal.of('call')) == number)  # noqa: B023
        await chats.end('slow')
        await queue.put('Ada')
        await until(lambda: len(served) == number)  # noqa: B023
    assert worker.cancelling() == 0
    await queue.put('slow')
    await until(lambda: len(journal.of('call')) == 4)
    await chats.aclose()
    await until(lambda: len(failed) == 4)
    assert failed == ['RunCancelled'] * 4
    assert not worker.done()
    worker.cancel()
    await asyncio.wait([worker])
    assert len(journal.of('tidy')) == 4


async def test_b37_exit_that_hangs_is_waited_for_by_the_same_key_only():
    class Hanging(Session):
        async def __aexit__(self, *args: object) -> bool | None:
            await go.wait()
            return await super().__aexit__(*args)

    go, journal = asyncio.Event(), Journal()
    hanging = Hanging('t', journal)
    agent = calling(['t'], toolsets=[hanging])

    chats = ToolsetScopePool(hanging, limit=1)
    await say_in(chats, 'Ada', agent, hanging)
    for key in ('Bob', 'Eve', 'Bob2'):
        assert await say_in(chats, key, agent, hanging) == [key]
    again = asyncio.ensure_future(say_in(chats, 'Ada', agent, hanging))
    end = asyncio.ensure_future(chats.end('Bob'))
    assert await say_in(chats, 'Zoe', agent, hanging) == ['Zoe']
    assert not again.done()
    assert not end.done()
    assert journal.names('exit') == []
    go.set()
    assert await again == ['Ada']
    await end
    await chats.aclose()
    assert len(journal.of('enter')) == len(journal.of('exit')) == 6


async def test_b37_abandoned_generators_leave_no_complaint_of_the_event_loop():
    session = Session('t', Journal())
    agent = calling(['t'], toolsets=[session])
    complaints: list[Any] = []

    async def stream(key: int) -> AsyncGenerator[None, None]:
        async with chats(key) as chat, stream_events(agent, 'go', toolsets=[chat]) as events:
            async for _ in events:
                yield

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with ToolsetScopePool(session) as chats:
        for key in range(100):
            left = stream(key % 7)
            for _ in range(key % 5 + 1):
                await anext(left, None)
            del left
            if key % 2:
                gc.collect()
                await asyncio.sleep(0)
            for _ in range(200):
                await asyncio.sleep(0)
    assert complaints == []


async def test_b37_caller_who_is_cancelled_as_he_is_served_cancels_nobody_else():
    """Two open the same key while it's entered, and one of them is cancelled at any step."""

    class Slow(Session):
        async def __aenter__(self) -> Self:
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().__aenter__()

    before = asyncio.all_tasks()
    for victim in (0, 1):
        for step in range(1000):
            journal = Journal()
            slow = Slow('t', journal)

            async def request(name: str) -> str:
                async with chats('Ada') as chat, lock:  # noqa: B023
                    return await run_as(name, calling(['t'], toolsets=[slow]), toolsets=[chat])  # noqa: B023

            lock = asyncio.Lock()
            async with ToolsetScopePool(slow) as chats:
                others: list[Any] = []
                if victim:
                    others.append(asyncio.ensure_future(request('other')))

                async def start() -> str:
                    return await request('victim')

                task = asyncio.ensure_future(start())
                if not victim:
                    await asyncio.sleep(0)
                    others.append(asyncio.ensure_future(request('other')))
                for _ in range(step):
                    await asyncio.sleep(0)
                ended = task.done()
                task.cancel()
                await asyncio.wait([task, *others])
                assert others[0].result() == 'done'
                assert await request('next') == 'done'
            assert len(journal.of('enter')) == len(journal.of('exit'))
            assert asyncio.all_tasks() <= before
            if ended:
                break
        else:
            pytest.fail('The request never ended')


@pytest.mark.parametrize('times', [1, 2])
async def test_b37_request_cancelled_at_any_step_leaves_the_pool_usable(times: int):
    before = asyncio.all_tasks()
    for step in range(1000):
        journal = Journal()
        a, b = Session('a', journal), Grouped('b', journal)
        agent = calling(['a'], ['b'], toolsets=[a, b])

        async def request() -> list[list[str]]:
            async with chats('Ada') as chat:
                await run_as('run', agent, toolsets=[chat])  # noqa: B023
                return [chat.instance_of(t).values for t in (a, b)]  # noqa: B023

        async with ToolsetScopePool(a, b) as chats:
            task, done = await cancelled_after(step, request, times)
            await asyncio.wait([task])
            assert [values[-1] for values in await request()] == ['run', 'run']
        assert sorted(journal.names('enter')) == sorted(journal.names('exit'))
        assert asyncio.all_tasks() <= before
        if done:
            break
    else:
        pytest.fail('The request never ended')


async def test_b37_close_from_another_event_loop_is_refused_and_closes_nothing():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    chats = ToolsetScopePool(session)

    async def request() -> list[str]:
        async with chats('Ada') as chat:
            await run_as('run', agent, toolsets=[chat])
            return list(chat.instance_of(session).values)

    await request()
    with pytest.raises(UserError, match='event loop'):
        await asyncio.to_thread(asyncio.run, chats.aclose())
    assert await request() == ['run', 'run']
    await chats.aclose()
    assert journal.lifecycle == ['+t', '-t']


async def test_b37_under_load_nothing_is_mixed_up_and_nothing_is_left():
    """500 conversations of which 50 are live at once, some of them cancelled, some continued."""
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], ['t'], toolsets=[session])
    choose = random.Random(0)
    before = asyncio.all_tasks()
    gate = asyncio.Semaphore(40)
    most = 0

    async def conversation(key: int, cancelled: bool) -> None:
        nonlocal most
        async with gate:
            async with chats(key) as chat:
                task = asyncio.ensure_future(run_as(str(key), agent, toolsets=[chat]))
                if cancelled:
                    await asyncio.sleep(0)
                    task.cancel()
                await asyncio.wait([task])
                await run_as(str(key), agent, toolsets=[chat])
                assert set(chat.instance_of(session).values) == {str(key)}
            most = max(most, len(chats.keys))

    async with ToolsetScopePool(session, limit=50) as chats:
        await asyncio.gather(*(conversation(key, choose.random() < 0.1) for key in range(500)))
    assert most <= 50
    assert chats.keys == []
    assert len(journal.names('enter')) == len(journal.names('exit')) == 500
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
