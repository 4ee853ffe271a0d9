"""The runtime: it builds each agent once, and makes calls of agents, which is where depth, history and usage are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import LifecycleDescription, ToolsetScope, describe_lifecycle
from pydantic_ai.usage import RunUsage, UsageLimits

from toolset_first.approvals import ApprovalError, Approvals, gather_rules, require
from toolset_first.compat import agent_options
from toolset_first.contracts import (
    AgentSpec,
    EntrySpec,
    Rule,
    ToolsetBuildContext,
    ToolsetFirstError,
    ToolsetSpec,
    WorkerArgs,
)
from toolset_first.inputs import DefaultArgs, InputError, read_input, render_input
from toolset_first.isolation import Isolation, wired
from toolset_first.scope import CallScope


class DepthError(ToolsetFirstError):
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
    """Something that happened in a call, for whoever shows it."""

    agent: str
    depth: int
    kind: Literal['start', 'tool', 'result', 'text', 'end']
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


@dataclass(frozen=True)
class _Built:
    agent: Agent[Any, Any]
    rules: Mapping[str, Rule]


class Runtime:
    """What all calls share: the agents, each built once, and the settings.

    Args:
        agents: Those that can be called by name.
        folder: The project's folder.
        max_depth: How deep agents may call agents.
        model: The model, in place of what the agents name.
        isolation: What to do with toolsets that are instances.
        approvals: Who answers calls that need approval. Without any, such a call ends the run.
        usage_limits: The limits of all runs of one entry together.
        on_event: What is told about each step.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec] = (),
        *,
        folder: Path | str = '.',
        max_depth: int = 5,
        model: Model | str | None = None,
        isolation: Isolation = 'hybrid',
        approvals: Approvals | None = None,
        usage_limits: UsageLimits | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.max_depth = max_depth
        self.model = model
        self.isolation: Isolation = isolation
        self.approvals = approvals
        self.usage_limits = usage_limits
        self.on_event = on_event
        self.agents: dict[str, AgentSpec] = {}
        self._built: WeakKeyDictionary[AgentSpec, _Built] = WeakKeyDictionary()
        self.register_agents(*agents)

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

    def built(self, spec_or_name: AgentSpec | str) -> tuple[AgentSpec, Agent[Any, Any], Mapping[str, Rule]]:
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
        return spec, self._built[spec].agent, self._built[spec].rules

    def _build(self, spec: AgentSpec) -> _Built:
        context = spec.toolset_context or ToolsetBuildContext(spec.name, self.folder)
        _refuse_clashes(spec)
        rules = gather_rules(spec.toolset_specs)
        agent = Agent[Any, Any](
            self._model(spec),
            name=spec.name,
            instructions=spec.instructions or None,
            deps_type=CallRuntime,
            output_type=[spec.schema_out or str, DeferredToolRequests],
            model_settings=spec.model_settings,
            toolsets=[wired(one, self.isolation, context) for one in spec.toolset_specs],
            defer_model_check=True,
            **agent_options(require(rules, self.approvals.default if self.approvals else 'allow'), spec.builtin_tools),
        )
        return _Built(agent, rules)

    def _model(self, spec: AgentSpec) -> Model | str:
        model = self.model or spec.model
        if model is None:
            raise ToolsetFirstError(f'The agent {spec.name!r} names no model. Name one there, or one for all agents.')
        name = model if isinstance(model, str) else f'{model.system}:{model.model_name}'
        if spec.compatible_models and not any(fnmatchcase(name, pattern) for pattern in spec.compatible_models):
            wanted = ', '.join(f'`{pattern}`' for pattern in spec.compatible_models)
            raise ToolsetFirstError(f'The agent {spec.name!r} works with {wanted} only, and the model is `{name}`.')
        return model

    def create_scope(self, entry: EntrySpec, history: Sequence[ModelMessage] = ()) -> CallScope:
        """Return a scope with the toolset of an entry: `async with runtime.create_scope(entry) as scope`.

        Args:
            entry: The entry.
            history: What the first agent that it calls goes on with.

        Raises:
            EntryError: The tools aren't exactly `main`. If that shows only when the toolset is open, then opening raises it.
        """
        return CallScope(entry, CallRuntime(self, CallFrame(entry.name, messages=list(history)), RunUsage(), {}))

    async def run_entry(self, entry: EntrySpec, input_data: Any, history: Sequence[ModelMessage] = ()) -> Any:
        """Call `main` of an entry once, and return what it returns."""
        async with self.create_scope(entry, history) as scope:
            return await scope.run_turn(input_data)


@dataclass(frozen=True)
class CallRuntime:
    """What a tool finds in `ctx.deps`: it can call agents."""

    runtime: Runtime
    frame: CallFrame
    usage: RunUsage
    rules: Mapping[str, Rule]

    async def call_agent(self, spec_or_name: AgentSpec | str, input_data: Any) -> Any:
        """Run an agent, one level deeper, and return its output.

        Args:
            spec_or_name: The agent, or the name that it is registered under.
            input_data: A text, a dict, or the agent's `WorkerArgs`.

        Raises:
            DepthError: That would be too deep.
            UnknownAgentError: There is no agent of that name.
            InputError: The input doesn't fit.
            ApprovalError: A call needed approval, or a result from elsewhere, and nobody was there to give it.
        """
        runtime = self.runtime
        spec, agent, rules = runtime.built(spec_or_name)
        if self.frame.depth >= runtime.max_depth:
            raise DepthError(self.frame.depth, runtime.max_depth, self.frame.name, spec.name)
        prompt = render_input(read_input(spec.schema_in, input_data), runtime.folder)
        child = CallRuntime(runtime, CallFrame(spec.name, self.frame.depth + 1, prompt), self.usage, rules)
        first = self.frame.depth == 0 and not self.frame.lent
        self.frame.lent |= first
        # What a chat keeps is its first agent's, as the history is; several at once would not have it each to itself.
        block = nullcontext() if first or self.frame.depth else ToolsetScope(name=spec.name)
        try:
            child.tell('start', prompt if isinstance(prompt, str) else str(prompt[0]))
            async with block:
                output, messages = await child._run(agent, self.frame.messages if first else [])
        except BaseException:
            self.frame.lent &= not first
            raise
        if first:
            self.frame.messages[:] = messages
        child.tell('end', str(output))
        return output

    async def _run(self, agent: Agent[Any, Any], history: list[ModelMessage]) -> tuple[Any, list[ModelMessage]]:
        async with agent.iter(
            self.frame.prompt,
            deps=self,
            message_history=list(history),
            usage=self.usage,
            usage_limits=self.runtime.usage_limits,
            deferred_tool_handler=self.runtime.approvals,
        ) as run:
            async for node in run:
                if Agent.is_call_tools_node(node):
                    self._tell_all(node.model_response.parts)
                elif Agent.is_model_request_node(node):
                    self._tell_all(node.request.parts)
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

    def tell(self, kind: Literal['start', 'tool', 'result', 'text', 'end'], text: str, tool: str = '') -> None:
        """Tell whoever shows it what happened in this call."""
        if self.runtime.on_event:
            self.runtime.on_event(CallEvent(self.frame.name, self.frame.depth, kind, text, tool))


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
        description: What models read about it; that of the spec, if left out.
        schema_in: Its input; that of the spec, if left out.
    """
    name = spec if isinstance(spec, str) else spec.name
    if isinstance(spec, AgentSpec):
        description, schema_in = description or spec.description, schema_in or spec.schema_in

    async def call(ctx: RunContext[CallRuntime], **arguments: Any) -> Any:
        try:
            render_input(read_input(schema_in, arguments), ctx.deps.runtime.folder)
        except InputError as error:
            raise ModelRetry(str(error)) from error
        return await ctx.deps.call_agent(spec, arguments)

    function: Tool[CallRuntime] = cast(Any, Tool).from_schema(
        call,
        name=tool,
        description=description or f'Ask the agent `{name}`.',
        json_schema=(schema_in or DefaultArgs).model_json_schema(),
        takes_ctx=True,
    )
    # It holds nothing but the agent's name, so all runs can share it.
    return ToolsetSpec(toolset=FunctionToolset[CallRuntime]([function]), shared=True)


def _refuse_clashes(spec: AgentSpec) -> None:
    """Refuse tools of the same name, as far as they are known now. What a run finds it refuses before its first request."""
    known = [one.toolset for one in spec.toolset_specs if isinstance(one.toolset, FunctionToolset)]
    found: dict[str, FunctionToolset[Any]] = {}
    for toolset in known:
        for tool in toolset.tools:
            if found.setdefault(tool, toolset) is not toolset:
                raise ToolsetFirstError(
                    f'The agent {spec.name!r} has two tools `{tool}`: that of {found[tool].label} and that of '
                    f"{toolset.label}. Put `.prefixed('…')` behind one of them, or leave it out."
                )
