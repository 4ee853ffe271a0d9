"""The base class of tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from pydantic_ai import RunContext

from .hooks import Maybe


class BaseTool(ABC):
    """A tool: a name, a description, and the method `call()`, whose parameters are what the model fills in."""

    name: str
    description: str = ''
    timeout: float | None = None
    """How many seconds a call may take. If `None`, the toolset says."""
    max_retries: int | None = None
    """How often the model may try again. If `None`, the toolset says."""
    sequential: bool = False
    """Whether no other tool runs at the same time."""
    stateful: bool = False
    """Whether the tool holds something that belongs to one run. Each run then works with a copy of it."""

    @abstractmethod
    def call(self, ctx: RunContext[Any], *args: Any, **kwargs: Any) -> Any:
        """Run the tool; sync or async.

        What an override has for parameters after the context, with their annotations, is the tool's schema.
        """
        raise NotImplementedError

    def is_available(self) -> Maybe[bool]:
        """Whether the run at hand can use the tool. It is asked whenever a run lists its tools."""
        return True

    def get_instruction(self, ctx: RunContext[Any]) -> Maybe[str | None]:
        """Return what the model is told about the tool besides its description."""
        return None

    def get_approval_metadata(self) -> Maybe[dict[str, Any] | None]:
        """Return what the one who is asked for an approval should know."""
        return None

    def copy(self) -> Self:
        """Return a tool with the same configuration and fresh state.

        Override it if the tool is stateful and is handed to the toolset as an instance, not as a class.
        """
        return type(self)()

    def export_state(self) -> Any:
        """Return the state as what JSON can express, if it is to outlive the run; `None` if there is nothing to keep."""
        return None

    def restore_state(self, state: Any) -> None:
        """Take over what `export_state()` has returned, in a fresh copy."""
        raise NotImplementedError(
            f'{type(self).__name__!r} exports a state, but does not override `restore_state()` to take it over.'
        )
