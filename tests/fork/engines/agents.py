"""What the tests of all engines use: toolsets inside others, and runs of agents that are wrapped for an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pydantic_ai import AbstractToolset, CombinedToolset, RunContext
from pydantic_ai.agent import AbstractAgent

from .. import toolsets
from ..line import WRAPPERS
from ..toolsets import HandWritten


def _combined(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset([CombinedToolset([toolset])])


def _mixed(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset([HandWritten(toolset)]).filtered(lambda ctx, tool_def: True)


def _dynamic(toolset: AbstractToolset[Any]) -> Callable[[RunContext[Any]], AbstractToolset[Any]]:
    return lambda ctx: toolset.copy()


STATIC: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **WRAPPERS,
    'CombinedToolset': _combined,
    'written by hand': HandWritten,
    'mixed': _mixed,
}
"""How to put a toolset into another one. Only `PrefixedToolset` changes the names of its tools, to `x_…`."""

INSIDE: dict[str, Callable[[AbstractToolset[Any]], Any]] = {**STATIC, 'dynamic': _dynamic}
"""The same, and with a function that makes a new one."""


async def run_as(name: str, agent: AbstractAgent[Any, Any], method: str = 'run') -> Any:
    """Run the agent under a name, as for an agent that isn't wrapped."""
    return await toolsets.run_as(name, cast(Any, agent), method)
