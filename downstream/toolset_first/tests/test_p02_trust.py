"""Point 2: what runs get in place of toolsets of users and plugins."""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary, ref

import pytest
from pydantic import Field
from pydantic_ai import FunctionToolset, RunContext, Tool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import WrapperToolset
from support import Keeper, Log, StatefulKeeper, call, calling, script, scripts
from toolset_first import (
    AgentSpec,
    CallRuntime,
    Isolation,
    IsolationError,
    Runtime,
    ToolsetBuildContext,
    ToolsetSpec,
    agent_as_toolset,
)
from typing_extensions import Self

ALL: list[Isolation] = ['trust', 'isolate', 'hybrid']


async def outputs(spec: ToolsetSpec, isolation: Isolation) -> list[str]:
    """Return what a keeper says in two runs, one after another."""
    agent = AgentSpec('one', model=script(call('keep', what='x')), toolset_specs=[spec])
    runtime = Runtime([agent], isolation=isolation)
    return [await runtime.run_entry(calling('one'), 'Go') for _ in range(2)]


FRESH, LEAKED = ['["x"]', '["x"]'], ['["x"]', '["x","x"]']


@pytest.mark.parametrize('isolation', ALL)
async def test_p02_factory_is_called_once_per_run(isolation: Isolation) -> None:
    made: list[ToolsetBuildContext] = []

    def build(context: ToolsetBuildContext) -> Keeper:
        made.append(context)
        return Keeper()

    assert await outputs(ToolsetSpec(factory=build, options={'size': 3}), isolation) == FRESH
    assert [(one.name, one.options) for one in made] == [('one', {'size': 3})] * 2
    assert [one.call and one.call.frame.depth for one in made] == [1, 1]


async def test_p02_async_factory_is_awaited() -> None:
    async def build(context: ToolsetBuildContext) -> Keeper:
        return Keeper()

    assert await outputs(ToolsetSpec(factory=build), 'hybrid') == FRESH


@pytest.mark.parametrize(
    ('isolation', 'toolset', 'expected'),
    [
        ('trust', Keeper(), LEAKED),  # taken at its word
        ('isolate', Keeper(), FRESH),
        ('hybrid', Keeper(), FRESH),
        ('trust', StatefulKeeper(), FRESH),
        ('isolate', StatefulKeeper(), FRESH),
        ('hybrid', StatefulKeeper(), FRESH),
        ('trust', StatefulKeeper().shared(), LEAKED),
        ('isolate', StatefulKeeper().shared(), FRESH),  # whatever it says
        ('hybrid', StatefulKeeper().shared(), LEAKED),
        ('hybrid', Keeper().shared(), LEAKED),
        ('isolate', Keeper().shared(), FRESH),
    ],
)
async def test_p02_instance_follows_isolation(isolation: Isolation, toolset: Any, expected: list[str]) -> None:
    assert await outputs(ToolsetSpec(toolset=toolset), isolation) == expected


@pytest.mark.parametrize('isolation', ALL)
@pytest.mark.parametrize('toolset', [Keeper, StatefulKeeper])
async def test_p02_instance_that_the_project_shares_is_shared(isolation: Isolation, toolset: type[Keeper]) -> None:
    assert await outputs(ToolsetSpec(toolset=toolset(), shared=True), isolation) == LEAKED


async def test_p02_fresh_one_is_as_the_original_was_and_leaves_it_so() -> None:
    keeper = Keeper()
    keeper.kept.append('before')
    assert await outputs(ToolsetSpec(toolset=keeper.prefixed('a').renamed({'keep': 'a_keep'})), 'hybrid') == [
        '["before","x"]',
        '["before","x"]',
    ]
    assert keeper.kept == ['before']


def triple(number: int = Field(3, description='What is tripled.')) -> int:
    """Triple."""
    return 3 * number


@pytest.mark.parametrize('isolation', ALL)
async def test_p02_functions_are_shared_since_there_is_nothing_to_isolate(isolation: Isolation) -> None:
    from toolset_first.isolation import wired

    def double(number: int) -> int:
        return 2 * number

    toolset = FunctionToolset[Any]([double, triple])
    assert wired(ToolsetSpec(toolset=toolset), isolation, ToolsetBuildContext('one'), lambda one: one) is toolset


class Connected(Keeper):
    """Holds what has no copy."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def closing_over_state() -> FunctionToolset[Any]:
    """Return a toolset whose state is in a variable of this function."""
    kept: list[str] = []

    def keep(what: str) -> list[str]:
        kept.append(what)
        return kept

    return FunctionToolset[Any]([keep])


class ClosingOverItself(FunctionToolset[Any]):
    """Registers a function that refers to the original, also in a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

        @self.tool
        def keep(ctx: RunContext[Any], what: str) -> list[str]:
            self.kept.append(what)
            return self.kept


class Uncopied(Keeper):
    """Is stateful, and can't say what a fresh one is."""

    stateful = True


@pytest.mark.parametrize(
    ('isolation', 'toolset', 'why'),
    [
        ('hybrid', Connected(), 'TypeError: cannot pickle'),
        ('isolate', Connected(), 'TypeError: cannot pickle'),
        ('hybrid', closing_over_state(), 'its function `keep` uses variables of the function that it is defined in'),
        ('hybrid', ClosingOverItself(), 'its function `keep` uses variables'),
        ('hybrid', Connected().prefixed('a'), 'TypeError: cannot pickle'),
        ('isolate', Uncopied(), 'NotImplementedError'),
    ],
)
def test_p02_what_can_not_be_made_afresh_is_refused_with_three_ways_out(
    isolation: Isolation, toolset: Any, why: str
) -> None:
    agent = AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=toolset)])
    with pytest.raises(IsolationError) as error:
        Runtime([agent], isolation=isolation)
    said = str(error.value)
    assert why in said
    assert '`stateful = True`' in said
    assert '`ToolsetSpec(toolset=…, shared=True)`' in said
    assert '`ToolsetSpec(factory=…)`' in said


@pytest.mark.parametrize(('isolation', 'inner'), [('trust', 'shared'), ('hybrid', 'shared'), ('isolate', 'own')])
async def test_p02_nested_runs_follow_for_sub_agent_unless_all_is_isolated(isolation: Isolation, inner: str) -> None:
    log = Log()
    model = scripts({'Go': [call('keep', what='outer'), call('two', input='On')], 'On': [call('keep', what='inner')]})
    keeper = ToolsetSpec(toolset=StatefulKeeper(log))
    two = AgentSpec('two', model=model, toolset_specs=[keeper])
    one = AgentSpec('one', model=model, toolset_specs=[keeper, agent_as_toolset('two', tool='two')])

    said = await Runtime([one, two], isolation=isolation).run_entry(calling('one'), 'Go')

    assert said == ('["outer","inner"]' if inner == 'shared' else '["inner"]')
    runs = 1 if inner == 'shared' else 2
    assert log.events == ['enter'] * runs + ['exit None'] * runs


async def test_p02_shared_pool_serves_all_runs() -> None:
    class Pool(FunctionToolset[Any]):
        def __init__(self) -> None:
            super().__init__([self.count])
            self.conn = sqlite3.connect(':memory:', check_same_thread=False)
            self.conn.execute('CREATE TABLE calls (id INTEGER)')

        async def count(self) -> int:
            self.conn.execute('INSERT INTO calls VALUES (1)')
            return self.conn.execute('SELECT count(*) FROM calls').fetchone()[0]

    pool = Pool()
    agent = AgentSpec('one', model=script(call('count')), toolset_specs=[ToolsetSpec(toolset=pool, shared=True)])
    runtime = Runtime([agent])
    assert [await runtime.run_entry(calling('one'), 'Go') for _ in range(2)] == ['1', '2']
    pool.conn.close()


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({}, 'either a `factory` or a `toolset`'),
        ({'factory': Keeper, 'toolset': Keeper()}, 'either a `factory` or a `toolset`'),
        ({'factory': 'tools'}, 'not callable'),
        ({'toolset': Keeper}, 'is no toolset'),
        ({'toolset': Keeper(), 'options': {'a': 1}}, 'Only a factory takes options'),
    ],
)
def test_p02_wrong_specs_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ToolsetSpec(**arguments)


def test_p02_toolset_in_place_of_a_spec_is_refused() -> None:
    wrong: Any = [Keeper()]
    with pytest.raises(TypeError, match=r'Write `ToolsetSpec\(toolset=…\)`'):
        AgentSpec('one', toolset_specs=wrong)


async def test_p02_tools_find_the_call_in_their_context() -> None:
    async def where(ctx: RunContext[CallRuntime]) -> str:
        return f'{ctx.deps.frame.name} at {ctx.deps.frame.depth}'

    spec = ToolsetSpec(toolset=FunctionToolset[CallRuntime]([where]))
    agent = AgentSpec('one', model=script(call('where')), toolset_specs=[spec])
    assert await Runtime([agent]).run_entry(calling('one'), 'Go') == 'one at 1'


class ClassState(FunctionToolset[Any]):
    """Keeps what it is told in its class."""

    kept: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__([self.keep])

    async def keep(self, what: str) -> list[str]:
        """Keep something."""
        self.kept.append(what)
        return list(self.kept)


class StatefulClassState(ClassState):
    """Has a `copy()`, which doesn't help."""

    stateful = True

    def copy(self) -> Self:
        return type(self)()


class Table(Keeper):
    """Has a table that nothing changes, and says so."""

    prices = {'tea': 3}  # noqa: RUF012
    names = ('tea',)
    shared_attributes = frozenset({'prices'})


class Shadowed(Keeper):
    """Has a default in its class, and uses its own."""

    kept: list[str] = []  # noqa: RUF012


def filtered() -> Any:
    """Return a toolset with a filter that remembers what it has seen."""
    seen: list[str] = []

    def once(ctx: RunContext[Any], tool: ToolDefinition) -> bool:
        seen.append(tool.name)
        return len(seen) < 3

    return Keeper().filtered(once)


def defaulted() -> Any:
    """Return a toolset with a function that remembers what it was told in a default."""

    def keep(what: str, kept: list[str] = []) -> list[str]:  # noqa: B006
        kept.append(what)
        return kept

    return FunctionToolset[Any]([keep])


class Wrapping(WrapperToolset[Any]):
    """Remembers in its class."""

    seen: dict[str, int] = {}  # noqa: RUF012


class Box:
    """Holds something."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def note(self, what: str) -> None:
        self.kept.append(what)


class Boxed(Keeper):
    """Has an object of its own kind in its class."""

    box = Box()


class Nested(Keeper):
    """Has a list in a tuple in its class."""

    boxes: tuple[Any, ...] = ('a', ([],))


def closing_method() -> Any:
    """Return a toolset with a method that remembers in a variable of this function."""
    seen: list[str] = []

    class Closing(Keeper):
        def note(self, what: str) -> list[str]:
            seen.append(what)
            return seen

    return Closing()


class DefaultedMethod(Keeper):
    """Has a method that remembers in a default, behind a property."""

    @property
    def noted(self) -> list[str]:
        return self.note()

    @staticmethod
    def note(box: Box = Box()) -> list[str]:  # noqa: B008
        return box.kept


def attributed() -> Any:
    """Return a toolset with a function that remembers in an attribute of its own."""

    def keep(what: str) -> list[str]:
        kept: list[str] = vars(keep)['kept']
        kept.append(what)
        return kept

    vars(keep)['kept'] = []
    return FunctionToolset[Any]([keep])


class Holding(Keeper):
    """Holds whatever it is given."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


class Cached(Keeper):
    """Keeps what it is told in a cache of its class."""

    @staticmethod
    @lru_cache
    def all() -> list[str]:
        return []


class Uncopyable:
    """Says that it is its own copy."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Slotted:
    """Holds something in a slot."""

    __slots__ = ('held',)

    def __init__(self, held: Any) -> None:
        self.held = held


BOX = Box()
APPEND: Any = list[str]().append
UPDATE: Any = dict[str, str]().update


def closing(held: Any) -> Any:
    """Return a function that uses a variable of this one."""
    return lambda: held


def prepared() -> Any:
    """Return a toolset of a function, with an object that remembers and prepares it."""

    async def keep(what: str) -> list[str]:
        return [what]

    return FunctionToolset[Any]([Tool(keep, prepare=weakly(BOX))])


def weakly(box: Any) -> Any:
    reference: Any = ref(box)

    async def prepare(ctx: RunContext[Any], tool: ToolDefinition) -> ToolDefinition:
        reference().kept.append(tool.name)
        return tool

    return prepare


class NeverCopied(Keeper):
    """Says that it is its own copy."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self


@pytest.mark.parametrize(
    ('isolation', 'toolset', 'why'),
    [
        ('hybrid', Boxed(), '`Boxed.box` of the class'),
        ('hybrid', Nested(), '`Nested.boxes` of the class'),
        ('hybrid', closing_method(), 'its function `note` uses variables'),
        ('hybrid', DefaultedMethod().prefixed('a'), 'its function `note` uses variables'),
        ('hybrid', attributed(), 'or has a default or an attribute that can change'),
        ('isolate', NeverCopied(), 'a copy of it is the same object'),
        ('hybrid', Holding(APPEND), 'the `list` of which it has the method `append`'),
        ('isolate', Holding({'on': [UPDATE]}), 'the `dict` of which it has the method `update`'),
        ('hybrid', Keeper().filtered(APPEND), 'the `list` of which it has the method `append`'),
        ('hybrid', Holding(ref(BOX)), 'what it has a weak reference to'),
        ('hybrid', Holding(WeakValueDictionary(box=BOX)), 'what it has a weak reference to'),
        ('isolate', prepared(), 'its function `prepare` uses variables'),
        ('hybrid', Cached(), 'what `functools.cache` keeps of what `all` returns'),
        ('hybrid', Holding(Uncopyable()), 'the `Uncopyable` in it'),
        ('hybrid', Holding(deque([Slotted(closing([]))])), 'its function `<lambda>` uses variables'),
        ('hybrid', Holding(closing(partial(print, BOX))), 'its function `<lambda>` uses variables'),
        ('hybrid', Holding(closing(BOX.note)), 'its function `<lambda>` uses variables'),
        ('hybrid', ClassState(), '`ClassState.kept` of the class'),
        ('isolate', ClassState(), '`ClassState.kept` of the class'),
        ('isolate', StatefulClassState(), '`ClassState.kept` of the class'),
        ('hybrid', ClassState().prefixed('a'), '`ClassState.kept` of the class'),
        ('hybrid', Wrapping(Keeper()), '`Wrapping.seen` of the class'),
        ('hybrid', filtered(), 'its function `once` uses variables'),
        ('isolate', filtered().prefixed('a'), 'its function `once` uses variables'),
        (
            'hybrid',
            defaulted(),
            'its function `keep` uses variables of the function that it is defined in, or has a default',
        ),
    ],
)
def test_p02_state_that_a_copy_would_share_is_refused(isolation: Isolation, toolset: Any, why: str) -> None:
    with pytest.raises(IsolationError) as error:
        Runtime([AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=toolset)])], isolation=isolation)
    assert why in str(error.value)
    shared = AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=toolset, shared=True)])
    Runtime([shared], isolation=isolation)


@dataclass
class Settled(WrapperToolset[Any]):
    """Has what looks like state in its class, and is none."""

    label_of_it: str = 'settled'
    log = logging.getLogger('settled')
    words = re.compile('[a-z]+')
    until = (timedelta(1), frozenset({'a'}), MappingProxyType({'b': 1}))

    @cached_property
    def length(self) -> int:
        return len(self.label_of_it)

    @classmethod
    @asynccontextmanager
    async def opened(cls, times: int = 2) -> AsyncIterator[int]:
        yield times

    @staticmethod
    @cache
    def squared(number: int) -> int:
        return number * number


@pytest.mark.parametrize('toolset', [Table(), Shadowed(), Keeper().filtered(lambda ctx, tool: True), Settled(Keeper())])
async def test_p02_what_holds_no_state_is_not_refused(toolset: Any) -> None:
    for isolation in ('hybrid', 'isolate'):
        assert await outputs(ToolsetSpec(toolset=toolset), isolation) == FRESH


class Caching(FunctionToolset[Any]):
    """Keeps what it is told in caches of its own, and behind methods of its own objects."""

    def __init__(self) -> None:
        super().__init__([self.keep])
        self.all = cache(nothing)
        self.box = Box()
        self.note = partial(Box.note, self.box)
        self.count = self.box.kept.__len__

    async def keep(self, what: str) -> list[str]:
        self.note(what)
        self.all(3).append(what)
        assert self.count() == 1
        assert self.all(3) == self.box.kept
        return self.all(3)


def nothing(number: int) -> list[str]:
    return []


class Sharing(Keeper):
    """Says what its copies share."""

    shared_attributes = frozenset({'log', 'on_keep'})

    def __init__(self) -> None:
        super().__init__(Log())
        self.on_keep = APPEND


async def test_p02_shared_attributes_of_an_instance_are_not_refused() -> None:
    assert await outputs(ToolsetSpec(toolset=Sharing()), 'hybrid') == FRESH


@pytest.mark.parametrize('isolation', ['hybrid', 'isolate'])
async def test_p02_caches_and_methods_of_an_instance_are_kept_apart(isolation: Isolation) -> None:
    assert await outputs(ToolsetSpec(toolset=Caching()), isolation) == FRESH


async def test_p02_server_is_not_copied_unless_all_is_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server(Keeper):
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError('Each copy would start a server.')

    # As those of `pydantic_ai.mcp`, which needs a package that isn't installed here
    monkeypatch.setattr(Server, '__module__', 'pydantic_ai.mcp')
    for toolset in (Server(), Server().prefixed('a').renamed({'keep': 'a_keep'})):
        assert await outputs(ToolsetSpec(toolset=toolset), 'hybrid') == LEAKED
    with pytest.raises(IsolationError, match='Each copy would start a server'):
        await outputs(ToolsetSpec(toolset=Server()), 'isolate')
