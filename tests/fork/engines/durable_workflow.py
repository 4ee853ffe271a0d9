"""The workflows of `durable_worker` on Temporal, in a module that its sandbox can import again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable_worker import make_agent
    from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin, TemporalAgent, TemporalDurability

_CONFIG: Any = {
    'start_to_close_timeout': timedelta(seconds=60),
    # The activity of a killed worker is tried again after this.
    'heartbeat_timeout': timedelta(seconds=2),
}
wrapper = TemporalAgent(make_agent(), activity_config=_CONFIG)
capability = make_agent(capabilities=[TemporalDurability(activity_config=_CONFIG)])


@workflow.defn
class WrapperWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await wrapper.run('Go')).output


@workflow.defn
class CapabilityWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await capability.run('Go')).output


def for_client() -> list[Any]:
    """The plugins of a client."""
    return [PydanticAIPlugin()]


def for_worker(way: str) -> dict[str, Any]:
    """The options of a worker."""
    agent: Any = {'wrapper': wrapper, 'capability': capability}[way]
    workflow_class = {'wrapper': WrapperWorkflow, 'capability': CapabilityWorkflow}[way]
    return {'workflows': [workflow_class], 'plugins': [AgentPlugin(agent)]}
