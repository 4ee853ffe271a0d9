"""B31: mocks, objects with a toolset's methods, methods patched later and long attributes work as on the base."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext
from pydantic_ai.toolsets import CombinedToolset, WrapperToolset

from .capabilities import contributing
from .delegation import Notes, called, calling, calls, delegating, parent_of
from .line import WRAPPERS
from .toolsets import METHODS, HandWritten, Journal, Server, Session, run_as, scripted, tool_of

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)


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

HOLDERS: dict[str, Callable[[Any], AbstractToolset[Any]]] = {
    'WrapperToolset': WrapperToolset,
    'CombinedToolset': lambda toolset: CombinedToolset([toolset]),
    'a wrapper of a wrapper': lambda toolset: WrapperToolset(WrapperToolset(toolset)),
    'beside a stateful one': lambda toolset: CombinedToolset([Session('t', Journal()), WrapperToolset(toolset)]),
}
holders = pytest.mark.parametrize('hold', HOLDERS.values(), ids=HOLDERS)
ducks = pytest.mark.parametrize('kind', [Duck, RegisteredDuck])


@ducks
@holders
@methods
async def test_b31_object_with_the_methods_of_a_toolset_works_inside_others(kind: type[Duck], hold: Any, method: str):
    duck = kind()
    await run_as('run', calling(['duck'], toolsets=[hold(duck)]), method)
    assert duck.called == ['enter', 'call', 'exit']


@ducks
async def test_b31_async_with_agent_enters_such_an_object(kind: type[Duck]):
    duck = kind()
    async with Agent(toolsets=[WrapperToolset(duck)]):  # pyright: ignore[reportArgumentType]
        assert duck.called == ['enter']
    assert duck.called == ['enter', 'exit']


@methods
async def test_b31_registered_class_is_a_toolset(method: str):
    duck = RegisteredDuck()
    agent = calling(['duck'], toolsets=[duck])
    await run_as('run', agent, method)
    toolsets: Any = [duck]
    with agent.override(toolsets=toolsets):
        await run_as('override', agent, method)
    assert duck.called == ['enter', 'call', 'exit'] * 2


@ducks
@holders
async def test_b31_sub_agent_uses_such_an_object_as_its_parent_does(kind: type[Duck], hold: Any):
    duck = kind()
    held = hold(duck)
    child = calling(['duck'], toolsets=[held])
    await run_as('parent', calling(['duck'], ['delegate'], toolsets=[held, delegating(child)]))
    assert duck.called.count('call') == 2
    assert duck.called.count('enter') == duck.called.count('exit')


def mock_of(cls: type[Any] | None) -> Any:
    """Make a mock of a toolset with one tool, as one does on the base."""
    mock = MagicMock(spec=cls)
    mock.id = mock._explicit_id = None
    mock.label = 'the mock'
    mock.__aenter__ = AsyncMock(return_value=mock)
    mock.__aexit__ = AsyncMock(return_value=None)
    mock.get_tools = AsyncMock(side_effect=lambda ctx: {'mock': tool_of(mock, 'mock')})
    mock.call_tool = AsyncMock(return_value='mocked')
    mock.get_instructions = AsyncMock(return_value=None)
    mock.apply = MagicMock(side_effect=lambda visitor: visitor(mock))
    mock.visit_and_replace = MagicMock(side_effect=lambda visitor: visitor(mock))
    mock.for_run = AsyncMock(return_value=mock)
    mock.for_run_step = AsyncMock(return_value=mock)
    mock._collect_instruction_contributions = AsyncMock(return_value=[])
    return mock


@pytest.mark.parametrize('cls', [AbstractToolset, FunctionToolset])
@pytest.mark.parametrize('hold', [lambda toolset: toolset, *HOLDERS.values()], ids=['itself', *HOLDERS])
@methods
async def test_b31_mock_of_a_toolset_works(cls: type[Any], hold: Any, method: str):
    mock = mock_of(cls)
    await run_as('run', calling(['mock'], toolsets=[hold(mock)]), method)
    mock.call_tool.assert_awaited_once()
    mock.__aenter__.assert_awaited_once()
    mock.__aexit__.assert_awaited_once()


@methods
async def test_b31_mock_without_spec_works_where_the_base_takes_it(method: str):
    """It can be called as a function can, but has the methods of a toolset."""
    mock = mock_of(None)
    await run_as('run', calling(['mock']), method, toolsets=[mock])
    agent = calling(['mock'])
    with agent.override(toolsets=[mock]):
        await run_as('override', agent, method)
    await run_as('factory', calling(['mock'], toolsets=[lambda ctx: mock]), method)
    assert mock.call_tool.await_count == 3
    mock.assert_not_called()


async def test_b31_async_with_agent_enters_a_mock():
    mock = mock_of(AbstractToolset)
    async with Agent(toolsets=[mock]):
        mock.__aenter__.assert_awaited_once()
    mock.__aexit__.assert_awaited_once()


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


async def test_b31_for_sub_agent_patched_on_a_class_is_asked():
    class Patched(Notes):
        pass

    asked: list[Any] = []

    def answer(self: Any, ctx: RunContext[Any]) -> Any:
        asked.append(self)
        return Session('t', self.journal)

    journal = Journal()
    notes = Patched('t', journal)
    child = calling(['t'], toolsets=[notes])
    with patch.object(Patched, 'for_sub_agent', answer):
        await run_as('parent', parent_of(child, notes))
    assert asked == [called(journal, 'parent')]
    assert called(journal, 'child').values == ['child']


async def test_b31_copy_patched_on_a_class_is_called():
    class Patched(Session):
        pass

    made: list[Any] = []
    original = Patched.copy

    def copy(self: Any) -> Any:
        made.append(original(self))
        return made[-1]

    journal = Journal()
    agent = calling(['t'], toolsets=[Patched('t', journal)])
    with patch.object(Patched, 'copy', copy):
        await run_as('run', agent)
    assert made == [called(journal, 'run')]


async def test_b31_hooks_of_a_capability_patched_on_its_class_are_called():
    capability = contributing(Server('t', Journal()))
    hooked: list[str] = []

    async def before_run(self: Any, ctx: RunContext[Any]) -> None:
        hooked.append('before_run')

    async def after_run(self: Any, ctx: RunContext[Any], *, result: Any) -> Any:
        hooked.append('after_run')
        return result

    agent = Agent(scripted(['t']), capabilities=[capability])
    with (
        patch.object(type(capability), 'before_run', before_run),
        patch.object(type(capability), 'after_run', after_run),
    ):
        await agent.run('go')
    assert hooked == ['before_run', 'after_run']


async def test_b31_child_in_the_background_uses_what_all_runs_share_after_its_parent_has_ended():
    journal = Journal()
    pool = Server('t', journal)
    waits, go_on, tasks = asyncio.Event(), asyncio.Event(), list[asyncio.Task[Any]]()
    waiting, tools = FunctionToolset[Any](max_retries=0), FunctionToolset[Any](max_retries=0)
    child = calling(['wait'], ['t'], toolsets=[pool, waiting], name='child')

    async def wait(value: str) -> None:
        waits.set()
        await go_on.wait()

    async def start(value: str) -> None:
        tasks.append(asyncio.ensure_future(run_as('child', child)))
        await waits.wait()

    waiting.add_function(wait)
    tools.add_function(start)
    await run_as('parent', calling(['start'], toolsets=[pool, tools], name='parent'))
    go_on.set()
    await asyncio.gather(*tasks)
    assert calls(journal, 'child') == [pool]
    entries = sorted((event.kind, event.run) for event in journal.of('enter', 'exit'))
    assert entries == [('enter', 'child'), ('enter', 'parent'), ('exit', 'child'), ('exit', 'parent')]


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
