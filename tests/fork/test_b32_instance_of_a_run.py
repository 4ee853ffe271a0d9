"""B32: what a run works with in place of a toolset can be had in the run, by whoever drives it, and after it."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .delegation import Ledger, Notes, calling, delegating
from .toolsets import Journal, Server, Session

pytestmark = pytest.mark.anyio


async def test_b32_tool_driver_and_result_have_the_instance_of_their_run():
    journal = Journal()
    session, server = Session('t', journal), Server('s', journal)
    found: list[Any] = []

    async def look(ctx: RunContext[Any], value: str) -> None:
        found.append(ctx.instance_of(session))
        assert ctx.instance_of(server) is server

    agent = calling(['t'], ['look'], toolsets=[CombinedToolset([session, server])], tools=[look])
    async with agent.iter('go') as agent_run:
        during = agent_run.instance_of(session)
        async for _ in agent_run:
            pass
    assert agent_run.result is not None
    assert found == [during]
    assert agent_run.result.instance_of(session) is during
    assert isinstance(during, Session)
    assert during is not session
    assert (during.values, session.values) == ([''], [])
    assert journal.lifecycle == ['+t', '+s', '-s', '-t']


@pytest.mark.parametrize('kind', [Notes, Ledger])
@pytest.mark.parametrize('per_run_step', [True, False])
async def test_b32_factory_can_return_what_the_run_has_borrowed(kind: type[Notes], per_run_step: bool):
    """It neither enters nor exits that."""
    journal = Journal()
    notes = kind('t', journal, answer=lambda live, ctx: live)
    factory = DynamicToolset[Any](lambda ctx: ctx.instance_of(notes).prefixed('y'), per_run_step=per_run_step)
    child = calling(['y_t'], ['t'], toolsets=[notes, factory])
    result = await calling(['delegate'], ['t'], toolsets=[notes, delegating(child)]).run('go')
    assert journal.lifecycle == ['+t', '-t']
    assert len(result.instance_of(notes).values) == 3


@pytest.mark.parametrize('kind', [Notes, Ledger])
@pytest.mark.parametrize('per_run_step', [True, False])
@pytest.mark.parametrize('of_parent', [True, False])
async def test_b32_factory_can_return_what_the_run_shares(kind: type[Notes], per_run_step: bool, of_parent: bool):
    """It's entered and exited once, by the parent or by the run itself."""
    journal = Journal()
    notes = kind('t', journal)
    factory = DynamicToolset[Any](lambda ctx: ctx.instance_of(notes).prefixed('y'), per_run_step=per_run_step)
    child = calling(['y_t'], ['t'], toolsets=[notes.shared(), factory])
    await calling(['delegate'], toolsets=[*([notes] if of_parent else []), delegating(child)]).run('go')
    assert journal.lifecycle == ['+t', '-t']
    (used,) = {event.toolset for event in journal.of('call')}
    assert len(used.values) == 2
