"""Capabilities with toolsets, and sessions with a realtime model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pydantic_ai.capabilities
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, HandleDeferredToolCalls
from typing_extensions import Self


def contributing(toolset: Any) -> AbstractCapability[Any]:
    """Make a capability that contributes a toolset."""

    class Contributing(AbstractCapability[Any]):
        def get_toolset(self) -> Any:
            return toolset

    return Contributing()


def handling_deferred_calls(handler: Any, position: Any = None, wraps: Any = ()) -> AbstractCapability[Any]:
    """Make upstream's own capability that handles deferred calls, which asks for a place among others."""

    class Handling(HandleDeferredToolCalls[Any]):
        def get_ordering(self) -> CapabilityOrdering:
            wrapped = [getattr(pydantic_ai.capabilities, name) for name in wraps]
            return CapabilityOrdering(position=position, wraps=wrapped)

    return Handling(handler)


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
