"""A call scope: the toolset of an entry, open, and its tools called as an agent would call them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import ValidationError
from pydantic_ai import (
    AbstractToolset,
    ApprovalRequired,
    CallDeferred,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    RunContext,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RunUsage
from typing_extensions import Self

from toolset_first.contracts import EntrySpec, ToolsetBuildContext, ToolsetFirstError
from toolset_first.inputs import InputError, faults, normalize_input
from toolset_first.isolation import made

if TYPE_CHECKING:
    from toolset_first.runtime import CallRuntime


class EntryError(ToolsetFirstError):
    """A toolset that can't be an entry's."""


class ScopeClosedError(ToolsetFirstError):
    """A scope that is used after it was closed."""


def _no_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise ToolsetFirstError('An entry has no model. It calls agents with `ctx.deps.call_agent(…)`.')


NULL_MODEL = FunctionModel(_no_model, model_name='none')
"""The `ctx.model` of an entry's tools."""


class CallScope:
    """The toolset of an entry, from `Runtime.create_scope()` to `close()`. Its first use, or `async with`, opens it.

    Attributes:
        entry: The entry.
        runtime: The `ctx.deps` of its tools in the last call: `runtime.usage` is what that used, and `runtime.frame.messages` the history.
    """

    def __init__(self, entry: EntrySpec, runtime: CallRuntime) -> None:
        self.entry = entry
        self.runtime = runtime
        context = ToolsetBuildContext(entry.name, runtime.runtime.folder)
        self._made = made(entry.toolset_spec, runtime.runtime.isolation, context)
        self._toolset: AbstractToolset[Any] | None = None
        self._state: Literal['new', 'open', 'closed'] = 'new'
        self._opening = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()
        self._failure: BaseException | None = None
        if isinstance(self._made, FunctionToolset):
            self._check(self._made.tools)

    def _check(self, tools: Collection[str]) -> None:
        if set(tools) != {'main'}:
            found = ', '.join(f'`{name}`' for name in tools) or 'none'
            raise EntryError(
                f'The toolset of the entry {self.entry.name!r} must have exactly one tool, `main`, and has: {found}. '
                'Give the other tools to an agent, and call that from `main`.'
            )

    async def _open(self) -> AbstractToolset[Any]:
        """Enter the toolset, unless that is done, and refuse it if its tools aren't exactly `main`."""
        async with self._opening:
            if self._state == 'closed':
                raise ScopeClosedError(f'The scope of {self.entry.name!r} is closed. Create another for further calls.')
            if self._toolset is None:
                toolset: object = await self._made if isawaitable(self._made) else self._made
                if not isinstance(toolset, AbstractToolset):
                    raise EntryError(
                        f'The factory of the entry {self.entry.name!r} made {toolset!r}, which is no toolset.'
                    )
                await cast(Any, toolset).__aenter__()
                self._toolset, self._state = toolset, 'open'
                try:
                    tools = await toolset.get_tools(self._context())
                    self._check(tools)
                    if tools['main'].tool_def.kind != 'function':
                        raise self._no_approval()
                except BaseException as error:
                    await self._exit(error)
                    raise
            return self._toolset

    async def run_turn(self, input_data: Any) -> Any:
        """Call `main` with an input, as `normalize_input()` has it: once, or in a chat again and again."""
        return await self.call_tool('main', normalize_input(self.entry.schema_in, input_data))

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool. Its arguments are validated as those that a model sends.

        Raises:
            ScopeClosedError: The scope has been closed.
            InputError: The arguments don't fit, or the tool asks for others.
        """
        toolset = await self._open()
        frame = replace(self.runtime.frame, prompt=dict(arguments), lent=False)  # the history is the same list
        self.runtime = replace(self.runtime, frame=frame, usage=RunUsage())
        task = asyncio.ensure_future(self._call(toolset, self._context(name), name, dict(arguments)))
        self._calls.add(task)
        try:
            result = await task
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._calls.discard(task)
        self._failure = None
        return result

    async def _call(
        self, toolset: AbstractToolset[Any], ctx: RunContext[Any], name: str, arguments: dict[str, Any]
    ) -> Any:
        tools = await toolset.get_tools(ctx)
        if (tool := tools.get(name)) is None:
            raise InputError(f'The entry {self.entry.name!r} has no tool `{name}`, only `main`.')
        try:
            valid = tool.args_validator.validate_python(arguments)
        except ValidationError as error:
            raise InputError(f'`{name}` of {self.entry.name!r} does not take this: {faults(error)}.') from error
        try:
            if (check := getattr(tool, 'args_validator_func', None)) and isawaitable(checked := check(ctx, **valid)):
                await checked
            return await toolset.call_tool(name, valid, ctx, tool)
        except ModelRetry as error:
            raise InputError(error.message) from error
        except (ApprovalRequired, CallDeferred) as error:
            raise self._no_approval() from error

    def _no_approval(self) -> EntryError:
        return EntryError(f'`main` of the entry {self.entry.name!r} cannot need approval, since a user calls it.')

    def _context(self, tool: str | None = None) -> RunContext[Any]:
        return RunContext[Any](deps=self.runtime, model=NULL_MODEL, usage=self.runtime.usage, tool_name=tool)

    async def close(self) -> None:
        """Exit the toolset, with the exception of the last call if that failed. Closing it again does nothing."""
        async with self._opening:
            await self._exit(self._failure)

    async def _exit(self, error: BaseException | None) -> None:
        toolset, self._toolset, self._state = self._toolset, None, 'closed'
        try:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
        finally:
            if toolset is not None:
                await toolset.__aexit__(type(error) if error else None, error, error and error.__traceback__)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._opening:
            await self._exit(error)
