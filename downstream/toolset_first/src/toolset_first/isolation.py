"""Whom to trust: what an agent is given in place of a toolset that a user or a plugin wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Literal, TypeAlias, cast

from pydantic_ai import AbstractToolset, FunctionToolset
from pydantic_ai.toolsets import WrapperToolset, describe_lifecycle, per_run

from toolset_first.contracts import ToolsetBuildContext, ToolsetFirstError, ToolsetSpec

Isolation: TypeAlias = Literal['trust', 'isolate', 'hybrid']
"""What to do with instances:

- `'trust'`: what they say of themselves holds. A stateful one is copied for each run, any other is shared.
- `'isolate'`: each run has a fresh one, whatever they say, nested runs included.
- `'hybrid'`: each run has a fresh one, unless they are stateful, which the fork copies, or say that they are shared.

`ToolsetSpec(shared=True)`, which is the project's own word, counts in each.
"""


class IsolationError(ToolsetFirstError):
    """A toolset that no run can have a fresh one of."""


def wired(spec: ToolsetSpec, isolation: Isolation, context: ToolsetBuildContext) -> AbstractToolset[Any]:
    """Return what an agent that is built once is given for a toolset.

    Raises:
        IsolationError: Each run should have a fresh one, and none can be made.
    """
    if factory := spec.factory:
        context = replace(context, options=spec.options)
        return per_run(lambda ctx: factory(replace(context, call=ctx.deps)))
    assert spec.toolset is not None
    toolset = spec.toolset
    if spec.shared:
        return toolset.shared() if toolset.stateful else toolset
    if isolation == 'trust' or (isolation == 'hybrid' and (toolset.stateful or _says_shared(toolset))):
        return toolset
    make = _maker(toolset)
    return toolset if make is None else per_run(make)


def made(
    spec: ToolsetSpec, isolation: Isolation, context: ToolsetBuildContext
) -> AbstractToolset[Any] | Awaitable[AbstractToolset[Any] | None] | None:
    """Make a toolset that is for no run of an agent, as that of an entry. A factory may be async."""
    if spec.factory:
        return spec.factory(replace(context, options=spec.options))
    assert spec.toolset is not None
    toolset = spec.toolset
    make = None if spec.shared or (isolation == 'trust' and not toolset.stateful) else _maker(toolset)
    return make() if make else toolset


def _says_shared(toolset: AbstractToolset[Any]) -> bool:
    """Whether it is what `toolset.shared()` returns."""
    return describe_lifecycle(toolset).toolsets[0].policy == 'live'


def _maker(toolset: AbstractToolset[Any]) -> Callable[[], AbstractToolset[Any]] | None:
    """Return what makes a fresh toolset like this one, or `None` if it holds nothing.

    A stateful one says how in its `copy()`. Any other is copied in depth, as it was when the project was loaded.
    """
    if isinstance(toolset, WrapperToolset) and _says_shared(cast('AbstractToolset[Any]', toolset)):
        return _maker(toolset.wrapped)
    make: Callable[[], Any] = cast(Any, toolset).copy if toolset.stateful else partial(deepcopy, toolset)
    functions: list[Any] = []
    if not toolset.stateful:
        toolset.apply(lambda leaf: functions.extend(_functions(leaf)))
        if kept := next((function for function in functions if _keeps_variables(function)), None):
            raise _refusal(toolset, f'its tool `{kept.__name__}` uses variables of the function that it is defined in')
        if type(toolset) is FunctionToolset and all(isinstance(function, FunctionType) for function in functions):
            return None
    try:
        make()
    except Exception as error:
        raise _refusal(toolset, f'{type(error).__name__}: {error}') from error
    return make


def _functions(leaf: AbstractToolset[Any]) -> list[Any]:
    return [tool.function for tool in leaf.tools.values()] if isinstance(leaf, FunctionToolset) else []


def _keeps_variables(function: Any, *seen: Any) -> bool:
    """Whether a function refers to something mutable that a copy of its toolset would refer to as well."""
    for cell in getattr(function, '__closure__', None) or ():
        value = cell.cell_contents
        if isinstance(value, FunctionType):
            if value not in seen and _keeps_variables(value, function, *seen):
                return True
        elif not isinstance(value, str | bytes | int | float | type | ModuleType | None):
            return True
    return False


def _refusal(toolset: AbstractToolset[Any], why: str) -> IsolationError:
    return IsolationError(
        f'No fresh {toolset.label} can be made for each run: {why}. There are three ways out: set `stateful = True` in '
        'its class and make a fresh one in `copy()`; write `ToolsetSpec(toolset=…, shared=True)` if all runs may share '
        'it; or write `ToolsetSpec(factory=…)` with a function that makes one.'
    )
