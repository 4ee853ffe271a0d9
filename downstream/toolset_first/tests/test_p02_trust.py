"""Point 2: what runs get in place of toolsets of users and plugins."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
from pydantic_ai import FunctionToolset, Tool
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import WrapperToolset
from support import Keeper, Log, StatefulKeeper, call, calling, script, scripts
from toolset_first import (
    AgentSpec,
    IsolationError,
    Runtime,
    ToolsetBuildContext,
    ToolsetFirstError,
    ToolsetSpec,
    agent_as_toolset,
)


async def outputs(spec: ToolsetSpec) -> list[str]:
    """Return what a keeper says in two runs, one after another."""
    runtime = Runtime([AgentSpec('one', model=script(call('keep', what='x')), toolset_specs=[spec])])
    return [await runtime.run_entry(calling('one'), 'Go') for _ in range(2)]


FRESH, SHARED = ['["x"]', '["x"]'], ['["x"]', '["x","x"]']


async def test_p02_factory_is_called_once_per_run() -> None:
    made: list[ToolsetBuildContext] = []

    def build(context: ToolsetBuildContext) -> Keeper:
        made.append(context)
        return Keeper()

    assert await outputs(ToolsetSpec(factory=build, options={'size': 3})) == FRESH
    assert [(one.name, one.options) for one in made] == [('one', {'size': 3})] * 2
    assert [one.call.frame.depth for one in made] == [1, 1]


async def test_p02_async_factory_is_awaited() -> None:
    async def build(context: ToolsetBuildContext) -> Keeper:
        return Keeper()

    assert await outputs(ToolsetSpec(factory=build)) == FRESH


@pytest.mark.parametrize(
    ('spec', 'expected'),
    [
        (ToolsetSpec(toolset=StatefulKeeper()), FRESH),
        (ToolsetSpec(toolset=StatefulKeeper().prefixed('a').renamed({'keep': 'a_keep'})), FRESH),
        (ToolsetSpec(toolset=StatefulKeeper().shared()), SHARED),
        (ToolsetSpec(toolset=Keeper().shared()), SHARED),
        (ToolsetSpec(toolset=StatefulKeeper(), shared=True), SHARED),
        (ToolsetSpec(toolset=Keeper(), shared=True), SHARED),
    ],
)
async def test_p02_instance_is_what_it_says_of_itself(spec: ToolsetSpec, expected: list[str]) -> None:
    assert await outputs(spec) == expected


def triple(number: int = 3) -> int:
    """Triple."""
    return 3 * number


@wraps(triple)
def decorated(*args: Any, **kwargs: Any) -> int:
    return triple(*args, **kwargs)


def counting(function: Any, step: int = 1) -> Any:
    """Return a function that has nothing but constants and functions of this one."""

    def count(number: int = 3) -> int:
        return function(number) + step

    return count


@pytest.mark.parametrize(
    'toolset',
    [
        FunctionToolset[Any]([triple]),
        FunctionToolset[Any]([Tool(decorated), counting(triple)]).prefixed('a').filtered(lambda ctx, tool: True),
    ],
)
def test_p02_functions_are_shared_since_they_hold_nothing(toolset: Any) -> None:
    spec = AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=toolset)])
    agent = Runtime([spec]).built(spec)[1]
    assert any(getattr(one, 'wrapped', None) is toolset for one in agent.toolsets)


def test_p02_server_is_shared_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server(Keeper):
        """Stands for one of pydantic-ai's, whose module may not be installed."""

    monkeypatch.setattr(Server, '__module__', 'pydantic_ai.mcp')
    Runtime([AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=Server())])])


def closing_over_state() -> FunctionToolset[Any]:
    """Return a toolset whose state is in a variable of this function."""
    kept: list[str] = []

    def keep(what: str) -> list[str]:
        kept.append(what)
        return kept

    return FunctionToolset[Any]([counting(keep)])


def keep_in_default(what: str, kept: list[str] = []) -> list[str]:  # noqa: B006
    """Keep."""
    return kept


class Plugin(WrapperToolset[Any]):
    """Wraps another toolset, and may hold something."""


@pytest.mark.parametrize(
    'toolset',
    [
        Keeper(),
        Keeper().prefixed('a'),
        FunctionToolset[Any]([Keeper().keep]),
        FunctionToolset[Any]([keep_in_default]),
        closing_over_state(),
        Plugin(FunctionToolset[Any]([triple])),
    ],
)
def test_p02_instance_that_says_nothing_is_refused_with_three_ways_out(toolset: Any) -> None:
    with pytest.raises(IsolationError) as error:
        Runtime([AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=toolset)])])
    said = str(error.value)
    assert 'does not say what its runs get of it' in said
    assert '`stateful = True`' in said
    assert '`ToolsetSpec(toolset=…, shared=True)`' in said
    assert '`ToolsetSpec(factory=…)`' in said


def test_p02_stateful_one_without_a_copy_is_refused() -> None:
    class Uncopied(Keeper):
        stateful = True

    with pytest.raises(UserError, match='copy'):
        Runtime([AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=Uncopied())])])


async def test_p02_factory_that_makes_what_only_looks_like_a_toolset_is_refused() -> None:
    class Proxy:
        __aenter__ = Keeper().__aenter__
        __aexit__ = Keeper().__aexit__

        def __getattr__(self, name: str) -> Any:
            return getattr(Keeper(), name)

    made: Any = Proxy()
    spec = ToolsetSpec(factory=lambda context: made, approval_config={'keep': 'deny'})
    agent = AgentSpec('one', model=script(call('keep', what='a')), toolset_specs=[spec])
    with pytest.raises(ToolsetFirstError, match='which is no toolset'):
        await Runtime([agent]).run_entry(calling('one'), 'Go')


async def test_p02_nested_runs_follow_for_sub_agent() -> None:
    log = Log()
    model = scripts({'Go': [call('keep', what='outer'), call('two', input='On')], 'On': [call('keep', what='inner')]})
    keeper = ToolsetSpec(toolset=StatefulKeeper(log))
    two = AgentSpec('two', model=model, toolset_specs=[keeper])
    one = AgentSpec('one', model=model, toolset_specs=[keeper, agent_as_toolset('two', tool='two')])
    assert await Runtime([one, two]).run_entry(calling('one'), 'Go') == '["outer","inner"]'
    assert log.events == ['enter', 'exit None']


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({}, 'either a `factory` or a `toolset`'),
        ({'factory': Keeper, 'toolset': Keeper()}, 'either a `factory` or a `toolset`'),
        ({'factory': 'tools'}, 'not callable'),
        ({'toolset': Keeper}, 'is no toolset'),
        ({'toolset': Keeper(), 'options': {'a': 1}}, 'Only a factory takes options'),
    ],
)
def test_p02_wrong_specs_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ToolsetSpec(**arguments)


def test_p02_toolset_in_place_of_a_spec_is_refused() -> None:
    wrong: Any = [Keeper()]
    with pytest.raises(TypeError, match=r'Write `ToolsetSpec\(toolset=…\)`'):
        AgentSpec('one', toolset_specs=wrong)
