"""The workflows of `durable_worker` on Temporal, in a module that its sandbox can import again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable_worker import make_agent, make_agent_for_approval
    from pydantic_ai import DeferredToolRequests, DeferredToolResults
    from pydantic_ai.durable_exec import temporal
    from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin

TemporalDurability = cast(Any, temporal).TemporalDurability

_CONFIG: Any = {
    'start_to_close_timeout': timedelta(seconds=60),
    # The activity of a killed worker is tried again after this.
    'heartbeat_timeout': timedelta(seconds=2),
}
_QUEUES: Any = {'activity_config': _CONFIG, 'toolset_activity_config': {'desk': {'task_queue': 'desk'}}}

capability = make_agent(capabilities=[TemporalDurability(activity_config=_CONFIG)])
capability_on_queues = make_agent(capabilities=[TemporalDurability(**_QUEUES)])
capability_with_approval = make_agent_for_approval(capabilities=[TemporalDurability(activity_config=_CONFIG)])


@workflow.defn
class CapabilityWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await capability.run('Go')).output


@workflow.defn
class CapabilityOnQueuesWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await capability_on_queues.run('Go')).output


class _WithApproval:
    def __init__(self) -> None:
        self.approved = False

    async def run_twice(self, agent: Any) -> str:
        """Run an agent until it asks, and once more when the signal has come."""
        first = await agent.run('Go')
        assert isinstance(first.output, DeferredToolRequests)
        await workflow.wait_condition(lambda: self.approved)
        results = DeferredToolResults(approvals={call.tool_call_id: True for call in first.output.approvals})
        return (await agent.run(message_history=first.all_messages(), deferred_tool_results=results)).output


@workflow.defn
class CapabilityWithApprovalWorkflow(_WithApproval):
    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self) -> str:
        return await self.run_twice(capability_with_approval)


WORKFLOWS: dict[str, tuple[Any, Any]] = {
    'capability': (CapabilityWorkflow, capability),
    'capability on queues': (CapabilityOnQueuesWorkflow, capability_on_queues),
    'capability with approval': (CapabilityWithApprovalWorkflow, capability_with_approval),
}


def for_client() -> list[Any]:
    """The plugins of a client."""
    return [PydanticAIPlugin()]


def for_worker(way: str) -> dict[str, Any]:
    """The options of a worker."""
    workflow_class, agent = WORKFLOWS[way]
    return {'workflows': [workflow_class], 'plugins': [AgentPlugin(agent)]}
