"""B2: what can't be looked into yet is left alone: looking at toolsets never raises anything of its own."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, ToolsetTool, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .delegation import delegating
from .toolsets import METHODS, Journal, Server, Whole, run_as, scripted, tool_of

pytestmark = pytest.mark.anyio


class Late(Whole, WrapperToolset[Any]):
    """A wrapper that gets its inside when it's entered."""

    def __init__(self, inside: AbstractToolset[Any]):
        self._inside = inside

    async def __aenter__(self) -> Self:
        self.wrapped = self._inside
        return await super().__aenter__()


class None_(Late):
    """One that has nothing inside until then."""

    wrapped: Any = None


class LateCombination(Whole, CombinedToolset[Any]):
    """A combination that is filled when it's entered."""

    def __init__(self, inside: AbstractToolset[Any]):
        super().__init__([])
        self._later = inside

    async def __aenter__(self) -> Self:
        self.toolsets = [self._later]
        return await super().__aenter__()


class Raises(Server):
    """A toolset with a property of that name that can't be read yet."""

    def __init__(self, inside: Server):
        super().__init__(inside.name, inside.journal)

    @property
    def stateful(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError('not before the first call')


class WithoutDict(Whole):
    """A toolset without `__dict__`: only registered, as a type written in C would be."""

    __slots__ = ('inside',)

    def __init__(self, inside: Server):
        self.inside = inside

    id = _explicit_id = None

    async def __aenter__(self) -> Self:
        await self.inside.__aenter__()
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        return await self.inside.__aexit__(*args)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {self.inside.name: tool_of(self, self.inside.name)}  # pyright: ignore[reportArgumentType]

    async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
        return await self.inside.call_tool(name, tool_args, ctx, tool)


for name in dir(AbstractToolset):
    if not name.startswith(('__', '_abc')) and not hasattr(WithoutDict, name):
        setattr(WithoutDict, name, getattr_static(AbstractToolset, name))
AbstractToolset.register(WithoutDict)

KINDS: dict[str, Callable[[Server], Any]] = {
    'wrapped is set when it is entered': Late,
    'wrapped is None until it is entered': None_,
    'combination is filled when it is entered': LateCombination,
    'stateful raises': Raises,
    'no __dict__': WithoutDict,
}
PLACES: dict[str, Callable[[Any], list[Any]]] = {
    'alone': lambda toolset: [toolset],
    'combined': lambda toolset: [CombinedToolset([Server('s', Journal()), toolset])],
    'wrapped': lambda toolset: [WrapperToolset(toolset)],
}
kinds = pytest.mark.parametrize('kind', KINDS.values(), ids=KINDS)
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES)
methods = pytest.mark.parametrize('method', METHODS)


@kinds
@places
@methods
async def test_b02_what_cannot_be_looked_into_works_wherever_it_is_given(kind: Any, place: Any, method: str):
    server = Server('t', Journal())
    toolsets = place(kind(server))
    agent = Agent(scripted(['t']), toolsets=toolsets)
    assert await run_as('agent', agent, method) == 'done'
    other = Agent(scripted(['t']))
    assert await run_as('run', other, method, toolsets=toolsets) == 'done'
    with other.override(toolsets=toolsets):
        assert await run_as('override', other, method) == 'done'
    async with agent:
        assert await run_as('entered', agent, method) == 'done'
    journal = server.journal
    assert [event.run for event in journal.of('call')] == ['agent', 'run', 'override', 'entered']
    assert len(journal.of('exit')) >= 1


@kinds
@places
async def test_b02_what_cannot_be_looked_into_works_in_sub_agents(kind: Any, place: Any):
    server = Server('t', Journal())
    toolsets = place(kind(server))
    child = Agent(scripted(['t']), toolsets=toolsets, name='child')
    parent = Agent(scripted(['t'], ['delegate'], ['t']), toolsets=[*toolsets, delegating(child)], name='parent')
    await run_as('parent', parent)
    assert [event.run for event in server.journal.of('call')] == ['parent', 'child', 'parent']
