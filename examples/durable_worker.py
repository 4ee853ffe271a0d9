"""The process of `examples.durable` that works on trips: `python -m examples.durable_worker ADDRESS [MODEL]`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any, cast

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec import temporal
    from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin

    from examples.durable import PROMPT, SCRIPT, Trip

# --8<-- [start:worker]
# A call whose worker is gone is made again after two seconds.
durability = cast(Any, temporal).TemporalDurability(
    activity_config={'start_to_close_timeout': timedelta(minutes=5), 'heartbeat_timeout': timedelta(seconds=2)}
)
model: Any = sys.argv[2] if len(sys.argv) > 2 else SCRIPT
options: Any = {'capabilities': [durability]}
agent: Any = Agent(model, name='planner', toolsets=[Trip()], **options)


@workflow.defn
class Planning:
    """Plans a trip, however many workers that takes."""

    @workflow.run
    async def run(self, prompt: str) -> str:
        """Run the agent."""
        result = await agent.run(prompt)
        return result.output


async def work(address: str) -> None:
    """Begin a trip, or go on with it, print what comes of it, and work until killed."""
    client = await connect(address)
    begun = await client.start_workflow(
        Planning.run, PROMPT, id='trip', task_queue='trips', id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    async with Worker(client, task_queue='trips', workflows=[Planning], plugins=[AgentPlugin(agent)]):
        print(f'The plan: {await begun.result()}', flush=True)
        await asyncio.Event().wait()


# --8<-- [end:worker]


async def connect(address: str) -> Client:
    """Wait for the server."""
    while True:
        try:
            return await Client.connect(address, plugins=[PydanticAIPlugin()])
        except RuntimeError:
            await asyncio.sleep(0.1)


if __name__ == '__main__':
    asyncio.run(work(sys.argv[1]))
