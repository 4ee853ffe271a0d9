"""Approvals, answered inside of the run: the toolsets stay open while someone is asked."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from inspect import isawaitable
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolset_first.errors import ToolsetFirstError
from toolset_first.guard import JUDGED, Judged
from toolset_first.rules import VERDICTS, ApprovalError, Verdict

Mode = Literal['prompt', 'approve-all', 'reject-all']
OnDenial = Literal['tell', 'stop']


_DERIVED_FROM: tuple[type[Any], ...] = (str, bytes, int, float, list, tuple, deque, Mapping, AbstractSet)
"""Types whose subclasses are shown as these are."""


class _NotShownError(TypeError):
    """A value that JSON can't tell from all others."""


def plain(value: Any) -> Any:
    """Return an argument as JSON has it, with all that is in it: its type may write less than a tool finds there.

    Raises:
        TypeError: There is something in it that can't be shown.
    """
    if isinstance(value, SecretStr | SecretBytes | Secret):
        return plain(cast('Any', value).get_secret_value())
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, BaseModel) or is_dataclass(value):
        names = [*getattr(type(value), '__pydantic_fields__', ()), *getattr(value, '__dataclass_fields__', ())]
        held = {name: getattr(value, name) for name in names if hasattr(value, name)} | getattr(value, '__dict__', {})
        return plain(held | _hidden(value, 'extra') | _hidden(value, 'private'))
    if isinstance(value, _DERIVED_FROM) and object.__getstate__(value):  # it holds something besides
        raise _NotShownError
    if isinstance(value, Mapping):
        found = cast('Mapping[Any, Any]', value)
        if not all(isinstance(key, str) for key in found):
            raise _NotShownError
        return {key: plain(one) for key, one in found.items()}
    if isinstance(value, list | tuple | deque | AbstractSet):
        return [plain(one) for one in cast('Iterable[Any]', value)]
    if isinstance(value, Iterator):
        raise _NotShownError
    try:
        return to_jsonable_python(value, bytes_mode='base64')
    except PydanticSerializationError as error:
        raise _NotShownError from error


def _hidden(value: object, which: str) -> dict[str, Any]:
    return getattr(value, f'__pydantic_{which}__', None) or {}


def shown(arguments: Mapping[str, Any], sent: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the arguments of a call as JSON has them, and whether that says all.

    Args:
        arguments: What the tool gets.
        sent: What the model wrote, which is shown where the tool gets what can't be.
    """
    found: dict[str, Any] = {}
    says_all = True
    for name, value in arguments.items():
        try:
            found[name] = plain(value)
        except _NotShownError:
            says_all = False
            found[name] = sent.get(name, repr(value))
    return (found if says_all else {**sent, **found}), says_all


def _read(answer: object) -> Answer:
    """Return an answer. `True` and `False` are answers, too, and whatever is none denies."""
    if isinstance(answer, Answer):
        return answer
    message = Answer.message if answer is False else f'Nobody could be asked: the answer was {answer!r}.'
    return Answer(answer is True, message)


class ApprovalDenied(ToolsetFirstError):
    """A denial that ends the run."""


@dataclass(frozen=True)
class Question:
    """What someone is asked: may `agent` call `tool` with `arguments`?

    The arguments are what the tool gets, as JSON has it: validated, and with the values of parameters that were left out. What
    JSON can't have is shown as the model wrote it, and an answer to that isn't remembered.
    """

    agent: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What they say, what the model reads if they deny it, and whether it holds for the same call later on."""

    approved: bool
    message: str = 'The user denied this call.'
    remember: bool = False


Ask = Callable[[Question], 'Answer | bool | Awaitable[Answer | bool]']


@dataclass(frozen=True)
class Approvals:
    """Who approves what in a session.

    Attributes:
        mode: `prompt` asks; the others answer for everybody. Rules that say `allow` or `deny` count in each.
        ask: Asks someone, one question at a time.
        on_denial: Whether a denial is told to the model, or ends the run with `ApprovalDenied`.
        default: What is said of tools without a rule. Those that require approval by themselves are asked about.
    """

    mode: Mode = 'prompt'
    ask: Ask | None = None
    on_denial: OnDenial = 'tell'
    default: Verdict = 'allow'
    _remembered: dict[tuple[int, str, str], tuple[Any, Answer]] = field(default_factory=dict[Any, Any], repr=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def __post_init__(self) -> None:
        for name, known in (('mode', get_args(Mode)), ('on_denial', get_args(OnDenial)), ('default', VERDICTS)):
            if (value := getattr(self, name)) not in known:
                raise ApprovalError(f'`{name}` is {value!r}. It is one of {", ".join(map(repr, known))}.')
        if self.mode == 'prompt' and self.ask is None:
            raise ApprovalError("The mode 'prompt' needs someone to `ask`. Pass a function of a `Question`.")

    async def __call__(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Answer what a model response asks; this is the `deferred_tool_handler` of all runs."""
        results = DeferredToolResults()
        for call in requests.approvals:
            judged = requests.metadata.get(call.tool_call_id, {}).get(JUDGED)
            answer = await self.decide(ctx.agent, call.tool_name, judged, call.args_as_dict())
            results.approvals[call.tool_call_id] = answer.approved or ToolDenied(answer.message)
            if judged:
                results.metadata[call.tool_call_id] = {JUDGED: judged}
        return results

    async def decide(self, caller: Any, tool: str, judged: Judged | None, sent: Mapping[str, Any]) -> Answer:
        """Return what is said of a call: by its rule, by whoever answers for everybody, or by someone who is asked.

        Args:
            caller: Who calls: an agent, or the spec of an entry.
            tool: What is called.
            judged: What was judged, and runs; `None` for a toolset without a guard, as an agent may have that a tool runs by itself.
            sent: What the model wrote.

        Raises:
            ApprovalDenied: It is denied, and denials end the run.
        """
        answer = await self._answer(caller, tool, judged, sent)
        if not answer.approved and self.on_denial == 'stop':
            raise ApprovalDenied(f'`{tool}` of {caller.name!r} was denied: {answer.message}')
        return answer

    async def _answer(self, caller: Any, tool: str, judged: Judged | None, sent: Mapping[str, Any]) -> Answer:
        if judged and judged.verdict != 'ask':
            return Answer(judged.verdict == 'allow', 'The rules of this project do not allow this call.')
        if self.mode != 'prompt' or self.ask is None:
            return Answer(self.mode == 'approve-all', 'All calls that need approval are rejected.')
        # A copy, which whoever is asked can't change what runs with
        arguments, remembers = shown(judged.arguments, sent) if judged else (dict(sent), False)
        # Not by what is shown alone, since values of two types may look the same, nor by a name, which another agent may have
        key = id(caller), tool, json.dumps([sent, arguments], sort_keys=True, default=repr)
        async with self._asking:
            if remembers and key in self._remembered:
                return self._remembered[key][1]
            answer = self.ask(Question(caller.name or 'an agent', tool, arguments))
            answer = _read(await answer if isawaitable(answer) else answer)
            if remembers and answer.remember:
                self._remembered[key] = caller, answer  # so that no other caller gets its `id()`
            return answer
