"""A call scope: the toolset of an entry, open, and its tools called as an agent would call them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from inspect import isawaitable
from types import TracebackType
from typing import Any, Literal, cast

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

from toolset_first.agents import CallRuntime
from toolset_first.approvals import ApprovalDenied
from toolset_first.contracts import EntrySpec, ToolsetBuildContext
from toolset_first.errors import ToolsetFirstError, exit_as_error
from toolset_first.guard import JUDGED, Guarded, Judged
from toolset_first.inputs import InputError, faults, normalize_input
from toolset_first.rules import ApprovalError
from toolset_first.wiring import made


class EntryError(ToolsetFirstError):
    """A toolset that can't be an entry's."""


class ScopeClosedError(ToolsetFirstError):
    """A scope that is used after it was closed."""


class ScopeBusyError(ToolsetFirstError):
    """A turn that begins while another one goes on."""


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
        self._made = made(entry.toolset_spec, context)
        self._toolset: AbstractToolset[Any] | None = None
        self._state: Literal['new', 'open', 'closed'] = 'new'
        self._opening = asyncio.Lock()
        self._busy = False
        self._turn: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None
        if isinstance(self._made, FunctionToolset):
            self._check(self._made.tools)

    def _check(self, tools: Collection[str]) -> None:
        main = self._made.tools.get('main') if isinstance(self._made, FunctionToolset) else None
        if main and not main.takes_ctx and 'ctx' in main.function_schema.json_schema.get('properties', {}):
            raise EntryError(
                f'`main` of the entry {self.entry.name!r} has a parameter `ctx` that a user would have to give. '
                'Put it first, and annotate it: `async def main(ctx: RunContext[CallRuntime], input: str)`.'
            )
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
                # A user calls it, so that it needs no approval but for a rule of its own.
                toolset = Guarded(toolset, rules=self.entry.toolset_spec.rules)
                if kept := self.runtime.kept:
                    await kept.__aenter__()
                try:
                    await cast(Any, toolset).__aenter__()
                except BaseException as error:
                    if kept:
                        await kept.__aexit__(type(error), error, error.__traceback__)
                    raise
                self._toolset, self._state = toolset, 'open'
                try:
                    self._check(await toolset.get_tools(self._context(RunUsage())))
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
            ScopeBusyError: Another call goes on. A conversation has one turn after another.
            InputError: The arguments don't fit, or the tool asks for others.
            ApprovalDenied: A rule or whoever is asked denies the call.
            ApprovalError: The call needed approval, and nobody was there to give it.
        """
        if self._busy:
            raise ScopeBusyError(
                f'The scope of {self.entry.name!r} is in a turn, and a conversation has one after another. Wait for its '
                'end, or create another scope.'
            )
        self._busy = True
        try:
            toolset = await self._open()
            self._turn = asyncio.ensure_future(self._call(toolset, name, dict(arguments)))
            try:
                result = await self._turn
            except BaseException as error:
                self._failure = error
                raise
        finally:
            self._busy, self._turn = False, None
        self._failure = None
        return result

    async def _call(self, toolset: AbstractToolset[Any], name: str, arguments: dict[str, Any]) -> Any:
        with exit_as_error():
            return await self._call_within(toolset, name, arguments)

    async def _call_within(self, toolset: AbstractToolset[Any], name: str, arguments: dict[str, Any]) -> Any:
        frame = replace(self.runtime.frame, prompt=dict(arguments), lent=False)  # the history is the same list
        turn = self.runtime.runtime.begin(self.entry)
        self.runtime = replace(self.runtime, frame=frame, turn=turn)
        alone = arguments.keys() <= {'input', 'attachments'}
        self.runtime.tell(
            'input',
            str(arguments.get('input', '')) if alone else json.dumps(arguments, ensure_ascii=False, default=str),
        )
        with turn.call() as usage:
            ctx = self._context(usage, name)
            tools = await toolset.get_tools(ctx)
            if (tool := tools.get(name)) is None:
                raise InputError(f'The entry {self.entry.name!r} has no tool `{name}`, only `main`.')
            try:
                valid = tool.args_validator.validate_python(arguments)
            except ValidationError as error:
                raise InputError(f'`{name}` of {self.entry.name!r} does not take this: {faults(error)}.') from error
            try:
                if (check := getattr(tool, 'args_validator_func', None)) and isawaitable(
                    checked := check(ctx, **valid)
                ):
                    await checked
                try:
                    return await toolset.call_tool(name, valid, ctx, tool)
                except ApprovalRequired as error:
                    judged: Judged = (error.metadata or {})[JUDGED]
                approved = replace(
                    ctx,
                    tool_call_approved=True,
                    tool_call_metadata={JUDGED: await self._approve(name, judged, arguments)},
                )
                return await toolset.call_tool(name, valid, approved, tool)
            except ModelRetry as error:
                raise InputError(error.message) from error
            except (ApprovalRequired, CallDeferred) as error:
                raise EntryError(
                    f'`main` of the entry {self.entry.name!r} was approved, and asks again or cannot run here.'
                ) from error

    async def _approve(self, name: str, judged: Judged, sent: Mapping[str, Any]) -> Judged:
        """Ask for approval of a call, and raise unless it is given: no model is there to be told of a denial."""
        if judged.verdict == 'deny' or (approvals := self.runtime.runtime.approvals) is None:
            what = (
                'is denied by its rule'
                if judged.verdict == 'deny'
                else 'needs approval, and nobody is there to give it'
            )
            raise ApprovalError(f'`{name}` of the entry {self.entry.name!r} {what}.')
        answer = await approvals.decide(self.entry, name, judged, sent)
        if not answer.approved:
            raise ApprovalDenied(f'`{name}` of {self.entry.name!r} was denied: {answer.message}')
        return judged

    def _context(self, usage: RunUsage, tool: str | None = None) -> RunContext[Any]:
        return RunContext[Any](deps=self.runtime, model=NULL_MODEL, usage=usage, tool_name=tool)

    async def close(self) -> None:
        """Exit the toolset, with the exception of the last call if that failed. Closing it again does nothing."""
        async with self._opening:
            await self._exit(self._failure)

    async def _exit(self, error: BaseException | None) -> None:
        toolset, self._toolset, self._state = self._toolset, None, 'closed'
        failure = (type(error) if error else None, error, error and error.__traceback__)
        try:
            if self._turn:
                self._turn.cancel()
                await asyncio.gather(self._turn, return_exceptions=True)
        finally:
            if toolset is not None:
                try:
                    await toolset.__aexit__(*failure)
                finally:
                    if self.runtime.kept:
                        await self.runtime.kept.__aexit__(*failure)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._opening:
            await self._exit(error)
