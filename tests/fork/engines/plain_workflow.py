"""Workflows on Temporal that use nothing of the fork's, whose histories were recorded on the base.

`python plain_workflow.py` records them again with the pydantic-ai that is installed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, cast

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent, FunctionToolset, RunContext
    from pydantic_ai.durable_exec import temporal
    from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin, TemporalAgent
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import DynamicToolset

TemporalDurability = cast(Any, temporal).TemporalDurability

HISTORIES = Path(__file__).with_name('histories')


def _toolsets() -> list[Any]:
    async def double(number: int) -> int:
        return number * 2

    async def shout(ctx: RunContext[Any], word: str) -> str:
        return f'{word}! {ctx.tool_name}'

    async def triple(number: int) -> int:
        return number * 3

    def build(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([triple], id='built')

    return [
        FunctionToolset([double, shout], id='functions').prefixed('x'),
        cast(Any, DynamicToolset)(build, id='dynamic'),
    ]


wrapper = TemporalAgent(Agent(TestModel(), name='plain', toolsets=_toolsets()))
capability = cast(Any, Agent)(TestModel(), name='plain', toolsets=_toolsets(), capabilities=[TemporalDurability()])


@workflow.defn
class PlainWrapperWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await wrapper.run('Hello')).output


@workflow.defn
class PlainCapabilityWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await capability.run('Hello')).output


WORKFLOWS: dict[str, Any] = {
    'wrapper': (PlainWrapperWorkflow, wrapper),
    'capability': (PlainCapabilityWorkflow, capability),
}


def for_worker(way: str) -> dict[str, Any]:
    """The options of a worker."""
    workflow_class, agent = WORKFLOWS[way]
    return {'workflows': [workflow_class], 'plugins': [AgentPlugin(agent)]}


async def record() -> None:
    """Run both workflows on a server, and write their histories down."""
    from temporalio.testing import WorkflowEnvironment
    from temporalio.worker import Worker

    environment = await cast(Any, WorkflowEnvironment).start_local(
        dev_server_existing_path=shutil.which('temporal'), plugins=[PydanticAIPlugin()]
    )
    async with environment:
        for way, (workflow_class, agent) in WORKFLOWS.items():
            client = environment.client
            async with Worker(client, task_queue=way, workflows=[workflow_class], plugins=[AgentPlugin(agent)]):
                handle = await client.start_workflow(workflow_class.run, id=f'plain-{way}', task_queue=way)
                print(await handle.result())
            history = (await handle.fetch_history()).to_json_dict()
            events = ',\n'.join(map(json.dumps, history['events']))
            (HISTORIES / f'{way}.json').write_text(f'{{"events": [\n{events}\n]}}\n')


if __name__ == '__main__':
    import plain_workflow  # the sandbox imports workflows by the name of their module

    asyncio.run(plain_workflow.record())
