"""What a conversation consists of, apart from the agent: the `deps` of its runs, and the state that outlives a process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pydantic_ai
from pydantic import BaseModel, ConfigDict, JsonValue, model_validator
from pydantic_ai import DeferredToolRequests, DeferredToolResults, UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.run import AgentRunResult
from typing_extensions import Self

from .tools import BaseTool

VERSION = 1
"""Which `ResumableState` this is. It is raised when one that was stored can't be read as it is any more."""
INSTALLED = pydantic_ai.__version__.partition('+')[0]
"""The release of pydantic-ai that is installed."""


class ResumableState(BaseModel):
    """What is needed to go on with a conversation in another process. As JSON, it goes out and comes back equal."""

    model_config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64', revalidate_instances='always')

    version: int = VERSION
    written_by: str = INSTALLED
    """The release of pydantic-ai that wrote the messages. An older one may not know all of them."""
    message_history: list[ModelMessage] = []
    subagent_history: dict[str, list[ModelMessage]] = {}
    need_user_approve_tools: list[str] = []
    pending: DeferredToolRequests | None = None
    answers: DeferredToolResults = DeferredToolResults()
    toolset_states: dict[str, dict[str, JsonValue]] = {}

    @model_validator(mode='before')
    @classmethod
    def _check_versions(cls, data: Any) -> Any:
        """Refuse what a newer version wrote, before anything else of it is read."""
        head = vars(data) if isinstance(data, cls) else cast('dict[str, Any]', data)
        if (version := head.get('version', VERSION)) != VERSION:
            raise UserError(
                f'The state is of version {version}, and this is `hookable_toolset` for version {VERSION}. '
                'Use the release of it that wrote the state.'
            )
        if _release(writer := head.get('written_by', INSTALLED)) > _release(INSTALLED):
            raise UserError(
                f'The state was written with pydantic-ai {writer}, and {INSTALLED} is installed, which may not '
                f'know all of its messages. Install {writer} or a newer one.'
            )
        return head

    def to_json(self) -> str:
        """Return the state as JSON."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Read a state from JSON.

        Raises:
            UserError: A newer version of this package or of pydantic-ai wrote it.
        """
        return cls.model_validate_json(data)


KEPT = ResumableState.model_fields.keys() - {'version', 'written_by'}
"""What of an `AgentContext` goes into its state."""


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
    """The names of the tools that need an approval."""
    message_history: list[ModelMessage] = field(default_factory=list[ModelMessage])
    subagent_history: dict[str, list[ModelMessage]] = field(default_factory=dict[str, list[ModelMessage]])
    """The histories of agents that tools delegate to, by any name."""
    pending: DeferredToolRequests | None = None
    """What the last run has ended with, if that was a question."""
    answers: DeferredToolResults = field(default_factory=DeferredToolResults)
    """The answers to that so far."""
    toolset_states: dict[str, dict[str, JsonValue]] = field(default_factory=dict[str, dict[str, JsonValue]])
    """What tools have exported at the end of the last run, by the `toolset_id`, or `''`, and the tool's name."""
    _live: dict[tuple[str, str], BaseTool] = field(
        default_factory=dict[tuple[str, str], BaseTool], init=False, repr=False, compare=False
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

    def export_state(self) -> ResumableState:
        """Return all that is needed to go on elsewhere, with the states of tools as they are at this moment."""
        states = {key: dict(tools) for key, tools in self.toolset_states.items()}
        for (key, name), tool in self._live.items():
            states.setdefault(key, {})[name] = tool.export_state()
        kept = {name: getattr(self, name) for name in KEPT}
        return ResumableState.model_validate(kept | {'toolset_states': states})

    def with_state(self, state: ResumableState) -> Self:
        """Take over a state, and return the context.

        Raises:
            UserError: A newer version wrote the state.
        """
        state = ResumableState.model_validate(state).model_copy(deep=True)
        for name in KEPT:
            setattr(self, name, getattr(state, name))
        return self
