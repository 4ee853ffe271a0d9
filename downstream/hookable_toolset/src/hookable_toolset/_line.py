"""What differs between the lines of the fork, so that nothing else has to know."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelRequest
from pydantic_ai.toolsets import AbstractToolset

if not hasattr(AbstractToolset, 'for_sub_agent'):
    raise ImportError(
        '`hookable_toolset` needs the fork of pydantic-ai that copies stateful toolsets for each run, and this is the '
        "unmodified package. Install the fork in its place; the project's README says how."
    )

TOOLSETS_INSTRUCT = hasattr(AbstractToolset, 'get_instructions')
"""Whether a run asks its toolsets for instructions, as it does from 2.0 on."""


def default_retries(ctx: RunContext[Any]) -> int:
    """Return how often a tool may be retried if nobody has said: what the agent says, or 1 before 2.0."""
    return ctx.max_retries if TOOLSETS_INSTRUCT else 1


def instruct(ctx: RunContext[Any], instructions: list[str]) -> None:
    """Add instructions to the request that is being prepared, where the run doesn't ask the toolset for them.

    There, a run lists its tools after it has put the request into the messages and before it sends them.
    """
    if TOOLSETS_INSTRUCT or not ctx.run_step or not ctx.messages:
        return
    request = ctx.messages[-1]
    if isinstance(request, ModelRequest):
        for text in instructions:
            # A toolset that stands in two places says it once.
            if text not in (request.instructions or ''):
                request.instructions = f'{request.instructions}\n\n{text}' if request.instructions else text


def to_keywords(args: Any, single: str | None) -> dict[str, Any]:
    """Return validated arguments by name. Before 2.0, those of a function with a single model are that model."""
    return args if TOOLSETS_INSTRUCT or single is None else {single: args}


def from_keywords(args: dict[str, Any], single: str | None) -> Any:
    """Return what `FunctionSchema.call()` takes for arguments by name: the reverse of `to_keywords()`."""
    return args.copy() if TOOLSETS_INSTRUCT or single is None else args[single]
