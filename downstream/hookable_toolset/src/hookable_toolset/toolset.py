"""Toolsets of tools with hooks."""

from __future__ import annotations

import copy
import logging
import pickle
from abc import ABC
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, cast

import anyio
from pydantic import ValidationError
from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, RunContext, Tool, UserError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset, PrefixedToolset, RenamedToolset, ToolsetTool, WrapperToolset

from .context import AgentContext
from .hooks import CallMetadata, GlobalHooks, PostHook, PreHook, exit_as_error, misfits, resolve, shared
from .tools import BaseTool

Hook = Callable[..., Any]

CONTROL = (ApprovalRequired, CallDeferred, ModelRetry)
"""Exceptions that tell the run what to do next: no hook and no `_call_tool_func()` can make them results."""

_view: ContextVar[Collection[str] | None] = ContextVar('view', default=None)
"""The names of the tools that a view asks its toolset for."""

_enclosing: ContextVar[tuple[AgentContext, ...]] = ContextVar('enclosing', default=())
"""The contexts of the calls that the code runs in: what needs an approval there needs one in sub-agents, too."""

_logger = logging.getLogger('hookable_toolset')


@dataclass(kw_only=True)
class HookableToolsetTool(ToolsetTool[AgentDepsT]):
    """A tool as a run lists it, which is what `Toolset._call_tool_func()` gets."""

    call_func: Callable[[dict[str, Any], RunContext[AgentDepsT]], Awaitable[Any]]
    """Call the tool with arguments by name, and return its result or raise."""
    timeout: float | None
    """How many seconds the call may take."""
    metadata: CallMetadata = field(default_factory=CallMetadata)
    """What the hooks of the call share, for a `_call_tool_func()` to read and write."""


class _Validator:
    """Validates arguments, which may run code of whoever wrote the tool."""

    def __init__(self, validator: Any):
        self._validator = validator

    def validate_python(self, *args: Any, **options: Any) -> Any:
        with exit_as_error():
            return self._validator.validate_python(*args, **options)

    def validate_json(self, *args: Any, **options: Any) -> Any:
        with exit_as_error():
            return self._validator.validate_json(*args, **options)


class _Entry:
    """A tool of a toolset, with its schema, which its copies keep."""

    def __init__(self, tool: BaseTool):
        self.tool = tool
        made = Tool[Any](
            tool.call, takes_ctx=True, name=tool.name, description=tool.description, sequential=tool.sequential
        )
        self.schema = made.function_schema
        self.definition = made.tool_def
        self.validator: Any = _Validator(self.schema.validator)

    def renewed(self) -> _Entry:
        """Return the same around a copy of a tool that is stateful."""
        if not self.tool.stateful:
            return self
        entry = copy.copy(self)
        entry.tool = self.tool.copy()
        entry.schema = replace(self.schema, function=entry.tool.call)
        return entry

    async def call(self, args: dict[str, Any], ctx: RunContext[Any]) -> Any:
        return await self.schema.call(args.copy(), ctx)

    def validate(self, args: dict[str, Any], ctx: RunContext[Any]) -> dict[str, Any]:
        single = self.schema.single_arg_name
        value = args if single is None else args[single]
        return self.schema.validator.validate_python(value, context=ctx.validation_context)


class BaseToolset(AbstractToolset[AgentDepsT], ABC):
    """A toolset that can instruct the model."""

    async def get_instructions(self, ctx: RunContext[AgentDepsT]) -> list[str] | None:
        """Return what the model is told about the tools."""
        return None


class Toolset(BaseToolset[AgentDepsT]):
    """A toolset whose tools have hooks around them, whose errors are values for these, and that asks for approval.

    A call goes `global_pre -> tool_pre -> execute -> tool_post -> global_post`.

    It is built once, for all runs. If it has stateful tools, each run works with a copy in which these are fresh.
    """

    shared_attributes = frozenset({'pre_hooks', 'post_hooks'})

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse an own `get_instructions()`: without `super()`, it would lose what refuses tools that would not ask."""
        super().__init_subclass__(**options)
        if cls.get_instructions is not Toolset.get_instructions:
            raise TypeError(
                f'`{cls.__name__}` overrides `get_instructions()`, in which tools that would run unasked are refused. '
                'Override `get_instruction()` of a tool, or use `Agent(instructions=...)`.'
            )

    def __init__(
        self,
        ctx: AgentContext | None = None,
        tools: Sequence[type[BaseTool] | BaseTool] = (),
        *,
        pre_hooks: Mapping[str, PreHook[Any]] | None = None,
        post_hooks: Mapping[str, PostHook[Any]] | None = None,
        global_hooks: GlobalHooks[Any] | None = None,
        max_retries: int | None = None,
        timeout: float | None = None,
        toolset_id: str | None = None,
        skip_unavailable: bool = True,
    ):
        """Build a toolset.

        Args:
            ctx: The context that says which tools need an approval. If `None`, it is the `deps` of each run.
            tools: Classes of tools, which are called without arguments, or instances.
            pre_hooks: By the name of a tool, what gets the arguments of its calls and returns those to use.
            post_hooks: By the name of a tool, what gets the results of its calls and returns those to use.
            global_hooks: Hooks for all tools.
            max_retries: How often the model may try again after a `ModelRetry`. If `None`, the agent says.
            timeout: How many seconds a call may take. If `None`, there is no limit.
            toolset_id: A name that is unique among the toolsets of an agent.
            skip_unavailable: Whether runs lack the tools that aren't available to them.

        Raises:
            UserError: The tools or hooks don't fit; it says all that is wrong.
        """
        self.ctx = ctx
        self.pre_hooks = dict(pre_hooks or {})
        self.post_hooks = dict(post_hooks or {})
        self.global_hooks: GlobalHooks[Any] = global_hooks or GlobalHooks()
        self.max_retries = max_retries
        self.timeout = timeout
        self.skip_unavailable = skip_unavailable
        self._id = toolset_id
        self._joined: AgentContext | None = None  # that of the run, while its tools' states are there
        self._begins = False  # whether a run has entered the toolset and not yet asked for the tools
        made, problems = _make(tools)
        problems += self._misfits({tool.name for tool in made})
        if problems:
            raise UserError(f'{self.label} is not built: ' + '\n'.join(problems))
        self._entries = {tool.name: _Entry(tool) for tool in made}
        if any(tool.stateful for tool in made):
            self.stateful = True

    @property
    def id(self) -> str | None:
        """The name that was given as `toolset_id`."""
        return self._id

    @property
    def tools(self) -> list[BaseTool]:
        """The tools, in order, available or not."""
        return [entry.tool for entry in self._entries.values()]

    def copy(self) -> Self:
        """Return a toolset with fresh copies of the stateful tools and with all else as it is."""
        if not self.stateful:
            return self
        new = copy.copy(self)
        with exit_as_error():
            new._entries = {name: entry.renewed() for name, entry in self._entries.items()}
        new._joined, new._begins = None, False
        return new

    def subset(self, names: Collection[str]) -> ToolsetView[AgentDepsT]:
        """Return a view of this toolset that has some of its tools. A run that has both works with one state.

        Raises:
            UserError: There is no tool of such a name.
        """
        return ToolsetView(self, tuple(self._entries)).subset(names)

    async def __aenter__(self) -> Self:
        """Begin a run, whose tools take over their states when the toolset is first asked for them."""
        self._begins = self.stateful
        return self

    async def __aexit__(self, *args: object) -> None:
        """Leave the states of the tools with the context, if the run succeeded."""
        joined, self._joined = self._joined, None
        if not joined:
            return
        with exit_as_error():
            joined.leave(self.id or '', self.tools, keep=not args or args[0] is None)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """List the tools, but for those that aren't available."""
        contexts = self._contexts(ctx)
        root = ctx.tool_manager.toolset if ctx.tool_manager else self
        for context in contexts if self._entries else ():
            context.check_names({*self._entries, *(name for names in _names(root) for name in names)})
        with exit_as_error():
            if self._begins and not self._joined and contexts:
                self._joined = contexts[0] if contexts[0].join(self.id or '', self.tools) else None
            self._begins = False
            entries = await self._listed()
        return {entry.tool.name: self._tool(entry, ctx) for entry in entries}

    async def get_instructions(self, ctx: RunContext[AgentDepsT]) -> list[str] | None:
        """Return the instructions of the tools that the run has, in their order."""
        for context in self._contexts(ctx):
            _refuse_others(context.need_user_approve_tools, ctx)  # now that all tools of the run are listed
        with exit_as_error():
            return await _instructions(await self._listed(), ctx) or None

    async def _listed(self) -> list[_Entry]:
        names = _view.get()
        _view.set(None)  # What the tools do to answer lists other toolsets in full.
        entries = [entry for name, entry in self._entries.items() if names is None or name in names]
        return [entry for entry in entries if not self.skip_unavailable or await resolve(entry.tool.is_available())]

    def _tool(self, entry: _Entry, ctx: RunContext[AgentDepsT]) -> ToolsetTool[AgentDepsT]:
        retries = [n for n in (entry.tool.max_retries, self.max_retries, ctx.max_retries) if n is not None]
        return HookableToolsetTool(
            toolset=self,
            tool_def=entry.definition,
            max_retries=retries[0],
            args_validator=entry.validator,
            call_func=partial(self._call_asked, entry),
            timeout=self.timeout if entry.tool.timeout is None else entry.tool.timeout,
        )

    def _contexts(self, ctx: RunContext[AgentDepsT]) -> list[AgentContext]:
        """Return the context that the toolset was given, and the deps of the run."""
        deps: Any = ctx.deps
        contexts = [one for one in (self.ctx, deps) if isinstance(one, AgentContext)]
        silent = BaseTool.get_approval_metadata
        if contexts or (deps is None and all(type(tool).get_approval_metadata is silent for tool in self.tools)):
            return contexts
        raise UserError(
            f'The `deps` of the run are {deps!r}, and no `AgentContext`, so that nothing says which tools of '
            f'{self.label} need an approval. Pass one, `agent.run(..., deps=AgentContext(...))`, or give it to the '
            'toolset, `Toolset(AgentContext(...), ...)`.'
        )

    async def _ask(self, entry: _Entry, ctx: RunContext[AgentDepsT]) -> None:
        """Raise `ApprovalRequired` if a context says that the tool needs an approval, and the call has none."""
        if ctx.tool_call_approved:
            return
        name = entry.tool.name
        called = _called_names(ctx) or {name}
        if any(context.needs(name, called) for context in (*self._contexts(ctx), *_enclosing.get())):
            with exit_as_error():
                details = await resolve(entry.tool.get_approval_metadata())
            raise ApprovalRequired(metadata=details)

    async def _call_asked(self, entry: _Entry, args: dict[str, Any], ctx: RunContext[AgentDepsT]) -> Any:
        await self._ask(entry, ctx)  # again, as a subclass may have another `call_tool()`
        token = _enclosing.set((*self._contexts(ctx), *_enclosing.get()))
        try:
            return await entry.call(args, ctx)
        finally:
            _enclosing.reset(token)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call a tool and the hooks around it.

        What a pre hook raises goes through the post hooks as the exception of a tool does, and the tool isn't called.

        Raises:
            ApprovalRequired: The context says that the tool needs an approval, and this call has none. No hook has run.
            Exception: What is an exception after the last hook.
        """
        assert isinstance(tool, HookableToolsetTool)
        await self._ask(self._entries[name], ctx)
        control: Exception | None = None
        metadata = CallMetadata()

        async def call_func(args: dict[str, Any], ctx: RunContext[AgentDepsT]) -> Any:
            nonlocal control
            control = None
            try:
                with exit_as_error():
                    return await tool.call_func(args, ctx)
            except CONTROL as error:
                control = error
                raise

        try:
            with exit_as_error():
                args = await self._before(name, tool_args, ctx, metadata)
                called_tool = replace(tool, call_func=call_func, metadata=metadata)
                result = await self._call_tool_func(args, ctx, called_tool)
        except Exception as error:  # noqa: BLE001 (the post hooks are shown all of them)
            result = error
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result  # A cancellation, for instance, is no result.
        result = await self._after(name, result if control is None else control, ctx, metadata)
        if isinstance(result, Exception):
            try:
                raise result
            finally:
                del result, control  # Its traceback refers to this frame.
        return result

    async def _call_tool_func(
        self, args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: HookableToolsetTool[AgentDepsT]
    ) -> Any:
        """Call the tool without its hooks, and return its result or the exception that it failed with.

        Override it to change how tools are called, for example to repeat them or to limit their time.
        """
        try:
            with anyio.move_on_after(tool.timeout):
                return await tool.call_func(args, ctx)
        except Exception as error:  # noqa: BLE001
            return error
        return TimeoutError(f'Tool {tool.tool_def.name!r} took longer than {tool.timeout} seconds.')

    def _hooks(self, kind: str, name: str, ctx: RunContext[AgentDepsT], metadata: CallMetadata) -> list[Hook]:
        """Return the global hook and that of the tool, as functions of what they change."""
        everywhere = getattr(self.global_hooks, kind)
        hooks: list[Hook] = [partial(everywhere, ctx, name, **shared(everywhere, metadata))] if everywhere else []
        of_tools = self.pre_hooks if kind == 'pre' else self.post_hooks
        return hooks + [partial(hook, ctx, **shared(hook, metadata)) for hook in [of_tools.get(name)] if hook]

    async def _before(
        self, name: str, args: dict[str, Any], ctx: RunContext[AgentDepsT], metadata: CallMetadata
    ) -> dict[str, Any]:
        """Let the pre hooks change the arguments, and validate those that they changed."""
        hooks = self._hooks('pre', name, ctx, metadata)
        before = _fingerprint(args) if hooks else None
        for hook in hooks:
            args = await resolve(hook(args))
            if not isinstance(args, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UserError(
                    f'A pre hook of tool {name!r} returned {args!r}. Return the arguments, changed or not, as a dict.'
                )
        if not hooks or (before is not None and before == _fingerprint(args)):
            return args
        try:
            return self._entries[name].validate(args, ctx)
        except (ValidationError, KeyError) as error:
            raise UserError(
                f'The pre hooks of tool {name!r} changed its arguments to what it does not accept. '
                f'Return arguments that fit its parameters.\n{error}'
            ) from error

    async def _after(self, name: str, result: Any, ctx: RunContext[AgentDepsT], metadata: CallMetadata) -> Any:
        """Let the post hooks change the result, or only look at it if it tells the run what to do next."""
        for hook in reversed(self._hooks('post', name, ctx, metadata)):
            try:
                with exit_as_error():
                    changed = await resolve(hook(result))
            except Exception as error:  # noqa: BLE001
                changed = error
            if not isinstance(result, CONTROL):
                result = changed
            elif isinstance(changed, Exception) and changed is not result:
                _logger.error('A post hook of tool %r failed', name, exc_info=changed)
        return result

    def _misfits(self, names: Collection[str]) -> list[str]:
        """Say what is wrong with the hooks."""
        problems: list[str] = []
        if not isinstance(self.global_hooks, GlobalHooks):  # pyright: ignore[reportUnnecessaryIsInstance]
            problems.append(f'`global_hooks` is {self.global_hooks!r}. Write `GlobalHooks(pre=..., post=...)`.')
        for kind, value, of_tools in ('pre', 'args', self.pre_hooks), ('post', 'result', self.post_hooks):
            for name, hook in of_tools.items():
                if name not in names:
                    there = _there_are(names)
                    problems.append(f'There is a {kind} hook for {name!r}, but no such tool. {there} Correct the name.')
                problems += misfits(f'The {kind} hook of {name!r}', hook, 'ctx', value)
            if (everywhere := getattr(self.global_hooks, kind, None)) is not None:
                problems += misfits(f'The global {kind} hook', everywhere, 'ctx', 'tool_name', value)
        return problems


@dataclass
class ToolsetView(WrapperToolset[AgentDepsT]):
    """Some tools of a `Toolset`, made by `Toolset.subset()`."""

    names: tuple[str, ...]

    def subset(self, names: Collection[str]) -> ToolsetView[AgentDepsT]:
        """Return a view that has some of these tools.

        Raises:
            UserError: This view has no tool of such a name.
        """
        if unknown := ' or '.join(repr(name) for name in names if name not in self.names):
            raise UserError(f'{self.wrapped.label} has no tool {unknown}. {_there_are(self.names)} Correct the name.')
        return replace(self, names=tuple(names))

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """List the tools of the view, but for those that aren't available."""
        with self._only():
            return await self.wrapped.get_tools(ctx)

    async def get_instructions(self, ctx: RunContext[AgentDepsT]) -> Any:
        """Return the instructions of the tools of the view."""
        with self._only():
            return await super().get_instructions(ctx)

    @contextmanager
    def _only(self) -> Iterator[None]:
        token = _view.set(self.names)
        try:
            yield
        finally:
            _view.reset(token)


def _names(toolset: object) -> set[tuple[str, str]]:
    """Return the names of the tools of `Toolset`s, available or not, each with that by which the model calls it."""
    if isinstance(toolset, Toolset):
        return {(tool.name, tool.name) for tool in cast('Toolset[Any]', toolset).tools}
    inside: list[Any] = [getattr(toolset, name, None) for name in ('wrapped', '_toolset')]
    names = set[tuple[str, str]]().union(*(_names(one) for one in [*inside, *getattr(toolset, 'toolsets', ())] if one))
    if isinstance(toolset, PrefixedToolset):
        prefix = cast('PrefixedToolset[Any]', toolset).prefix
        return {(own, f'{prefix}_{called}') for own, called in names}
    if isinstance(toolset, RenamedToolset):
        renamed = {old: new for new, old in cast('RenamedToolset[Any]', toolset).name_map.items()}
        return {(own, renamed.get(called, called)) for own, called in names}
    return names


def _refuse_others(names: Sequence[str], ctx: RunContext[Any]) -> None:
    """Refuse other tools that the model calls by names that need an approval: they would run unasked."""
    tools = (ctx.tool_manager and ctx.tool_manager.tools) or {}
    for name in names:
        tool: Any = tools.get(name)
        while inner := getattr(tool, 'source_tool', None):
            tool = inner
        if tool and not isinstance(tool, HookableToolsetTool):
            raise UserError(
                f'`need_user_approve_tools` names {name!r}, and the run has another tool of this name, which would not '
                'ask. Rename it, or name the tool that is to ask as the model calls it.'
            )


def _called_names(ctx: RunContext[Any]) -> set[str]:
    """Return what the model calls the tool of a call, which wrappers may have renamed.

    A model that gives one ID to two calls could have meant either; an ID that was used in an earlier response counts there.
    """
    for message in reversed(ctx.messages):
        calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
        if names := {call.tool_name for call in calls if call.tool_call_id == ctx.tool_call_id}:
            return names
    return set()


async def _instructions(entries: list[_Entry], ctx: RunContext[Any]) -> list[str]:
    texts = [await resolve(entry.tool.get_instruction(ctx)) for entry in entries]
    return [text for text in texts if text]


def _make(tools: Sequence[type[BaseTool] | BaseTool]) -> tuple[list[BaseTool], list[str]]:
    """Make instances of classes, and say what is wrong with the tools."""
    made: dict[str, BaseTool] = {}
    problems: list[str] = []
    for place, item in enumerate(tools):
        where = f'`tools[{place}]` is {item!r}, which'
        try:
            tool = item() if isinstance(item, type) else item
        except TypeError as error:
            problems.append(f"{where} can't be called without arguments. Give an instance. {error}")
            continue
        if not isinstance(tool, BaseTool):  # pyright: ignore[reportUnnecessaryIsInstance]
            problems.append(f'{where} is no `BaseTool`. Give a tool, or the class of one.')
        elif not getattr(tool, 'name', None):
            problems.append(f'{where} has no `name`. Set it in the class.')
        elif tool.name in made:
            problems.append(f'{where} has the name {tool.name!r}, as another one has. Rename one of them.')
        elif tool.stateful and tool is item and type(tool).copy is BaseTool.copy:
            problems.append(
                f'{where} is stateful, but does not override `copy()`. '
                'Override it to return a tool with fresh state, or give the class if it needs no arguments.'
            )
        else:
            made[tool.name] = tool
    return list(made.values()), problems


def _there_are(names: Collection[str]) -> str:
    return f'There are: {", ".join(map(repr, names)) or "none"}.'


def _fingerprint(args: dict[str, Any]) -> bytes | None:
    """Return what differs if any part of the arguments does; `None` if nothing can be said."""
    try:
        return pickle.dumps(args)
    except Exception:  # noqa: BLE001 (an object can raise anything)
        return None
