"""B10: wrappers and combinations are stateful exactly when something inside is, and copy what is inside."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pydantic_ai.toolsets
import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .delegation import Notes, delegating
from .line import WRAPPERS
from .toolsets import HandWritten, Journal, Server, Session, run_as, scripted

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
def test_b10_wrapper_of_stateless_toolset_is_not_stateful(wrap: Wrap):
    assert wrap(server()).stateful is False
    assert wrap(wrap(server())).stateful is False


@wrappers
def test_b10_wrapper_of_stateful_toolset_is_stateful(wrap: Wrap):
    assert wrap(session()).stateful is True
    assert wrap(wrap(session())).stateful is True
    assert wrap(HandWritten(session())).stateful is True


@wrappers
def test_b10_wrapper_whose_inside_is_replaced_is_what_it_is_now(wrap: Wrap):
    wrapper = wrap(server())
    wrapper.wrapped = session()
    assert wrapper.stateful is True
    wrapper.wrapped = server()
    assert wrapper.stateful is False


@wrappers
def test_b10_wrapper_of_toolset_that_becomes_stateful_is_stateful(wrap: Wrap):
    toolset = session()
    toolset.stateful = False
    wrapper = wrap(toolset)
    assert wrapper.stateful is False
    toolset.stateful = True
    assert wrapper.stateful is True


@wrappers
def test_b10_copy_of_stateless_wrapper_is_itself(wrap: Wrap):
    wrapper = wrap(server())
    assert wrapper.copy() is wrapper


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


def test_b10_combination_of_stateless_toolsets_is_not_stateful():
    assert CombinedToolset([]).stateful is False
    assert CombinedToolset([server(), CombinedToolset([server()])]).stateful is False


def test_b10_combination_with_a_stateful_toolset_is_stateful():
    assert CombinedToolset([server(), session()]).stateful is True
    assert CombinedToolset([server(), CombinedToolset([server(), session().prefixed('x')])]).stateful is True


def test_b10_combination_that_gets_a_stateful_toolset_later_is_stateful():
    toolsets: list[AbstractToolset[Any]] = [server()]
    combined = CombinedToolset(toolsets)
    assert combined.stateful is False
    toolsets.append(session())
    assert combined.stateful is True


def test_b10_copy_of_stateless_combination_is_itself():
    combined = CombinedToolset([server()])
    assert combined.copy() is combined


def test_b10_copy_of_stateful_combination_copies_what_is_stateful_inside():
    a, b, c = server(), session(), session()
    inner = CombinedToolset([c])
    combined = CombinedToolset([a, b, inner])
    copy = combined.copy()
    assert copy is not combined
    assert list(combined.toolsets) == [a, b, inner]
    copy_a, copy_b, copy_inner = copy.toolsets
    assert copy_a is a
    assert isinstance(copy_b, Session)
    assert copy_b is not b
    assert copy_b.original is b
    assert isinstance(copy_inner, CombinedToolset)
    assert copy_inner is not inner
    (copy_c,) = copy_inner.toolsets
    assert isinstance(copy_c, Session)
    assert copy_c is not c
    assert copy_c.original is c


async def test_b10_copy_of_entered_combination_is_not_entered():
    journal = Journal()
    combined = CombinedToolset([Session('session', journal)])
    async with combined:
        async with combined.copy():
            assert journal.lifecycle == ['+session', '+session']
        assert journal.lifecycle == ['+session', '+session', '-session']
    first, second = journal.of('exit')
    assert first.toolset is not second.toolset


async def test_b10_dynamic_toolset_used_by_runs_at_the_same_time_keeps_them_apart():
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return Server('t', journal)

    journal = Journal()
    for toolset in (
        DynamicToolset(factory, per_run_step=False),
        HandWritten(DynamicToolset(factory, per_run_step=False)),
        CombinedToolset([HandWritten(DynamicToolset(factory, per_run_step=False).filtered(lambda ctx, tool: True))]),
    ):
        journal.events.clear()
        agent = Agent(scripted(['t'], ['t']), toolsets=[toolset])
        await asyncio.gather(*(run_as(run, agent) for run in 'abc'))
        for run in 'abc':
            (made,) = {event.toolset for event in journal.events if event.run == run}
            assert made.values == [run, run]
            assert [event.kind for event in journal.events if event.run == run and event.kind in ('enter', 'exit')] == [
                'enter',
                'exit',
            ]


@dataclass
class Audit(WrapperToolset[Any]):
    """A user's wrapper with state of its own."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), log=[])

    async def call_tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.log.append(name)
        await super().call_tool(name, *args, **kwargs)
        return list(self.log)


@pytest.mark.parametrize('kind', [Server, Session])
async def test_b10_wrapper_with_state_of_its_own_has_a_fresh_one_per_run(kind: type[Server]):
    inside = kind('t', Journal())
    audit = Audit(inside)
    agent = Agent(scripted(['t'], ['t']), toolsets=[audit])
    for _ in range(2):
        result = await agent.run('go')
        returned = [
            part.content
            for message in result.all_messages()
            for part in message.parts
            if part.part_kind == 'tool-return'
        ]
        assert returned == [['t'], ['t', 't']]
    assert audit.log == []
    assert audit.wrapped is inside
    assert inside.values == ([] if kind is Session else [''] * 4)


async def test_b10_hand_written_wrapper_that_passes_copy_on_works():
    journal = Journal()
    inside = Session('t', journal)
    wrapper = HandWritten(CombinedToolset([Server('server', journal), HandWritten(inside)]))
    agent = Agent(scripted(['t', 'server']), toolsets=[wrapper])
    await asyncio.gather(*(run_as(run, agent) for run in 'ab'))
    assert inside.values == []
    copies = {event.run: event.got[0] for event in journal.of('copy')}
    assert {run: copy.values for run, copy in copies.items()} == {'a': ['a'], 'b': ['b']}
    assert wrapper.inner.copy() is not wrapper.inner


@dataclass
class Slotted(HandWritten):
    """A hand-written wrapper that is a dataclass."""

    inner: AbstractToolset[Any]
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, inner=self.inner.copy(), log=[])


@pytest.mark.parametrize('cls', [Slotted, dataclass(slots=True)(type('WithSlots', (Slotted,), {}))])
async def test_b10_hand_written_dataclass_wrapper_works(cls: type[Slotted]):
    inside = Session('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[cls(inside).prefixed('a'), cls(inside).prefixed('b')])
    await agent.run('go')
    assert inside.values == []
    assert inside.journal.lifecycle == ['+t', '-t']


@dataclass
class ByProperty(HandWritten):
    """A hand-written wrapper that computes whether it's stateful."""

    inner: AbstractToolset[Any]

    @property
    def stateful(self) -> bool:
        return self.inner.stateful

    def copy(self) -> Self:
        return replace(self, inner=self.inner.copy()) if self.stateful else self


async def test_b10_hand_written_wrapper_that_computes_stateful_works():
    journal = Journal()
    inside, shared = Session('t', journal), Server('s', journal)
    agent = Agent(scripted(['t', 's']), toolsets=[ByProperty(inside), ByProperty(shared)])
    await agent.run('go')
    assert inside.values == []
    assert shared.values == ['']
    async with agent:
        assert journal.lifecycle[-1] == '+s'


def as_it_is(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return toolset


def combined(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset([toolset])


@pytest.mark.parametrize('wrap', [as_it_is, combined], ids=['alone', 'CombinedToolset'])
def test_b10_wrapper_that_declares_state_and_does_not_copy_is_refused(
    wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    @dataclass
    class Forgetful(WrapperToolset[Any]):
        stateful = True

    with pytest.raises(UserError, match=r"Forgetful\(Session 'session'\).*copy\(\)"):
        Agent(scripted(), toolsets=[wrap(Forgetful(session()))])


def test_b10_subclass_of_wrapper_that_declares_nothing_is_what_its_inside_is():
    @dataclass
    class Plain(WrapperToolset[Any]):
        extra: int = 0

    assert Plain(server(), extra=1).stateful is False
    assert Plain(session(), extra=1).stateful is True
    assert Plain(session(), extra=1).copy().extra == 1
    Agent(scripted(), toolsets=[Plain(session())])


def test_b10_constructors_comparisons_and_representations_are_as_on_the_base():
    inside = session()
    prefixed = inside.prefixed('x')
    assert [attribute.name for attribute in dataclasses.fields(prefixed)] == ['wrapped', 'prefix']
    assert prefixed == inside.prefixed('x')
    assert repr(prefixed) == f"PrefixedToolset(wrapped={inside!r}, prefix='x')"
    assert CombinedToolset([inside]) == CombinedToolset([inside])
    assert replace(prefixed, prefix='y').prefix == 'y'


class Titled(Notes):
    """A toolset with attributes and methods that no other has."""

    title = 'of the class'

    def last(self) -> str | None:
        return self.values[-1] if self.values else None


class Reads(WrapperToolset[Any]):
    """A user's wrapper that reads what only the wrapped class has."""

    async def call_tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
        await super().call_tool(name, *args, **kwargs)
        wrapped: Any = self.wrapped
        read.append((wrapped.title, wrapped.last(), list(wrapped.values), wrapped.name, wrapped.id))
        with pytest.raises(AttributeError):
            wrapped.no_such_thing  # noqa: B018
        return ''


read: list[tuple[Any, ...]] = []

READ: dict[str, Callable[[Any], list[Any]]] = {
    'alone': lambda t: [Reads(t)],
    'in two places': lambda t: [t.prefixed('x'), Reads(t)],
    'twice in it': lambda t: [Reads(t), Reads(t).prefixed('x')],
    'shared': lambda t: [Reads(t.shared())],
    'deeper': lambda t: [CombinedToolset([Reads(t).renamed({}), t.prefixed('x')])],
}


@pytest.mark.parametrize('tree', READ.values(), ids=READ)
async def test_b10_what_a_wrapper_reads_from_its_inside_is_there(tree: Callable[[Any], list[Any]]):
    read.clear()
    titled = Titled('t', Journal())
    await run_as('run', Agent(scripted(['t'], ['t']), toolsets=tree(titled)))
    assert read == [
        ('of the class', 'run', ['run'], 't', 't'),
        ('of the class', 'run', ['run', 'run'], 't', 't'),
    ]


@pytest.mark.parametrize('tree', READ.values(), ids=READ)
@pytest.mark.parametrize('handed', [False, True])
async def test_b10_what_a_wrapper_reads_from_what_is_borrowed_is_there(tree: Callable[[Any], list[Any]], handed: bool):
    read.clear()
    titled = Titled('t', Journal())
    toolsets = tree(titled)
    child = Agent(scripted(['t']), toolsets=[] if handed else toolsets)
    delegate = delegating(child, options=lambda ctx: {'toolsets': ctx.for_sub_agent(*toolsets)} if handed else {})
    await run_as('parent', Agent(scripted(['delegate']), toolsets=[*toolsets, delegate]))
    assert read == [('of the class', 'child', ['child'], 't', 't')]


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
async def test_b10_copy_of_a_wrapper_with_state_begins_with_a_new_wrapper(kind: type[Server]):
    """`super().copy()` is never the wrapper itself, whatever is inside."""

    class Logging(WrapperToolset[Any]):
        stateful = True

        def __init__(self, wrapped: AbstractToolset[Any], level: str = 'info'):
            super().__init__(wrapped)
            self.log = ['of the original']
            self.level = level

        def copy(self) -> Self:
            new = super().copy()
            new.log = []
            return new

        async def call_tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
            self.log.append(name)
            return self.level, list(self.log)

    inside = kind('t', Journal())
    logging = Logging(inside, 'debug')
    for _ in range(2):
        result = await Agent(scripted(['t'], ['t']), toolsets=[logging]).run('go')
        parts = [part for message in result.all_messages() for part in message.parts]
        returned = [part.content for part in parts if part.part_kind == 'tool-return']
        assert returned == [('debug', ['t']), ('debug', ['t', 't'])]
    assert logging.log == ['of the original']
    assert logging.wrapped is inside
    assert (logging.copy().wrapped is inside) is (kind is Server)


async def test_b10_wrapper_around_a_factory_has_what_its_fields_begin_with_in_each_run():
    """Nothing inside is stateful, so it is rebuilt as on the base."""
    logs: list[list[str]] = []

    @dataclass
    class Keeps(WrapperToolset[Any]):
        log: list[str] = field(init=False, default_factory=list[str])

        async def call_tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
            self.log.append(name)
            logs.append(list(self.log))
            return ''

    agent = Agent(scripted(['t']), toolsets=[Keeps(DynamicToolset(lambda ctx: Server('t', Journal())))])
    for _ in range(2):
        await agent.run('go')
    assert logs == [['t'], ['t']]


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
