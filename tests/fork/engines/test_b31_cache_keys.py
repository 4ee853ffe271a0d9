"""B31 on Prefect: cache keys of tasks leave out what the fork adds to a run's context, as upstream's test of them asks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.durable_exec.prefect._cache_policies import PrefectAgentInputs
from pydantic_ai.models.test import TestModel

from ..toolsets import Journal, Session

ADDED = {'_toolsets', 'deferred_tool_handler'}


def key_of(ctx: RunContext[Any]) -> str | None:
    return PrefectAgentInputs().compute_key(task_ctx=None, inputs={'ctx': ctx}, flow_parameters={})  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_b31_cache_keys_leave_out_the_toolsets_and_the_handler_of_a_run():
    def approve(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults()

    contexts: list[RunContext[Any]] = []
    agent = Agent(TestModel(), toolsets=[Session('notes', Journal())], deferred_tool_handler=approve)

    @agent.tool
    def look(ctx: RunContext[Any]) -> str:
        contexts.append(ctx)
        return 'seen'

    await agent.run('Hello')
    [ctx] = contexts
    assert {field.name for field in fields(ctx)} >= ADDED
    assert all(getattr(ctx, name) is not None for name in ADDED)

    assert key_of(ctx)
    assert key_of(ctx) == key_of(replace(ctx, **dict.fromkeys(ADDED)))
    assert key_of(ctx) != key_of(replace(ctx, tool_name='other'))
