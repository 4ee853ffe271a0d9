"""Toolsets that say what sub-agents get in their place, and agents that start others in a tool call, in every way there is.

>>> journal = Journal()
>>> notes = Notes('t', journal, answer=fresh)
>>> parent = parent_of(calling(['t'], toolsets=[notes]), notes, way='task group')
>>> asyncio.run(run_as('parent', parent))
'done'
>>> called(journal, 'child') is called(journal, 'parent')
False
>>> entries_and_exits(journal, called(journal, 'child'))
[('enter', 'child'), ('exit', 'child')]
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext
from pydantic_ai.agent import WrapperAgent
from typing_extensions import Self

from .toolsets import METHODS, RUN, Event, HandWritten, Journal, Session, run_as, scripted

Answer = Callable[[Any, RunContext[Any]], Any]
"""What a live toolset answers to a tool call that delegates."""


class Notes(Session):
    """A session that says what a sub-agent gets in its place, and writes down that it was asked. By default it says to share it."""

    shared_attributes = frozenset({'fail'})

    def __init__(
        self,
        name: str,
        journal: Journal,
        *,
        fail: dict[str, BaseException] | None = None,
        answer: Answer | None = None,
    ):
        super().__init__(name, journal, fail=fail)
        self.answer = answer

    def copy(self) -> Self:
        copy = super().copy()
        copy.answer = self.answer
        return copy

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        answer = self if self.answer is None else self.answer(self, ctx)
        self.journal.note('ask', self, ctx, answer)
        return answer


class Ledger(Notes):
    """The same, but not stateful: all runs have the one instance, and it only says what sub-agents get."""

    stateful = False

    def copy(self) -> Self:
        return self


class Passing(HandWritten):
    """A wrapper that's written straight on `AbstractToolset`, and passes on `for_sub_agent()` too."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(self.inner.for_sub_agent(ctx))


def fresh(live: Any, ctx: RunContext[Any]) -> Any:
    """Answer with a new toolset."""
    return type(live)(live.name, live.journal, answer=live.answer)


def forked(live: Any, ctx: RunContext[Any]) -> Any:
    """Answer with a new toolset that has a snapshot of the values."""
    new = fresh(live, ctx)
    new.values = list(live.values)
    return new


def never(live: Any, ctx: RunContext[Any]) -> Any:
    """Fail when asked."""
    raise AssertionError(f'{live.name} was asked what a sub-agent gets in its place')


# Ways to run another agent in a tool


@contextmanager
def event_loop() -> Any:
    """Give this thread an event loop, for `run_sync`."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


Start = Callable[[str], Awaitable[Any]]
"""Runs the other agent in the given one of `METHODS`."""


async def _in_gather(start: Start) -> Any:
    (output,) = await asyncio.gather(start('run'))
    return output


async def _in_task(start: Start) -> Any:
    return await asyncio.ensure_future(start('run'))


async def _in_task_group(start: Start) -> Any:
    outputs: list[Any] = []

    async def one() -> None:
        outputs.append(await start('run'))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
    return outputs[0]


async def _in_timeout(start: Start) -> Any:
    return await asyncio.wait_for(start('run'), timeout=60)


AWAITED: dict[str, Callable[[Start], Awaitable[Any]]] = {
    **{method: lambda start, method=method: start(method) for method in METHODS},
    'gather': _in_gather,
    'task': _in_task,
    'task group': _in_task_group,
    'timeout': _in_timeout,
}
"""Ways in which an async tool can run another agent."""


def _in_thread_of_the_tool(agent: Any, run: str, options: dict[str, Any]) -> Any:
    token = RUN.set(run)
    try:
        with event_loop():
            return asyncio.run(agent.run('go', **options)).output
    finally:
        RUN.reset(token)


def _in_thread_of_its_own(agent: Any, run: str, options: dict[str, Any]) -> Any:
    outcomes: list[Any] = []

    def work() -> None:
        try:
            outcomes.append(context.run(_in_thread_of_the_tool, agent, run, options))
        except BaseException as error:  # noqa: BLE001 (it's raised by the caller)
            outcomes.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(outcomes[0], BaseException):
        raise outcomes[0]
    return outcomes[0]


SYNC: dict[str, Callable[[Any, str, dict[str, Any]], Any]] = {
    'run_sync in a sync tool': _in_thread_of_the_tool,
    'run_sync in a thread that a sync tool starts': _in_thread_of_its_own,
}
"""Ways in which a tool that isn't async can."""

WAYS = [*AWAITED, *SYNC, 'WrapperAgent']
"""The ways to run another agent in a tool call."""

Options = Callable[[RunContext[Any]], dict[str, Any]]


def delegating(
    child: Any, way: str = 'run', *, name: str = 'delegate', run: str = 'child', options: Options | None = None
) -> FunctionToolset[Any]:
    """Make a toolset with a tool that runs another agent.

    Args:
        child: The other agent, or a function that picks it.
        way: One of `WAYS`.
        name: The name of the tool.
        run: The name under which the other agent runs.
        options: What to give to the run, by the context of the tool call.
    """

    def pick(ctx: RunContext[Any]) -> tuple[Any, dict[str, Any]]:
        agent: Any = child if isinstance(child, Agent) else child(ctx)  # pyright: ignore[reportUnknownVariableType]
        return agent, {} if options is None else options(ctx)

    async def delegate(ctx: RunContext[Any], value: str) -> Any:
        agent, chosen = pick(ctx)
        if way == 'WrapperAgent':
            return await run_as(run, WrapperAgent[Any, Any](agent), **chosen)  # pyright: ignore[reportArgumentType]
        return await AWAITED[way](lambda method: run_as(run, agent, method, **chosen))

    def delegate_sync(ctx: RunContext[Any], value: str) -> Any:
        agent, chosen = pick(ctx)
        return SYNC[way](agent, run, chosen)

    toolset = FunctionToolset[Any](max_retries=0)
    toolset.add_function(delegate_sync if way in SYNC else delegate, name=name)
    return toolset


def calling(
    *steps: Sequence[str], toolsets: Iterable[Any] = (), name: str = 'child', **options: Any
) -> Agent[Any, Any]:
    """Make an agent that calls the tools of each step in turn."""
    return Agent(scripted(*steps), toolsets=list(toolsets), name=name, **options)


def parent_of(child: Any, *toolsets: Any, way: str = 'run', before: str | None = 't') -> Agent[Any, Any]:
    """Make an agent that calls the tool `before`, runs the other agent, and calls that tool again."""
    own = [] if before is None else [[before]]
    return calling(*own, ['delegate'], *own, toolsets=[*toolsets, delegating(child, way)], name='parent')


# What happened


def calls(journal: Journal, run: str) -> list[Any]:
    """Return the toolsets that were called in a run, each once and in order."""
    found: list[Any] = []
    for event in journal.of('call'):
        if event.run == run and not any(event.toolset is toolset for toolset in found):
            found.append(event.toolset)
    return found


def called(journal: Journal, run: str) -> Any:
    """Return the one toolset that was called in a run."""
    (toolset,) = calls(journal, run)
    return toolset


def happened(journal: Journal, toolset: Any, *kinds: str) -> list[Event]:
    """Return the events of one toolset."""
    return [event for event in journal.events if event.toolset is toolset and (not kinds or event.kind in kinds)]


def entries_and_exits(journal: Journal, toolset: Any) -> list[tuple[str, str]]:
    """Return the entries and exits of one toolset in order, with the runs that did them."""
    return [(event.kind, event.run) for event in happened(journal, toolset, 'enter', 'exit')]
