"""What a chat keeps from turn to turn. All that this package knows of the fork's `ToolsetScope` is here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from pydantic_ai import AbstractToolset
from pydantic_ai.toolsets import CombinedToolset, ToolsetScope, WrapperToolset
from typing_extensions import Self

from toolset_first.contracts import ToolsetSpec
from toolset_first.guard import parts


class Kept:
    """Keeps the stateful toolsets of the agent that goes on with the history, from the first turn to the end of a chat.

    Args:
        toolsets: The stateful toolsets of the agents that may be that one.
    """

    def __init__(self, toolsets: Sequence[AbstractToolset[Any]]) -> None:
        self.toolsets = toolsets
        self._scope = ToolsetScope(*toolsets, name='chat')

    @classmethod
    def of(cls, specs: Sequence[ToolsetSpec]) -> Self | None:
        """Return what keeps the toolsets of some agents, or `None` if there is nothing to keep."""
        toolsets = list(stateful_instances(specs))
        return cls(toolsets) if toolsets else None

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._scope.__aexit__(kind, error, trace)

    def for_run(self) -> list[AbstractToolset[Any]]:
        """Return what the run of that agent is given, so that it works with what is kept."""
        return [self._scope]


def stateful_instances(specs: Sequence[ToolsetSpec]) -> Iterator[AbstractToolset[Any]]:
    """Return the stateful toolsets among those of some agents, each once, without what is wrapped around them."""
    seen: set[int] = set()
    for spec in specs:
        for one in parts(spec.toolset) if spec.toolset is not None and not spec.shared else ():
            if one.stateful and not isinstance(one, WrapperToolset | CombinedToolset) and id(one) not in seen:
                seen.add(id(one))
                yield one
