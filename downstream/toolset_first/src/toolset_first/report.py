"""What `toolset-first check` says of rules: those that hold, by agent and tool."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable
from typing import Any, cast

from pydantic_ai import AbstractToolset, RunContext
from pydantic_ai.usage import RunUsage

from toolset_first.agents import Agents, CallFrame, CallRuntime
from toolset_first.contracts import EntrySpec, ToolsetBuildContext, ToolsetSpec
from toolset_first.guard import Guarded, known_tools
from toolset_first.rules import ApprovalError, shown
from toolset_first.scope import NULL_MODEL
from toolset_first.turn import Turn
from toolset_first.wiring import made


async def describe_rules(runtime: Agents, entry: EntrySpec) -> dict[str, list[str]]:
    """Return a line for each tool of each agent and of the entry, with what is said of its calls.

    A toolset that has rules is opened for this, if its tools aren't known otherwise.

    Raises:
        ApprovalError: A rule names nothing.
    """
    specs = {name: spec.toolset_specs for name, spec in runtime.agents.items()}
    entry_name = f'{entry.name} (the entry)' if entry.name in specs else entry.name
    found: dict[str, list[str]] = {name: [] for name in specs}
    for name, of in specs.items():  # no comprehension: in Python 3.10, one within another can't be async
        for spec in of:
            found[name] += await _lines(runtime, name, spec)
    if entry.toolset_spec.rules:
        found[entry_name] = await _lines(runtime, entry.name, entry.toolset_spec)
    return found


async def _lines(runtime: Agents, name: str, spec: ToolsetSpec) -> list[str]:
    default = runtime.approvals.default if runtime.approvals else 'allow'
    try:
        tools = await _tools(runtime, name, spec)
    except ApprovalError as error:
        raise ApprovalError(f'{name!r}: {error}') from None
    except Exception as error:  # noqa: BLE001 - it may need a network, a key, or what only a run has
        why = f'not checked, since it could not be opened: {type(error).__name__}: {error}'
        return [f'{tool}: {shown(rule)} ({why})' for tool, rule in spec.rules.items()]
    if tools is None:
        return [f'all of {_label(spec)}: {default} (no rules)']
    return [f'{tool}: {shown(spec.rules[tool]) if tool in spec.rules else f"{default} (no rule)"}' for tool in tools]


def _label(spec: ToolsetSpec) -> str:
    return spec.toolset.label if spec.toolset else f'what {getattr(spec.factory, "__qualname__", "a factory")} makes'


async def _tools(runtime: Agents, name: str, spec: ToolsetSpec) -> Mapping[str, Any] | None:
    """Return the tools of a toolset, or `None` if it has no rules, and would have to be opened."""
    if spec.toolset is not None and (known := known_tools(spec.toolset))[1]:
        return known[0]
    if not spec.rules:
        return None
    toolset: object = made(spec, ToolsetBuildContext(name, runtime.folder))
    toolset = await toolset if isawaitable(toolset) else toolset
    if not isinstance(toolset, AbstractToolset):
        return {}
    call = CallRuntime(runtime, CallFrame(name, 1), Turn())
    guarded = Guarded(toolset, rules=spec.rules)
    async with cast(Any, guarded):
        return await guarded.get_tools(RunContext[Any](deps=call, model=NULL_MODEL, usage=RunUsage()))
