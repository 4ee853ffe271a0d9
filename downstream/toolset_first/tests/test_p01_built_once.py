"""Point 1: one `Agent` per `AgentSpec` for the life of the runtime."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from pydantic_ai import Agent
from support import StatefulKeeper, call, calling, script, scripts
from toolset_first import AgentSpec, Runtime, ToolsetFirstError, ToolsetSpec, agent_as_toolset


@pytest.fixture
def built() -> Iterator[list[str]]:
    """The names of the agents that were built, in order."""
    names: list[str] = []
    init = Agent.__init__

    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        names.append(kwargs['name'])
        init(self, *args, **kwargs)

    with patch.object(Agent, '__init__', counting):
        yield names


async def test_p01_agent_called_a_thousand_times_is_built_once(built: list[str]) -> None:
    spec = AgentSpec('one', model=script('done'), toolset_specs=[ToolsetSpec(toolset=StatefulKeeper())])
    runtime = Runtime([spec])
    for _ in range(10):
        await asyncio.gather(*(runtime.run_entry(calling('one'), 'Go') for _ in range(100)))
    assert built == ['one']


async def test_p01_agents_that_call_each_other_are_built_once_and_have_state_of_their_own(built: list[str]) -> None:
    model = scripts(
        {
            'first': [call('keep', what='a'), call('b', input='second'), call('keep', what='a again')],
            'second': [call('keep', what='b'), call('a', input='third'), call('keep', what='b again')],
            'third': [call('keep', what='inner a')],
        }
    )
    keeper = ToolsetSpec(factory=lambda context: StatefulKeeper())
    a = AgentSpec('a', model=model, toolset_specs=[keeper, agent_as_toolset('b', tool='b')])
    b = AgentSpec('b', model=model, toolset_specs=[keeper, agent_as_toolset('a', tool='a')])
    outputs: list[str] = []
    runtime = Runtime([a, b], on_event=lambda event: outputs.append(event.text) if event.kind == 'end' else None)

    await runtime.run_entry(calling('a'), 'first')

    assert outputs == ['["inner a"]', '["b","b again"]', '["a","a again"]']
    assert built == ['a', 'b']


async def test_p01_register_agents_builds_again(built: list[str]) -> None:
    old, new = AgentSpec('one', model=script('old')), AgentSpec('one', model=script('new'))
    runtime = Runtime([old])
    assert await runtime.run_entry(calling('one'), 'Go') == 'old'
    runtime.register_agents(new)
    assert await runtime.run_entry(calling('one'), 'Go') == 'new'
    runtime.register_agents(new)
    assert built == ['one', 'one', 'one']


def test_p01_two_agents_of_one_name_are_refused_together() -> None:
    runtime = Runtime()
    with pytest.raises(ToolsetFirstError, match='same name'):
        runtime.register_agents(AgentSpec('one', model='test'), AgentSpec('one', model='test'))
    assert runtime.agents == {}


async def test_p01_agent_that_is_not_registered_is_built_at_its_first_call_and_released_with_its_spec(
    built: list[str],
) -> None:
    runtime = Runtime()
    spec = AgentSpec('loose', model=script('done'), toolset_specs=[ToolsetSpec(toolset=StatefulKeeper())])
    for _ in range(3):
        assert await runtime.run_entry(calling(spec), 'Go') == 'done'
    assert built == ['loose']
    del spec
    gc.collect()
    assert len(runtime._built) == 0  # pyright: ignore[reportPrivateUsage]
