"""Whom to trust: what an agent is given in place of a toolset that a user or a plugin wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property, partial
from inspect import isawaitable
from logging import Logger
from pathlib import PurePath
from re import Pattern
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal, TypeAlias, TypeVar, cast
from uuid import UUID

from pydantic_ai import AbstractToolset, FunctionToolset, RunContext, Tool
from pydantic_ai.toolsets import WrapperToolset

from toolset_first.compat import DynamicToolset
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
_CONSTANTS: tuple[type[Any], ...] = (
    *(str, bytes, int, float, complex, range, type(None), Enum, Decimal, date, time, timedelta, UUID, PurePath),
    *(type, ModuleType, BuiltinFunctionType, MemberDescriptorType, GetSetDescriptorType, TypeVar, Pattern, Logger),
)
"""What nothing can change, or what all share, such as modules, classes and loggers."""
_NOT_LOOKED_INTO = ('pydantic_ai.', 'typing', 'abc', 'builtins')


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
            return spec.factory(replace(context, options=spec.options))
    assert spec.toolset is not None
    toolset = spec.toolset
    make = None if spec.shared or (isolation == 'trust' and not toolset.stateful) else _maker(toolset, isolation)
    return make() if make else toolset


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
    if toolset.stateful:
        make: Callable[[], Any] = cast(Any, toolset).copy
    else:
        make = partial(_copied, toolset, servers)
        functions = [function for one in own for function in (*_functions(one), *_methods(one))]
        if kept := next((function for function in functions if _keeps_variables(function)), None):
            raise _refusal(
                toolset,
                f'its function `{kept.__name__}` uses variables of the function that it is defined in, or has a default or an '
                'attribute that can change',
            )
        if all(_holds_nothing(one) for one in own):
            return None
    if attribute := next((name for one in own for name in _class_state(one)), None):
        raise _refusal(
            toolset,
            f'all have `{attribute}` of the class. Make it an attribute of the instances, or, if nothing changes it, a '
            "tuple, a `frozenset` or a `MappingProxyType`, or name it in the class's `shared_attributes`",
        )
    try:
        same = make() is toolset
    except Exception as error:
        raise _refusal(toolset, f'{type(error).__name__}: {error}') from error
    if same:
        raise _refusal(toolset, 'a copy of it is the same object')
    return make


def _copied(toolset: AbstractToolset[Any], servers: list[AbstractToolset[Any]]) -> AbstractToolset[Any]:
    return deepcopy(toolset, {id(one): one for one in servers})


def _is_mcp_server(toolset: AbstractToolset[Any]) -> bool:
    modules = {one.__module__ for one in type(toolset).__mro__}  # not imported here, since `mcp` may not be installed
    return not modules.isdisjoint({'pydantic_ai.mcp', 'pydantic_ai.toolsets.fastmcp'})


def _holds_nothing(toolset: AbstractToolset[Any]) -> bool:
    """Whether it has functions, and nothing else."""
    if type(toolset) is not FunctionToolset:
        return False
    tools = cast('FunctionToolset[Any]', toolset).tools.values()
    return all(isinstance(tool.function, FunctionType) for tool in tools)


def _functions(holder: object) -> Iterator[Any]:
    """Return the functions that a toolset, a tool or a container refers to, which a deep copy shares."""
    values: list[Any] = (
        [*cast('Mapping[Any, Any]', holder).values()]
        if isinstance(holder, Mapping)
        else [*cast('list[Any]', holder)]
        if isinstance(holder, list | tuple | set | frozenset)
        else [*getattr(holder, '__dict__', {}).values()]
    )
    for value in values:
        if isinstance(value, Mapping | list | tuple | set | frozenset | Tool):
            yield from _functions(cast(object, value))
        else:
            yield from _inside(value)


def _inside(value: Any) -> Iterator[FunctionType]:
    """Return a function, without what is wrapped around it, or those of a property."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, property):
        for one in (value.fget, value.fset, value.fdel):
            yield from _inside(one)
    elif isinstance(value, _WRAPPERS):
        names = ('func', '__func__', '__wrapped__')  # only that of `functools.cache` has nothing but the last
        yield from _inside(next(getattr(value, name) for name in names if hasattr(value, name)))


_WRAPPERS: tuple[type[Any], ...] = (
    partial,
    cached_property,
    MethodType,
    staticmethod,
    classmethod,
    type(cache(lambda: None)),
)


def _keeps_variables(function: Any, *seen: Any) -> bool:
    """Whether a function refers to something that can change, and that a copy of its toolset would refer to as well."""
    cells: tuple[Any, ...] = function.__closure__ or ()
    try:
        held = [cell.cell_contents for cell in cells]
    except ValueError:  # assigned later, if ever
        return True
    named: list[dict[str, Any]] = [function.__kwdefaults__ or {}, vars(function)]
    held += [*(function.__defaults__ or ()), *(value for values in named for value in values.values())]
    return any(_can_change(value, function, *seen) for value in held)


def _can_change(value: Any, *seen: Any) -> bool:
    """Whether a value, or what it refers to, can change."""
    if isinstance(value, _CONSTANTS):
        return False
    if isinstance(value, tuple | frozenset):
        return any(_can_change(one, *seen) for one in cast('Iterable[Any]', value))
    if isinstance(value, MappingProxyType):
        return any(_can_change(one, *seen) for one in cast('Mapping[Any, Any]', value).values())
    functions = [*_inside(value)]
    return not functions or any(one not in seen and _keeps_variables(one, *seen) for one in functions)


def _classes(toolset: AbstractToolset[Any]) -> Iterator[type]:
    """Return the classes of a toolset, but for those of pydantic-ai."""
    return (one for one in type(toolset).__mro__ if not one.__module__.startswith(_NOT_LOOKED_INTO))


def _methods(toolset: AbstractToolset[Any]) -> Iterator[FunctionType]:
    """Return the functions in the classes of a toolset, but for those that `dataclass` makes."""
    for one in _classes(toolset):
        for name, value in vars(one).items():
            if not (name.startswith('__') and '__dataclass_fields__' in vars(one)):
                yield from _inside(value)


def _class_state(toolset: AbstractToolset[Any]) -> Iterator[str]:
    """Return what can change in the classes of a toolset, besides what functions keep."""
    shared: frozenset[str] = getattr(type(toolset), 'shared_attributes', frozenset())
    own: Mapping[str, Any] = getattr(toolset, '__dict__', {})  # an instance that has an attribute of that name uses it
    for one in _classes(toolset):
        for name, value in vars(one).items():
            looked_at = not name.startswith('__') and name != '_abc_impl' and name not in shared and name not in own
            if looked_at and not [*_inside(value)] and _can_change(value):
                yield f'{one.__name__}.{name}'


def _refusal(toolset: AbstractToolset[Any], why: str) -> IsolationError:
    return IsolationError(
        f'No fresh {toolset.label} can be made for each run: {why}. There are three ways out: set `stateful = True` in '
        'its class and make a fresh one in `copy()`; write `ToolsetSpec(toolset=…, shared=True)` if all runs may share '
        'it; or write `ToolsetSpec(factory=…)` with a function that makes one.'
    )
