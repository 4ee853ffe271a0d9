"""B41 on the durable engines: a stateful capability is copied for each run, wherever the engine derives it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from dbos import DBOS
from prefect import flow
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.durable_exec.prefect import PrefectDurability
from pydantic_ai.durable_exec.temporal import AgentPlugin, TemporalDurability
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from ..capabilities import Counting
from ..toolsets import scripted

pytestmark = pytest.mark.anyio


def add(value: str) -> str:
    return value


def make(durability: Any, counting: Counting) -> Agent[Any, str]:
    name = f'counting_{type(durability).__name__}'
    toolset = FunctionToolset[Any]([add], id='adding')
    return Agent(scripted(['add'], ['add']), name=name, toolsets=[toolset], capabilities=[counting, durability])


@pytest.mark.usefixtures('dbos')
async def test_b41_dbos():
    counting = Counting()
    agent = make(DBOSDurability(), counting)

    @DBOS.workflow()
    async def work() -> str:
        return (await agent.run('Go')).output

    DBOS.launch()
    for _ in range(2):
        await work()
    assert counting.log == [1, 2, 1, 2]


@pytest.mark.usefixtures('prefect')
async def test_b41_prefect():
    counting = Counting()
    agent = make(PrefectDurability(), counting)

    @flow
    async def work() -> str:
        return (await agent.run('Go')).output

    for _ in range(2):
        await work()
    assert counting.log == [1, 2, 1, 2]


on_temporal = Counting()
agent_on_temporal = make(TemporalDurability(), on_temporal)


@workflow.defn
class Work:
    """Runs the agent."""

    @workflow.run
    async def run(self) -> str:
        return (await agent_on_temporal.run('Go')).output


async def test_b41_temporal(temporal: Any):
    worker: Any = {'workflows': [Work], 'plugins': [AgentPlugin(agent_on_temporal)]}
    async with Worker(temporal, task_queue='capabilities', workflow_runner=UnsandboxedWorkflowRunner(), **worker):
        for _ in range(2):
            await temporal.execute_workflow(Work.run, id=uuid.uuid4().hex, task_queue='capabilities')
    assert on_temporal.log == [1, 2, 1, 2]
