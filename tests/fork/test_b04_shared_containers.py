"""B4: a copy that shares a mutable container with its original is warned about."""

from __future__ import annotations

import copy as copying
import warnings
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, WrapperToolset, exceptions, toolsets
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset, RenamedToolset
from typing_extensions import Self

from .declared import Plain
from .line import WRAPPERS
from .toolsets import METHODS, HandWritten, Journal, Session, scripted

pytestmark = pytest.mark.anyio


class Special(list[Any]):
    """A container of a user's own."""


def sharing(value: Any, shared: frozenset[str] = frozenset()) -> AbstractToolset[Any]:
    """Make a toolset of a new class whose copies share the value, since one class is warned about once."""

    class Sharing(Plain):
        stateful = True
        shared_attributes = shared

        def __init__(self) -> None:
            self.cache = value
            self.other: dict[str, str] = {}

        def copy(self) -> Self:
            copy = type(self)()
            assert copy.cache is self.cache
            return copy

    return Sharing()


async def warnings_of(
    *toolsets_: AbstractToolset[Any], runs: int = 1, method: str = 'run', more: list[AbstractToolset[Any]] | None = None
) -> list[str]:
    """Return the warnings of some runs with the toolsets."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        agent = Agent(scripted(), toolsets=toolsets_)
        for _ in range(runs):
            await METHODS[method](agent, toolsets=more)
    return [str(warning.message) for warning in caught if warning.category.__name__ == 'ToolsetStateWarning']


def test_b04_warning_imported_from_either_module_is_the_same():
    assert issubclass(exceptions.ToolsetStateWarning, Warning)
    assert toolsets.ToolsetStateWarning is exceptions.ToolsetStateWarning


CONTAINERS: list[Any] = [{}, [], set(), deque(), bytearray(), OrderedDict(), defaultdict(list), Counter(), Special()]
OTHERS: list[Any] = [
    (),
    'text',
    b'bytes',
    frozenset(),
    None,
    1,
    MappingProxyType({}),
    object(),
    UserDict(),
    Journal(),
    ([],),
]


@pytest.mark.parametrize(
    'value',
    CONTAINERS,
    ids=lambda value: type(value).__name__,
)
async def test_b04_container_shared_by_a_copy_gives_a_warning_that_names_the_attribute(value: Any):
    (message,) = await warnings_of(sharing(value))
    assert '`cache`' in message
    assert '`other`' not in message
    assert 'Sharing' in message
    assert 'shared_attributes' in message


@pytest.mark.parametrize(
    'value',
    OTHERS,
    ids=lambda value: type(value).__name__,
)
async def test_b04_value_shared_that_is_no_mutable_container_gives_no_warning(value: Any):
    assert await warnings_of(sharing(value)) == []


async def test_b04_container_shared_on_purpose_gives_no_warning():
    assert await warnings_of(sharing({}, shared=frozenset({'cache'}))) == []


async def test_b04_container_shared_on_purpose_under_another_name_gives_a_warning():
    assert len(await warnings_of(sharing({}, shared=frozenset({'other'})))) == 1


async def test_b04_two_containers_shared_are_both_named():
    class Two(Plain):
        stateful = True

        def __init__(self) -> None:
            self.first: dict[str, str] = {}
            self.second: list[str] = []

        def copy(self) -> Self:
            return copying.copy(self)

    message = ' '.join(await warnings_of(Two()))
    assert '`first`' in message
    assert '`second`' in message


async def test_b04_container_made_anew_gives_no_warning():
    class Fresh(Plain):
        stateful = True

        def __init__(self) -> None:
            self.cache: dict[str, list[str]] = {'a': []}

        def copy(self) -> Self:
            copy = type(self)()
            copy.cache = dict(self.cache)
            return copy

    assert await warnings_of(Fresh()) == []


async def test_b04_dataclass_copied_with_replace_gives_a_warning():
    @dataclass
    class Cache(Plain):
        stateful: bool = True
        cache: dict[str, str] = field(default_factory=dict[str, str])

        def copy(self) -> Self:
            return replace(self)

    (message,) = await warnings_of(Cache())
    assert '`cache`' in message


async def test_b04_container_shared_in_a_slot_gives_a_warning():
    class Slotted(Plain):
        __slots__ = ('slot',)
        stateful = True

        def __init__(self, slot: list[str]) -> None:
            self.slot = slot

        def copy(self) -> Self:
            return type(self)(self.slot)

    (message,) = await warnings_of(Slotted([]))
    assert '`slot`' in message


async def test_b04_container_of_the_class_gives_no_warning():
    class Registry(Plain):
        stateful = True
        registry: ClassVar[dict[str, str]] = {}

        def copy(self) -> Self:
            return type(self)()

    assert await warnings_of(Registry()) == []


async def test_b04_class_warned_about_gives_one_warning_in_all():
    toolset = sharing({})
    another = type(toolset)()
    assert len(await warnings_of(toolset, another, runs=3)) == 1
    assert await warnings_of(another) == []


async def test_b04_two_classes_give_a_warning_each():
    assert len(await warnings_of(sharing({}), sharing([]))) == 2


async def test_b04_subclass_of_a_class_warned_about_gives_a_warning_of_its_own():
    toolset = sharing({})
    assert len(await warnings_of(toolset)) == 1
    subclass: type[Any] = type('Further', (type(toolset),), {})
    (message,) = await warnings_of(subclass())
    assert 'Further' in message


@pytest.mark.parametrize('method', METHODS)
async def test_b04_container_shared_gives_a_warning_in_each_kind_of_run(method: str):
    assert len(await warnings_of(method=method, more=[sharing({})])) == 1


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **WRAPPERS,
    'CombinedToolset': lambda toolset: CombinedToolset([Plain(), toolset]),
    'HandWritten': HandWritten,
    'deeper': lambda toolset: CombinedToolset([HandWritten(toolset.prefixed('x'))]).prefixed('y'),
}
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())


@places
async def test_b04_container_shared_inside_others_gives_a_warning(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    (message,) = await warnings_of(place(sharing({})))
    assert 'Sharing' in message


@places
async def test_b04_wrappers_and_combinations_of_the_line_give_no_warning(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    assert await warnings_of(place(Session('session', Journal())), DynamicToolset(lambda ctx: None)) == []


async def test_b04_wrapper_with_state_that_shares_it_gives_a_warning():
    @dataclass
    class Audit(WrapperToolset[Any]):
        stateful: bool = True
        log: list[str] = field(default_factory=list[str])

        def copy(self) -> Self:
            return replace(self, wrapped=self.wrapped.copy())

    (message,) = await warnings_of(Audit(Plain()))
    assert '`log`' in message


async def test_b04_what_a_wrapper_of_the_line_shares_gives_no_warning_in_a_subclass_with_state():
    @dataclass
    class Audit(RenamedToolset[Any]):
        stateful: bool = True
        log: list[str] = field(default_factory=list[str])

        def copy(self) -> Self:
            return replace(self, wrapped=self.wrapped.copy(), log=[])

    assert await warnings_of(Audit(Session('session', Journal()), {'new': 'session'})) == []


async def test_b04_warning_made_an_error_ends_the_run_before_anything_is_entered():
    journal = Journal()
    agent = Agent(scripted(), toolsets=[Session('first', journal), sharing({})])
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        with pytest.raises(exceptions.ToolsetStateWarning):
            await agent.run('go')
    assert journal.lifecycle == []


# Tools that still belong to the original


def same_value(value: str) -> str:
    """A tool that belongs to nobody."""
    return value


class Keeps(FunctionToolset[Any]):
    """A toolset whose tools are its own methods."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.keep, same_value])
        self.kept: list[str] = []

    def keep(self, value: str) -> list[str]:
        self.kept.append(value)
        return self.kept

    def copy(self) -> Self:
        return type(self)()


class ByCopyModule(Keeps):
    def copy(self) -> Self:
        copy = copying.copy(self)
        copy.kept = []
        return copy


class FreshDictOfTools(ByCopyModule):
    """One that does what a warning about the containers says, and still leaks."""

    def copy(self) -> Self:
        copy = super().copy()
        for name, value in vars(copy).items():
            if isinstance(value, (dict, list)):
                setattr(copy, name, type(value)(value))  # pyright: ignore[reportUnknownArgumentType]
        return copy


BELONG: dict[str, type[Any]] = {
    'by copy.copy()': ByCopyModule,
    'with fresh containers': FreshDictOfTools,
}


@pytest.mark.parametrize('cls', BELONG.values(), ids=BELONG)
async def test_b04_tool_that_belongs_to_the_original_gives_a_warning_that_names_it(cls: type[Any]):
    leaks: Any = type('Leaks', (cls,), {})
    (message,) = await warnings_of(leaks())
    assert '`keep`' in message
    assert '`same_value`' not in message
    assert 'Leaks' in message


@pytest.mark.parametrize('place', PLACES.values(), ids=PLACES)
async def test_b04_tool_that_belongs_to_the_original_inside_others_gives_a_warning(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    (message,) = await warnings_of(place(type('Leaks', (FreshDictOfTools,), {})()))
    assert '`keep`' in message


async def test_b04_tools_of_the_copy_and_tools_of_nobody_give_no_warning():
    assert await warnings_of(type('Fine', (Keeps,), {})(), runs=2) == []


async def test_b04_tools_that_are_shared_on_purpose_give_no_warning():
    assert await warnings_of(type('Fine', (FreshDictOfTools,), {'shared_attributes': frozenset({'tools'})})()) == []


async def test_b04_tools_that_were_added_to_the_original_and_that_its_copy_lacks_give_a_warning_that_names_them():
    class Lacks(FunctionToolset[Any]):
        stateful = True

        def copy(self) -> Self:
            return type(self)()

    notes = Lacks()

    @notes.tool  # pyright: ignore
    def recall() -> str:
        raise NotImplementedError

    @notes.tool_plain
    def forget() -> str:
        raise NotImplementedError

    (message,) = await warnings_of(notes, runs=2)
    assert 'Lacks' in message
    assert '`recall`' in message
    assert '`forget`' in message
    assert await warnings_of(Lacks()) == []


async def test_b04_string_of_shared_attributes_is_refused_with_the_set_to_write():
    class Shares(Plain):
        stateful = True
        shared_attributes: Any = 'cache'

        def copy(self) -> Self:
            return type(self)()

    with pytest.raises(exceptions.UserError, match=r"frozenset\(\{'cache'\}\)"):
        await Agent(scripted(), toolsets=[Shares()]).run('go')
