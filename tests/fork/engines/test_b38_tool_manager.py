"""B38: a tool calls another tool of its own toolset through the run's tool manager, on each engine."""

from __future__ import annotations

import uuid
from typing import Any, cast

import pytest
from dbos import DBOS
from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec import dbos as dbos_engine
from pydantic_ai.durable_exec import temporal as engine
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import workflow
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from .agents import for_dbos, for_prefect
from .notes import Notes

pytestmark = pytest.mark.anyio


class Managed(Notes):
    """Has a tool that calls another one, which runs in the container itself where the engine can do that."""

    def __init__(self):
        super().__init__()
        self.add_function(self.manage, metadata={'temporal': False, 'prefect': False})

    async def manage(self, ctx: RunContext[Any], value: str) -> Any:
        """Keep something, as the model would."""
        assert ctx.tool_manager is not None
        return await ctx.tool_manager.handle_call(ToolCallPart('keep', {'value': value}))


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call `keep`, `manage` and `keep`, and say what the last one returned."""
    step = len(messages) // 2
    if step < 3:
        return ModelResponse(parts=[ToolCallPart(('keep', 'manage', 'keep')[step], {'value': 'abc'[step]})])
    return ModelResponse(parts=[TextPart(str(cast(Any, messages[-1].parts[-1]).content))])


options: Any = {'capabilities': [cast(Any, engine).TemporalDurability()]}
agent: Any = Agent(FunctionModel(respond), name='managed', toolsets=[Managed()], **options)


@workflow.defn
class Manage:
    @workflow.run
    async def run(self) -> str:
        return (await agent.run('Go')).output


async def test_b38_tool_in_a_temporal_workflow_calls_its_own_toolset(temporal: Any):
    handle = await temporal.start_workflow(Manage.run, id=uuid.uuid4().hex, task_queue='managed')
    worker: Any = {'workflows': [Manage], 'workflow_runner': UnsandboxedWorkflowRunner()}
    plugins: Any = [engine.AgentPlugin(agent)]
    async with Worker(temporal, task_queue='managed', max_cached_workflows=0, plugins=plugins, **worker):
        assert await handle.result() == 'a b c'

    replayer = Replayer(plugins=[engine.PydanticAIPlugin(), *plugins], **worker)
    await replayer.replay_workflow(await handle.fetch_history())


@pytest.mark.usefixtures('dbos')
async def test_b38_tool_in_a_dbos_step_calls_its_own_toolset():
    managed = for_dbos('capability', FunctionModel(respond), [Managed()])
    DBOS.launch()

    assert (await managed.run('Go')).output == 'a b c'


@pytest.mark.usefixtures('prefect')
async def test_b38_tool_in_a_prefect_flow_calls_its_own_toolset():
    assert (await for_prefect('capability', FunctionModel(respond), [Managed()]).run('Go')).output == 'a b c'


@pytest.mark.usefixtures('dbos')
async def test_b38_toolset_that_exports_its_state_is_called_outside_of_dbos_workflows():
    DBOS.launch()
    options: Any = {'capabilities': [cast(Any, dbos_engine).DBOSDurability()]}

    assert (
        await Agent(FunctionModel(respond), name='outside', toolsets=[Managed()], **options).run('Go')
    ).output == 'a b c'
