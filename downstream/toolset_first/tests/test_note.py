"""What note 004 says of specs, entries and errors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import FunctionToolset, RunContext, UserError
from support import calling, entry, script
from toolset_first import (
    AgentSpec,
    CallRuntime,
    EntryError,
    EntrySpec,
    Runtime,
    ToolsetBuildContext,
    ToolsetSpec,
    WorkerArgs,
    agent_as_toolset,
)


async def test_note_toolset_without_rules_says_none() -> None:
    def build(context: ToolsetBuildContext) -> FunctionToolset[Any]:
        toolset = FunctionToolset[Any]()

        @toolset.tool
        async def main(ctx: RunContext[CallRuntime], input: str, attachments: list[str] | None = None) -> str:
            return f'Processed: {input}'

        return toolset

    spec = EntrySpec(toolset_spec=ToolsetSpec(factory=build, approval_config=None), name='my_entry')
    assert await Runtime(max_depth=5).run_entry(spec, {'input': 'Hello'}) == 'Processed: Hello'
    agent = AgentSpec(
        'one', model=script('done'), toolset_specs=[ToolsetSpec(factory=lambda context: None, approval_config=None)]
    )
    assert await Runtime([agent]).run_entry(calling('one'), 'Go') == 'done'


def _echo(input: str) -> str:
    return input


class Other(BaseModel):
    topic: str


@pytest.mark.parametrize('wrong', [Other, dict, 'Question', WorkerArgs()])
def test_note_input_that_is_no_worker_args_is_refused_at_once(wrong: Any) -> None:
    message = 'which is no subclass of `WorkerArgs`'
    with pytest.raises(TypeError, match=message):
        AgentSpec('one', schema_in=wrong)
    with pytest.raises(TypeError, match=message):
        entry(_echo, schema_in=wrong)
    with pytest.raises(TypeError, match=message):
        agent_as_toolset('one', schema_in=wrong)


def test_note_entry_of_something_else_than_a_spec_is_refused_at_once() -> None:
    wrong: Any = FunctionToolset[Any]()
    with pytest.raises(TypeError, match=r'Write `ToolsetSpec\(factory=…\)`'):
        EntrySpec(wrong, 'start')


async def test_note_entry_whose_context_comes_last_is_told_what_to_write() -> None:
    def build(ctx: Any) -> FunctionToolset[Any]:
        toolset: Any = FunctionToolset[Any]()

        @toolset.tool
        async def main(input: str, attachments: list[str] | None = None, *, ctx: Any) -> str:
            return input

        return toolset

    with pytest.raises((EntryError, UserError), match='RunContext'):
        await Runtime().run_entry(EntrySpec(ToolsetSpec(factory=build), 'start'), 'Go')


async def test_note_input_of_an_entry_is_told() -> None:
    told: list[tuple[str, int, str, str]] = []
    runtime = Runtime(on_event=lambda event: told.append((event.agent, event.depth, event.kind, event.text)))
    await runtime.run_entry(entry(_echo), {'input': 'Go'})
    await runtime.run_entry(entry(_topic, schema_in=Topic), {'topic': 'Grüße'})
    assert told == [('start', 0, 'input', 'Go'), ('start', 0, 'input', '{"topic": "Grüße", "words": 3}')]


class Topic(WorkerArgs):
    topic: str
    words: int = 3


def _topic(topic: str, words: int) -> str:
    return topic * words
