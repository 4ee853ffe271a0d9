"""What the tests of all engines use: toolsets inside others, and runs of agents that are wrapped for an engine."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from dbos import DBOS
from prefect import flow
from pydantic_ai import AbstractToolset, Agent, CombinedToolset, FunctionToolset, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import DynamicToolset

from .. import toolsets
from ..line import WRAPPERS
from ..toolsets import HandWritten


def _combined(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset([CombinedToolset([toolset])])


def _mixed(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset([HandWritten(toolset)]).filtered(lambda ctx, tool_def: True)


def _dynamic(toolset: AbstractToolset[Any]) -> Any:
    def build(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return toolset.copy()

    return DynamicToolset(build, id='dynamic')


STATIC: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **WRAPPERS,
    'CombinedToolset': _combined,
    'written by hand': HandWritten,
    'mixed': _mixed,
}
"""How to put a toolset into another one. Only `PrefixedToolset` changes the names of its tools, to `x_…`."""

INSIDE: dict[str, Callable[[AbstractToolset[Any]], Any]] = {**STATIC, 'dynamic': _dynamic}
"""The same, and with a function that makes a new one."""


def for_dbos(way: str, model: Any, toolsets: list[Any], name: str = 'agent') -> Any:
    """Make an agent whose runs are workflows."""
    from pydantic_ai.durable_exec import dbos

    if way == 'wrapper':
        return dbos.DBOSAgent(Agent(model, name=name, toolsets=toolsets))

    agent: Any = _with_capability(cast(Any, dbos).DBOSDurability(), model, toolsets, name)

    @DBOS.workflow(name=f'{name}.run')
    async def run(prompt: str) -> Any:
        return await agent.run(prompt)

    @DBOS.workflow(name=f'{name}.run_sync')
    def run_sync(prompt: str) -> Any:
        return agent.run_sync(prompt)

    return SimpleNamespace(run=run, run_sync=run_sync, iter=agent.iter)


def for_prefect(way: str, model: Any, toolsets: list[Any], name: str = 'agent') -> Any:
    """Make an agent whose runs are flows, except those that are iterated over, which are part of the flow around them."""
    from pydantic_ai.durable_exec import prefect

    if way == 'wrapper':
        return prefect.PrefectAgent(Agent(model, name=name, toolsets=toolsets))

    agent: Any = _with_capability(cast(Any, prefect).PrefectDurability(), model, toolsets, name)

    @flow
    async def run(prompt: str) -> Any:
        return await agent.run(prompt)

    @flow
    def run_sync(prompt: str) -> Any:
        return agent.run_sync(prompt)

    return SimpleNamespace(run=run, run_sync=run_sync, iter=agent.iter)


def for_temporal(way: str, model: Any, toolsets: list[Any]) -> AbstractAgent[Any, Any]:
    """Make an agent that can be run in workflows."""
    from pydantic_ai.durable_exec import temporal

    if way == 'wrapper':
        return temporal.TemporalAgent(Agent(model, name='agent', toolsets=toolsets))
    return _with_capability(cast(Any, temporal).TemporalDurability(), model, toolsets)


def _with_capability(durability: Any, model: Any, toolsets: list[Any], name: str = 'agent') -> Agent[Any, Any]:
    options: dict[str, Any] = {'capabilities': [durability]}
    return Agent(model, name=name, toolsets=toolsets, **options)


async def run_as(name: str, agent: AbstractAgent[Any, Any], method: str = 'run') -> Any:
    """Run the agent under a name, as for an agent that isn't wrapped."""
    return await toolsets.run_as(name, cast(Any, agent), method)


def given(value: str) -> str:
    """Return the value."""
    return value


async def call_given(agent: AbstractAgent[Any, Any]) -> list[str]:
    """Run an agent with a toolset that the run is given, and return the tools that were called. Its model calls `given`."""
    async with agent.iter('go', toolsets=[FunctionToolset[Any]([given], id='given')]) as agent_run:
        async for _ in agent_run:
            pass
    assert agent_run.result is not None
    return [
        part.tool_name
        for message in agent_run.result.all_messages()
        for part in message.parts
        if part.part_kind == 'tool-return'
    ]
