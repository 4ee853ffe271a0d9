"""B38: a sub-agent in a Temporal workflow has the state that the parent's calls have left, and a toolset to itself."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, ClassVar, cast

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.durable_exec import temporal as engine
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import workflow
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker
from typing_extensions import Self

from .notes import Notes

pytestmark = pytest.mark.anyio


class Snapshots(Notes):
    """Gives a sub-agent a snapshot."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        snapshot = self.copy()
        snapshot.kept = list(self.kept)
        return snapshot


class Effects(Notes):
    """Lends itself, and has a tool that runs an agent in the workflow itself. What it has done is counted."""

    child: ClassVar[Any] = None
    done: ClassVar[list[str]] = []

    def __init__(self):
        super().__init__()
        self.add_function(self.delegate, metadata={'temporal': False})

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        return self

    async def keep(self, value: str) -> str:
        self.done.append(value)
        return await super().keep(value)

    async def delegate(self) -> str:
        self.kept.append('before')
        return (await self.child.run('Go')).output


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
    async def run(self, what: str) -> str:
        return (await agents[what][0].run('Go')).output


DELEGATE = [ToolCallPart('delegate', {})]

agents: dict[str, tuple[Any, Any]] = {}


def snapshots() -> tuple[Any, Any]:
    """Make an agent, and one that its tool runs in the workflow itself."""
    notes = Snapshots()
    child = make('snapshots_child', [notes], keep('c'), keep('d'))

    async def delegate() -> str:
        return (await child.run('Go')).output

    in_workflow: Any = Tool(delegate, metadata={'temporal': False})
    toolsets = [notes.renamed({}), FunctionToolset[Any]([in_workflow], id='delegation')]
    return make('snapshots', toolsets, keep('a'), keep('b'), DELEGATE), child


def lent() -> tuple[Any, Any]:
    """Make an agent, and one that a tool of their common toolset runs in the workflow itself."""
    effects = Effects()
    Effects.child = make('lent_child', [effects], keep('b'), keep('c'))
    return make('lent', [effects], keep('a'), DELEGATE, keep('d')), Effects.child


def crossed() -> tuple[Any, Any]:
    """Make an agent that calls a toolset while its tool runs an agent that borrows it."""
    effects = Effects()
    Effects.child = make('crossed_child', [effects], keep('b'))

    async def run_child() -> str:
        return (await Effects.child.run('Go')).output

    in_workflow: Any = Tool(run_child, metadata={'temporal': False})
    toolsets = [effects, FunctionToolset[Any]([in_workflow], id='delegation')]
    return make('crossed', toolsets, [*keep('a'), ToolCallPart('run_child', {})]), Effects.child


async def run_and_replay(what: str, family: tuple[Any, Any], temporal: Any) -> str:
    """Run a parent in a worker that replays the workflow for each task, replay all of it, and return what it says."""
    agents[what] = family
    plugins: Any = [engine.AgentPlugin(agent) for agent in family]
    worker: Any = {'workflows': [Parent], 'plugins': plugins, 'workflow_runner': UnsandboxedWorkflowRunner()}
    handle = await temporal.start_workflow(Parent.run, what, id=uuid.uuid4().hex, task_queue=what)
    async with Worker(temporal, task_queue=what, max_cached_workflows=0, **worker):
        result = await handle.result()

    replayer = Replayer(**worker | {'plugins': [engine.PydanticAIPlugin(), *plugins]})
    await replayer.replay_workflow(await handle.fetch_history())
    return result


async def test_b38_snapshot_for_a_sub_agent_has_the_state_of_the_parents_calls(temporal: Any):
    assert await run_and_replay('snapshots', snapshots(), temporal) == 'a b c d'


async def test_b38_call_of_a_sub_agent_that_runs_in_the_workflow_itself_is_made_once(temporal: Any):
    Effects.done.clear()
    assert await run_and_replay('lent', lent(), temporal) == 'a before b c d'
    assert Effects.done == ['a', 'b', 'c', 'd']


async def test_b38_sub_agent_that_borrows_what_is_being_called_is_refused(temporal: Any):
    with pytest.raises(WorkflowFailureError) as failure:
        await run_and_replay('crossed', crossed(), temporal)
    assert "cannot work with Effects 'notes' while a call of the run of agent 'crossed'" in str(failure.value.cause)


@workflow.defn
class Chat:
    """Runs an agent whose toolset exports its state one day."""

    @workflow.run
    async def run(self) -> str:
        return (await agents['chat'][0].run('Go')).output


async def test_b38_workflow_in_flight_goes_on_when_its_toolset_begins_to_export(temporal: Any):
    def options(toolset: FunctionToolset[Any]) -> Any:
        chat = make('chat', [toolset], keep('a'), keep('b'), keep('c'))
        agents['chat'] = chat, chat
        plugins: Any = [engine.AgentPlugin(chat)]
        return {'workflows': [Chat], 'plugins': plugins, 'workflow_runner': UnsandboxedWorkflowRunner()}

    kept: list[str] = []

    async def keep_for_all(value: str) -> str:
        kept.append(value)
        if len(kept) > 1:
            raise ConnectionError('connection lost')
        return value

    keeping: Any = Tool(keep_for_all, name='keep')
    handle = await temporal.start_workflow(Chat.run, id=uuid.uuid4().hex, task_queue='chat')
    async with Worker(temporal, task_queue='chat', **options(FunctionToolset([keeping], id='notes'))):
        while len(kept) < 2:
            await asyncio.sleep(0.1)
    async with Worker(temporal, task_queue='chat', **options(Notes())):
        assert await handle.result() == 'b c'
