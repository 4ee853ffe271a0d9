"""B31: methods that are set on an instance or patched on a base class are called where the fork calls only what's overridden."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from importlib import import_module
from typing import Any, cast
from unittest.mock import patch

import pytest
from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    Tool,
    ToolDefinition,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from .capabilities import contributing
from .line import WRAPPERS
from .toolsets import Journal, Server, scripted

pytestmark = pytest.mark.anyio


def seeing() -> tuple[FunctionModel, list[AgentInfo]]:
    """Make a model that answers at once, and a list of what it gets to see."""
    seen: list[AgentInfo] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return ModelResponse([TextPart('done')])

    return FunctionModel(respond), seen


async def instructions(toolset: AbstractToolset[Any]) -> str | None:
    model, seen = seeing()
    await Agent(model, toolsets=[toolset]).run('go')
    return seen[0].instructions


KINDS: dict[str, Callable[[], AbstractToolset[Any]]] = {
    'AbstractToolset': lambda: Server('t', Journal()),
    'FunctionToolset': lambda: FunctionToolset(),
}
kinds = pytest.mark.parametrize('kind', KINDS)


@kinds
@pytest.mark.parametrize('wrap', [lambda toolset: toolset, *WRAPPERS.values()], ids=['itself', *WRAPPERS])
async def test_b31_get_instructions_set_on_an_instance_is_asked(kind: str, wrap: Any):
    toolset: Any = KINDS[kind]()

    async def get_instructions(ctx: RunContext[Any]) -> str:
        return 'Set on the instance.'

    toolset.get_instructions = get_instructions
    assert await instructions(wrap(toolset)) == 'Set on the instance.'


@kinds
async def test_b31_get_instructions_patched_on_a_base_class_is_asked(kind: str):
    async def get_instructions(self: Any, ctx: RunContext[Any]) -> str:
        return 'Patched.'

    cls = {'AbstractToolset': AbstractToolset, 'FunctionToolset': FunctionToolset}[kind]
    toolset = KINDS[kind]()
    assert await instructions(toolset) is None
    with patch.object(cls, 'get_instructions', get_instructions):
        assert 'Patched.' in (await instructions(toolset) or '')
    assert await instructions(toolset) is None


async def test_b31_prepare_tool_def_patched_on_tool_is_called():
    async def prepare_tool_def(self: Tool[Any], ctx: RunContext[Any]) -> ToolDefinition:
        return replace(self.tool_def, description=f'{ctx.tool_name} was patched')

    def look() -> None:
        """Look."""

    model, seen = seeing()
    agent = Agent(model, tools=[look], toolsets=[FunctionToolset([Tool(look, name='again')])])
    with patch.object(Tool, 'prepare_tool_def', prepare_tool_def):
        await agent.run('go')
    await agent.run('go')
    described = [[tool.description for tool in info.function_tools] for info in seen]
    assert described == [['look was patched', 'again was patched'], ['Look.', 'Look.']]


HOOKS = [
    'prepare_tools',
    'before_run',
    'after_run',
    'wrap_run',
    'before_node_run',
    'after_node_run',
    'before_model_request',
    'after_model_request',
    'before_tool_validate',
    'after_tool_validate',
    'wrap_tool_validate',
    'before_tool_execute',
    'after_tool_execute',
    'wrap_tool_execute',
]


@pytest.mark.parametrize('hook', HOOKS)
async def test_b31_hook_patched_on_the_base_of_all_capabilities_is_called(hook: str):
    """As tracers do, which patch the method that all capabilities inherit."""
    capability = contributing(Server('t', Journal()))
    (base,) = (cls for cls in type(capability).__mro__ if cls.__name__ == 'AbstractCapability')
    original, called = getattr(base, hook), list[Any]()

    async def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(self)
        return await original(self, *args, **kwargs)

    agent = Agent(scripted(['t']), capabilities=[capability])
    with patch.object(base, hook, traced):
        await agent.run('go')
    assert any(one is capability for one in called)
    count = len(called)
    await agent.run('go')
    assert len(called) == count


@pytest.mark.parametrize('hook', ['before_node_run', 'after_node_run'])
async def test_b31_node_hook_patched_on_the_combined_capability_is_called(hook: str):
    cls: Any = import_module('pydantic_ai.capabilities').CombinedCapability

    original, called = getattr(cls, hook), list[Any]()

    async def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(self)
        return await original(self, *args, **kwargs)

    with patch.object(cls, hook, traced):
        await Agent(scripted()).run('go')
    assert called


async def test_b31_attributes_of_a_capability_that_is_not_loaded_are_not_read():
    """What a deferred capability has may not be there before it's loaded."""

    class Deferred(type(contributing(Server('t', Journal()))).__mro__[1]):  # pyright: ignore[reportUntypedBaseClass]
        @property
        def before_model_request(self) -> Any:
            raise AssertionError('Read before it was loaded')

        after_model_request = wrap_run = prepare_tools = before_tool_execute = before_model_request

    deferred: Any = Deferred()
    deferred.id, deferred.defer_loading, deferred.description = 'later', True, 'Later.'
    agent = Agent(scripted(), capabilities=[deferred])
    assert (await agent.run('go')).output == 'done'


class Late(FunctionToolset[Any]):
    """Declares nothing about runs, before it's patched."""

    shared_attributes = frozenset({'used'})

    def __init__(self, used: list[Any]):
        super().__init__()
        self.used = used
        self.add_function(self.act)

    def copy(self) -> Late:
        return type(self)(self.used)

    def act(self) -> None:
        self.used.append(self)


HOLDERS: dict[str, Callable[[Any], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    'wrapped': lambda toolset: toolset.prefixed('x').renamed({}),
}
holders = pytest.mark.parametrize('hold', HOLDERS.values(), ids=HOLDERS)


@holders
@pytest.mark.parametrize('where', ['base class', 'class', 'instance'])
async def test_b31_for_run_patched_after_a_run_is_called(where: str, hold: Any):
    """By a tracer that looks like what it wraps, for a toolset that runs share."""
    original, seen = AbstractToolset.for_run, []

    @wraps(original)
    async def traced(self: Any, ctx: RunContext[Any]) -> Any:
        seen.append(self)
        return await original(self, ctx)

    toolset = Late([])
    agent = Agent(TestModel(), toolsets=[hold(toolset), FunctionToolset()])
    await agent.run('go')
    if where == 'instance':
        cast(Any, toolset).for_run = partial(traced, toolset)
        await agent.run('go')
    else:
        with patch.object(Late if where == 'class' else AbstractToolset, 'for_run', traced):
            await agent.run('go')

    assert seen.count(toolset) == 1
    assert toolset.used == [toolset] * 2


@holders
@pytest.mark.parametrize('where', ['class', 'instance'])
async def test_b31_state_declared_after_a_run_counts(where: str, hold: Any):
    toolset = Late([])
    agent = Agent(TestModel(), toolsets=[hold(toolset), FunctionToolset()])
    await agent.run('go')
    with patch.object(Late if where == 'class' else toolset, 'stateful', True):
        await agent.run('go')
    await agent.run('go')

    assert [used is toolset for used in toolset.used] == [True, False, True]
