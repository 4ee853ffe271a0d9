"""The guard: what stands around each toolset, and has calls that need approval come to `Approvals` with their validated arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from pydantic import ValidationError
from pydantic_ai import AbstractToolset, ApprovalRequired, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.toolsets import (
    ApprovalRequiredToolset,
    CombinedToolset,
    FilteredToolset,
    PrefixedToolset,
    PreparedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
)
from typing_extensions import Self

from toolset_first.errors import exit_as_error
from toolset_first.rules import ApprovalError, Rule, Verdict, check_rules, judge

JUDGED = 'toolset_first.judged'
"""Where the metadata of a call, and that of its answer, hold what was judged."""

_HIDING = (FilteredToolset, PreparedToolset, ApprovalRequiredToolset)
Schemas: TypeAlias = 'dict[str, Mapping[str, Any]]'


@dataclass(frozen=True)
class Judged:
    """A call as it was judged: what is said of it, and the arguments that the tool runs with if it is approved."""

    verdict: Verdict
    arguments: dict[str, Any]


@dataclass
class Guarded(WrapperToolset[Any]):
    """Judges each call by the arguments that the tool gets, and asks for approval where a rule, or the tool itself, says so.

    What was approved is what runs: the very arguments that were judged.
    """

    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    default: Callable[[], Verdict] = field(default=lambda: 'allow', repr=False, compare=False)

    async def __aenter__(self) -> Self:
        """Enter the toolset."""
        with exit_as_error():
            await cast(Any, super()).__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> bool | None:
        """Exit it."""
        with exit_as_error():
            return await super().__aexit__(*failure)

    async def get_instructions(self, ctx: RunContext[Any]) -> Any:
        """Return what the toolset says to the model."""
        with exit_as_error():
            return await super().get_instructions(ctx)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, and refuse rules that name none of them."""
        with exit_as_error():
            tools = await super().get_tools(ctx)
        if self.rules:
            schemas = {name: tool.tool_def.parameters_json_schema for name, tool in tools.items()}
            if not self.rules.keys() <= schemas.keys():  # hidden ones count
                known = await _all_tools(self.wrapped, ctx)
                # Unless a `prepare` has renamed one: that may be the tool of the rule, which would run unasked
                schemas |= known if schemas.keys() <= known.keys() else {}
            check_rules(self.rules, schemas)
        # Asked about in `call_tool`, which is where the arguments are valid
        return {name: _callable(tool) for name, tool in tools.items()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, or ask for approval."""
        with exit_as_error():
            return await self._call(name, tool_args, ctx, tool)

    async def _call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        given = dict(ctx.tool_call_metadata or {})
        judged = given.pop(JUDGED, None)
        # A guard within judges for itself: it may be that of another agent, which has handed its toolset on
        ctx = replace(ctx, tool_call_metadata=given or None)
        if isinstance(judged, Judged) and ctx.tool_call_approved:
            try:
                return await super().call_tool(name, judged.arguments, ctx, tool)
            except ApprovalRequired as error:
                raise ApprovalError(f'`{name}` was approved, and asks again. An answer counts once.') from error
        tool_args = _listed(tool_args)
        rule = self.rules.get(name)
        verdict: Verdict = self.default()
        if rule is not None:
            verdict = judge(name, rule, tool_args, tool.tool_def.parameters_json_schema)
        if (tool.tool_def.metadata or {}).get(JUDGED) == 'unapproved':
            verdict = _with_its_own(rule, verdict)
        metadata: dict[str, Any] = {}
        if verdict == 'allow' or (verdict == 'ask' and ctx.tool_call_approved):
            try:
                return await super().call_tool(name, tool_args, ctx, tool)
            except ApprovalRequired as error:
                metadata = error.metadata or {}
                within = metadata.get(JUDGED)
                is_denied = isinstance(within, Judged) and within.verdict == 'deny'
                verdict = 'deny' if is_denied else _with_its_own(rule, verdict)
        raise ApprovalRequired(metadata={**metadata, JUDGED: Judged(verdict, tool_args)})


def _with_its_own(rule: Rule | None, verdict: Verdict) -> Verdict:
    """Return what is said of a call of a tool that asks for approval itself, which only the rule `allow` overrules."""
    return 'ask' if rule is None or (verdict == 'allow' and rule != 'allow') else verdict


def _listed(arguments: Any) -> Any:
    """Return arguments with lists in place of iterators, which are used up by being looked at."""
    if not isinstance(arguments, dict):
        return arguments
    given = cast('dict[str, Any]', arguments)
    try:
        return {
            name: list(cast('Iterator[Any]', one)) if isinstance(one, Iterator) else one for name, one in given.items()
        }
    except ValidationError as error:  # of an entry: it is validated only now
        raise ModelRetry(str(error)) from error


class _Validator:
    """Validates arguments, which can run a project's code."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def validate_python(self, *args: Any, **options: Any) -> Any:
        """Validate an object."""
        with exit_as_error():
            return self._validator.validate_python(*args, **options)

    def validate_json(self, *args: Any, **options: Any) -> Any:
        """Validate JSON."""
        with exit_as_error():
            return self._validator.validate_json(*args, **options)


def _callable(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    tool = replace(tool, args_validator=cast(Any, _Validator(tool.args_validator)))
    if tool.tool_def.kind != 'unapproved':
        return tool
    metadata = {**(tool.tool_def.metadata or {}), JUDGED: 'unapproved'}
    return replace(tool, tool_def=replace(tool.tool_def, kind='function', metadata=metadata))


async def _all_tools(toolset: AbstractToolset[Any], ctx: RunContext[Any]) -> Schemas:
    """Return the tools of an open toolset, those included that it hides from the run now."""
    known, complete = known_tools(toolset)
    if complete:
        return known
    if isinstance(toolset, _HIDING):
        return await _all_tools(cast('WrapperToolset[Any]', toolset).wrapped, ctx)
    tools = await toolset.get_tools(ctx)
    return known | {name: tool.tool_def.parameters_json_schema for name, tool in tools.items()}


def known_tools(toolset: AbstractToolset[Any]) -> tuple[Schemas, bool]:
    """Return the tools that a toolset is known to have before it is open, and whether these are all."""
    kind = type(toolset)
    if isinstance(toolset, FunctionToolset):
        tools = toolset.tools
        # One that has none yet may add them when it is entered
        complete = kind.get_tools is FunctionToolset.get_tools and (
            bool(tools) or cast(Any, kind).__aenter__ is cast(Any, FunctionToolset).__aenter__
        )
        return {name: tool.function_schema.json_schema for name, tool in tools.items()}, complete
    if isinstance(toolset, CombinedToolset):
        found = [known_tools(one) for one in toolset.toolsets]
        schemas = {name: schema for tools, _ in found for name, schema in tools.items()}
        return schemas, kind is CombinedToolset and all(complete for _, complete in found)
    if not isinstance(toolset, WrapperToolset):
        return {}, False
    inner, complete = known_tools(toolset.wrapped)
    if kind is PrefixedToolset:
        return {f'{cast("PrefixedToolset[Any]", toolset).prefix}_{name}': one for name, one in inner.items()}, complete
    if kind is RenamedToolset:
        new = {old: name for name, old in cast('RenamedToolset[Any]', toolset).name_map.items()}
        return {new.get(name, name): schema for name, schema in inner.items()}, complete
    if kind in (*_HIDING, Guarded) or kind.get_tools is WrapperToolset.get_tools or is_shared(toolset):
        return inner, complete
    return {}, False


_SHARED = type(FunctionToolset[Any]().shared())


def is_shared(toolset: AbstractToolset[Any]) -> bool:
    """Whether it is what `toolset.shared()` returns."""
    return isinstance(toolset, _SHARED)


def parts(toolset: AbstractToolset[Any]) -> Iterator[AbstractToolset[Any]]:
    """Return a toolset, and what is inside of it as far as wrappers and combinations go."""
    yield toolset
    if isinstance(toolset, WrapperToolset):
        yield from parts(toolset.wrapped)
    elif isinstance(toolset, CombinedToolset):
        for one in toolset.toolsets:
            yield from parts(one)


__all__ = ['JUDGED', 'ApprovalError', 'Guarded', 'Judged', 'is_shared', 'known_tools', 'parts']
