"""B30: an agent with a stateful toolset isn't wrapped for Temporal. No server is needed to see that."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, UserError
from pydantic_ai.models.test import TestModel

from ..line import EXPORTS_STATE, WAYS_TO_MAKE_DURABLE
from ..toolsets import Journal, Server, Session
from .agents import STATIC, for_temporal

pytestmark = pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE)


@pytest.mark.parametrize('wrapper', STATIC)
def test_b30_stateful_toolset_is_refused_when_the_agent_is_wrapped(way: str, wrapper: str):
    session = Session('my-session', Journal())

    # What was written by hand says that it is stateful for what it holds
    with pytest.raises(UserError, match=r'is stateful.* Temporal activity.*[Kk]eep the state outside'):
        for_temporal(way, TestModel(), [STATIC[wrapper](session)])
    assert session.journal.events == []


def test_b30_stateful_toolset_is_refused_behind_shared(way: str):
    with pytest.raises(UserError, match=rf"Session 'my-session' is stateful.*{EXPORTS_STATE}"):
        for_temporal(way, TestModel(), [Session('my-session', Journal()).shared()])


def test_b30_all_stateful_toolsets_are_named(way: str):
    journal = Journal()
    toolsets = [Session('one', journal), Server('shared', journal), Session('two', journal).prefixed('x')]

    with pytest.raises(UserError) as exc_info:
        for_temporal(way, TestModel(), toolsets)

    assert [label in str(exc_info.value) for label in ("'one'", "'two'", "'shared'")] == [True, True, False]


def test_b30_agent_without_stateful_toolset_is_wrapped(way: str):
    toolsets: list[Any] = [FunctionToolset[Any](id='functions'), Server('shared', Journal()).prefixed('x')]

    assert for_temporal(way, TestModel(), toolsets).name == 'agent'


def test_b30_dynamic_toolset_is_treated_as_on_the_base(way: str):
    def build(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        return None

    with pytest.raises(UserError, match='need to have a unique `id`'):
        for_temporal(way, TestModel(), [build])


@pytest.mark.anyio
async def test_b30_what_was_refused_still_works(way: str):
    journal = Journal()
    model, session = TestModel(call_tools=['session']), Session('session', journal)
    with pytest.raises(UserError):
        for_temporal(way, model, [session])

    await Agent(model, toolsets=[session]).run('go')

    assert journal.lifecycle == ['+session', '-session']
