"""Sessions: conversations that survive their process, in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic_ai import Agent, DeferredToolRequests, ToolApproved, ToolDenied, UserError
from pydantic_ai.messages import ToolCallPart, UserContent
from pydantic_ai.run import AgentRunResult

from .context import AgentContext, ResumableState
from .hooks import Maybe, exit_as_error, resolve
from .toolset import Toolset

T = TypeVar('T')
Prompt = str | list[UserContent] | None
Ask = Callable[[ToolCallPart, 'dict[str, Any]'], Maybe['bool | ToolApproved | ToolDenied | None']]
"""Asks for the approval of a call, with the tool's metadata; `None` if there is no answer yet."""


class StaleSessionError(Exception):
    """A session that someone else has written since it was read."""


class SessionBusyError(Exception):
    """A session that is in the middle of a turn."""


class SessionStore(AbstractAsyncContextManager['SessionStore']):
    """A file of sessions: `async with SessionStore(path) as store`.

    Each write is one transaction, and is on the disk when it has returned. The file is opened, read and written in a
    thread of the store's own: no event loop waits for a lock or a disk, and any thread and loop can use the store.

    Args:
        path: The file, which is made if it isn't there.
        state_type: What the states are, if a session keeps more than an `AgentContext` has.
    """

    def __init__(self, path: str | Path, state_type: type[ResumableState] = ResumableState):
        self.path = path
        self.state_type = state_type
        self._thread: ThreadPoolExecutor | None = None
        self._turns: dict[str, object] = {}

    async def __aenter__(self) -> Self:
        """Open the file."""
        if self._thread:
            raise UserError(f'The store `{self.path}` is open already. Make another `SessionStore` for the same file.')
        self._thread = ThreadPoolExecutor(1, 'sessions')
        try:
            await self._within(self._open)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *args: object) -> None:
        """Close the file, after all that was begun."""
        await asyncio.wrap_future(self._close())

    async def load(self, name: str) -> tuple[int, ResumableState]:
        """Return the revision and the state of a session: 0, and an empty one, if there is none of that name.

        Raises:
            UserError: A newer version wrote the state, or it isn't one.
        """
        row = await self._within(lambda: self._row(name))
        if not row:
            return 0, self.state_type()
        try:
            return row[0], self.state_type.from_json(row[1])
        except UserError as error:
            raise UserError(f'Session {name!r} in `{self.path}` is not opened. {error}') from error

    async def save(self, name: str, state: ResumableState, revision: int) -> int:
        """Write the state of a session.

        Args:
            name: The session.
            state: What takes the place of the state that is there.
            revision: That of the state which this one follows.

        Returns:
            The new revision.

        Raises:
            StaleSessionError: The session has another revision by now. Nothing is written.
        """
        data = state.to_json()
        return await self._within(lambda: self._write(name, data, revision))

    async def save_session(self, session: Session) -> None:
        """Write a session as it is now. Of several writes at once, each follows the one before.

        Raises:
            StaleSessionError: Someone else has stored it since it was opened. Nothing is written.
        """
        data = session.context.export_state(self.state_type).to_json()

        # The thread sets the revision, which is right then even if the caller was cancelled meanwhile.
        def write() -> None:
            session.revision = self._write(session.name, data, session.revision)

        await self._within(write)

    @asynccontextmanager
    async def turn(self, session: Session) -> AsyncIterator[None]:
        """Keep other turns away from a session.

        Raises:
            SessionBusyError: A turn of a session of that name goes on in this store.
            StaleSessionError: Someone else has stored the session since it was opened.
        """
        name, mark = session.name, object()
        if self._turns.setdefault(name, mark) is not mark:
            raise SessionBusyError(f'Session {name!r} is in the middle of a turn. Wait until it has ended.')
        try:
            await self._within(lambda: self._check(name, session.revision))
            yield
        finally:
            del self._turns[name]

    async def _within(self, work: Callable[[], T]) -> T:
        """Do some work in the thread. If the caller is cancelled, the work is done or isn't, but never a part of it."""
        if not self._thread:
            raise UserError(f'The store `{self.path}` is not open. Use it in `async with SessionStore(...) as store:`.')
        return await asyncio.wrap_future(self._thread.submit(work))

    def _close(self) -> Future[None]:
        """Have the thread end when it has done its work, and return what says that it has."""
        thread, self._thread = self._thread, None
        if not thread:
            raise UserError(f'The store `{self.path}` is not open.')
        # A cancellation of who waits takes back what has not begun. So nobody waits for the closing, but for what follows it.
        thread.submit(self._end)
        ended = thread.submit(lambda: None)
        thread.shutdown(wait=False)
        return ended

    # What follows runs in the thread.

    def _open(self) -> None:
        self._db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        self._db.execute('PRAGMA journal_mode = WAL')
        self._db.execute('PRAGMA synchronous = FULL')  # `NORMAL` may lose the last write when the power fails.
        self._db.execute(
            'CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, revision INTEGER NOT NULL, state TEXT NOT NULL)'
        )

    def _end(self) -> None:
        self._db.close()

    def _row(self, name: str) -> tuple[int, str] | None:
        return self._db.execute('SELECT revision, state FROM sessions WHERE name = ?', [name]).fetchone()

    def _check(self, name: str, revision: int) -> None:
        row = self._db.execute('SELECT revision FROM sessions WHERE name = ?', [name]).fetchone()
        if (current := row[0] if row else 0) != revision:
            raise StaleSessionError(
                f'Session {name!r} was written by someone else: it is at revision {current}, and revision {revision} '
                'was read. Open it again, and repeat what you did.'
            )

    def _write(self, name: str, data: str, revision: int) -> int:
        with self._db:  # commits, or rolls back what raises
            self._db.execute('BEGIN IMMEDIATE')
            self._check(name, revision)
            self._db.execute('REPLACE INTO sessions VALUES (?, ?, ?)', [name, revision + 1, data])
        return revision + 1


@dataclass
class Session:
    """A conversation in a store. What `run()` has returned, and each answer to a question, is stored."""

    store: SessionStore
    name: str
    context: AgentContext = field(default_factory=AgentContext)
    revision: int = 0

    @classmethod
    async def open(cls, store: SessionStore, name: str, context: AgentContext | None = None) -> Self:
        """Open a session, or begin one with the context as it is.

        Args:
            store: Where it is.
            name: What it is called there.
            context: What takes over the state. What this says needs an approval does, whatever was stored.

        Raises:
            UserError: The state can't be read, or the context lacks fields that the store keeps.
        """
        session = cls(store, name, context or AgentContext())
        session.revision, state = await store.load(name)
        if session.revision:
            session.context.with_state(state)
        else:
            session.context.export_state(store.state_type)  # which refuses what could not be stored later
        return session

    async def save(self) -> None:
        """Store the session as it is.

        Raises:
            StaleSessionError: Someone else has stored it since it was opened.
        """
        await self.store.save_session(self)

    async def run(self, agent: Agent[AgentContext, Any], prompt: Prompt, ask: Ask, **options: Any) -> Any:
        """Run an agent for one turn, in as many runs as there are questions.

        Whatever a run has done is stored before anybody is asked. So whoever opens the session after this process was
        killed finds it, with the question; `run(agent, None, ask)` then goes on.

        Args:
            agent: An agent whose output may be `DeferredToolRequests`.
            prompt: What the user says; `None` to go on with what is pending.
            ask: Asks for an approval.
            options: Further arguments of `agent.run()`, such as `event_stream_handler` to see what happens while it does.

        Returns:
            The output, which is `DeferredToolRequests` if something stays without an answer. `context.answers` takes the
            results of calls that are executed elsewhere.

        Raises:
            SessionBusyError: A turn of the session goes on.
            StaleSessionError: Someone else has stored the session since it was opened.
        """
        # It has no tools, and refuses those that would not ask where the agent has no `Toolset`.
        options['toolsets'] = [*(options.get('toolsets') or ()), Toolset[AgentContext]()]
        async with self.store.turn(self):
            while (left := await self._unanswered(ask)) is None:
                before = self._kept()
                with exit_as_error():
                    result = await agent.run(prompt, **self._start(), **options)
                await self._record(result, before)
                if not self.context.pending:
                    return result.output
                prompt = None
            return left

    async def _unanswered(self, ask: Ask) -> DeferredToolRequests | None:
        """Ask for what is pending, and return what stays without an answer, if anything does."""
        left = self.context.unanswered()
        for call in left.approvals:
            answer = await resolve(ask(call, left.metadata.get(call.tool_call_id, {})))
            if not isinstance(answer, bool | ToolApproved | ToolDenied | None):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UserError(
                    f'The answer for {call.tool_name!r} is {answer!r}, and counts for nothing. Return `True`, `False`, '
                    '`ToolApproved(...)`, `ToolDenied(...)`, or `None` to leave the question open.'
                )
            if answer is not None:
                self.context.answers.approvals[call.tool_call_id] = answer
                await self.save()
        left = self.context.unanswered()
        return left if left.approvals or left.calls else None

    def _start(self) -> dict[str, Any]:
        """Return what a run starts from."""
        context = self.context
        results = context.answers if context.pending else None
        return {'deps': context, 'message_history': context.message_history, 'deferred_tool_results': results}

    def _kept(self) -> dict[str, Any]:
        """Return what a run changes of the context."""
        context = self.context
        states = {key: dict(tools) for key, tools in context.toolset_states.items()}
        kept = {name: getattr(context, name) for name in ('message_history', 'pending', 'answers')}
        return kept | {'toolset_states': states}

    async def _record(self, result: AgentRunResult[Any], before: dict[str, Any]) -> None:
        """Store what a run has done. If that can't be stored, the next turn goes on from before it, as after a run that failed."""
        self.context.record(result)
        try:
            await self.save()
        except UserError:
            vars(self.context).update(before)
            raise
