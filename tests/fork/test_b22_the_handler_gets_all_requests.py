"""B22: a handler, on the agent, on each run method and in `override`, gets all deferred calls of one response, once."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.agent import WrapperAgent

from .approvals import Handler, Tools, agent_of, answer_all
from .toolsets import METHODS

pytestmark = pytest.mark.anyio

ALL = ['delete', 'look', 'write', 'send']
"""A call of each kind, in one response."""


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('place', ['agent', 'run', 'override'])
async def test_b22_works_in_each_place_and_with_each_method(place: str, method: str):
    tools, handler = Tools(), Handler(answer_all)
    on_agent: dict[str, Any] = {'deferred_tool_handler': handler} if place == 'agent' else {}
    on_run: dict[str, Any] = {'deferred_tool_handler': handler} if place == 'run' else {}
    agent = agent_of(tools, ALL, ['delete.2'], **on_agent)
    if place == 'override':
        with agent.override(deferred_tool_handler=handler):
            assert await METHODS[method](agent, **on_run) == 'all done'
    else:
        assert await METHODS[method](agent, **on_run) == 'all done'
    assert handler.asked == [['delete', 'send', 'write'], ['delete.2']]
    assert sorted(tools.done) == ['delete', 'delete.2', 'look', 'write']


@pytest.mark.parametrize('method', METHODS)
async def test_b22_works_through_a_wrapper_agent(method: str):
    tools, handler = Tools(), Handler(answer_all)
    agent: Any = WrapperAgent(agent_of(tools, ALL))
    assert await METHODS[method](agent, deferred_tool_handler=handler) == 'all done'
    with agent.override(deferred_tool_handler=handler):
        assert await METHODS[method](agent) == 'all done'
    assert len(handler.asked) == 2
