"""Whom to trust: what an agent is given in place of a toolset that a user or a plugin wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import date, time, timedelta, tzinfo
from enum import Enum
from functools import cache, cached_property, lru_cache, partial, partialmethod
from gc import get_referents
from inspect import isawaitable
from logging import Logger
from numbers import Number
from pathlib import PurePath
from re import Pattern
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    EllipsisType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NotImplementedType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID
from weakref import ReferenceType

from pydantic.fields import FieldInfo
from pydantic_ai import AbstractToolset, FunctionToolset, RunContext
from pydantic_ai.toolsets import DynamicToolset, WrapperToolset

from toolset_first.contracts import ToolsetBuildContext, ToolsetSpec
from toolset_first.errors import ToolsetFirstError, exit_as_error
from toolset_first.guard import is_shared, parts

Isolation: TypeAlias = Literal['trust', 'isolate', 'hybrid']
"""What to do with instances:

- `'trust'`: what they say of themselves holds. A stateful one is copied for each run, any other is shared.
- `'isolate'`: each run has a fresh one, whatever they say, nested runs included.
- `'hybrid'`: each run has a fresh one, unless they are stateful, which the fork copies, or say that they are shared, or are MCP servers.

`ToolsetSpec(shared=True)`, which is the project's own word, counts in each.
"""

Wrap: TypeAlias = 'Callable[[AbstractToolset[Any]], AbstractToolset[Any]]'
_PLAIN: tuple[type[Any], ...] = (
    *(str, bytes, Number, range, type(None), Enum, date, time, timedelta, tzinfo, UUID, PurePath),
)
_CONSTANTS: tuple[type[Any], ...] = (
    *(*_PLAIN, type, ModuleType, TypeVar, Pattern, Logger, CodeType, EllipsisType, NotImplementedType),
    *(FieldInfo, GenericAlias, UnionType, MemberDescriptorType, GetSetDescriptorType, MethodDescriptorType),
    *(WrapperDescriptorType, ClassMethodDescriptorType),
)
"""What nothing can change, or what all share, such as modules, classes and loggers."""
_CONSTANT_MODULES = ('typing', 'pydantic_core')
_NOT_LOOKED_INTO = ('pydantic_ai.', 'typing', 'abc', 'builtins')
_CACHE: type[Any] = type(cache(lambda: None))
_WRAPPERS: tuple[type[Any], ...] = (
    *(partial, partialmethod, cached_property, MethodType, staticmethod, classmethod, _CACHE),
)


class IsolationError(ToolsetFirstError):
    """A toolset that no run can have a fresh one of."""


def wired(spec: ToolsetSpec, isolation: Isolation, context: ToolsetBuildContext, wrap: Wrap) -> AbstractToolset[Any]:
    """Return what an agent that is built once is given for a toolset, wrapped.

    Raises:
        IsolationError: Each run should have a fresh one, and none can be made.
    """
    if factory := spec.factory:
        context = replace(context, options=spec.options)

        async def make_one(ctx: RunContext[Any]) -> Any:
            with exit_as_error():
                made: object = factory(replace(context, call=ctx.deps))
                made = await made if isawaitable(made) else made
            return wrap(cast(Any, made)) if isinstance(made, AbstractToolset) else made

        make_one.__qualname__ = make_one.__name__ = getattr(factory, '__qualname__', type(factory).__qualname__)
        return DynamicToolset(make_one, per_run_step=False)
    assert spec.toolset is not None
    toolset = spec.toolset
    if spec.shared:
        return wrap(toolset.shared() if toolset.stateful else toolset)
    if isolation == 'trust' or (isolation == 'hybrid' and (toolset.stateful or is_shared(toolset))):
        return wrap(toolset)
    make = _maker(toolset, isolation)
    if make is None:
        return wrap(toolset)

    def make_copy(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return wrap(make())

    return DynamicToolset(make_copy, per_run_step=False)


def made(
    spec: ToolsetSpec, isolation: Isolation, context: ToolsetBuildContext
) -> AbstractToolset[Any] | Awaitable[AbstractToolset[Any] | None] | None:
    """Make a toolset that is for no run of an agent, as that of an entry. A factory may be async."""
    if spec.factory:
        with exit_as_error():
            found = spec.factory(replace(context, options=spec.options))
        return _awaited(found) if isawaitable(found) else found
    assert spec.toolset is not None
    toolset = spec.toolset
    make = None if spec.shared or (isolation == 'trust' and not toolset.stateful) else _maker(toolset, isolation)
    return make() if make else toolset


async def _awaited(found: Awaitable[AbstractToolset[Any] | None]) -> AbstractToolset[Any] | None:
    with exit_as_error():
        return await found


def _maker(toolset: AbstractToolset[Any], isolation: Isolation) -> Callable[[], AbstractToolset[Any]] | None:
    """Return what makes a fresh toolset like this one, or `None` if it holds nothing.

    A stateful one says how in its `copy()`. Any other is copied in depth, as it was when the project was loaded.
    """
    if isinstance(toolset, WrapperToolset) and is_shared(cast('AbstractToolset[Any]', toolset)):
        return _maker(toolset.wrapped, isolation)
    inside = list(parts(toolset))
    # Each copy would start a server of its own.
    servers = [one for one in inside if isolation != 'isolate' and _is_mcp_server(one)]
    own = [one for one in inside if all(one is not server for server in servers)]
    declared = [value for one in own for name, value in _own_attributes(one) if name in _shared_attributes(one)]
    reached = _reached(toolset, [*servers, *declared])
    if not toolset.stateful and all(_has_functions_only(one) for one in own):
        if kept := next((one for one in reached if _is_atom(one) and _can_change(one)), None):
            raise _refusal(toolset, _what_is_shared(kept))
        return None
    for name, value in (found for one in own for found in _class_attributes(one)):
        if _can_change(value):
            raise _refusal(toolset, _what_is_shared(value) if [*_functions(value)] else _what_the_class_has(name))
    make: Callable[[], Any] = cast(Any, toolset).copy
    if not toolset.stateful:
        make = partial(_copied, toolset, servers, [one for one in reached if isinstance(one, _CACHE)])
    try:
        with exit_as_error():
            copied = make()
    except Exception as error:
        raise _refusal(toolset, f'{type(error).__name__}: {error}') from error
    if copied is toolset:
        raise _refusal(toolset, 'a copy of it is the same object')
    if not toolset.stateful and (kept := _shared(reached, _reached(copied, [*servers, *declared]))):
        raise _refusal(toolset, _what_is_shared(kept))
    return make


def _copied(toolset: AbstractToolset[Any], servers: list[AbstractToolset[Any]], caches: list[Any]) -> Any:
    memo: dict[int, Any] = {id(one): one for one in servers}
    # `deepcopy()` would share them, with all that they keep.
    memo |= {id(one): lru_cache(**one.cache_parameters())(one.__wrapped__) for one in caches}
    return deepcopy(toolset, memo)


def _is_mcp_server(toolset: AbstractToolset[Any]) -> bool:
    modules = {one.__module__ for one in type(toolset).__mro__}  # not imported here, since `mcp` may not be installed
    return not modules.isdisjoint({'pydantic_ai.mcp', 'pydantic_ai.toolsets.fastmcp'})


def _has_functions_only(toolset: AbstractToolset[Any]) -> bool:
    if type(toolset) is not FunctionToolset:
        return False
    tools = cast('FunctionToolset[Any]', toolset).tools.values()
    called = [
        one
        for tool in tools
        for one in vars(tool).values()
        if callable(one) and not isinstance(get_origin(one) or one, type)
    ]
    return all(isinstance(one, FunctionType) for one in called)


def _reached(root: object, left_out: Iterable[object]) -> list[Any]:
    """Return what an object refers to, and what that refers to, down to what a deep copy refers to as well."""
    seen = {id(one) for one in left_out}
    found: list[Any] = []  # which also keeps them, so that no two have the same `id()`
    left: list[Any] = [root]
    while left:
        one = left.pop()
        if id(one) not in seen and not _is_constant(one):
            seen.add(id(one))
            found.append(one)
            left += () if _is_atom(one) else get_referents(one)
    return found


def _shared(originals: list[Any], copies: list[Any]) -> Any:
    """Return something among copies that others refer to as well and that can change, if there is any."""
    known = {id(one) for one in originals}
    fresh = {id(one) for one in copies} - known
    for one in copies:
        weak = issubclass(type(one), ReferenceType) and id(one()) not in fresh
        if (weak or id(one) in known) and _can_change(one):
            return one
    return None


def _is_constant(value: Any) -> bool:
    kind: Any = cast(Any, type)(value)  # `isinstance()` asks what a proxy is for
    return issubclass(kind, _CONSTANTS) or kind.__module__.startswith(_CONSTANT_MODULES)


def _is_atom(value: Any) -> bool:
    """Whether a deep copy refers to the same one, whatever that refers to."""
    kind: Any = cast(Any, type)(value)
    return issubclass(kind, (FunctionType, BuiltinFunctionType, property, ReferenceType, _CACHE))


def _can_change(value: Any, *seen: int) -> bool:
    """Whether a value, or what it refers to, can change."""
    if _is_constant(value) or id(value) in seen:
        return False
    inside = _inside(value)
    return inside is None or any(_can_change(one, id(value), *seen) for one in inside)


def _inside(value: Any) -> list[Any] | None:
    """Return what something refers to that can't change itself, or `None` of what can."""
    if isinstance(value, FunctionType):
        named: list[dict[str, Any]] = [value.__kwdefaults__ or {}, vars(value)]
        held = [*(value.__defaults__ or ()), *(one for names in named for one in names.values())]
        return held + [_content(cell) for cell in value.__closure__ or ()]
    if isinstance(value, BuiltinFunctionType):
        return [value.__self__]
    if isinstance(value, ReferenceType):
        return [cast(Any, value)()]
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, partial | partialmethod):
        made = cast('partial[Any]', value)
        return [made.func, *made.args, *made.keywords.values()]
    if isinstance(value, _CACHE):
        return [value.__wrapped__] if _returns_constants(value.__wrapped__) else None
    if isinstance(value, tuple | frozenset):
        return [*cast('Iterable[Any]', value)]
    if isinstance(value, MappingProxyType):
        return [*cast('Mapping[Any, Any]', value).values()]
    return [*_unwrapped(value)] or None


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # assigned later, if ever
        return []


def _unwrapped(value: Any) -> Iterator[Any]:
    """Return what a property or another wrapper of a function wraps."""
    if isinstance(value, property):
        yield from (one for one in (value.fget, value.fset, value.fdel) if one)
    elif isinstance(value, _WRAPPERS):
        names = ('func', '__func__', '__wrapped__')  # only that of `functools.cache` has nothing but the last
        yield next(getattr(value, name) for name in names if hasattr(value, name))


def _functions(value: Any) -> Iterator[FunctionType]:
    """Return a function, without what is wrapped around it, or those of a property."""
    if isinstance(value, FunctionType):
        yield value
    for one in _unwrapped(value):
        yield from _functions(one)


def _returns_constants(function: Any) -> bool:
    """Whether a function says that it returns what can't change, so that it doesn't matter who has it from a cache."""
    try:
        return _all_plain(get_type_hints(function).get('return'))
    except Exception:  # noqa: BLE001 - an annotation can be anything
        return False


def _all_plain(kind: Any) -> bool:
    if inner := get_args(kind):
        known = get_origin(kind) in (tuple, frozenset, Union, UnionType)
        return known and all(one is ... or _all_plain(one) for one in inner)
    return isinstance(kind, type) and issubclass(kind, _PLAIN)


def _shared_attributes(toolset: AbstractToolset[Any]) -> frozenset[str]:
    return getattr(type(toolset), 'shared_attributes', frozenset())


def _own_attributes(toolset: AbstractToolset[Any]) -> Iterable[tuple[str, Any]]:
    return getattr(toolset, '__dict__', {}).items()


def _class_attributes(toolset: AbstractToolset[Any]) -> Iterator[tuple[str, Any]]:
    """Return what is in the classes of a toolset, but for those of pydantic-ai, and for what is said to be shared."""
    shared = _shared_attributes(toolset)
    own = dict(_own_attributes(toolset))  # an instance that has an attribute of that name uses it
    for one in type(toolset).__mro__:
        if one.__module__.startswith(_NOT_LOOKED_INTO):
            continue
        for name, value in vars(one).items():
            # Of the others, `dataclass` makes some.
            method = [*_functions(value)] and '__dataclass_fields__' not in vars(one)
            looked_at = method if name.startswith('__') else name not in own
            if looked_at and name not in shared and name != '_abc_impl':
                yield f'{one.__name__}.{name}', value


def _what_the_class_has(name: str) -> str:
    return (
        f'all have `{name}` of the class. Make it an attribute of the instances, or, if nothing changes it, a '
        "tuple, a `frozenset` or a `MappingProxyType`, or name it in the class's `shared_attributes`"
    )


def _what_is_shared(value: Any) -> str:
    if functions := [*_functions(value)]:
        name = functions[0].__name__
        while isinstance(value, staticmethod | classmethod):
            value = cast(Any, value).__func__
        if isinstance(value, _CACHE) and not _returns_constants(value.__wrapped__):
            return f'copies would share what `functools.cache` keeps of what `{name}` returns'
        return (
            f'its function `{name}` uses variables of the function that it is defined in, or has a default or an '
            'attribute that can change'
        )
    if isinstance(value, ReferenceType):
        return 'copies would share what it has a weak reference to'
    if isinstance(value, BuiltinFunctionType):
        return f'copies would share the `{type(value.__self__).__name__}` of which it has the method `{value.__name__}`'
    return f'copies would share the `{type(value).__name__}` in it, which `copy.deepcopy()` does not copy'


def _refusal(toolset: AbstractToolset[Any], why: str) -> IsolationError:
    return IsolationError(
        f'No fresh {toolset.label} can be made for each run: {why}. There are three ways out: set `stateful = True` in '
        'its class and make a fresh one in `copy()`; write `ToolsetSpec(toolset=…, shared=True)` if all runs may share '
        'it; or write `ToolsetSpec(factory=…)` with a function that makes one.'
    )
