"""Toolsets that write down what happens to them, models that follow a script, and the ways to run an agent.

>>> journal = Journal()
>>> agent = Agent(scripted(['notes']), toolsets=[Session('notes', journal)])
>>> asyncio.run(run_as('one', agent, 'run_stream'))
'done'
>>> journal.lifecycle
['+notes', '-notes']
>>> [(event.run, event.toolset.values) for event in journal.of('call')]
[('one', ['one'])]
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_ai import (
    AbstractToolset,
    Agent,
    AgentRunResultEvent,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolsetTool,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import Self

from .line import WRAPPERS, stream_events

RUN: ContextVar[str] = ContextVar('RUN', default='')
"""The name of the run that the code runs in. A test sets it, so that a toolset knows its run without asking the implementation."""


class Boom(Exception):
    """What tests raise."""


SUCCESS = (None, None, None)
"""What an exit gets when the run succeeded."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a toolset."""

    kind: str
    toolset: Any
    run: str
    got: tuple[Any, ...] = ()
    """What an exit was given, or the copy that was made."""


@dataclass
class Journal:
    """What happened, in order, to the toolsets that write into it."""

    events: list[Event] = field(default_factory=list[Event])

    def note(self, kind: str, toolset: Any, *got: Any) -> None:
        """Write down that something happened, in the run that the caller is in."""
        self.events.append(Event(kind, toolset, RUN.get(), got))

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds."""
        return [event for event in self.events if event.kind in kinds]

    def names(self, *kinds: str) -> list[str]:
        """Return the names of the toolsets that something of these kinds happened to, in order."""
        return [event.toolset.name for event in self.of(*kinds)]

    @property
    def lifecycle(self) -> list[str]:
        """Return the entries and exits in order, an entry as `+name` and an exit as `-name`."""
        return [('+' if event.kind == 'enter' else '-') + event.toolset.name for event in self.of('enter', 'exit')]

    def exit_of(self, name: str) -> tuple[Any, ...]:
        """Return what the only exit of the only instance with this name was given."""
        (event,) = (event for event in self.of('exit') if event.toolset.name == name)
        return event.got

    async def moment(self, kind: str, toolset: Any) -> None:
        """Let others run in the middle of a call. A subclass can make the call fail here."""
        await asyncio.sleep(0)

    def instant(self, kind: str, toolset: Any) -> None:
        """Do the same in a call that isn't async."""


class Server(AbstractToolset[Any]):
    """A toolset that runs share. Its one tool is called like the toolset, and answers with the values it was ever given."""

    def __init__(self, name: str, journal: Journal, *, fail: dict[str, BaseException] | None = None):
        self.name = name
        self.journal = journal
        self.fail = fail or {}
        """What an entry, exit, `get_tools` or call raises."""
        self.copy_of: Server | None = None
        self.values: list[str] = []
        """The state: what the tool was given."""

    @property
    def id(self) -> str | None:
        return self.name

    @property
    def original(self) -> Server:
        """The toolset that this one is a copy of, or itself."""
        return self.copy_of or self

    async def _happen(self, kind: str) -> None:
        await self.journal.moment(kind, self)
        if error := self.fail.get(kind):
            raise error

    async def __aenter__(self) -> Self:
        await self._happen('enter')
        self.journal.note('enter', self)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.journal.note('exit', self, *args)
        await self._happen('exit')
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self._happen('get_tools')
        self.journal.note('get_tools', self)
        return {self.name: tool_of(self, self.name)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> list[str]:
        await self._happen('call')
        self.journal.note('call', self)
        self.values.append(tool_args.get('value', ''))
        return list(self.values)


class Session(Server):
    """A toolset whose state belongs to one run."""

    stateful = True
    shared_attributes = frozenset({'fail'})

    def copy(self) -> Self:
        self.journal.instant('copy', self)
        copy = type(self)(self.name, self.journal, fail=self.fail)
        copy.copy_of = self.original
        self.journal.note('copy', self, copy)
        return copy


class WithoutCopy(Server):
    """A toolset that declares state and doesn't say how to copy it."""

    stateful = True


class HandWrittenBase(AbstractToolset[Any]):
    """What a wrapper that's written straight on `AbstractToolset` has to pass on, besides what it has to on every line."""

    inner: AbstractToolset[Any]

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(await self.inner.for_run(ctx))  # pyright: ignore[reportCallIssue]

    async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        inner = await self.inner.for_run_step(ctx)
        return self if inner is self.inner else type(self)(inner)  # pyright: ignore[reportCallIssue]


def once_per_run(make: Callable[[], Any], **options: Any) -> Any:
    """Make a toolset of a function without parameters, which is called once per run, before the run enters anything."""

    def factory(ctx: RunContext[Any]) -> Any:
        return make()

    return DynamicToolset(factory, per_run_step=False, **options)


class HandWritten(HandWrittenBase):
    """A wrapper that's written straight on `AbstractToolset`, and passes everything on."""

    stateful = True

    def __init__(self, inner: AbstractToolset[Any]):
        self.inner = inner

    @property
    def id(self) -> str | None:
        return None

    def copy(self) -> Self:
        return type(self)(self.inner.copy())

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        return await self.inner.__aexit__(*args)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return await self.inner.get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return await self.inner.call_tool(name, tool_args, ctx, tool)


PLACES: dict[str, Callable[[Any], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'HandWritten': HandWritten,
    'CombinedToolset': lambda toolset: CombinedToolset([toolset, FunctionToolset[Any]()]),
    'deeper': lambda toolset: CombinedToolset([HandWritten(CombinedToolset([toolset.renamed({'new': 'old'})]))]),
}
"""Where a toolset can stand in a list. Its tools keep their names there."""


def tool_of(toolset: AbstractToolset[Any], name: str) -> ToolsetTool[Any]:
    """Make a tool that takes any arguments."""
    return ToolsetTool(
        toolset=toolset,
        tool_def=ToolDefinition(name=name, return_schema={'type': 'array'}),
        max_retries=0,
        args_validator=SchemaValidator(core_schema.any_schema()),
    )


class Requests:
    """A model that answers with a text and counts what it is asked."""

    def __init__(self):
        self.count = 0
        self.model = FunctionModel(self._respond, stream_function=self._stream)

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.count += 1
        return ModelResponse(parts=[TextPart('done')])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.count += 1
        yield 'done'


def scripted(*steps: Sequence[str] | BaseException) -> FunctionModel:
    """Make a model that calls the tools of each step in turn, or raises, and then answers with a text.

    It keeps nothing between requests, so any number of runs can use it at once. Each call has the name of the run as
    the argument `value`.
    """

    def step(messages: list[ModelMessage]) -> list[str] | None:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done >= len(steps):
            return None
        names = steps[done]
        if isinstance(names, BaseException):
            raise names
        return list(names)

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        names = step(messages)
        if names is None:
            return ModelResponse(parts=[TextPart('done')])
        return ModelResponse(parts=[ToolCallPart(name, {'value': RUN.get()}) for name in names])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        names = step(messages)
        if names is None:
            yield 'done'
        for index, name in enumerate(names or ()):
            yield {
                index: DeltaToolCall(
                    name=name, json_args=json.dumps({'value': RUN.get()}), tool_call_id=f'{len(messages)}_{index}'
                )
            }

    return FunctionModel(respond, stream_function=stream)


async def run(agent: Agent[Any, Any], **options: Any) -> Any:
    return (await agent.run('go', **options)).output


async def run_sync(agent: Agent[Any, Any], **options: Any) -> Any:
    def in_thread() -> Any:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return agent.run_sync('go', **options).output
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    return await asyncio.to_thread(in_thread)


async def run_stream(agent: Agent[Any, Any], **options: Any) -> Any:
    async with agent.run_stream('go', **options) as result:
        return await result.get_output()


async def run_stream_events(agent: Agent[Any, Any], **options: Any) -> Any:
    output: Any = None
    async with stream_events(agent, 'go', **options) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                output = cast(Any, event).result.output
    return output


async def run_iter(agent: Agent[Any, Any], **options: Any) -> Any:
    async with agent.iter('go', **options) as agent_run:
        async for _ in agent_run:
            pass
    assert agent_run.result is not None
    return agent_run.result.output


METHODS: dict[str, Callable[..., Awaitable[Any]]] = {
    'run': run,
    'run_sync': run_sync,
    'run_stream': run_stream,
    'run_stream_events': run_stream_events,
    'iter': run_iter,
}
"""The ways to run an agent to its end. Each takes the agent and options, and returns the output."""


async def run_as(name: str, agent: Agent[Any, Any], method: str = 'run', **options: Any) -> Any:
    """Run the agent under a name, which the journal's events and the tools' arguments then carry."""
    token = RUN.set(name)
    try:
        return await METHODS[method](agent, **options)
    finally:
        RUN.reset(token)
