"""B30: an agent with a stateful toolset isn't wrapped for Temporal. No server is needed to see that."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, UserError
from pydantic_ai.durable_exec.temporal import TemporalAgent
from pydantic_ai.models.test import TestModel

from ..toolsets import Journal, Server, Session
from .agents import STATIC


@pytest.mark.parametrize('wrapper', STATIC)
def test_b30_stateful_toolset_is_refused_when_the_agent_is_wrapped(wrapper: str):
    session = Session('my-session', Journal())
    agent = Agent(TestModel(), name='agent', toolsets=[STATIC[wrapper](session)])

    with pytest.raises(
        UserError, match=r"Session 'my-session' is stateful.* Temporal activity.*Keep the state outside"
    ):
        TemporalAgent(agent)
    assert session.journal.events == []


def test_b30_all_stateful_toolsets_are_named():
    journal = Journal()
    toolsets = [Session('one', journal), Server('shared', journal), Session('two', journal).prefixed('x')]

    with pytest.raises(UserError) as exc_info:
        TemporalAgent(Agent(TestModel(), name='agent', toolsets=toolsets))

    assert [label in str(exc_info.value) for label in ("'one'", "'two'", "'shared'")] == [True, True, False]


def test_b30_agent_without_stateful_toolset_is_wrapped():
    toolsets: list[Any] = [FunctionToolset[Any](id='functions'), Server('shared', Journal()).prefixed('x')]

    assert TemporalAgent(Agent(TestModel(), name='agent', toolsets=toolsets)).name == 'agent'


def test_b30_dynamic_toolset_is_treated_as_on_the_base():
    def build(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        return None

    with pytest.raises(UserError, match='need to have a unique `id`'):
        TemporalAgent(Agent(TestModel(), name='agent', toolsets=[build]))


@pytest.mark.anyio
async def test_b30_the_agent_that_was_refused_still_works():
    journal = Journal()
    agent = Agent(TestModel(call_tools=['session']), name='agent', toolsets=[Session('session', journal)])
    with pytest.raises(UserError):
        TemporalAgent(agent)

    await agent.run('go')

    assert journal.lifecycle == ['+session', '-session']
