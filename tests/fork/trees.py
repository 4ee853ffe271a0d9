"""What tests with random trees of toolsets have in common: faults, wrappers with state, and what is true of each run.

The toolsets write down what happens to them, under the name of the run that it happens in. What these notes must be like
follows from the contract alone: each toolset that was entered is exited once and in reverse order (B5, B8, B14), and exits
got the right exception (B5).

>>> journal = Faulty(plans={'one': Plan(faults=(('call', 1),))})
>>> agent = Agent(scripted(['a']), toolsets=[Audit(Session('a', journal), 'b', journal)])
>>> asyncio.run(run_as('one', agent))
Traceback (most recent call last):
tests.fork.toolsets.Boom: ('one', 'call', 1)
>>> journal.lifecycle
['+a', '+b', '-b', '-a']
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from hypothesis import strategies as st
from pydantic_ai import (
    AbstractToolset,
    Agent,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolsetTool,
    UsageLimits,
    WrapperToolset,
)
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from typing_extensions import Self

from .line import IS_1, stream_events
from .toolsets import RUN, SUCCESS, Boom, Event, HandWrittenBase, Journal

# What a tree is: plain data, which hypothesis draws and prints


@dataclass(frozen=True)
class Wrap:
    """A wrapper."""

    kind: str
    inner: Any


@dataclass(frozen=True)
class Combine:
    """A combination."""

    inner: tuple[Any, ...]


def wrapped(kinds: Sequence[str], inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw wrappers of these kinds, and combinations."""
    return st.builds(Wrap, st.sampled_from(kinds), inner) | st.builds(Combine, st.lists(inner, max_size=3).map(tuple))


# What happens to it


@dataclass(frozen=True)
class Plan:
    """What a run does, and what fails in it."""

    method: str = 'run'
    steps: tuple[tuple[int, ...], ...] = ()
    """For each step the tools that the model calls, as numbers among those it is offered."""
    pauses: tuple[int, ...] = (0,)
    """How often each await lets others run."""
    faults: tuple[tuple[str, int], ...] = ()
    """What raises: the second call of its kind, for example."""
    cancel_at: int | None = None
    """The await at which the run is cancelled, among those of the toolsets and the model."""
    cancel_after: int | None = None
    """How often the event loop goes round until the run is cancelled, wherever it is then."""
    request_limit: int | None = None
    leave_at: int | None = None
    """The node at which the body of `iter()` is left."""


@dataclass
class Faulty(Journal):
    """A journal in which the things that it is told of fail as planned."""

    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict[str, 'asyncio.Task[Any]'])
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict[str, Counter[str]](Counter))

    def fail_if_planned(self, kind: str, toolset: Any) -> None:
        plan, counts = self.plans[RUN.get()], self.counts[RUN.get()]
        counts[kind] += 1
        if (kind, counts[kind]) in plan.faults:
            error = Boom(RUN.get(), kind, counts[kind])
            self.note('fault', toolset, kind, error)
            raise error

    def instant(self, kind: str, toolset: Any) -> None:
        self.fail_if_planned(kind, toolset)

    async def moment(self, kind: str, toolset: Any) -> None:
        plan, counts = self.plans[RUN.get()], self.counts[RUN.get()]
        counts['moment'] += 1
        pauses = plan.pauses[counts['moment'] % len(plan.pauses)]
        if counts['moment'] == plan.cancel_at and plan.method != 'run_stream_events':
            self.cancel()
            pauses += 1
        try:
            for _ in range(pauses):
                await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self.note('fault', toolset, kind, error)
            raise
        self.fail_if_planned(kind, toolset)

    def cancel(self) -> None:
        """Cancel the run that the caller is in, if it's still under way."""
        task = self.tasks[RUN.get()]
        if not task.done():
            self.note('cancel', None)
            task.cancel()


def count_faults(journal: Journal) -> int:
    """Count what was planned to fail and did, and the cancellations."""
    raised = {event.got[1] for event in journal.of('fault')}
    return len(journal.of('cancel')) + sum(isinstance(error, Boom) for error in raised)


# Wrappers with state of their own. They have `name`, `journal`, `original` and `values` as `Server` and `Session` do


class WithState(AbstractToolset[Any]):
    """What wrappers with state of their own have in common."""

    stateful = True
    name: str
    journal: Journal
    copy_of: Any = None
    template_of: Any = None

    @property
    def original(self) -> Any:
        return self.copy_of or self.template_of or self

    @property
    def inside(self) -> AbstractToolset[Any]:
        raise NotImplementedError

    def remember(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self.values: list[str] = []

    def __copy__(self) -> Self:
        """A run has one copied that has what it works with inside already."""
        template = object.__new__(type(self))
        vars(template).update(vars(self), template_of=self.template_of or self)
        return template

    def copy(self) -> Self:
        self.journal.instant('copy', self)
        return self.copy_around(self.inside.copy())

    def copy_around(self, inside: AbstractToolset[Any]) -> Self:
        copy = type(self)(inside, self.name, self.journal)  # pyright: ignore[reportCallIssue]
        copy.copy_of = self.original
        self.journal.note('copy', self.template_of or self, copy)
        return copy

    async def __aenter__(self) -> Self:
        await self.journal.moment('enter', self)
        await self.inside.__aenter__()
        self.journal.note('enter', self)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.journal.note('exit', self, *args)
        try:
            await self.journal.moment('exit', self)
        except BaseException as error:
            mine = (type(error), error, error.__traceback__)
            await self.inside.__aexit__(*(mine if args == SUCCESS else args))
            raise
        return await self.inside.__aexit__(*args)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self.journal.moment('get_tools', self)
        self.journal.note('get_tools', self)
        return await self.inside.get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        await self.journal.moment('call', self)
        self.journal.note('call', self)
        self.values.append(tool_args['value'])
        return await self.inside.call_tool(name, tool_args, ctx, tool)


class Audit(WithState, WrapperToolset[Any]):
    """A wrapper with state of its own that derives from `WrapperToolset`."""

    def __init__(self, wrapped: AbstractToolset[Any], name: str, journal: Journal):
        super().__init__(wrapped)
        self.remember(name, journal)

    @property
    def inside(self) -> AbstractToolset[Any]:
        return self.wrapped


class Straight(WithState, HandWrittenBase):
    """One that's written straight on `AbstractToolset`."""

    def __init__(self, inner: AbstractToolset[Any], name: str, journal: Journal):
        self.inner = inner
        self.remember(name, journal)

    @property
    def id(self) -> str | None:
        return None

    @property
    def inside(self) -> AbstractToolset[Any]:
        return self.inner

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.journal.instant('copy', self)
        return self.copy_around(await self.inner.for_run(ctx))

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.inner = await self.inner.for_run_step(ctx)
        return self


# Runs


Call = tuple[str, str, str]
"""A tool call: the name of the tool, its argument `value`, and the ID of the call."""


def model_of(choose: Callable[[int, list[str]], Awaitable[Sequence[Call]]]) -> FunctionModel:
    """Make a model that calls the tools that the function chooses.

    Args:
        choose: Gets the number of the step and the names of the tools. Where it chooses none, the model answers with a text.
    """

    async def calls(messages: list[ModelMessage], info: AgentInfo) -> Sequence[Call]:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        return await choose(step, sorted(tool_def.name for tool_def in info.function_tools))

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        chosen = await calls(messages, info)
        parts = [ToolCallPart(name, {'value': value}, tool_call_id=call_id) for name, value, call_id in chosen]
        return ModelResponse(parts=parts or [TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        chosen = await calls(messages, info)
        if not chosen:
            yield 'done'
        for index, (name, value, call_id) in enumerate(chosen):
            yield {index: DeltaToolCall(name, json.dumps({'value': value}), tool_call_id=call_id)}

    return FunctionModel(respond, stream_function=stream)


async def settle() -> None:
    """Wait until what runs have left behind has done its damage."""
    for _ in range(30):
        await asyncio.sleep(0)


async def run_planned(agent: Agent[Any, Any], journal: Faulty, options: dict[str, Any]) -> None:
    """Do the run that the caller is in as it is planned."""
    plan = journal.plans[RUN.get()]

    async def cancel_later() -> None:
        for _ in range(plan.cancel_after or 0):
            await asyncio.sleep(0)
        journal.cancel()

    canceller: asyncio.Task[None] | None = None
    if plan.cancel_after is not None and plan.method != 'run_stream_events':
        canceller = asyncio.create_task(cancel_later())
    try:
        await _run_to_the_end(agent, plan, journal, options)
    finally:
        if canceller:
            canceller.cancel()


async def _run_to_the_end(agent: Agent[Any, Any], plan: Plan, journal: Faulty, options: dict[str, Any]) -> None:
    options = {**options, 'usage_limits': UsageLimits(request_limit=plan.request_limit)}
    if plan.method == 'run':
        await agent.run('go', **options)
    elif plan.method == 'iter':
        async with agent.iter('go', **options) as agent_run:
            nodes = 0
            async for _ in agent_run:
                await journal.moment('body', None)
                nodes += 1
                if nodes == plan.leave_at:
                    journal.note('left', None)
                    break
    elif plan.method == 'run_stream':
        async with agent.run_stream('go', **options) as result:
            await journal.moment('body', None)
            await result.get_output()
    else:
        async with stream_events(agent, 'go', **options) as events:
            async for _ in events:
                pass


# What must be true of the journal


def errors_of(events: Sequence[Event]) -> list[BaseException]:
    return [event.got[1] for event in events]


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return an exception, or those that it's a group of."""
    exceptions: Sequence[BaseException] | None = getattr(error, 'exceptions', None)
    return [error] if exceptions is None else [leaf for each in exceptions for leaf in leaves_of(each)]


def contexts_of(error: BaseException | None) -> list[BaseException]:
    """Return an exception and those in whose context it was raised."""
    found: list[BaseException] = []
    while error is not None:
        assert error not in found, f'{error!r} is in its own context'
        found.append(error)
        error = error.__context__
    return found


def same(one: BaseException | None, other: BaseException | None) -> bool:
    """Say whether two exceptions are one. A cancellation is made again on its way from task to task."""
    return one is other or (isinstance(one, asyncio.CancelledError) and isinstance(other, asyncio.CancelledError))


def check_balance(
    events: Sequence[Event], succeeded: bool, stack_of: Callable[[Any], object], once: Callable[[Any], bool]
) -> None:
    """Check that what a run entered it exited, in reverse order, and that it used nothing before or after.

    Args:
        events: What happened in the run.
        succeeded: Whether it succeeded.
        stack_of: Says for a toolset which others it's entered and exited with: what a factory makes comes and goes on its own.
        once: Says whether a toolset may be entered only once.
    """
    stacks: dict[object, list[Any]] = defaultdict(list)
    times: Counter[int] = Counter()
    for happened in events:
        if happened.kind not in ('enter', 'exit', 'get_tools', 'call'):
            continue
        toolset = happened.toolset
        stack = stacks[stack_of(toolset)]
        if happened.kind == 'enter':
            times[id(toolset)] += 1
            stack.append(toolset)
        elif happened.kind == 'exit':
            assert toolset in stack, f'{toolset.name} was exited without having been entered'
            assert stack.pop() is toolset, f'{toolset.name} was not exited in reverse order of entry'
        elif succeeded:
            assert toolset in stack, f'{toolset.name} was used while it was not entered'
        if once(toolset):
            assert times[id(toolset)] <= 1, f'{toolset.name} was entered twice'
    for stack in stacks.values():
        assert stack == [], f'{[toolset.name for toolset in stack]} were never exited'


def check_exits(  # noqa: C901 (one rule after another)
    events: Sequence[Event],
    outcome: BaseException | None,
    plan: Plan,
    is_wired: Callable[[Any], bool],
) -> None:
    """Check what each exit got, and what the caller of the run got.

    Args:
        events: What happened in the run.
        outcome: What the caller got.
        plan: What was planned.
        is_wired: Says whether a toolset is exited at the end of the run only, since no factory made it.
    """
    exits = [index for index, happened in enumerate(events) if happened.kind == 'exit']
    wired_exits = [index for index in exits if is_wired(events[index].toolset)]
    ending = wired_exits[0] if wired_exits else len(events)
    """Where exiting began."""

    def faults(begin: int, end: int) -> list[BaseException]:
        return errors_of([happened for happened in events[begin:end] if happened.kind == 'fault'])

    def cancelled(end: int) -> bool:
        return any(happened.kind == 'cancel' for happened in events[:end])

    def is_cause(error: BaseException | None, end: int) -> bool:
        """Say whether something that happened until then can have ended the run with this exception."""
        if isinstance(error, asyncio.CancelledError):
            return cancelled(end)
        if exceptions := getattr(error, 'exceptions', ()):  # of toolsets that failed beside each other
            return error in faults(0, end) or all(is_cause(each, end) for each in exceptions)
        if type(error) is AgentRunError:
            return any(happened.kind == 'left' for happened in events[:end])
        return error in faults(0, end) or (isinstance(error, UsageLimitExceeded) and plan.request_limit is not None)

    late = isinstance(outcome, asyncio.CancelledError) and any(
        happened.kind == 'cancel' for happened in events[ending:]
    )
    """Whether the caller got a cancellation of the time when exiting had begun, which counts more than what had happened before."""

    only_entered = all(event.kind != 'get_tools' for event in events[:ending])
    # A run that has only entered its toolsets may first exit one that a factory has made, which isn't wired.
    # What fails may cancel the exit of what goes on beside it, before it ends the run.
    exit_faults = [
        (index, happened.got[1])
        for index, happened in enumerate(events)
        if (index > ending or only_entered) and happened.kind == 'fault' and happened.got[0] == 'exit'
        if index > ending or not (isinstance(happened.got[1], asyncio.CancelledError) and faults(0, index))
    ]
    for _, error in exit_faults:
        assert isinstance(error, Boom) or cancelled(len(events)), 'an exit was cancelled, and nobody had asked for it'

    for index in exits:
        got = events[index].got
        assert len(got) == 3, f'an exit got {len(got)} arguments'
        if got != SUCCESS:
            assert got[0] is type(got[1]), 'an exit got a wrong type'
            assert isinstance(got[2], TracebackType), 'an exit got no traceback'

    primary = events[ending].got[1] if wired_exits else outcome
    """What ended the run, according to the first exit."""
    if primary is None:
        raised = [error for error in faults(0, ending) if not isinstance(error, asyncio.CancelledError)]
        assert raised == [], f'exits got no exception, though {raised} had been raised'
    else:
        assert is_cause(primary, ending), f'exits got {primary!r}, which did not end the run'

    for index in exits:
        got, name = events[index].got[1], events[index].toolset.name
        before = [error for at, error in exit_faults if at < index]
        if index < ending:
            # What fails may cancel what goes on beside it, before it ends the run.
            beside = isinstance(got, asyncio.CancelledError) and faults(0, index)
            assert got is None or beside or is_cause(got, index), f'{name} got {got!r}, which had not happened'
        elif primary is not None or before:
            # Before Python 3.11 a cancellation is made again on its way.
            ended = [error for error in (primary, *before) if error is not None]
            assert any(same(got, error) for error in ended), f'{name} got {got!r}, and {ended} had been raised'
        else:
            assert got is None, f'{name} got {got!r}, though the run had succeeded'

    if exit_faults:
        assert late or same(outcome, exit_faults[-1][1]), f'the caller got {outcome!r} and not {exit_faults[-1][1]!r}'
        # Not one that is made again on its way, or whose context is. Those of other exits may be lost: Python sets the context
        # again when an exception leaves a coroutine that was resumed with one, as does the base of 1.x for a toolset that can't be entered.
        again = any(isinstance(error, asyncio.CancelledError) for _, error in exit_faults)
        lost = again or IS_1 or plan.method in ('run_stream', 'run_stream_events')
        if isinstance(primary, Boom) and isinstance(outcome, Boom) and not lost:
            assert primary in contexts_of(outcome), f'{primary!r} is not in the context of {outcome!r}'
    elif primary is None or type(primary) is AgentRunError:
        assert outcome is None or (isinstance(outcome, asyncio.CancelledError) and cancelled(len(events))), (
            f'the caller got {outcome!r}, though the run had succeeded or was left'
        )
    else:
        assert late or same(outcome, primary), f'the caller got {outcome!r} and not {primary!r}'
