"""What differs between the lines: the only module of these tests that looks at which one it runs on."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

import pytest
from anyio import ClosedResourceError
from pydantic_ai import AbstractToolset, Agent, RetryPromptPart, RunContext, ToolDefinition, WrapperToolset
from pydantic_ai.toolsets._dynamic import DynamicToolset as DynamicToolset  # noqa: PLC0414 (an explicit re-export)

IS_2 = hasattr(AbstractToolset, 'for_run_step')
"""Whether the line is one of 2.x. Of the hooks that toolsets have there, the fork of 1.x has `for_run()` only."""

CANCELLED = (asyncio.CancelledError,) if IS_2 else (asyncio.CancelledError, ClosedResourceError)
"""What a cancelled run can end with. The graph that 1.x runs on turns the cancellation into an error of its own at some awaits."""

INTERRUPTS_CLEANING_UP = ('run_stream', 'run_stream_events') if IS_2 else ()
"""In which ways to run an agent a second cancellation interrupts what tools do to clean up, as on the base. 1.x doesn't cancel tools."""

NAMES_HANDLERS = IS_2
"""Whether the error for calls that are left over, where they can't be returned, names the handler."""

LEAVES_OVER_WHAT_ASKS_TOO_OFTEN = IS_2
"""Whether a call that is deferred again once its retries are used up is left over, as an approved call that is deferred again is
in any case on the base of 2.x. On 1.x it ends the run with an error."""

HAS_CAPABILITIES = IS_2
"""Whether agents have capabilities, and sessions with realtime models."""

CapableAgent = cast(Any, Agent)
"""`Agent`, whose signature in 1.x knows of no capabilities."""

FACTORIES_COME_FIRST = IS_2
"""Whether factories that are called once per run are called before the run enters a toolset, all at once, as on 2.x.
1.x calls each when it's its turn to be entered, or at the first step if it takes the run context."""

WAYS_TO_MAKE_DURABLE = ('capability', 'wrapper') if IS_2 else ('wrapper',)
"""How an agent is made for a durable engine: by a capability of the agent, or by an agent that wraps it, as 1.x has it only."""

HAS_DURABLE_STATE = IS_2
"""Whether the engines record what a toolset exports. On 1.x, Temporal refuses every stateful toolset."""

STAYS_ENTERED = IS_2
"""Whether a step's toolset is still entered while the next step's is made, and stays entered if that is the same."""

LEFT_BY_A_RUN = 0 if IS_2 else 19
"""How many objects a run with a tool call may leave to the cyclic garbage collector. The base of 2.x leaves 18, that of 1.x 181."""

LEFT_BY_A_FAILED_RUN = 10 if IS_2 else 388
"""The same of a run that a tool ends with an error: as many as on the base. On 1.x, the fork leaves some hundred less, depending on the Python."""

LEFT_BY_A_SUB_AGENT = 0 if IS_2 else 44
"""The same of a run with a tool call that runs another agent, both together. The base of 1.x leaves 333."""

TOOL_OPTIONS: dict[str, Any] = {'return_schema': {'type': 'array'}} if IS_2 else {}
"""What the definition of a tool needs so that each wrapper of the line takes it."""


async def _keep_all(ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
    return tool_defs


WRAPPERS: dict[str, Callable[[AbstractToolset[Any]], WrapperToolset[Any]]] = {
    'PrefixedToolset': lambda toolset: toolset.prefixed('x'),
    'FilteredToolset': lambda toolset: toolset.filtered(lambda ctx, tool_def: True),
    'RenamedToolset': lambda toolset: toolset.renamed({'new': 'old'}),
    'PreparedToolset': lambda toolset: toolset.prepared(_keep_all),
    'ApprovalRequiredToolset': lambda toolset: toolset.approval_required(lambda ctx, tool_def, args: False),
}
"""How to make each wrapper of the line, such that it neither hides a tool nor refuses a call. Only the first changes names."""

_FURTHER: dict[str, Callable[[Any], WrapperToolset[Any]]] = {
    'DeferredLoadingToolset': lambda toolset: toolset.defer_loading(['no such tool']),
    'IncludeReturnSchemasToolset': lambda toolset: toolset.include_return_schemas(),
    'SetMetadataToolset': lambda toolset: toolset.with_metadata(key='value'),
}
"""Wrappers that only some lines have."""

if hasattr(AbstractToolset, 'defer_loading'):
    WRAPPERS.update(_FURTHER)


class HandWrittenBase(AbstractToolset[Any]):
    """What a wrapper that's written straight on `AbstractToolset` has to pass on, besides what it has to on every line."""

    inner: AbstractToolset[Any]

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(await self.inner.for_run(ctx))  # pyright: ignore[reportCallIssue]

    if IS_2:

        async def for_run_step(self: Any, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            inner = await self.inner.for_run_step(ctx)
            return self if inner is self.inner else type(self)(inner)


class FromBeforeForRun(AbstractToolset[Any]):
    """What a hand-written wrapper inherits that doesn't know of `for_run()`, as those from before it."""

    for_run = AbstractToolset.for_run


class Whole:
    """What a toolset defines that the base is to use as it is in each run, without looking inside."""

    __slots__ = ()

    def apply(self, visitor: Callable[[Any], None]) -> None:
        visitor(self)

    def visit_and_replace(self, visitor: Callable[[Any], Any]) -> Any:
        return visitor(self)

    if IS_2:

        async def for_run(self, ctx: RunContext[Any]) -> Any:
            return self

        async def for_run_step(self, ctx: RunContext[Any]) -> Any:
            return self

        async def get_instructions(self, ctx: RunContext[Any]) -> None:
            return None


def once_per_run(make: Callable[[], Any], **options: Any) -> Any:
    """Make a toolset of a function without parameters, which is called once per run, before the run enters anything."""

    def factory(ctx: RunContext[Any]) -> Any:
        return make()

    return cast(Any, DynamicToolset)(factory, per_run_step=False, **options)


def _capability(name: str) -> Any:
    return getattr(import_module('pydantic_ai.capabilities'), name)


def processing_history(process: Any) -> dict[str, Any]:
    """Return the options of an agent that has its messages processed: 2.x has capabilities for that, as for the next one."""
    if IS_2:
        return {'capabilities': [_capability('ProcessHistory')(process)]}
    return {'history_processors': [process]}


def preparing_tools(prepare: Any) -> dict[str, Any]:
    """Return the options of an agent that has its tools prepared."""
    if IS_2:
        return {'capabilities': [_capability('PrepareTools')(prepare)]}
    return {'prepare_tools': prepare}


def contributing(toolset: Any) -> Any:
    """Make a capability that contributes a toolset."""

    class Contributing(_capability('AbstractCapability')):
        def get_toolset(self) -> Any:
            return toolset

    return Contributing()


def wrapping(wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> Any:
    """Make a capability that wraps all toolsets of a run, with another wrapper for each run."""

    class Wrapping(_capability('AbstractCapability')):
        def get_wrapper_toolset(self, toolset: Any) -> Any:
            return wrap(toolset)

    return Wrapping()


def handling_deferred_calls(handler: Any, position: str | None = None, wraps: Any = ()) -> Any:
    """Make upstream's own capability that handles deferred calls, which asks for a place among others."""

    class Handling(_capability('HandleDeferredToolCalls')):
        def get_ordering(self) -> Any:
            return _capability('CapabilityOrdering')(position=position, wraps=[_capability(name) for name in wraps])

    return Handling(handler)


@asynccontextmanager
async def realtime_session(agent: Agent[Any, Any], *tool_calls: str, **options: Any) -> AsyncGenerator[Any]:
    """Open a session with a realtime model that calls these tools, with the argument `value`, and then says nothing more."""
    codec: Any = import_module('pydantic_ai.realtime.codec')
    lifecycle: Any = import_module('pydantic_ai.realtime.lifecycle')

    class Connection(codec.RealtimeConnection):
        def __init__(self):
            self.lifecycle = lifecycle.InferredLifecycle()

        async def send(self, content: Any) -> Any:
            with self.lifecycle.sending(content):
                pass
            return self.lifecycle.take_pending()

        async def frames(self) -> AsyncGenerator[Any]:
            calls = [codec.ToolCall(name, tool_name=name, args='{"value": "call"}') for name in tool_calls]
            yield self.lifecycle.frame_for(calls)

    class Model(import_module('pydantic_ai.realtime').RealtimeModel):
        model_name = system = 'silent'

        @asynccontextmanager
        async def connect(self, **_: Any) -> AsyncGenerator[Any]:
            yield Connection()

    async with cast(Any, agent).realtime(Model(), **options).session() as session:
        yield session


def named_factory(factory: Callable[[RunContext[Any]], AbstractToolset[Any]], name: str) -> Any:
    """Make what stands in `toolsets` for a function of the run context: the durability capabilities of 2.x want it to have an ID."""
    return cast(Any, DynamicToolset)(factory, id=name) if IS_2 else factory


def run_in_sync_tool(agent: Any, **options: Any) -> Any:
    """Run an agent to its end in the thread of a sync tool, where 2.x refuses `run_sync()`."""
    if IS_2:
        return asyncio.run(agent.run('go', **options)).output
    return agent.run_sync('go', **options).output


@asynccontextmanager
async def stream_events(
    agent: Agent[Any, Any], prompt: str, **options: Any
) -> AsyncGenerator[AsyncIterator[Any], None]:
    """Stream a run's events: `run_stream_events` is an iterator on 1.x, and a context manager on 2.x."""
    events: Any = agent.run_stream_events(prompt, **options)
    if hasattr(events, '__aenter__'):
        async with events as entered:
            yield entered
    else:
        async with aclosing(events):
            yield events


def content_of_result(event: Any) -> Any:
    """Return what the tool answered with, of the event that it did."""
    return event.part.content if IS_2 else event.result.content


CONTEXT_VARIABLES = {'RELAYS', '_load_window'} if IS_2 else set[str]()
"""The context variables of the base's toolsets."""


def options_with_run_id(run_id: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options of a run that gets this ID. 1.x knows no such option, so there all runs of the test get it."""
    if IS_2:
        return {'run_id': run_id}
    ids = SimpleNamespace(uuid4=lambda: run_id)
    monkeypatch.setattr(import_module('pydantic_ai._agent_graph'), 'uuid', ids)
    return {}


def retry_prompt(content: str) -> Any:
    """Make a retry prompt as a result of an external call, which is deprecated on 2.x in favour of `ModelRetry`."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return RetryPromptPart(content)
