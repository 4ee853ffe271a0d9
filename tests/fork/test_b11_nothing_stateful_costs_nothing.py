"""B11: a run with no stateful toolset makes no copy."""

from __future__ import annotations

import copy as copying
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, ToolDefinition, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, ExternalToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import METHODS, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio


class CountsCopies(Server):
    """A toolset that isn't stateful, and could be copied."""

    copies = 0

    def copy(self) -> Self:
        type(self).copies += 1
        return type(self)(self.name, self.journal)

    def __copy__(self) -> Self:
        type(self).copies += 1
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        type(self).copies += 1
        return self


class CountsInstances(Server):
    """A toolset that counts how many there are."""

    instances = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        cls.instances += 1
        return super().__new__(cls)


@dataclass
class CountingWrapper(WrapperToolset[Any]):
    """A wrapper that counts how many were made."""

    def __post_init__(self) -> None:
        made.append(self)


made: list[WrapperToolset[Any]] = []


@pytest.mark.parametrize('method', METHODS)
async def test_b11_run_without_stateful_toolset_calls_no_copy(method: str):
    CountsCopies.copies = 0
    toolsets = [
        CountsCopies('a', Journal()),
        *(wrap(CountsCopies(name, Journal())) for name, wrap in WRAPPERS.items()),
        CombinedToolset([CountsCopies('b', Journal()), CombinedToolset([CountsCopies('c', Journal()).prefixed('y')])]),
    ]
    agent = Agent(scripted(['a', 'b']), toolsets=toolsets)
    async with agent:
        assert await METHODS[method](agent, toolsets=[CountsCopies('d', Journal())]) == 'done'
    assert CountsCopies.copies == 0


async def test_b11_run_with_stateful_toolset_does_not_copy_those_beside_it():
    CountsCopies.copies = 0
    session = Session('session', Journal())
    toolsets = [
        CombinedToolset([session.prefixed('x'), CountsCopies('a', Journal())]).filtered(lambda ctx, tool: True),
        CountsCopies('b', Journal()),
    ]
    await Agent(scripted(['a', 'b']), toolsets=toolsets).run('go')
    assert CountsCopies.copies == 0
    assert len(session.journal.of('copy')) == 1


@pytest.mark.parametrize('method', METHODS)
async def test_b11_run_without_stateful_toolset_makes_no_instance(method: str):
    CountsInstances.instances = 0
    server = CountsInstances('a', Journal())
    agent = Agent(scripted(['a', 'x_a']), toolsets=[server, CombinedToolset([server.prefixed('x')])])
    for _ in range(3):
        await METHODS[method](agent)
    assert CountsInstances.instances == 1


async def test_b11_run_makes_no_more_wrappers_than_on_the_base():
    agent = Agent(scripted(), toolsets=[CombinedToolset([CountingWrapper(Server('a', Journal()))])])
    made.clear()
    await agent.run('go')
    assert len(made) <= 1


async def test_b11_run_with_stateful_toolset_makes_at_most_one_wrapper_around_it():
    agent = Agent(scripted(), toolsets=[CombinedToolset([CountingWrapper(Session('a', Journal()))])])
    made.clear()
    await agent.run('go')
    assert len(made) <= 1


@pytest.mark.parametrize('runs', [1, 5])
async def test_b11_stateful_toolset_is_copied_once_per_run(runs: int):
    session = Session('session', Journal())
    agent = Agent(
        scripted(['session'], ['session'], ['session']), toolsets=[HandlesMany([session]), session.prefixed('x')]
    )
    for run in range(runs):
        await run_as(str(run), agent)
    assert len(session.journal.of('copy')) == runs


class HandlesMany(CombinedToolset[Any]):
    """A user's combination."""


async def test_b11_wiring_and_looking_at_toolsets_makes_no_copy():
    session = Session('session', Journal())
    agent = Agent(scripted(), toolsets=[session, CombinedToolset([session.prefixed('x')])])
    with agent.override(toolsets=[session]):
        assert session in agent.toolsets
    async with agent:
        pass
    assert session in agent.toolsets
    assert session.journal.of('copy') == []


async def test_b11_toolset_copied_with_the_copy_module_is_copied_as_on_the_base():
    toolsets: list[AbstractToolset[Any]] = [
        FunctionToolset(),
        ExternalToolset([ToolDefinition(name='external')]),
        Session('session', Journal()),
        Session('session', Journal()).prefixed('x'),
    ]
    for toolset in toolsets:
        copied = copying.copy(toolset)
        assert type(copied) is type(toolset)
        assert vars(copied) == vars(toolset)
