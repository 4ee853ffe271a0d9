"""B2: a stateful toolset without `copy()` is refused when it is wired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset, PrefixedToolset
from typing_extensions import Self

from .declared import Plain
from .line import ALONE_OR_WRAPPED, WRAPPERS
from .toolsets import METHODS, HandWritten, Journal, Requests, Server, Session, WithoutCopy, run_as, scripted

pytestmark = pytest.mark.anyio


@dataclass
class StatefulWrapper(WrapperToolset[Any]):
    """A wrapper that declares state of its own and doesn't say how to copy it."""

    stateful: bool = True


@dataclass
class StatefulPrefixed(PrefixedToolset[Any]):
    stateful = True


@dataclass
class StatefulCombined(CombinedToolset[Any]):
    stateful = True


@dataclass
class PlainWrapper(WrapperToolset[Any]):
    """A wrapper that declares nothing."""


def without_copy() -> WithoutCopy:
    return WithoutCopy('faulty', Journal())


numbers = count()


def among_others(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset(
        [Server(f'server_{next(numbers)}', Journal()), toolset, Session(f'session_{next(numbers)}', Journal())]
    )


REFUSED: dict[str, Callable[[], AbstractToolset[Any]]] = {
    'alone': without_copy,
    'in a combination': lambda: among_others(without_copy()),
    'in combinations': lambda: among_others(among_others(among_others(without_copy()))),
    **{f'in a {name}': lambda wrap=wrap: wrap(without_copy()) for name, wrap in WRAPPERS.items()},
    'in a wrapper of a combination': lambda: (
        among_others(without_copy()).prefixed('x').filtered(lambda ctx, tool: True)
    ),
    "in a user's wrapper": lambda: PlainWrapper(without_copy()),
    "in a user's wrapper with state": lambda: StatefulWrapper(without_copy()),
    'wrapper with state': lambda: StatefulWrapper(Server('faulty', Journal())),
    'wrapper with state around a stateful one': lambda: StatefulWrapper(Session('faulty', Journal())),
    'PrefixedToolset with state': lambda: StatefulPrefixed(Server('faulty', Journal()), 'x'),
    'CombinedToolset with state': lambda: StatefulCombined([Session('faulty', Journal())]),
    'wrapper with state in a combination': lambda: among_others(
        StatefulWrapper(Server('faulty', Journal())).prefixed('x')
    ),
}
"""Toolsets that can't be copied, each with the word `faulty` in the label of what is at fault."""

refused = pytest.mark.parametrize('make', REFUSED.values(), ids=REFUSED.keys())


def check(error: UserError) -> None:
    assert 'faulty' in error.message  # what is at fault, by its label
    assert 'copy()' in error.message  # what to do


@refused
def test_b02_agent_with_toolset_without_copy_is_refused(make: Callable[[], AbstractToolset[Any]]):
    with pytest.raises(UserError) as caught:
        Agent(Requests().model, toolsets=[Plain(), make()])
    check(caught.value)


@refused
def test_b02_override_with_toolset_without_copy_is_refused(make: Callable[[], AbstractToolset[Any]]):
    agent = Agent(Requests().model)
    with pytest.raises(UserError) as caught, agent.override(toolsets=[Plain(), make()]):
        pytest.fail('`override()` was entered')
    check(caught.value)


@refused
async def test_b02_run_with_toolset_without_copy_is_refused(make: Callable[[], AbstractToolset[Any]]):
    await check_method('run', make())


@pytest.mark.parametrize('method', METHODS)
async def test_b02_run_method_with_toolset_without_copy_is_refused(method: str):
    await check_method(method, without_copy())


@pytest.mark.parametrize('method', METHODS)
async def test_b02_run_method_with_toolset_without_copy_deep_inside_is_refused(method: str):
    await check_method(method, among_others(among_others(without_copy().prefixed('x')).renamed({})))


async def check_method(method: str, toolset: AbstractToolset[Any]) -> None:
    requests = Requests()
    journal = Journal()
    session = Session('session', journal)
    agent = Agent(requests.model, toolsets=[session])
    with pytest.raises(UserError) as caught:
        await METHODS[method](agent, toolsets=[Server('server', journal), toolset])
    check(caught.value)
    assert requests.count == 0
    assert journal.lifecycle == []


def test_b02_run_stream_sync_with_toolset_without_copy_is_refused():
    requests = Requests()
    agent = Agent(requests.model)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with pytest.raises(UserError) as caught:
            agent.run_stream_sync('go', toolsets=[without_copy()])
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    check(caught.value)
    assert requests.count == 0


def test_b02_override_refused_leaves_the_agent_as_it_was():
    agent = Agent(Requests().model, toolsets=[Session('session', Journal())])
    before = list(agent.toolsets)
    with pytest.raises(UserError), agent.override(name='other', toolsets=[without_copy()]):
        pass
    assert list(agent.toolsets) == before
    assert agent.name != 'other'


def test_b02_several_toolsets_without_copy_are_all_named():
    toolsets = [WithoutCopy('first', Journal()), WithoutCopy('second', Journal()).prefixed('x')]
    with pytest.raises(UserError, match=r"(?s)'first'.*'second'"):
        Agent(Requests().model, toolsets=toolsets)


def test_b02_message_names_the_toolset_inside_and_not_its_wrapper():
    with pytest.raises(UserError, match="WithoutCopy 'faulty'"):
        Agent(Requests().model, toolsets=[without_copy().prefixed('x')])


@pytest.mark.parametrize('wrap', WRAPPERS.values(), ids=WRAPPERS.keys())
def test_b02_copy_called_through_a_wrapper_raises_not_implemented(wrap: Callable[[Any], AbstractToolset[Any]]):
    with pytest.raises(NotImplementedError, match="WithoutCopy 'faulty'"):
        wrap(without_copy()).copy()


def test_b02_copy_called_on_a_toolset_without_it_raises_not_implemented():
    with pytest.raises(NotImplementedError, match="WithoutCopy 'faulty'"):
        without_copy().copy()


@pytest.mark.parametrize(
    'toolset',
    [
        StatefulWrapper(Plain()),
        StatefulWrapper(Session('session', Journal())),
        StatefulPrefixed(Plain(), 'x'),
        StatefulCombined([Plain()]),
        StatefulCombined([Session('session', Journal())]),
    ],
    ids=lambda toolset: type(toolset).__name__,
)
def test_b02_copy_called_on_a_wrapper_with_state_of_its_own_raises_not_implemented(toolset: AbstractToolset[Any]):
    with pytest.raises(NotImplementedError):
        toolset.copy()


def test_b02_dataclass_without_copy_is_refused_and_not_replaced():
    @dataclass
    class Cache(Plain):
        stateful: bool = True

        @property
        def id(self) -> str:
            return 'faulty'

    with pytest.raises(UserError) as caught:
        Agent(Requests().model, toolsets=[Cache()])
    check(caught.value)


@pytest.mark.parametrize('method', METHODS)
async def test_b02_stateful_toolset_with_copy_is_accepted_everywhere(method: str):
    def toolset(name: str) -> AbstractToolset[Any]:
        return among_others(HandWritten(Session(name, Journal()).prefixed(name))).prefixed(name)

    agent = Agent(Requests().model, toolsets=[toolset('a')])
    assert await METHODS[method](agent, toolsets=[toolset('b')]) == 'done'
    with agent.override(toolsets=[toolset('c')]):
        assert await METHODS[method](agent) == 'done'


async def test_b02_copy_inherited_from_a_users_class_is_accepted():
    class Special(Session):
        pass

    agent = Agent(Requests().model, toolsets=[Special('special', Journal())])
    assert (await agent.run('go')).output == 'done'


async def test_b02_copy_inherited_from_a_mixin_is_accepted():
    class CanCopy:
        def copy(self) -> Self:
            return type(self)()

    class Mixed(CanCopy, Plain):
        stateful = True

    agent = Agent(Requests().model, toolsets=[Mixed()])
    assert (await agent.run('go')).output == 'done'


async def test_b02_dynamic_toolset_is_accepted():
    agent = Agent(Requests().model, toolsets=[DynamicToolset(lambda ctx: None), lambda ctx: None])
    assert (await agent.run('go')).output == 'done'


async def test_b02_toolset_with_for_run_instead_of_copy_is_accepted():
    class ForRun(Plain):
        stateful = True

        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            return type(self)()

    agent = Agent(Requests().model, toolsets=[ForRun()])
    assert (await agent.run('go')).output == 'done'


class ReturnsItself(Session):
    """What published toolsets look like: state, and a `for_run()` that isolates nothing."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self


class Mixin:
    async def for_run(self, ctx: RunContext[Any]) -> Any:
        return self


class Inherits(Mixin, Plain):
    stateful = True
    id = 'faulty'  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]


class Computed(Plain):
    """One that says itself when it's asked, in an attribute of the instance."""

    def __init__(self) -> None:
        self.stateful = True

    @property
    def id(self) -> str:
        return 'faulty'

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self


ITSELF: dict[str, Callable[[], AbstractToolset[Any]]] = {
    'its own': lambda: ReturnsItself('faulty', Journal()),
    'inherited': Inherits,
    'by instance': Computed,
    'wrapped': lambda: ReturnsItself('faulty', Journal()).prefixed('x'),
    'combined': lambda: among_others(ReturnsItself('faulty', Journal())),
}


@pytest.mark.parametrize('make', ITSELF.values(), ids=ITSELF)
@pytest.mark.parametrize('method', METHODS)
async def test_b02_for_run_that_returns_a_stateful_toolset_itself_is_refused_at_the_start(
    make: Callable[[], AbstractToolset[Any]], method: str
):
    requests, journal = Requests(), Journal()
    toolsets = [Server('server', journal), Session('session', journal), make()]
    with pytest.raises(UserError, match='faulty') as caught:
        await METHODS[method](Agent(requests.model, toolsets=toolsets))
    assert 'for_run()' in caught.value.message
    assert requests.count == 0
    assert journal.lifecycle == []


async def test_b02_for_run_that_returns_a_stateless_toolset_itself_is_accepted():
    toolset = ReturnsItself('t', Journal())
    toolset.stateful = False
    for run in 'ab':
        await run_as(run, Agent(scripted(['t']), toolsets=[toolset]))
    assert toolset.values == ['a', 'b']


@pytest.mark.parametrize('wrap', ALONE_OR_WRAPPED.values(), ids=ALONE_OR_WRAPPED)
@pytest.mark.parametrize('on', ['instance', 'class'])
@pytest.mark.parametrize('method', METHODS)
async def test_b02_toolset_that_is_declared_stateful_after_the_agent_was_built_is_copied(
    method: str, on: str, wrap: Any
):
    class Late(Session):
        stateful = False

    journal = Journal()
    late = Late('t', journal)
    agent = Agent(scripted(['t']), toolsets=[wrap(late)])
    setattr(late if on == 'instance' else Late, 'stateful', True)  # noqa: B010
    for run in ('first', 'second'):
        await run_as(run, agent, method)
    assert late.values == []
    assert [event.toolset.values for event in journal.of('call')] == [['first'], ['second']]


@pytest.mark.parametrize('method', METHODS)
async def test_b02_toolset_without_copy_that_is_declared_stateful_after_the_agent_was_built_is_refused(method: str):
    journal, requests = Journal(), Requests()
    late = Server('t', journal)
    agent = Agent(requests.model, toolsets=[Server('s', journal), late.renamed({})])
    late.stateful = True
    with pytest.raises(UserError, match=r"'t'.*`copy"):
        await METHODS[method](agent)
    assert (requests.count, journal.of('enter')) == (0, [])


HELD: dict[str, Callable[[Any], Any]] = {'it': lambda toolset: toolset, 'a list of it': lambda toolset: [toolset]}


@pytest.mark.parametrize('holds', HELD.values(), ids=HELD)
async def test_b02_toolset_that_holds_a_stateful_one_is_left_alone(holds: Callable[[Any], Any]):
    """Only what wrappers and combinations of upstream's have inside is looked into."""

    class Holds(Server):
        def __init__(self) -> None:
            super().__init__('t', Journal())
            self.held = holds(without_copy())

    toolset = Holds()
    for run in 'ab':
        await run_as(run, Agent(scripted(['t']), toolsets=[CombinedToolset([toolset.renamed({})])]))
    assert toolset.values == ['a', 'b']
