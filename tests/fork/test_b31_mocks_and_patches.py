"""B31: mocks, objects with a toolset's methods, methods patched later and long attributes work as on the base."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from pydantic_ai import AbstractToolset, RunContext

from .delegation import called, calling
from .line import WRAPPERS
from .toolsets import HandWritten, Journal, Server, Session, run_as, scripted, tool_of

pytestmark = pytest.mark.anyio


class Duck:
    """An object with the methods of a toolset that's no subclass of `AbstractToolset`."""

    id = None
    label = 'the duck'
    tool_name_conflict_hint = ''

    def __init__(self) -> None:
        self.called: list[str] = []

    async def __aenter__(self) -> Any:
        self.called.append('enter')
        return self

    async def __aexit__(self, *args: object) -> None:
        self.called.append('exit')

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, Any]:
        return {'duck': tool_of(self, 'duck')}  # pyright: ignore[reportArgumentType]

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> str:
        self.called.append('call')
        return 'quack'

    async def get_instructions(self, ctx: RunContext[Any]) -> None:
        return None

    async def for_run(self, ctx: RunContext[Any]) -> Any:
        return self

    async def for_run_step(self, ctx: RunContext[Any]) -> Any:
        return self

    def apply(self, visitor: Callable[[Any], None]) -> None:
        visitor(self)

    def visit_and_replace(self, visitor: Callable[[Any], Any]) -> Any:
        return visitor(self)

    async def _collect_instruction_contributions(self, ctx: RunContext[Any]) -> list[Any]:
        return []

    def _may_have_instructions(self) -> bool:
        return False

    _explicit_id = None


class RegisteredDuck(Duck):
    """The same, of a class that's registered as a toolset."""


AbstractToolset.register(RegisteredDuck)


METHODS_OF_TOOLSETS = ['__aenter__', '__aexit__', 'get_tools', 'call_tool']


@pytest.mark.parametrize('kind', [Server, Session])
@pytest.mark.parametrize('name', METHODS_OF_TOOLSETS)
async def test_b31_method_patched_on_a_class_is_called_for_the_runs_instance(kind: type[Server], name: str):
    """As tracers do, and `mock.patch.object` does."""

    class Traced(kind):
        pass

    original = getattr(Traced, name)
    traced: list[Any] = []

    async def trace(self: Any, *args: Any) -> Any:
        traced.append(self)
        return await original(self, *args)

    journal = Journal()
    agent = calling(['t'], toolsets=[Traced('t', journal)])
    with patch.object(Traced, name, trace):
        await run_as('run', agent)
    assert traced
    assert all(toolset is called(journal, 'run') for toolset in traced)
    del traced[:]
    await run_as('again', agent)
    assert traced == []
    assert called(journal, 'again').values[-1] == 'again'


@pytest.mark.parametrize('name', METHODS_OF_TOOLSETS)
async def test_b31_method_set_on_an_instance_is_called(name: str):
    journal = Journal()
    toolset = Server('t', journal)
    original, counted = getattr(toolset, name), list[tuple[Any, ...]]()

    async def count(*args: Any) -> Any:
        counted.append(args)
        return await original(*args)

    setattr(toolset, name, count)
    holder = toolset if name in ('get_tools', 'call_tool') else HandWritten(toolset)
    await run_as('run', calling(['t'], toolsets=[holder]))
    # An entry and exit of the instance itself are looked up on its class
    assert counted
    assert journal.lifecycle == ['+t', '-t']


class Entry:
    """An entry of a long attribute, which counts how often somebody asks what it is."""

    asked = 0

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        Entry.asked += 1
        return Entry


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    'list': lambda entries: entries,
    'tuple': tuple,
    'dict': lambda entries: dict(enumerate(entries)),
    'dict of keys': lambda entries: dict.fromkeys(entries),
    'set': set,
    'list of lists': lambda entries: [entries],
}


@pytest.mark.parametrize('kind', [Server, HandWritten])
@pytest.mark.parametrize('make', CONTAINERS.values(), ids=CONTAINERS)
async def test_b31_runs_do_not_look_at_the_entries_of_an_attribute(make: Any, kind: Any):
    toolset = Server('t', Journal()) if kind is Server else HandWritten(Server('t', Journal()))
    toolset.entries = make([Entry() for _ in range(1000)])  # pyright: ignore[reportAttributeAccessIssue]
    agent = calling(['t'], ['t'])
    Entry.asked = 0
    for wrap in (lambda toolset: toolset, *WRAPPERS.values()):
        await agent.run('go', toolsets=[wrap(toolset)], model=scripted())
        with agent.override(toolsets=[wrap(toolset)]):
            await agent.run('go', model=scripted())
    assert Entry.asked < 200
