"""B2: a stateful toolset without `copy()` is refused when it is wired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset, PrefixedToolset, describe_lifecycle
from typing_extensions import Self

from .declared import Plain
from .line import ALONE_OR_WRAPPED, WRAPPERS, not_yet
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


class Undeclared(HandWritten):
    """A wrapper that doesn't declare that what it holds is stateful."""

    stateful = False


class HoldsInList(HandWritten):
    def __init__(self, inner: AbstractToolset[Any]):
        super().__init__(Plain())
        self.others = [Plain(), inner]


class HoldsInDict(HandWritten):
    def __init__(self, inner: AbstractToolset[Any]):
        super().__init__(Plain())
        self.others = {'plain': Plain(), 'inner': inner}


class HoldsInTuple(HandWritten):
    def __init__(self, inner: AbstractToolset[Any]):
        super().__init__(Plain())
        self.others = (Plain(), inner)


class HoldsInPrivateAttribute(HandWritten):
    def __init__(self, inner: AbstractToolset[Any]):
        super().__init__(Plain())
        self.__inner = inner


@dataclass(slots=True)
class HoldsInSlot(HandWritten):
    inner: AbstractToolset[Any]


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
    'in a hand-written wrapper': lambda: HandWritten(without_copy()),
    'in a hand-written wrapper that declares nothing': lambda: Undeclared(without_copy()),
    'in hand-written wrappers': lambda: HandWritten(HandWritten(without_copy())),
    'in a hand-written wrapper of a combination': lambda: HandWritten(among_others(without_copy().prefixed('x'))),
    'in a combination of hand-written wrappers': lambda: among_others(HandWritten(without_copy())),
    'in a list of a hand-written combination': lambda: HoldsInList(without_copy()),
    'in a dict of a hand-written combination': lambda: HoldsInDict(without_copy()),
    'in a tuple of a hand-written combination': lambda: HoldsInTuple(without_copy()),
    'in a private attribute of a hand-written wrapper': lambda: HoldsInPrivateAttribute(without_copy()),
    'in a slot of a hand-written wrapper': lambda: HoldsInSlot(without_copy()),
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
    await check_method(method, among_others(HandWritten(among_others(without_copy().prefixed('x')))))


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
        Agent(Requests().model, toolsets=[HandWritten(without_copy())])


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


async def test_b02_toolsets_that_hold_each_other_are_accepted():
    class Node(Session):
        other: Node

    a, b = Node('a', Journal()), Node('b', Journal())
    a.other, b.other = b, a
    agent = Agent(Requests().model, toolsets=[a, b])
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


class WrapsItself(Session):
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self.filtered(lambda ctx, tool_def: True)


@dataclass
class KeepsWrapped(WrapperToolset[Any]):
    """One that doesn't pass `for_run()` on."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return replace(self)


@dataclass
class KeepsCombined(CombinedToolset[Any]):
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self


ITSELF: dict[str, Callable[[], AbstractToolset[Any]]] = {
    'its own': lambda: ReturnsItself('faulty', Journal()),
    'inherited': Inherits,
    'by instance': Computed,
    'wrapped': lambda: ReturnsItself('faulty', Journal()).prefixed('x'),
    'combined': lambda: among_others(ReturnsItself('faulty', Journal())),
    'passed on': lambda: HandWritten(ReturnsItself('faulty', Journal())),
}
itself = pytest.mark.parametrize('make', ITSELF.values(), ids=ITSELF)
KEPT: dict[str, Callable[[], AbstractToolset[Any]]] = ITSELF | {
    'in a new wrapper': lambda: WrapsItself('faulty', Journal()),
    'in a wrapper that says nothing': lambda: KeepsWrapped(Session('faulty', Journal())),
    'in a combination that says nothing': lambda: KeepsCombined([Session('faulty', Journal())]),
}


@pytest.mark.parametrize('make', KEPT.values(), ids=KEPT)
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


@pytest.mark.parametrize('kept', ['made by a factory', 'shared', 'copied'])
async def test_b02_for_run_that_keeps_what_is_the_runs_own_or_shared_is_accepted(kept: str):
    """A wrapper around what a factory made, or what is meant to be shared, has nothing to pass on."""
    journal = Journal()

    @dataclass
    class PassesOn(WrapperToolset[Any]):
        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            return replace(self, wrapped=await self.wrapped.for_run(ctx))

    t = Session('t', journal)
    if kept == 'made by a factory':
        given: Any = DynamicToolset[Any](lambda ctx: KeepsWrapped(Session('t', journal)), per_run_step=False)
    elif kept == 'shared':
        given = KeepsWrapped(t.shared())
    else:
        given = PassesOn(t)
    for run in 'ab':
        await run_as(run, Agent(scripted(['t']), toolsets=[given]))
    assert t.values == (['a', 'b'] if kept == 'shared' else [])


@itself
def test_b02_for_run_that_returns_a_stateful_toolset_itself_is_described_as_what_decides(
    make: Callable[[], AbstractToolset[Any]],
):
    # It isn't called to describe it, so what it returns shows in a run only
    assert 'for_run()`, called once per run' in str(describe_lifecycle(Agent(Requests().model, toolsets=[make()])))


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


@not_yet
@pytest.mark.parametrize('method', METHODS)
async def test_b02_toolset_without_copy_that_is_declared_stateful_after_the_agent_was_built_is_refused(method: str):
    journal, requests = Journal(), Requests()
    late = Server('t', journal)
    agent = Agent(requests.model, toolsets=[Server('s', journal), late.renamed({})])
    late.stateful = True
    with pytest.raises(UserError, match=r"'t'.*`copy"):
        await METHODS[method](agent)
    assert (requests.count, journal.of('enter')) == (0, [])
