"""Agents, each built once, and the calls of them, which is where depth, history and usage are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, TypeAdapter
from pydantic_ai import (
    AbstractToolset,
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelRetry,
    RunContext,
)
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import (
    ModelMessage,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import LifecycleDescription, ToolsetScope, describe_lifecycle
from pydantic_ai.usage import RunUsage, UsageLimits

from toolset_first.approvals import Approvals
from toolset_first.contracts import AgentSpec, EntrySpec, ToolsetBuildContext, ToolsetSpec, WorkerArgs, check_schema
from toolset_first.errors import ExitError, ToolsetFirstError, exit_as_error
from toolset_first.guard import Guarded, known_tools
from toolset_first.inputs import DefaultArgs, InputError, read_input, render_input
from toolset_first.rules import ApprovalError, check_rules
from toolset_first.turn import LoggedMessage, Turn
from toolset_first.wiring import wired

MODEL_VARIABLE = 'TOOLSET_FIRST_MODEL'
"""The environment variable that names the model of agents that name none."""

EventKind: TypeAlias = Literal['input', 'start', 'tool', 'result', 'text', 'end']


class DepthError(ToolsetFirstError, RuntimeError):
    """A call that would be deeper than the runtime allows.

    Attributes:
        depth: How deep the caller is.
        limit: The runtime's `max_depth`.
        caller: Who wanted to call.
        callee: Whom.
    """

    def __init__(self, depth: int, limit: int, caller: str, callee: str) -> None:
        super().__init__(
            f'{caller!r}, at depth {depth}, cannot call {callee!r}: the limit is {limit}. If that is meant to be so '
            'deep, raise `max_depth`.'
        )
        self.depth, self.limit, self.caller, self.callee = depth, limit, caller, callee


class UnknownAgentError(ToolsetFirstError):
    """A name that no agent is registered under."""


@dataclass(frozen=True)
class CallEvent:
    """Something that happened in a call, for whoever shows it.

    The `input` is what an entry is called with.
    """

    agent: str
    depth: int
    kind: EventKind
    text: str
    tool: str = ''


@dataclass
class CallFrame:
    """One call: of the entry, at depth 0, or of an agent.

    Attributes:
        name: The entry or the agent.
        depth: How many agents are in between.
        prompt: What it was called with.
        messages: The history, which the first agent that the entry calls goes on with.
        lent: Whether that agent has been called.
    """

    name: str
    depth: int = 0
    prompt: Any = ''
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    lent: bool = False


class Agents:
    """What all calls share: the agents, each built once, and the settings.

    Args:
        agents: Those that can be called by name.
        folder: The project's folder.
        max_depth: How deep agents may call agents.
        model: The model, in place of what the agents name.
        approvals: Who answers calls that need approval. Without any, such a call ends the run.
        usage_limits: The limits of all agents together, each time that an entry is called; there are none by default.
        call_limits: The limits of each call of an agent that has none of its own. By default, it may make 50 requests.
        allow_hidden: Whether files that begin with a dot, or are in a folder that does, may be attached.
        on_event: What is told about each step.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec] = (),
        *,
        folder: Path | str = '.',
        max_depth: int = 5,
        model: Model | str | None = None,
        approvals: Approvals | None = None,
        usage_limits: UsageLimits | None = None,
        call_limits: UsageLimits | None = None,
        allow_hidden: bool = False,
        on_event: Callable[[CallEvent], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.max_depth = max_depth
        self.model = model
        self.approvals = approvals
        self.usage_limits = usage_limits
        self.call_limits = call_limits
        self.allow_hidden = allow_hidden
        self.on_event = on_event
        self.agents: dict[str, AgentSpec] = {}
        self._built: WeakKeyDictionary[AgentSpec, Agent[Any, Any]] = WeakKeyDictionary()
        self._turn = Turn()
        self.register_agents(*agents)

    @property
    def approvals(self) -> Approvals | None:
        """Who answers calls that need approval. What is set counts from the next call of a tool on, in all that it says."""
        return self._approvals

    @approvals.setter
    def approvals(self, approvals: Approvals | None) -> None:
        if approvals is not None and not isinstance(approvals, Approvals):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f'`approvals` are `Approvals` or `None`, not {approvals!r}.')
        self._approvals = approvals

    async def answer(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults | None:
        """Answer what a model response asks, as `approvals` says by then; without any, nobody does."""
        return await self.approvals(ctx, requests) if self.approvals else None

    @property
    def usage(self) -> RunUsage:
        """What the entry that was called last has used, with all agents."""
        return self._turn.usage

    @property
    def message_log(self) -> Sequence[LoggedMessage]:
        """What all agents that the entry called last have said, been told and done, in order."""
        return self._turn.log

    def begin(self, entry: EntrySpec) -> Turn:
        """Begin a turn of an entry, which `usage` and `message_log` then tell of."""
        self._turn = Turn(entry.usage_limits or self.usage_limits)
        return self._turn

    def register_agents(self, *agents: AgentSpec) -> None:
        """Build agents, so that they can be called by name, in place of those that had the names.

        Raises:
            ToolsetFirstError: One can't be built. Then none is registered.
        """
        built = {spec: self._build(spec) for spec in agents}
        if len({spec.name for spec in agents}) < len(agents):
            raise ToolsetFirstError('Two of these agents have the same name. Give each a name of its own.')
        self._built.update(built)
        self.agents |= {spec.name: spec for spec in agents}

    def describe_lifecycle(self) -> dict[str, LifecycleDescription]:
        """Return what the runs of each registered agent work with."""
        return {name: describe_lifecycle(self.built(spec)[1]) for name, spec in self.agents.items()}

    def built(self, spec_or_name: AgentSpec | str) -> tuple[AgentSpec, Agent[Any, Any]]:
        """Return an agent, which is built now if it never was.

        Raises:
            UnknownAgentError: No agent is registered under that name.
            TypeError: It is neither a name nor an `AgentSpec`.
        """
        if isinstance(spec_or_name, str):
            if (spec := self.agents.get(spec_or_name)) is None:
                known = ', '.join(map(repr, self.agents)) or 'none'
                raise UnknownAgentError(f'There is no agent {spec_or_name!r}. Those that are registered: {known}.')
        elif isinstance(spec_or_name, AgentSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            spec = spec_or_name
        else:
            raise TypeError(f'An agent is called by its name or its `AgentSpec`, not by {spec_or_name!r}.')
        if spec not in self._built:
            self._built[spec] = self._build(spec)
        return spec, self._built[spec]

    def _build(self, spec: AgentSpec) -> Agent[Any, Any]:
        context = spec.toolset_context or ToolsetBuildContext(spec.name, self.folder)
        refuse_clashes(spec)
        for one in spec.toolset_specs:
            try:
                check_spec(one, context)
            except ApprovalError as error:
                raise ApprovalError(f'The agent {spec.name!r}: {error}') from None
        return Agent[Any, Any](
            self._model(spec),
            name=spec.name,
            instructions=spec.instructions or None,
            deps_type=CallRuntime,
            output_type=[spec.schema_out or str, DeferredToolRequests],
            model_settings=spec.model_settings,
            toolsets=[wired(one, context, self.guard(one)) for one in spec.toolset_specs],
            defer_model_check=True,
            capabilities=[NativeTool(one) for one in spec.builtin_tools],
        )

    def guard(self, spec: ToolsetSpec) -> Callable[[AbstractToolset[Any]], Guarded]:
        """Return what puts a guard around a toolset of an agent, with the toolset's rules."""
        return partial(Guarded, rules=spec.rules, default=lambda: self.approvals.default if self.approvals else 'allow')

    def _model(self, spec: AgentSpec) -> Model | str:
        model = self.model or spec.model or os.environ.get(MODEL_VARIABLE)
        if model is None or model == '':
            raise ToolsetFirstError(
                f'The agent {spec.name!r} names no model. Name one there, or one for all agents, as with `{MODEL_VARIABLE}`.'
            )
        name = model if isinstance(model, str) else f'{model.system}:{model.model_name}'
        if spec.compatible_models and not any(fnmatchcase(name, pattern) for pattern in spec.compatible_models):
            wanted = ', '.join(f'`{pattern}`' for pattern in spec.compatible_models)
            raise ToolsetFirstError(f'The agent {spec.name!r} works with {wanted} only, and the model is `{name}`.')
        return model


@dataclass(frozen=True)
class CallRuntime:
    """What a tool finds in `ctx.deps`: it can call agents."""

    runtime: Agents
    frame: CallFrame
    turn: Turn
    kept: ToolsetScope | None = None

    @property
    def usage(self) -> RunUsage:
        """What has been used since the entry was called, by all agents."""
        return self.turn.usage

    async def call_agent(self, spec_or_name: AgentSpec | str, input_data: Any) -> Any:
        """Run an agent, one level deeper, and return its output.

        Args:
            spec_or_name: The agent, or the name that it is registered under.
            input_data: A text, a dict, or the agent's `WorkerArgs`.

        Raises:
            DepthError: That would be too deep.
            UnknownAgentError: There is no agent of that name.
            InputError: The input doesn't fit.
            ExitError: Something that the project has written ends the program, as `sys.exit()` does.
            ApprovalError: A call needed approval, or a result from elsewhere, and nobody was there to give it.
            UsageLimitExceeded: The limits of the call, or those of all agents together, have been reached.
        """
        runtime = self.runtime
        spec, agent = runtime.built(spec_or_name)
        if self.frame.depth >= runtime.max_depth:
            raise DepthError(self.frame.depth, runtime.max_depth, self.frame.name, spec.name)
        with exit_as_error():
            arguments = read_input(spec.schema_in, input_data)
            prompt = render_input(arguments, runtime.folder, hidden=runtime.allow_hidden)
        child = CallRuntime(runtime, CallFrame(spec.name, self.frame.depth + 1, prompt), self.turn)
        first = self.frame.depth == 0 and not self.frame.lent
        self.frame.lent |= first
        # What a chat keeps is its first agent's, as the history is; several at once would not have it each to itself.
        toolsets = [self.kept] if first and self.kept else []
        try:
            child.tell('start', prompt if isinstance(prompt, str) else str(prompt[0]))
            with exit_as_error():
                output, messages = await child._run(spec, agent, self.frame.messages if first else [], toolsets)
        except BaseException:
            self.frame.lent &= not first
            raise
        if first:
            self.frame.messages[:] = messages
        child.tell('end', str(output))
        return output

    async def _run(
        self,
        spec: AgentSpec,
        agent: Agent[Any, Any],
        history: list[ModelMessage],
        toolsets: Sequence[AbstractToolset[Any]],
    ) -> tuple[Any, list[ModelMessage]]:
        with self.turn.call() as usage:
            async with agent.iter(
                self.frame.prompt,
                deps=self,
                message_history=list(history),
                toolsets=toolsets,
                usage=usage,
                usage_limits=spec.usage_limits or self.runtime.call_limits,
                deferred_tool_handler=self.runtime.answer,
            ) as run:
                async for node in run:
                    if Agent.is_call_tools_node(node):
                        self._log(node.model_response)
                        self.turn.check_tool_calls(node.model_response)
                    elif Agent.is_model_request_node(node):
                        self._log(node.request)
                        self.turn.check_before_request()
                self.turn.check_tokens()
                assert run.result is not None
                output = run.result.output
                if isinstance(output, DeferredToolRequests):
                    calls = ', '.join(f'`{call.tool_name}`' for call in [*output.approvals, *output.calls])
                    # In the block, so that the toolsets see that this run has failed
                    raise ApprovalError(
                        f'{self.frame.name!r} called {calls}, which somebody has to approve or to run, and nobody is there. '
                        'Give the runtime `approvals`.'
                    )
        return output, run.result.all_messages()

    def _log(self, message: ModelMessage) -> None:
        self.turn.log.append(LoggedMessage(self.frame.name, self.frame.depth, message))
        self._tell_all(message.parts)

    def _tell_all(self, parts: Sequence[object]) -> None:
        for part in parts if self.runtime.on_event else ():
            if isinstance(part, ToolCallPart):
                self.tell('tool', part.args_as_json_str(), part.tool_name)
            elif isinstance(part, ToolReturnPart):
                self.tell('result', part.model_response_str(), part.tool_name)
            elif isinstance(part, RetryPromptPart):
                self.tell('result', part.model_response(), part.tool_name or '')
            elif isinstance(part, TextPart):
                self.tell('text', part.content)

    def tell(self, kind: EventKind, text: str, tool: str = '') -> None:
        """Tell whoever shows it what happened in this call."""
        if self.runtime.on_event:
            self.runtime.on_event(CallEvent(self.frame.name, self.frame.depth, kind, text, tool))


class AgentToolset(FunctionToolset[CallRuntime]):
    """A toolset with one tool, which calls an agent."""

    def __init__(self, agent: AgentSpec | str, tool: Tool[CallRuntime]) -> None:
        super().__init__([tool])
        self.agent = agent


def agent_as_toolset(
    spec: AgentSpec | str,
    *,
    tool: str = 'main',
    description: str | None = None,
    schema_in: type[WorkerArgs] | None = None,
) -> ToolsetSpec:
    """Make an agent a toolset with one tool, which calls it.

    Args:
        spec: The agent, or the name that it is registered under when it is called.
        tool: The name of the tool: `main` for an entry, and usually the agent's for another agent.
        description: What models read about it; that of the spec if left out, or else how its instructions begin.
        schema_in: Its input; that of the spec, if left out.
    """
    name = spec if isinstance(spec, str) else spec.name
    if isinstance(spec, AgentSpec):
        description = description or described_by(spec.description, spec.instructions)
        schema_in = schema_in or spec.schema_in
    check_schema(name, schema_in)
    schema: Any = schema_in or DefaultArgs

    async def call(ctx: RunContext[CallRuntime], **arguments: Any) -> Any:
        runtime = ctx.deps.runtime
        try:
            render_input(read_input(schema_in, arguments), runtime.folder, hidden=runtime.allow_hidden)
        except InputError as error:
            raise ModelRetry(str(error)) from error
        return await ctx.deps.call_agent(spec, arguments)

    function: Tool[CallRuntime] = cast(Any, Tool).from_schema(
        call,
        name=tool,
        description=description or f'Ask the agent `{name}`.',
        json_schema=schema.model_json_schema(),
        takes_ctx=True,
    )
    # So that rules judge the values of fields that the model leaves out, too
    fields = cast(Any, Annotated)[schema, AfterValidator(dict)]
    function.function_schema.validator = cast(Any, TypeAdapter[Any](fields).validator)
    # It holds nothing but the agent's name, so all runs can share it.
    return ToolsetSpec(toolset=AgentToolset(spec, function), shared=True)


def described_by(description: str | None, instructions: str) -> str | None:
    """Return what other agents read about an agent: its description, or else how its instructions begin."""
    return description or shorten(instructions, 200, placeholder=' …') or None


def check_spec(spec: ToolsetSpec, context: ToolsetBuildContext) -> None:
    """Refuse rules for tools that a toolset doesn't have, as far as it shows before the toolset is open.

    What shows only then is refused in each run, before its first request. A factory with rules is called once for
    this, and what it makes is not entered.

    Raises:
        ApprovalError: Some rules are wrong; all are named.
        ExitError: The factory ends the program.
    """
    if not spec.rules:
        return
    toolset: object = spec.toolset
    if spec.factory is not None:
        try:
            with exit_as_error():
                toolset = spec.factory(replace(context, options=spec.options))
        except ExitError:
            raise
        except Exception:  # noqa: BLE001 - it may need what only a run has
            return
        if iscoroutine(toolset):
            toolset.close()
    if isinstance(toolset, AbstractToolset):
        tools, all_known = known_tools(toolset)
        check_rules(spec.rules, tools, all_known=all_known)


def refuse_clashes(spec: AgentSpec) -> None:
    """Refuse tools of the same name, as far as they are known now. What a run finds it refuses before its first request.

    Raises:
        ToolsetFirstError: Two toolsets of an agent have a tool of the same name, or one is there twice.
    """
    found: dict[str, AbstractToolset[Any]] = {}
    for toolset in (one.toolset for one in spec.toolset_specs if one.toolset is not None):
        for tool in known_tools(toolset)[0]:
            if (other := found.setdefault(tool, toolset)) is not toolset:
                raise ToolsetFirstError(
                    f'The agent {spec.name!r} has two tools `{tool}`: that of {other.label} and that of '
                    f"{toolset.label}. Put `.prefixed('…')` behind one of them, or leave it out."
                )
    for number, one in enumerate(spec.toolset_specs):
        if any(one is other or (one.toolset and one.toolset is other.toolset) for other in spec.toolset_specs[:number]):
            label = one.toolset.label if one.toolset else 'one factory'
            raise ToolsetFirstError(f'The agent {spec.name!r} names {label} twice. Leave one of the two out.')
