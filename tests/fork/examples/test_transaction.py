from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import asyncpg
import pytest
from pydantic_ai import (
    Agent,
    AgentRunError,
    FunctionToolset,
    ToolCallPart,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
    WrapperToolset,
)
from typing_extensions import Self

from examples import transaction
from examples.support import Step, call, script
from examples.transaction import NestedTransactionToolset, SeparateTransactionToolset, TransactionToolset

from .watching import Watcher, told, watching

pytestmark = pytest.mark.anyio

KINDS = TransactionToolset, SeparateTransactionToolset, NestedTransactionToolset
DELEGATE = call('delegate')
SLOW = call('execute', sql='SELECT pg_sleep(60)::text')
FAIL = [call('execute', sql='SELECT 1/0')] * 2
"""The steps of a run that fails: the second error of a tool in a row ends it."""


def insert(note: str) -> ToolCallPart:
    return call('execute', sql=f"INSERT INTO notes VALUES ('{note}')")


@asynccontextmanager
async def table_of_notes(url: str) -> AsyncGenerator[Watcher]:
    """Make a table to write to, and see that no connection is left afterwards."""
    async with watching(url) as watcher:
        await watcher.connection.execute('CREATE TABLE notes (note TEXT)')
        yield watcher
        await watcher.wait_until_alone()


@contextmanager
def cancelled_when_asleep(watcher: Watcher) -> Generator[anyio.CancelScope]:
    """Cancel the body once another connection is asleep."""

    async def cancel() -> None:
        await watcher.wait_until_asleep()
        scope.cancel()

    with anyio.CancelScope() as scope:
        task = asyncio.create_task(cancel())
        yield scope
        task.cancel()


async def committed(watcher: Watcher) -> list[str]:
    return await watcher.column('SELECT note FROM notes')


def make_agent(toolset: TransactionToolset, steps: Sequence[Step], *of_child: Sequence[Step]) -> Agent[None, str]:
    """Make an agent that delegates to a sub-agent with the same toolset, which follows another script in each call."""
    child = make_child(toolset, *of_child)
    agent = Agent(script(*steps), toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> str:
        try:
            return await child()
        except AgentRunError:
            return 'failed'

    return agent


def make_child(toolset: TransactionToolset, *scripts: Sequence[Step]) -> Callable[[], Any]:
    models = iter([script(*steps) for steps in scripts])
    child = Agent(toolsets=[toolset])

    async def run() -> str:
        return (await child.run('go', model=next(models))).output

    return run


async def test_main_prints_what_is_booked_with_each_kind(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    await transaction.main(transaction.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        'TransactionToolset',
        '  Book a flight, and a hotel with a spa. Booked: flight, hotel',
        '  Book a flight, a hotel, and a cruise. Booked: nothing',
        'SeparateTransactionToolset',
        '  Book a flight, and a hotel with a spa. Booked: flight',
        '  Book a flight, a hotel, and a cruise. Booked: hotel',
        'NestedTransactionToolset',
        '  Book a flight, and a hotel with a spa. Booked: flight',
        '  Book a flight, a hotel, and a cruise. Booked: nothing',
    ]
    async with watching(database) as watcher:
        await watcher.wait_until_alone()
        assert await watcher.column("SELECT to_regclass('bookings')") == [None]


# How a run ends


async def test_run_that_succeeds_commits_at_its_end(database: str) -> None:
    async with table_of_notes(database) as watcher:

        async def look() -> str:
            return f'committed: {await committed(watcher)}'

        read = call('execute', sql='SELECT note FROM notes')
        agent = Agent(script(insert('a'), [read, call('look')]), toolsets=[TransactionToolset(database)])
        agent.tool_plain(look)

        assert (await agent.run('go')).output == '[{"note":"a"}], committed: []'
        assert await committed(watcher) == ['a']


async def test_run_that_fails_rolls_back(database: str) -> None:
    async def break_down() -> str:
        raise ConnectionError

    tools = FunctionToolset[Any]([break_down])
    agent = Agent(toolsets=[TransactionToolset(database), tools])
    async with table_of_notes(database) as watcher:
        with pytest.raises(UnexpectedModelBehavior):
            await agent.run('go', model=script(insert('a'), *FAIL))
        with pytest.raises(ConnectionError):
            await agent.run('go', model=script(insert('a'), call('break_down')))
        with pytest.raises(UsageLimitExceeded):
            await agent.run('go', model=script(insert('a')), usage_limits=UsageLimits(request_limit=1))

        assert await committed(watcher) == []


async def test_run_that_is_cancelled_rolls_back(database: str) -> None:
    agent = Agent(script(insert('a'), [insert('b'), SLOW, insert('c')]), toolsets=[TransactionToolset(database)])
    async with table_of_notes(database) as watcher:
        run = asyncio.create_task(agent.run('go'))
        await watcher.wait_until_asleep()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        with cancelled_when_asleep(watcher) as scope:
            await agent.run('go')

        assert scope.cancelled_caught
        assert await committed(watcher) == []


async def test_run_whose_commit_is_refused_fails(database: str) -> None:
    agent = Agent(script(insert('a'), insert('a')), toolsets=[TransactionToolset(database)])
    async with table_of_notes(database) as watcher:
        await watcher.connection.execute('ALTER TABLE notes ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED')
        with pytest.raises(asyncpg.UniqueViolationError):
            await agent.run('go')

        assert await committed(watcher) == []


@pytest.mark.parametrize('steps', [[], [insert('b')]], ids=['at its end', 'before a statement'])
async def test_run_that_loses_its_connection_fails(database: str, steps: list[Step]) -> None:
    async with table_of_notes(database) as watcher:

        async def disconnect() -> None:
            others = 'FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()'
            await watcher.column(f'SELECT pg_terminate_backend(pid) {others}')
            await watcher.wait_until_alone()

        agent = Agent(script(insert('a'), call('disconnect'), *steps), toolsets=[TransactionToolset(database)])
        agent.tool_plain(disconnect)
        # The last is what asyncpg says between the server's goodbye and the end of the connection.
        lost = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
        with pytest.raises(lost):
            await agent.run('go')

        assert await committed(watcher) == []


async def test_runs_at_once_each_have_a_transaction(database: str) -> None:
    agent = Agent(toolsets=[TransactionToolset(database)])
    names = [str(number) for number in range(10)]
    async with table_of_notes(database) as watcher:
        runs = [agent.run('go', model=script(insert(name), *([] if int(name) % 2 else FAIL))) for name in names]
        await asyncio.gather(*runs, return_exceptions=True)

        assert sorted(await committed(watcher)) == names[1::2]


async def test_toolset_that_is_not_entered_says_so(database: str) -> None:
    with pytest.raises(RuntimeError, match='has no transaction'):
        await TransactionToolset(database).execute('SELECT 1')


# Statements


async def test_statement_that_fails_is_told_and_the_transaction_goes_on(database: str) -> None:
    agent = Agent(script(insert('a'), FAIL[0], insert('b')), toolsets=[TransactionToolset(database)])
    async with table_of_notes(database) as watcher:
        result = await agent.run('go')

        assert told(result.all_messages()) == ['INSERT 0 1', 'division by zero', 'INSERT 0 1']
        assert await committed(watcher) == ['a', 'b']


@pytest.mark.parametrize(
    'sql',
    [
        'COMMIT',
        ';/**/COMMIT',
        'SELECT 1; COMMIT',
        'ANALYZE; COMMIT',
        'COMMIT AND CHAIN',
        'ROLLBACK',
        "PREPARE TRANSACTION 'x'",
        'CALL commit_it()',
        'DO $$ BEGIN COMMIT; END $$',
    ],
)
async def test_statement_that_would_end_the_transaction_is_refused(database: str, sql: str) -> None:
    end = call('execute', sql=sql)
    agent = Agent(toolsets=[TransactionToolset(database)])
    async with table_of_notes(database) as watcher:
        await watcher.connection.execute('CREATE PROCEDURE commit_it() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$')
        with pytest.raises(UnexpectedModelBehavior):
            await agent.run('go', model=script(insert('a'), end, end))
        assert await committed(watcher) == []

        await agent.run('go', model=script(insert('a'), end, insert('b')))
        assert await committed(watcher) == ['a', 'b']


async def test_statements_at_once_all_count(database: str) -> None:
    names = [str(number) for number in range(10)]
    agent = Agent(script([*map(insert, names), FAIL[0]]), toolsets=[TransactionToolset(database)])
    async with table_of_notes(database) as watcher:
        await agent.run('go')

        assert sorted(await committed(watcher)) == names


# Sub-agents

OUTCOMES: dict[type[TransactionToolset], dict[str, list[str]]] = {
    TransactionToolset: {
        'both succeed': ['before', 'child', 'after'],
        'the child fails': ['before', 'child', 'after'],
        'the parent fails': [],
    },
    SeparateTransactionToolset: {
        'both succeed': ['child', 'before', 'after'],
        'the child fails': ['before', 'after'],
        'the parent fails': ['child'],
    },
    NestedTransactionToolset: {
        'both succeed': ['before', 'child', 'after'],
        'the child fails': ['before', 'after'],
        'the parent fails': [],
    },
}
STEPS: dict[str, tuple[list[Step], list[Step]]] = {
    'both succeed': ([insert('child')], []),
    'the child fails': ([insert('child'), *FAIL], []),
    'the parent fails': ([insert('child')], [*FAIL]),
}


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('what', STEPS)
async def test_sub_agent_commits_what_its_kind_says(database: str, kind: type[TransactionToolset], what: str) -> None:
    of_child, last = STEPS[what]
    agent = make_agent(kind(database), [insert('before'), DELEGATE, insert('after'), *last], of_child)
    async with table_of_notes(database) as watcher:
        with suppress(AgentRunError):
            await agent.run('go')

        assert sorted(await committed(watcher)) == sorted(OUTCOMES[kind][what])


@pytest.mark.parametrize(
    ('kind', 'visible'),
    [(TransactionToolset, 'before'), (SeparateTransactionToolset, ''), (NestedTransactionToolset, 'before')],
)
async def test_sub_agent_sees_what_its_transaction_does(
    database: str, kind: type[TransactionToolset], visible: str
) -> None:
    seen = call('execute', sql="SELECT coalesce(string_agg(note, ','), '') AS seen FROM notes")
    agent = make_agent(kind(database), [insert('before'), DELEGATE], [seen])
    async with table_of_notes(database):
        assert (await agent.run('go')).output == f'[{{"seen":"{visible}"}}]'


@pytest.mark.parametrize('kind', KINDS)
async def test_sub_agent_whose_failure_is_let_through_fails_the_run(
    database: str, kind: type[TransactionToolset]
) -> None:
    toolset = kind(database)
    delegate = make_child(toolset, [insert('child'), *FAIL])
    tools = FunctionToolset[Any]()
    tools.add_function(delegate, name='delegate')
    agent = Agent(script(insert('before'), DELEGATE), toolsets=[toolset, tools])
    async with table_of_notes(database) as watcher:
        with pytest.raises(UnexpectedModelBehavior):
            await agent.run('go')

        assert await committed(watcher) == []


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('way', ['a task', 'a cancel scope'])
async def test_sub_agent_that_is_cancelled_leaves_the_transaction_usable(
    database: str, kind: type[TransactionToolset], way: str
) -> None:
    toolset = kind(database)
    child = make_child(toolset, [insert('child'), SLOW])
    agent = Agent(script(insert('before'), DELEGATE, insert('after')), toolsets=[toolset])

    async with table_of_notes(database) as watcher:

        @agent.tool_plain
        async def delegate() -> None:
            if way == 'a task':
                task = asyncio.create_task(child())
                await watcher.wait_until_asleep()
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            else:
                with cancelled_when_asleep(watcher):
                    await child()

        await agent.run('go')

        shared = ['child'] if kind is TransactionToolset else []
        assert await committed(watcher) == ['before', *shared, 'after']


async def test_sub_agent_that_exceeds_its_usage_limit_is_undone(database: str) -> None:
    toolset = NestedTransactionToolset(database)
    child = Agent(script(insert('child')), toolsets=[toolset])
    agent = Agent(script(insert('before'), DELEGATE, insert('after')), toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> None:
        with suppress(UsageLimitExceeded):
            await child.run('go', usage_limits=UsageLimits(request_limit=1))

    async with table_of_notes(database) as watcher:
        await agent.run('go')

        assert await committed(watcher) == ['before', 'after']


@pytest.mark.parametrize('kind', KINDS)
async def test_sub_agents_at_once_keep_apart(database: str, kind: type[TransactionToolset]) -> None:
    steps = [[insert('a'), insert('b')], [insert('undone'), *FAIL], [insert('c'), insert('d')]]
    at_once = [insert('e'), call('delegate'), insert('f'), call('delegate'), insert('g'), call('delegate')]
    agent = make_agent(kind(database), [at_once, insert('h')], *steps)
    async with table_of_notes(database) as watcher:
        await agent.run('go')

        shared = ['undone'] if kind is TransactionToolset else []
        assert sorted(await committed(watcher)) == [*'abcdefgh', *shared]


@pytest.mark.parametrize(
    ('of_child', 'of_grandchild', 'expected'),
    [
        ([], [], ['parent', 'child', 'grandchild']),
        ([], FAIL, ['parent', 'child']),
        (FAIL, [], ['parent']),
    ],
)
@pytest.mark.parametrize('is_logged', [False, True])
async def test_savepoints_in_savepoints_are_undone_each_on_its_own(
    database: str, of_child: list[Step], of_grandchild: list[Step], expected: list[str], is_logged: bool
) -> None:
    transactions = NestedTransactionToolset(database)
    toolset = Log(transactions) if is_logged else transactions
    grandchild = Agent(script(insert('grandchild'), *of_grandchild), toolsets=[toolset])
    child = Agent(script(insert('child'), DELEGATE, *of_child), toolsets=[toolset])
    agent = Agent(script(insert('parent'), DELEGATE), toolsets=[toolset])

    @child.tool_plain(name='delegate')
    async def delegate_further() -> None:
        with suppress(AgentRunError):
            await grandchild.run('go')

    @agent.tool_plain
    async def delegate() -> None:
        with suppress(AgentRunError):
            await child.run('go')

    async with table_of_notes(database) as watcher:
        await agent.run('go')

        assert await committed(watcher) == expected


@dataclass
class Log(WrapperToolset[Any]):
    """A wrapper with state of its own, which a sub-agent gets a fresh one of, around what the toolset inside gives it."""

    stateful: bool = True
    calls: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), calls=[])


async def test_run_waits_for_savepoints_in_the_background(database: str) -> None:
    toolset = NestedTransactionToolset(database)
    child = make_child(toolset, [insert('child'), call('execute', sql='SELECT pg_sleep(0.3)::text'), insert('late')])
    agent = Agent(script(insert('before'), DELEGATE), toolsets=[toolset])
    tasks: list[asyncio.Task[str]] = []
    async with table_of_notes(database) as watcher:

        @agent.tool_plain
        async def delegate() -> None:
            tasks.append(asyncio.create_task(child()))
            await watcher.wait_until_asleep()

        await agent.run('go')

        assert await committed(watcher) == ['before', 'child', 'late']
        await tasks[0]


async def test_run_that_is_cancelled_waits_for_savepoints_in_the_background(database: str) -> None:
    toolset = NestedTransactionToolset(database)
    child = make_child(toolset, [insert('child'), call('execute', sql='SELECT pg_sleep(0.5)::text')])
    agent = Agent(script(insert('before'), DELEGATE), toolsets=[toolset])
    tasks: list[asyncio.Task[str]] = []

    @agent.tool_plain
    async def delegate() -> None:
        tasks.append(asyncio.create_task(child()))
        await asyncio.sleep(60)

    async with table_of_notes(database) as watcher:
        with cancelled_when_asleep(watcher):
            await agent.run('go')

        assert await committed(watcher) == []
        await asyncio.wait(tasks)


async def test_row_that_the_parent_has_locked_is_not_waited_for_forever(database: str) -> None:
    by_parent, by_child = (call('execute', sql=f"UPDATE notes SET note = '{name}'") for name in ('parent', 'child'))
    toolset = SeparateTransactionToolset(database, lock_timeout='100ms')
    agent = make_agent(toolset, [by_parent, DELEGATE], [by_child, by_child])
    async with table_of_notes(database) as watcher:
        await watcher.connection.execute("INSERT INTO notes VALUES ('a')")
        with anyio.fail_after(300):
            result = await agent.run('go')

        assert result.output == 'failed'
        assert await committed(watcher) == ['parent']
