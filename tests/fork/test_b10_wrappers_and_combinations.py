"""B10: wrappers and combinations are stateful exactly when something inside is, and copy what is inside."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

import pydantic_ai.toolsets
import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset

from .delegation import Notes, delegating
from .line import WRAPPERS
from .toolsets import Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

wrappers = pytest.mark.parametrize('wrap', WRAPPERS.values(), ids=WRAPPERS.keys())
Wrap = Callable[[AbstractToolset[Any]], WrapperToolset[Any]]


def server() -> Server:
    return Server('server', Journal())


def session() -> Session:
    return Session('session', Journal())


def test_b10_every_wrapper_of_the_line_is_tested():
    exported = [getattr(pydantic_ai.toolsets, name) for name in pydantic_ai.toolsets.__all__]
    names = {
        cls.__name__
        for cls in exported
        # On Python 3.10 an alias of `Callable` passes for a type.
        if isinstance(cls, type) and not hasattr(cls, '__origin__')
        if issubclass(cls, WrapperToolset) and cls is not WrapperToolset
    }
    assert names == set(WRAPPERS)
    assert names == {type(wrap(server())).__name__ for wrap in WRAPPERS.values()}


@wrappers
def test_b10_copy_of_stateful_wrapper_wraps_a_copy_and_keeps_the_rest(wrap: Wrap):
    inside = session()
    wrapper = wrap(inside)
    copy = wrapper.copy()
    assert type(copy) is type(wrapper)
    assert copy is not wrapper
    assert wrapper.wrapped is inside
    assert copy.wrapped is not inside
    assert isinstance(copy.wrapped, Session)
    assert copy.wrapped.original is inside
    for attribute in dataclasses.fields(wrapper):
        if attribute.name not in ('wrapped', 'prepare_func'):
            assert getattr(copy, attribute.name) == getattr(wrapper, attribute.name)


@wrappers
async def test_b10_wrapper_does_the_same_to_the_tools_of_a_copy(wrap: Wrap):
    async def tools_of(toolset: AbstractToolset[Any]) -> list[tuple[str, dict[str, Any] | None]]:
        found: list[tuple[str, dict[str, Any] | None]] = []

        async def note(ctx: RunContext[Any], tool_defs: list[Any]) -> list[Any]:
            found.extend((tool_def.name, tool_def.metadata) for tool_def in tool_defs)
            return tool_defs

        await Agent(scripted(), toolsets=[wrap(toolset).prepared(note)]).run('go')
        return found

    with_copies = await tools_of(Session('toolset', Journal()))
    assert with_copies == await tools_of(Server('toolset', Journal()))
    assert len(with_copies) == 1


class Limited(WrapperToolset[Any]):
    """A user's wrapper that says nothing of copies."""

    def __init__(self, wrapped: AbstractToolset[Any], dry_run: bool = False):
        super().__init__(wrapped)
        self.dry_run = dry_run

    async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
        return 'refused' if self.dry_run else await super().call_tool(*args, **kwargs)


class Renames(Limited):
    """Another, whose parameters have other names than the attributes."""

    def __init__(self, inner: AbstractToolset[Any], *, dry: bool):
        super().__init__(inner, dry)


def later(toolset: Any) -> Any:
    """Make one whose attribute is set after it was made."""
    wrapper = Limited(toolset)
    wrapper.dry_run = True
    return wrapper


class Rated(CombinedToolset[Any]):
    """A user's combination with an attribute of its own."""

    def __init__(self, *toolsets: AbstractToolset[Any], dry_run: bool = False):
        super().__init__(list(toolsets))
        self.dry_run = dry_run

    async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
        return 'refused' if self.dry_run else await super().call_tool(*args, **kwargs)


CONFIGURED: dict[str, Callable[[Any], Any]] = {
    'parameter': lambda toolset: Limited(toolset, dry_run=True),
    'parameters of other names': lambda toolset: Renames(toolset, dry=True),
    'set later': later,
    'combination': lambda toolset: Rated(toolset, dry_run=True),
}
AROUND: dict[str, Callable[[Any], Any]] = {
    'alone': lambda toolset: toolset,
    'in wrappers': lambda toolset: toolset.filtered(lambda ctx, tool: True).renamed({}),  # pyright: ignore
    'in a combination': lambda toolset: CombinedToolset([toolset, server()]),
    'around wrappers': lambda toolset: toolset,
}


@pytest.mark.parametrize('borrowed', [False, True])
@pytest.mark.parametrize('around', AROUND)
@pytest.mark.parametrize('configured', CONFIGURED)
async def test_b10_wrapper_that_is_rebuilt_keeps_what_it_was_configured_with(
    configured: str, around: str, borrowed: bool
):
    """Its tools answer as they do around what isn't stateful, also in sub-agents."""
    journal = Journal()
    notes = Notes('t', journal)
    inside = notes.prepared(lambda ctx, tools: tools).renamed({}) if around == 'around wrappers' else notes
    toolset = AROUND[around](CONFIGURED[configured](inside))
    agent = Agent(scripted(['t']), toolsets=[toolset])
    if borrowed:
        agent = Agent(scripted(['delegate']), toolsets=[toolset, delegating(agent)])
    await run_as('run', agent)
    assert journal.of('call') == []
    assert journal.lifecycle == ['+t', '-t']


@pytest.mark.parametrize('kind', [Server, Session])
@pytest.mark.parametrize('make', [lambda inner: inner.renamed({}), lambda inner: CombinedToolset([inner])])  # pyright: ignore
async def test_b10_what_nested_wrappers_cost_grows_in_proportion(make: Any, kind: type[Server]):
    """Calls of functions of the package's toolsets until the run has started."""

    async def calls(depth: int) -> int:
        toolset: Any = kind('t', Journal())
        for _ in range(depth):
            toolset = make(toolset)
        agent = Agent(scripted(), toolsets=[toolset])
        count = 0

        def profile(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event == 'call' and f'{os.sep}toolsets{os.sep}' in frame.f_code.co_filename

        sys.setprofile(profile)
        try:
            await agent.run('go')
        finally:
            sys.setprofile(None)
        return count

    await calls(1)  # what is done once
    ten, twenty, forty = [await calls(depth) for depth in (10, 20, 40)]
    assert forty - twenty <= 2.2 * (twenty - ten)
