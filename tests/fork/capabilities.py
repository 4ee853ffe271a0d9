"""Capabilities with toolsets, and sessions with a realtime model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import pydantic_ai.capabilities
from pydantic_ai import AbstractToolset, Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, HandleDeferredToolCalls
from typing_extensions import Self


def contributing(toolset: Any) -> AbstractCapability[Any]:
    """Make a capability that contributes a toolset."""

    class Contributing(AbstractCapability[Any]):
        def get_toolset(self) -> Any:
            return toolset

    return Contributing()


def wrapping(wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]) -> AbstractCapability[Any]:
    """Make a capability that wraps all toolsets of a run, with another wrapper for each run."""

    class Wrapping(AbstractCapability[Any]):
        def get_wrapper_toolset(self, toolset: Any) -> Any:
            return wrap(toolset)

    return Wrapping()


def handling_deferred_calls(handler: Any, position: Any = None, wraps: Any = ()) -> AbstractCapability[Any]:
    """Make upstream's own capability that handles deferred calls, which asks for a place among others."""

    class Handling(HandleDeferredToolCalls[Any]):
        def get_ordering(self) -> CapabilityOrdering:
            wrapped = [getattr(pydantic_ai.capabilities, name) for name in wraps]
            return CapabilityOrdering(position=position, wraps=wrapped)

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

    async with agent.realtime(Model(), **options).session() as session:
        yield session


@dataclass
class Counting(AbstractCapability[Any]):
    """Counts the tool calls of a run."""

    log: list[Any] = field(default_factory=list[Any])
    calls: int = field(default=0, init=False)

    stateful = True
    shared_attributes = frozenset({'log'})

    def copy(self) -> Self:
        return replace(self)

    async def before_tool_execute(self, ctx: RunContext[Any], **options: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0)
        self.log.append(self.calls)
        return options['args']
