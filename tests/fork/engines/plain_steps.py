"""A workflow of DBOS that uses nothing of the fork's, whose steps were recorded on the base.

`python plain_steps.py ADDRESS` records them again with the pydantic-ai that is installed, on the PostgreSQL with that address.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.durable_exec import dbos
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import DynamicToolset

STEPS = Path(__file__).with_name('histories') / 'dbos.json'


async def shout(ctx: RunContext[Any], word: str) -> str:
    return f'{word}! {ctx.tool_name}'


async def triple(number: int) -> int:
    return number * 3


def _build(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    return FunctionToolset([triple], id='built')


async def steps(way: str) -> list[list[Any]]:
    """Run the workflow, which registers what it needs, launches DBOS, and returns its steps with their numbers."""

    @DBOS.step()
    async def double(number: int) -> int:
        return number * 2

    toolsets: list[Any] = [
        FunctionToolset[Any]([double, shout], id='functions').prefixed('x'),
        cast(Any, DynamicToolset)(_build, id='dynamic'),
    ]
    agent: Any = cast(Any, Agent)(
        TestModel(),
        name='plain',
        toolsets=toolsets,
        **({'capabilities': [cast(Any, dbos).DBOSDurability()]} if way == 'capability' else {}),
    )
    if way == 'wrapper':
        agent = dbos.DBOSAgent(agent)

    @DBOS.workflow(name='plain_steps')
    async def run() -> str:
        return (await agent.run('Hello')).output

    DBOS.launch()
    with SetWorkflowID('plain'):
        await run()
    # The wrapper runs the agent in a workflow inside of this one.
    found: list[list[Any]] = []
    for workflow in sorted(await DBOS.list_workflows_async(), key=lambda workflow: workflow.workflow_id):
        made: Any = await DBOS.list_workflow_steps_async(workflow.workflow_id)
        found.append([[step['function_id'], step['function_name']] for step in made])
    return found


def record(way: str, address: str) -> list[list[Any]]:
    """Run the workflow on a database of its own."""
    DBOS(config={'name': 'plain', 'system_database_url': f'{address}/{way}', 'log_level': 'ERROR'})
    try:
        return asyncio.run(steps(way))
    finally:
        DBOS.destroy(destroy_registry=True)


if __name__ == '__main__':
    STEPS.write_text(json.dumps({way: record(way, sys.argv[1]) for way in ('capability', 'wrapper')}, indent=1) + '\n')
