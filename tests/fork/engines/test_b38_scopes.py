"""B38: a chat lives in one Temporal workflow after the other, and its toolset keeps what it had."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec import temporal as engine
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import ToolsetScope
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from .notes import Notes

pytestmark = pytest.mark.anyio

MESSAGES, EACH = 30, 10
"""How many messages there are, and after how many the workflow continues as a new one."""


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Keep what the prompt says."""
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart('done')])
    return ModelResponse(parts=[ToolCallPart('keep', {'value': cast(Any, messages[0].parts[-1]).content})])


notes = Notes()
options: Any = {'capabilities': [cast(Any, engine).TemporalDurability()]}
agent: Any = Agent(FunctionModel(respond), name='scopes', toolsets=[notes], **options)


@workflow.defn
class Chat:
    def __init__(self) -> None:
        self.said: list[str] = []

    @workflow.signal
    def say(self, prompt: str) -> None:
        self.said.append(prompt)

    @workflow.run
    async def run(self, state: Any, left: list[str], answered: int) -> list[str]:
        self.said[:0] = left
        async with ToolsetScope(notes, state=state) as chat:
            for _ in range(EACH):
                await workflow.wait_condition(lambda: bool(self.said))
                await agent.run(self.said.pop(0), toolsets=[chat])
                answered += 1
                assert len(chat.instance_of(notes).kept) == answered
            state = await chat.export()
        if answered < MESSAGES:
            workflow.continue_as_new(args=[state, self.said, answered])
        return state['toolsets']['notes']


async def test_b38_scope_in_a_workflow_keeps_the_state_across_runs_and_workflows(temporal: Any):
    handle = await temporal.start_workflow(Chat.run, args=[None, [], 0], id=uuid.uuid4().hex, task_queue='chats')
    worker: Any = {'workflows': [Chat], 'plugins': [engine.AgentPlugin(agent)], 'max_cached_workflows': 0}
    prompts = [str(number) for number in range(MESSAGES)]

    async def say_all() -> None:
        for prompt in prompts:
            await handle.signal(Chat.say, prompt)

    async with Worker(temporal, task_queue='chats', workflow_runner=UnsandboxedWorkflowRunner(), **worker):
        saying = asyncio.create_task(say_all())
        assert await handle.result() == prompts
        await saying
