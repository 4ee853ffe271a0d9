"""Point 3: `call_agent` is the one place where depth rises."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel
from support import call, calling, entry, script
from toolset_first import (
    AgentSpec,
    CallRuntime,
    DepthError,
    Runtime,
    ToolsetFirstError,
    ToolsetSpec,
    UnknownAgentError,
    agent_as_toolset,
)


async def test_p03_depth_rises_with_agents_and_not_with_tools() -> None:
    seen: list[int] = []

    async def look(ctx: RunContext[CallRuntime]) -> str:
        seen.append(ctx.deps.frame.depth)
        return 'seen'

    looking = ToolsetSpec(factory=lambda context: FunctionToolset[CallRuntime]([look]))
    inner = AgentSpec('inner', model=script(call('look'), call('look')), toolset_specs=[looking])
    model = script(call('look'), call('inner', input='Go'))
    outer = AgentSpec('outer', model=model, toolset_specs=[looking, agent_as_toolset(inner, tool='inner')])

    async def main(ctx: RunContext[CallRuntime], input: str) -> str:
        seen.append(ctx.deps.frame.depth)
        return await ctx.deps.call_agent(outer, input)

    await Runtime().run_entry(entry(main), 'Go')
    assert seen == [0, 1, 2, 2]


async def test_p03_too_deep_names_depth_limit_caller_and_callee() -> None:
    model = script(call('again', input='Go'))
    spec = AgentSpec('again', model=model, toolset_specs=[agent_as_toolset('again', tool='again')])
    with pytest.raises(DepthError) as error:
        await Runtime([spec], max_depth=3).run_entry(calling('again'), 'Go')
    found = error.value
    assert isinstance(found, RuntimeError)
    assert (found.depth, found.limit, found.caller, found.callee) == (3, 3, 'again', 'again')
    assert str(found) == (
        "'again', at depth 3, cannot call 'again': the limit is 3. If that is meant to be so deep, raise `max_depth`."
    )


async def test_p03_unknown_name_is_refused_with_those_that_are_known() -> None:
    runtime = Runtime([AgentSpec('a', model='test'), AgentSpec('b', model='test')])
    with pytest.raises(UnknownAgentError, match=r"no agent 'c'. Those that are registered: 'a', 'b'."):
        await runtime.run_entry(calling('c'), 'Go')
    with pytest.raises(UnknownAgentError, match='registered: none'):
        await Runtime().run_entry(calling('c'), 'Go')


@pytest.mark.parametrize('wrong', [None, 3, TestModel()])
async def test_p03_wrong_type_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match='by its name or its `AgentSpec`'):
        await Runtime().run_entry(calling(wrong), 'Go')


class Verdict(BaseModel):
    good: bool


async def test_p03_agent_returns_what_its_schema_says() -> None:
    spec = AgentSpec('judge', model=TestModel(), schema_out=Verdict)
    assert await Runtime([spec]).run_entry(calling('judge'), 'Go') == Verdict(good=False)


def test_p03_incompatible_model_is_refused_when_the_agent_is_built() -> None:
    spec = AgentSpec('one', model='test', compatible_models=['anthropic:*', 'test'])
    Runtime([spec])
    message = r'works with `anthropic:\*`, `test` only, and the model is `openai:gpt`'
    with pytest.raises(ToolsetFirstError, match=message):
        Runtime([spec], model='openai:gpt')


def test_p03_agent_without_a_model_is_refused() -> None:
    with pytest.raises(ToolsetFirstError, match="The agent 'one' names no model"):
        Runtime([AgentSpec('one')])


async def test_p03_model_of_the_runtime_takes_the_place_of_that_of_the_agents() -> None:
    spec = AgentSpec('one', model='openai:gpt-5')
    assert await Runtime([spec], model=script('hello')).run_entry(calling('one'), 'Go') == 'hello'
