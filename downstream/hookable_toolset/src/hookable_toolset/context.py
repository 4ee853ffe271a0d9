"""What a conversation consists of, apart from the agent: the `deps` of its runs, and the state that outlives a process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Self, TypeVar, cast, overload

import pydantic_ai
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, model_validator
from pydantic_ai import DeferredToolRequests, DeferredToolResults, UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.run import AgentRunResult
from pydantic_core import PydanticSerializationError

from .tools import BaseTool

VERSION = 1
"""Which `ResumableState` this is. It is raised when one that was stored can't be read as it is any more."""
INSTALLED = pydantic_ai.__version__.partition('+')[0]
"""The release of pydantic-ai that is installed."""


class ResumableState(BaseModel):
    """What is needed to go on with a conversation in another process. As JSON, it goes out and comes back equal.

    Derive from it to keep fields of an own `AgentContext`: those that have the same names. Give each a default, for the
    states that were stored before it was there. A field that the type doesn't have is refused, as it would be lost.
    """

    model_config = ConfigDict(
        ser_json_bytes='base64',
        val_json_bytes='base64',
        ser_json_inf_nan='constants',
        revalidate_instances='always',
        populate_by_name=True,  # It is written by the names of fields, whatever aliases they have.
    )

    version: int = VERSION
    written_by: str = INSTALLED
    """The release of pydantic-ai that wrote the messages. An older one may not know all of them."""
    message_history: list[ModelMessage] = []
    subagent_history: dict[str, list[ModelMessage]] = {}
    need_user_approve_tools: list[str] = []
    user_allowed_tools: list[str] = []
    pending: DeferredToolRequests | None = None
    answers: DeferredToolResults = DeferredToolResults()
    toolset_states: dict[str, dict[str, JsonValue]] = {}

    @model_validator(mode='before')
    @classmethod
    def _check_head(cls, data: Any) -> Any:
        """Refuse what a newer version or another type wrote, before anything else of it is read."""
        if isinstance(data, cls):
            data = {name: getattr(data, name) for name in cls.model_fields}
        if not isinstance(data, dict):
            return data
        head = cast('dict[str, Any]', data)
        if (version := head.get('version', VERSION)) != VERSION:
            raise UserError(
                f'The state is of version {version}, and this is `hookable_toolset` for version {VERSION}. '
                'Use the release of it that wrote the state.'
            )
        writer = head.get('written_by', INSTALLED)
        if isinstance(writer, str) and _release(writer) > _release(INSTALLED):
            raise UserError(
                f'The state was written with pydantic-ai {writer}, and {INSTALLED} is installed, which may not '
                f'know all of its messages. Install {writer} or a newer one.'
            )
        # Not `extra='forbid'`, which would hold for the messages, too.
        if 'extra' not in cls.model_config and (unknown := sorted(head.keys() - cls.model_fields.keys())):
            raise UserError(
                f'The state has {", ".join(map(repr, unknown))}, which `{cls.__name__}` does not keep. '
                'Read it by the type that wrote it: `SessionStore(..., state_type=...)`.'
            )
        return head

    def to_json(self) -> str:
        """Return the state as JSON.

        Raises:
            UserError: An own field, or the state of a tool, would not come back as it is. The text names it.
        """
        own = type(self).model_fields.keys() - ResumableState.model_fields.keys() | {'toolset_states'}
        try:
            data = self._written()
        except PydanticSerializationError as error:
            names = [name for name in type(self).model_fields if not self._can_be_written(name)]
            raise _lost(type(self), names, f'{error}.') from error
        try:
            restored = self.model_validate_json(data)
        except ValidationError as error:
            raise _lost(type(self), list(own), f'What is written can not be read. {_first_of(error)}') from error
        if lost := [name for name in own if getattr(self, name) != getattr(restored, name)]:
            raise _lost(
                type(self), lost, 'It comes back as something else, as a secret or an instance of a subclass does.'
            )
        return data

    def _written(self, include: set[str] | None = None) -> str:
        computed = set(type(self).model_computed_fields)
        return self.model_dump_json(by_alias=False, include=include, exclude=computed)

    def _can_be_written(self, name: str) -> bool:
        try:
            self._written({name})
        except PydanticSerializationError:
            return False
        return True

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Read a state from JSON.

        Raises:
            UserError: A newer version of this package or of pydantic-ai wrote it, or it isn't a state of this type.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise UserError(
                f'The state is no `{cls.__name__}`. {_first_of(error)} It was damaged, or another type wrote it.'
            ) from error


StateT = TypeVar('StateT', bound=ResumableState)


def _first_of(error: ValidationError) -> str:
    first, *more = error.errors(include_url=False, include_input=False)
    where = '.'.join(map(str, first['loc']))
    what = f'`{where}`: {first["msg"]}' if where else first['msg']
    return f'{what}{f", and {len(more)} more faults" if more else ""}.'


def _lost(state_type: type[ResumableState], names: list[str], why: str) -> UserError:
    return UserError(
        f'{" and ".join(f"`{name}`" for name in sorted(names))} of `{state_type.__name__}` can not be stored. {why} '
        'Keep what JSON and the type of the field can express.'
    )


def _exports(tool: BaseTool) -> bool:
    return tool.stateful and type(tool).export_state is not BaseTool.export_state


def _release(version: str) -> list[int]:
    return [int(part) for part in version.split('.')[:2] if part.isdigit()]


@dataclass
class AgentContext:
    """The `deps` of the runs of one conversation.

    `message_history`, `pending` and `answers` are what the next run starts from; `record()` takes them from a run.
    """

    need_user_approve_tools: list[str] = field(default_factory=list[str])
    """The names of the tools that need an approval. `with_state()` adds those that a state has to those that are there."""
    user_allowed_tools: list[str] = field(default_factory=list[str])
    """What the user has allowed without asking: of those tools, the names that the model calls them by."""
    message_history: list[ModelMessage] = field(default_factory=list[ModelMessage])
    subagent_history: dict[str, list[ModelMessage]] = field(default_factory=dict[str, list[ModelMessage]])
    """The histories of agents that tools delegate to, by any name."""
    pending: DeferredToolRequests | None = None
    """What the last run has ended with, if that was a question."""
    answers: DeferredToolResults = field(default_factory=DeferredToolResults)
    """The answers to that so far."""
    toolset_states: dict[str, dict[str, JsonValue]] = field(default_factory=dict[str, dict[str, JsonValue]])
    """What tools have exported at the end of the last run, by the `toolset_id`, or `''`, and the tool's name."""
    _known_tools: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """The names of tools that this context has met: those that a state has, and those of its runs."""
    _live: dict[tuple[str, str], BaseTool] = field(
        default_factory=dict[tuple[str, str], BaseTool], init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse what is no list of names."""
        self._refuse_misfits()

    def _refuse_misfits(self) -> None:
        for field_name in 'need_user_approve_tools', 'user_allowed_tools':
            names: Any = getattr(self, field_name)
            if isinstance(getattr(type(self), field_name, None), list):
                raise UserError(
                    f'`{type(self).__name__}.{field_name}` is an attribute of the class, which no context has. Make the '
                    f'class a `@dataclass`, with `{field_name}: list[str] = field(default_factory=lambda: [...])`.'
                )
            if not isinstance(names, list) or not all(isinstance(one, str) for one in cast('list[Any]', names)):
                raise UserError(f'`{field_name}` is {names!r}. Write a list of names of tools.')

    def needs(self, name: str, called: set[str]) -> bool:
        """Whether a call of a tool needs an approval.

        Args:
            name: The tool's name in its toolset.
            called: What the model calls it. That is what the user was shown, and so what the user has allowed.
        """
        self._refuse_misfits()
        needing = called.union([name]).intersection(self.need_user_approve_tools)
        return bool(needing) and not called.issubset(self.user_allowed_tools)

    def check_names(self, known: Iterable[str]) -> None:
        """Refuse names of tools that need an approval and that no tool has: that which was meant would run unasked.

        Args:
            known: The names of the tools that a run of this context has. What earlier runs have is known, too, as a
                sub-agent is given the context of its caller.

        Raises:
            UserError: No tool has one of the names, or what is there is no list of names.
        """
        self._refuse_misfits()
        self._known_tools.update(known)
        for name in [one for one in self.need_user_approve_tools if one not in self._known_tools]:
            nearest = get_close_matches(name, self._known_tools, 1)
            meant = f' Did you mean {nearest[0]!r}?' if nearest else ''
            raise UserError(
                f'`need_user_approve_tools` names {name!r}, and no tool that could ask has this name.{meant} '
                f'There are: {", ".join(map(repr, sorted(self._known_tools))) or "none"}.'
            )

    async def __aenter__(self) -> Self:
        """Return the context."""
        return self

    async def __aexit__(self, *args: object) -> None:
        """Do nothing: what is to be kept is exported."""

    def record(self, result: AgentRunResult[Any]) -> None:
        """Take over the history of a run and what it asks for."""
        self.message_history = result.all_messages()
        self.pending = result.output if isinstance(result.output, DeferredToolRequests) else None
        self.answers = DeferredToolResults()

    def unanswered(self) -> DeferredToolRequests:
        """Return what is pending and has no answer yet."""
        pending = self.pending or DeferredToolRequests()
        calls = [call for call in pending.calls if call.tool_call_id not in self.answers.calls]
        approvals = [call for call in pending.approvals if call.tool_call_id not in self.answers.approvals]
        return replace(pending, calls=calls, approvals=approvals)

    def join(self, toolset_id: str, tools: Iterable[BaseTool]) -> bool:
        """Give the states of before to the tools of a run, and have these export theirs from now on.

        Returns:
            Whether it was done: not if a run that goes on has tools of these names. A run inside of that one, or beside
            it, starts with fresh tools and leaves nothing behind.
        """
        joining = {(toolset_id, tool.name): tool for tool in tools if _exports(tool)}
        if joining.keys() & self._live.keys():
            return False
        for (_, name), tool in joining.items():
            if (state := self.toolset_states.get(toolset_id, {}).get(name)) is not None:
                tool.restore_state(state)
        self._live.update(joining)
        return True

    def leave(self, toolset_id: str, tools: Iterable[BaseTool], *, keep: bool) -> None:
        """Take the states of the tools of a run that ends, or forget them, as the history of a run that failed is."""
        for tool in filter(_exports, tools):
            del self._live[toolset_id, tool.name]
            if keep:
                self.toolset_states.setdefault(toolset_id, {})[tool.name] = tool.export_state()

    @overload
    def export_state(self) -> ResumableState: ...
    @overload
    def export_state(self, state_type: type[StateT]) -> StateT: ...
    def export_state(self, state_type: type[ResumableState] = ResumableState) -> ResumableState:
        """Return all that is needed to go on elsewhere, with the states of tools as they are at this moment.

        Args:
            state_type: What is returned. Each of its fields is that of this context with the same name.

        Raises:
            UserError: The context lacks such a field, or it has a value that doesn't fit.
        """
        states = {key: dict(tools) for key, tools in self.toolset_states.items()}
        for (key, name), tool in self._live.items():
            states.setdefault(key, {})[name] = tool.export_state()
        kept = {name: getattr(self, name) for name in self._kept(state_type)}
        try:
            return state_type.model_validate(kept | {'toolset_states': states})
        except ValidationError as error:
            raise UserError(f'The context is no `{state_type.__name__}`. {_first_of(error)}') from error

    def with_state(self, state: ResumableState) -> Self:
        """Take over a state, and return the context.

        What needs an approval is what the context says and what the state says, so that a tool that is new since then is
        asked for. All else is as in the state.

        Raises:
            UserError: A newer version wrote the state, or it has a field that the context lacks.
        """
        state = type(state).model_validate(state).model_copy(deep=True)
        needing = dict.fromkeys([*self.need_user_approve_tools, *state.need_user_approve_tools])
        for name in self._kept(type(state)):
            setattr(self, name, getattr(state, name))
        self.need_user_approve_tools = list(needing)
        self._known_tools.update(state.need_user_approve_tools)  # also if the code has no such tool any more
        return self

    def _kept(self, state_type: type[ResumableState]) -> set[str]:
        """Return the names of what goes into a state."""
        names = state_type.model_fields.keys() - {'version', 'written_by'}
        if missing := sorted(name for name in names if not hasattr(self, name)):
            raise UserError(
                f'`{state_type.__name__}` keeps {", ".join(map(repr, missing))}, which `{type(self).__name__}` does not '
                'have. Use a subclass of `AgentContext` with fields of these names.'
            )
        if excluded := sorted(name for name in names if state_type.model_fields[name].exclude):
            raise UserError(
                f'`{state_type.__name__}` excludes {", ".join(map(repr, excluded))} from what is written. '
                'Leave out `exclude=True`, or the field.'
            )
        return names
