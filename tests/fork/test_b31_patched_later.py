"""B31: methods that are set on an instance or patched on a base class are called where the fork calls only what's overridden."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast
from unittest.mock import patch

import pytest
from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    RunContext,
)
from pydantic_ai.models.test import TestModel

pytestmark = pytest.mark.anyio


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
