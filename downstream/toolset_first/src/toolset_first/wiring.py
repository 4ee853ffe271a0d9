"""What an agent that is built once is given for a toolset that users or plugins wrote, and what an entry is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from types import FunctionType, ModuleType
from typing import Any, TypeAlias, cast

from pydantic_ai import AbstractToolset, FunctionToolset, RunContext
from pydantic_ai.toolsets import DynamicToolset

from toolset_first.contracts import ToolsetBuildContext, ToolsetSpec
from toolset_first.errors import ToolsetFirstError, exit_as_error
from toolset_first.guard import is_shared, parts

Wrap: TypeAlias = 'Callable[[AbstractToolset[Any]], AbstractToolset[Any]]'
_CONSTANTS = (str, bytes, int, float, bool, type(None), type, ModuleType)


class IsolationError(ToolsetFirstError):
    """An instance that doesn't say what runs get of it."""


def wired(spec: ToolsetSpec, context: ToolsetBuildContext, wrap: Wrap) -> AbstractToolset[Any]:
    """Return what an agent that is built once is given for a toolset, wrapped.

    Raises:
        IsolationError: It is an instance that doesn't say what runs get of it.
    """
    if factory := spec.factory:
        context = replace(context, options=spec.options)

        async def make_one(ctx: RunContext[Any]) -> Any:
            with exit_as_error():
                made: Any = factory(replace(context, call=ctx.deps))
                made = await made if isawaitable(made) else made
            if made is None:
                return None
            if not isinstance(made, AbstractToolset):  # nothing would guard it
                raise ToolsetFirstError(f'{make_one.__name__} made {made!r}, which is no toolset.')
            return wrap(cast('AbstractToolset[Any]', made))

        make_one.__qualname__ = make_one.__name__ = getattr(factory, '__qualname__', type(factory).__qualname__)
        return DynamicToolset(make_one, per_run_step=False)
    toolset = _instance(spec)
    return wrap(toolset.shared() if spec.shared and toolset.stateful else toolset)


def made(
    spec: ToolsetSpec, context: ToolsetBuildContext
) -> AbstractToolset[Any] | Awaitable[AbstractToolset[Any] | None] | None:
    """Make a toolset that is for no run of an agent, as that of an entry. A factory may be async."""
    if spec.factory:
        with exit_as_error():
            found = spec.factory(replace(context, options=spec.options))
        return _awaited(found) if isawaitable(found) else found
    toolset = _instance(spec)
    with exit_as_error():
        return toolset if spec.shared else toolset.copy()


async def _awaited(found: Awaitable[AbstractToolset[Any] | None]) -> AbstractToolset[Any] | None:
    with exit_as_error():
        return await found


def _instance(spec: ToolsetSpec) -> AbstractToolset[Any]:
    """Return the instance of a spec, which has to say what runs get of it: nobody else knows what belongs to one of them."""
    assert spec.toolset is not None
    if not spec.shared and not is_shared(spec.toolset):
        for one in parts(spec.toolset):
            if not (one.stateful or is_shared(one) or _holds_nothing(one)):
                raise IsolationError(
                    f'{one.label} does not say what its runs get of it, and they must not share what belongs to one of '
                    'them. There are three ways out: set `stateful = True` in its class and make a fresh one in '
                    '`copy()`; write `ToolsetSpec(toolset=…, shared=True)` if all runs may share it; or write '
                    '`ToolsetSpec(factory=…)` with a function that makes one.'
                )
    return spec.toolset


def _holds_nothing(toolset: AbstractToolset[Any]) -> bool:
    """Whether a toolset has plain functions only, or is an MCP server or another toolset of pydantic-ai's own."""
    kind = type(toolset)
    if kind is FunctionToolset:
        return all(_is_plain(tool.function) for tool in cast('FunctionToolset[Any]', toolset).tools.values())
    servers = ('pydantic_ai.mcp', 'pydantic_ai.toolsets.fastmcp')  # whose classes are there to be derived from
    return kind.__module__.startswith('pydantic_ai.') or any(one.__module__ in servers for one in kind.__mro__)


def _is_plain(function: object) -> bool:
    """Whether it is a function that has nothing to keep something in, but for globals."""
    if isinstance(function, _CONSTANTS):
        return True
    if not isinstance(function, FunctionType):
        return False
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if any(isinstance(one, list | dict | set) for one in held):
        return False
    try:
        return all(_is_plain(cell.cell_contents) for cell in function.__closure__ or ())
    except (ValueError, RecursionError):  # a variable that is set later, and a function that refers to itself
        return False
