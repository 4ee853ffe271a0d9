"""A turn: one call of an entry, and all that its agents use and say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.usage import RunUsage, UsageLimits


class LoggedMessage(NamedTuple):
    """A message of a call."""

    agent: str
    depth: int
    message: ModelMessage


@dataclass
class Turn:
    """What a call of an entry has used up to now. Each call of an agent counts by itself, too, for the limits of that call.

    Attributes:
        limits: The limits of all calls together.
        log: The messages of all calls, in order.
    """

    limits: UsageLimits | None = None
    log: list[LoggedMessage] = field(default_factory=list[LoggedMessage])
    _done: RunUsage = field(default_factory=RunUsage)
    _live: list[RunUsage] = field(default_factory=list[RunUsage])

    @property
    def usage(self) -> RunUsage:
        """What all calls have used together."""
        return sum(self._live, self._done + RunUsage())

    @contextmanager
    def call(self) -> Iterator[RunUsage]:
        """Count what a call uses."""
        usage = RunUsage()
        self._live.append(usage)
        try:
            yield usage
        finally:
            self._live[:] = [one for one in self._live if one is not usage]
            self._done.incr(usage)

    def check_before_request(self) -> None:
        """Raise `UsageLimitExceeded` if the next request would exceed a limit of all calls."""
        if self.limits:
            self.limits.check_before_request(self.usage)

    def check_tool_calls(self, response: ModelResponse) -> None:
        """Raise `UsageLimitExceeded` if a response has exceeded a limit of all calls, or its tool calls would."""
        if self.limits:
            self.check_tokens()
            usage = self.usage
            # The call of an output tool is none of a tool.
            usage.tool_calls += sum(
                isinstance(part, ToolCallPart) and not part.tool_name.startswith('final_result')
                for part in response.parts
            )
            self.limits.check_before_tool_call(usage)

    def check_tokens(self) -> None:
        """Raise `UsageLimitExceeded` if a limit on tokens, or on 2.68.0 on costs, of all calls has been exceeded."""
        if self.limits:
            self.limits.check_tokens(self.usage)
            if check_cost := getattr(self.limits, 'check_cost', None):
                check_cost(self.usage)
