"""B15: a live toolset says what a sub-agent gets in its place, by the context of the tool call that delegates."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext

from .delegation import WAYS, Ledger, Notes, called, calling, delegating
from .toolsets import Journal, run_as

pytestmark = pytest.mark.anyio


kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


@pytest.mark.parametrize('way', WAYS)
@kinds
async def test_b15_live_instance_is_asked_with_the_context_of_the_tool_call(kind: type[Notes], way: str):
    def options(ctx: RunContext[Any]) -> dict[str, Any]:
        contexts.append(ctx)
        return {}

    contexts: list[RunContext[Any]] = []
    journal = Journal()
    notes = kind('t', journal)
    child = calling(['t'], toolsets=[notes])
    parent = calling(['t'], ['delegate'], toolsets=[notes, delegating(child, way, options=options)])
    deps = object()
    await run_as('parent', parent, deps=deps)
    live = called(journal, 'parent')
    (asked,) = journal.of('ask')
    assert asked.toolset is live
    assert (live is notes) is (kind is Ledger)
    ctx = asked.got[0]
    assert ctx.deps is deps
    assert ctx.tool_name == 'delegate'
    assert ctx.tool_call_id
    assert ctx.tool_call_id == contexts[0].tool_call_id
    assert ctx.run_id == contexts[0].run_id
    assert ctx.run_step == 2
