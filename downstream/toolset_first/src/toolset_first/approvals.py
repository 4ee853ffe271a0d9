"""Approvals, answered inside of the run: no toolset is wrapped, and none is left before the answer is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition

from toolset_first.contracts import Rule, ToolsetFirstError, ToolsetSpec, Verdict

if TYPE_CHECKING:
    from toolset_first.runtime import CallRuntime


class ApprovalError(ToolsetFirstError):
    """A call that nobody was there to approve, or rules that don't say anything."""


class ApprovalDenied(ToolsetFirstError):
    """A denial that ends the run."""


@dataclass(frozen=True)
class Question:
    """What someone is asked: may `agent` call `tool` with `arguments`?"""

    agent: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What they say, what the model reads if they deny it, and whether it holds for the same call later on."""

    approved: bool
    message: str = 'The user denied this call.'
    remember: bool = False


Ask = Callable[[Question], 'Answer | Awaitable[Answer]']


@dataclass
class Approvals:
    """Who approves what in a session.

    Attributes:
        mode: `prompt` asks; the others answer for everybody. Rules that say `allow` or `deny` count in each.
        ask: Asks someone, one question at a time.
        on_denial: Whether a denial is told to the model, or ends the run with `ApprovalDenied`.
        default: What is said of tools without a rule. Those that require approval by themselves are asked about.
    """

    mode: Literal['prompt', 'approve-all', 'reject-all'] = 'prompt'
    ask: Ask | None = None
    on_denial: Literal['tell', 'stop'] = 'tell'
    default: Verdict = 'allow'
    _remembered: dict[tuple[str, str, str], Answer] = field(default_factory=dict[Any, Answer], repr=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.mode == 'prompt' and self.ask is None:
            raise ApprovalError("The mode 'prompt' needs someone to `ask`. Pass a function of a `Question`.")

    async def __call__(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Answer what a model response asks; this is the `deferred_tool_handler` of all runs."""
        results = DeferredToolResults()
        for call in requests.approvals:
            # An agent that a tool runs by itself has other `deps`.
            frame = getattr(ctx.deps, 'frame', None)
            name = frame.name if frame else 'an agent'
            answer = await self._answer(name, getattr(ctx.deps, 'rules', {}), call)
            if not answer.approved and self.on_denial == 'stop':
                raise ApprovalDenied(f'`{call.tool_name}` of {name!r} was denied: {answer.message}')
            results.approvals[call.tool_call_id] = answer.approved or ToolDenied(answer.message)
        return results

    async def _answer(self, name: str, rules: Mapping[str, Rule], call: ToolCallPart) -> Answer:
        arguments = call.args_as_dict()
        verdict = judge(rules.get(call.tool_name, 'ask'), arguments)
        if verdict != 'ask':
            return Answer(verdict == 'allow', 'The rules of this project do not allow this call.')
        if self.mode != 'prompt' or self.ask is None:
            return Answer(self.mode == 'approve-all', 'All calls that need approval are rejected.')
        key = name, call.tool_name, json.dumps(arguments, sort_keys=True, default=repr)
        async with self._asking:
            if key not in self._remembered:
                answer = self.ask(Question(name, call.tool_name, arguments))
                answer = await answer if isawaitable(answer) else answer
                if not answer.remember:
                    return answer
                self._remembered[key] = answer
            return self._remembered[key]


def judge(rule: Rule, arguments: dict[str, Any]) -> Verdict:
    """Return what a rule says of a call. Where patterns contradict each other, the strictest counts."""
    if callable(rule):
        return rule(arguments)
    if isinstance(rule, str):
        return rule
    found = {_matched(patterns, str(arguments.get(argument, ''))) for argument, patterns in rule.items()}
    return 'deny' if 'deny' in found else 'ask' if 'ask' in found else 'allow'


def _matched(patterns: Mapping[str, Verdict], value: str) -> Verdict:
    for pattern, verdict in patterns.items():
        if fnmatchcase(value, pattern):
            return verdict
    return 'ask'


def check_rule(tool: str, rule: object) -> None:
    """Raise an `ApprovalError` if that is no rule."""
    words = ('allow', 'ask', 'deny')
    if callable(rule) or rule in words:
        return
    patterns: list[Any] = [*cast('Mapping[str, Any]', rule).values()] if isinstance(rule, Mapping) else [None]
    if not patterns or not all(
        isinstance(one, Mapping) and {*cast('Mapping[str, Any]', one).values()} <= {*words} for one in patterns
    ):
        raise ApprovalError(
            f'The rule {rule!r} for `{tool}` is none. Write `allow`, `ask` or `deny`, or patterns by argument such as '
            f"{{'account': {{'travel*': 'allow', '*': 'ask'}}}}."
        )


def gather_rules(specs: Sequence[ToolsetSpec]) -> dict[str, Rule]:
    """Return the rules of all toolsets of an agent, whose tools have different names."""
    rules: dict[str, Rule] = {}
    for spec in specs:
        for tool, rule in spec.approval_config.items():
            check_rule(tool, rule)
            if rules.setdefault(tool, rule) != rule:
                raise ApprovalError(f'Two toolsets of one agent have different rules for `{tool}`. Keep one of them.')
    return rules


def require(rules: Mapping[str, Rule], default: Verdict) -> Any:
    """Return the hook that has the calls of tools come to `Approvals` which not all are allowed, or `None` if all are."""
    if default == 'allow' and all(rule == 'allow' for rule in rules.values()):
        return None

    async def prepare(ctx: RunContext[CallRuntime], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [
            replace(tool, kind='unapproved')
            if tool.kind == 'function' and rules.get(tool.name, default) != 'allow'
            else tool
            for tool in tools
        ]

    return prepare
