"""B38: a sub-agent in a Temporal workflow begins with the state that the parent's calls have left, if its toolset says so."""

from __future__ import annotations

import uuid
from typing import Any, cast

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.durable_exec import temporal as engine
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import workflow
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker
from typing_extensions import Self

pytestmark = pytest.mark.anyio


class Notes(FunctionToolset[Any]):
    """Gives a sub-agent a snapshot."""

    stateful = True

    def __init__(self):
        super().__init__([self.keep], id='notes')
        self.kept: list[str] = []

    def copy(self) -> Self:
        return type(self)()

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        snapshot = self.copy()
        snapshot.kept = list(self.kept)
        return snapshot

    async def export_state(self) -> list[str]:
        return self.kept

    async def restore_state(self, state: Any) -> None:
        self.kept = list(state)

    async def keep(self, value: str) -> str:
        self.kept.append(value)
        return ' '.join(self.kept)


def make(name: str, toolsets: list[Any], *steps: list[ToolCallPart]) -> Any:
    """Make an agent for Temporal that makes these calls, and then says what the last one returned."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step < len(steps):
            return ModelResponse(parts=steps[step])
        return ModelResponse(parts=[TextPart(str(cast(Any, messages[-1].parts[-1]).content))])

    options: Any = {'capabilities': [cast(Any, engine).TemporalDurability()]}
    return Agent(FunctionModel(respond), name=name, toolsets=toolsets, **options)


def keep(value: str) -> list[ToolCallPart]:
    return [ToolCallPart('keep', {'value': value})]


@workflow.defn
class Parent:
    """Runs an agent whose tool runs another one."""

    @workflow.run
    async def run(self) -> str:
        return (await agents[0].run('Go')).output


def family() -> tuple[Any, Any]:
    """Make an agent, and one that its tool runs in the workflow itself."""
    notes = Notes()
    child = make('child', [notes], keep('c'), keep('d'))

    async def delegate() -> str:
        return (await child.run('Go')).output

    in_workflow: Any = Tool(delegate, metadata={'temporal': False})
    toolsets = [notes.renamed({}), FunctionToolset[Any]([in_workflow], id='delegation')]
    return make('parent', toolsets, keep('a'), keep('b'), [ToolCallPart('delegate', {})]), child


agents = family()


async def test_b38_snapshot_for_a_sub_agent_has_the_state_of_the_parents_calls(temporal: Any):
    plugins: Any = [engine.AgentPlugin(agent) for agent in agents]
    worker: Any = {'workflows': [Parent], 'plugins': plugins, 'workflow_runner': UnsandboxedWorkflowRunner()}
    handle = await temporal.start_workflow(Parent.run, id=uuid.uuid4().hex, task_queue='snapshots')
    async with Worker(temporal, task_queue='snapshots', **worker):
        assert await handle.result() == 'a b c d'

    replayer = Replayer(**worker | {'plugins': [engine.PydanticAIPlugin(), *plugins]})
    await replayer.replay_workflow(await handle.fetch_history())
