"""A transaction: a run's changes are committed if it succeeds, and a sub-agent shares, separates or nests its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
import asyncpg
from pydantic_ai import Agent, AgentRunError, FunctionToolset, ModelRetry, RunContext, ToolCallPart
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, database, run_main, scripts


# --8<-- [start:toolset]
class TransactionToolset(FunctionToolset[Any]):
    """Runs SQL in a transaction, which is committed if the run succeeds, and rolled back otherwise.

    A sub-agent takes part in it: it's handed this very toolset, as it would be by default.
    """

    stateful = True

    def __init__(self, dsn: str, *, lock_timeout: str = '10s') -> None:
        """Make a toolset that connects when it's entered.

        Args:
            dsn: The URL of the database.
            lock_timeout: How long a statement waits for a row that another transaction has locked, with a unit.
        """
        super().__init__([self.execute])
        self.dsn = dsn
        self.lock_timeout = lock_timeout
        # A connection does one thing at a time, and a model can call several tools at once.
        self.lock = asyncio.Lock()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._transaction: AbstractAsyncContextManager[asyncpg.Connection[asyncpg.Record]] | None = None

    def copy(self) -> Self:
        """Make a toolset with a connection of its own."""
        return type(self)(self.dsn, lock_timeout=self.lock_timeout)

    def for_sub_agent(self, ctx: RunContext[Any]) -> TransactionToolset:
        """Share the transaction."""
        return self

    @property
    def connection(self) -> asyncpg.Connection[asyncpg.Record]:
        """The connection in the transaction.

        Raises:
            RuntimeError: The toolset isn't entered. Runs enter their own copy of it.
        """
        if self._connection is None:
            raise RuntimeError(
                f'{self.label} has no transaction. Enter it with `async with`, as a run does with its copy.'
            )
        return self._connection

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[asyncpg.Connection[asyncpg.Record]]:
        """Open a connection and a transaction for as long as the run takes."""
        connection = await asyncpg.connect(self.dsn, server_settings={'lock_timeout': self.lock_timeout})
        try:
            async with _undo_on_error(connection):
                yield connection
        finally:
            await connection.close()

    async def __aenter__(self) -> Self:
        """Begin the transaction."""
        self._transaction = self.begin()
        self._connection = await self._transaction.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> None:  # noqa: PYI036 (typed as in the base)
        """Commit the transaction if there is no exception, and roll it back otherwise."""
        await _finish(self._end(*args))

    async def _end(self, *args: Any) -> None:
        assert self._transaction is not None
        async with self.lock:
            self._connection = None
            await self._transaction.__aexit__(*args)

    async def execute(self, sql: str) -> list[dict[str, Any]] | str | None:
        """Run a SQL statement that reads or changes rows. Return the rows that it gives, or else what it has done.

        Args:
            sql: A single SELECT, INSERT, UPDATE, DELETE, MERGE or VALUES.
        """
        async with self.lock:
            try:
                # After an error, PostgreSQL accepts nothing more until it has gone back to a savepoint.
                async with _undo_on_error(self.connection):
                    statement = await self.connection.prepare(sql)
                    # What can't be explained is refused, such as a `COMMIT` before the run has succeeded.
                    await statement.explain()
                    rows = await statement.fetch()
                    return [dict(row) for row in rows] or statement.get_statusmsg()
            except asyncpg.PostgresError as error:
                raise ModelRetry(str(error)) from error


class SeparateTransactionToolset(TransactionToolset):
    """A transaction beside which a sub-agent has one of its own, on a connection of its own."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> TransactionToolset:
        """Connect again."""
        return self.copy()


class NestedTransactionToolset(TransactionToolset):
    """A transaction in which a sub-agent has a savepoint: if it fails, what it has done is undone, and nothing else."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> TransactionToolset:
        """Set a savepoint in this transaction, or in this savepoint."""
        return SavepointToolset(self)


class SavepointToolset(NestedTransactionToolset):
    """The part of a transaction that a sub-agent's run has to itself."""

    def __init__(self, outer: NestedTransactionToolset) -> None:
        """Make a toolset that sets its savepoint when it's entered.

        Args:
            outer: The transaction or savepoint of the parent's run.
        """
        super().__init__(outer.dsn, lock_timeout=outer.lock_timeout)
        self.outer = outer

    def copy(self) -> Self:
        """Make a toolset with a savepoint of its own, beside this one."""
        return type(self)(self.outer)

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[asyncpg.Connection[asyncpg.Record]]:
        """Set a savepoint. Until it's gone, the parent's tool calls and other sub-agents wait.

        Going back to a savepoint undoes all that came after it, whoever did it.
        """
        async with self.outer.lock, _undo_on_error(self.outer.connection):
            yield self.outer.connection


@asynccontextmanager
async def _undo_on_error(connection: asyncpg.Connection[asyncpg.Record]) -> AsyncGenerator[None]:
    """Do as `connection.transaction()` does, but let nothing interrupt the beginning and the end.

    That would be an error of the whole transaction, whose `COMMIT` PostgreSQL then takes for a `ROLLBACK`.
    """
    transaction = connection.transaction()
    await _finish(transaction.start())
    try:
        yield
    except BaseException:
        await _finish(transaction.rollback())
        raise
    await _finish(transaction.commit())


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Do all of the work, however often the run is cancelled meanwhile, and only then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled:
        raise cancelled from task.exception()
    task.result()


# --8<-- [end:toolset]


# --8<-- [start:agents]
INSTRUCTIONS = 'For each thing to book, insert a row into the table `bookings (what)`.'


def make_agent(bookings: TransactionToolset, model: Model | str) -> Agent[None, str]:
    """Make an agent that books trips, and leaves the hotels to another one."""
    hotels = Agent(model, name='hotels', toolsets=[bookings], instructions=INSTRUCTIONS)
    trips = Agent(model, name='trips', toolsets=[bookings], instructions=INSTRUCTIONS)

    @trips.tool
    async def book_hotel(ctx: RunContext, wish: str) -> str:
        """Have a hotel booked."""
        try:
            result = await hotels.run(wish, usage=ctx.usage)
        except AgentRunError as error:
            return f'The hotel could not be booked: {error}'
        return result.output

    return trips


# --8<-- [end:agents]


def book(what: str) -> ToolCallPart:
    """Make a call that books something."""
    return call('execute', sql=f"INSERT INTO bookings VALUES ('{what}')")


# A run fails when the same tool fails twice in a row.
HOTEL_FAILS = 'Book a flight, and a hotel with a spa.'
TRIP_FAILS = 'Book a flight, a hotel, and a cruise.'
SCRIPT = scripts(
    {
        HOTEL_FAILS: [book('flight'), call('book_hotel', wish='A hotel with a spa'), 'There is no spa.'],
        'A hotel with a spa': [book('hotel'), book('spa'), book('spa')],
        TRIP_FAILS: [book('flight'), call('book_hotel', wish='A hotel'), book('cruise'), book('cruise')],
        'A hotel': [book('hotel')],
    }
)


async def main(model: Model | str) -> None:
    """Let the sub-agent fail, and then the agent, with each kind of transaction."""
    with database() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE bookings (what TEXT CHECK (what IN ('flight', 'hotel')))")
        try:
            for kind in (TransactionToolset, SeparateTransactionToolset, NestedTransactionToolset):
                agent = make_agent(kind(url), model)
                print(kind.__name__)
                for prompt in (HOTEL_FAILS, TRIP_FAILS):
                    with suppress(AgentRunError):
                        await agent.run(prompt)
                    booked = await connection.fetch('DELETE FROM bookings RETURNING what')
                    print(f'  {prompt} Booked:', ', '.join(row['what'] for row in booked) or 'nothing')
        finally:
            await connection.execute('DROP TABLE bookings')
            await connection.close()


if __name__ == '__main__':
    run_main(main, SCRIPT)
