"""What differs between the lines: the only module of these tests that looks at which one it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import version
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, ToolDefinition, WrapperToolset, exceptions

IS_1 = version('pydantic-ai-slim').startswith('1.')
"""Whether it is the line of 1.x. `docs/lines.md` lists what it doesn't have."""

not_on_1 = pytest.mark.skipif(IS_1, reason='The line of 1.x does not have it.')
"""Leaves a test out there."""

RunCancelled: Any = getattr(exceptions, 'RunCancelled', None)
"""What a run raises whose scope ends. On 1.x, the scope waits for it instead."""


def left_by_the_fork(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Leave out the tasks that the line's base leaves itself: on 1.x, `wrap_run()` where the toolsets of a run can't be entered."""
    return [task for task in tasks if not (IS_1 and getattr(task.get_coro(), '__name__', '') == 'wrap_run')]


EXPORTS_STATE = r'[Kk]eep the state outside' if IS_1 else r'override `export_state\(\)`'
"""What a refused stateful toolset is told to do on Temporal."""

GIVEN_TOOLSETS = 'Toolsets' if IS_1 else 'toolsets'
"""What a refusal of the toolsets of a run calls them, in the words of the base."""

WAYS_TO_MAKE_DURABLE = ('wrapper',) if IS_1 else ('capability', 'wrapper')
"""How an agent is made for a durable engine: by a capability of the agent, or by an agent that wraps it."""

ALONE_OR_WRAPPED: dict[str, Callable[[Any], Any]] = {
    'alone': lambda toolset: toolset,
    'wrapped': lambda toolset: toolset.renamed({}),
}
"""How a toolset stands in a list: by itself, or inside of a wrapper."""


async def _keep_all(ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
    return tool_defs


WRAPPERS: dict[str, Callable[[AbstractToolset[Any]], WrapperToolset[Any]]] = {
    'PrefixedToolset': lambda toolset: toolset.prefixed('x'),
    'FilteredToolset': lambda toolset: toolset.filtered(lambda ctx, tool_def: True),
    'RenamedToolset': lambda toolset: toolset.renamed({'new': 'old'}),
    'PreparedToolset': lambda toolset: toolset.prepared(_keep_all),
    'ApprovalRequiredToolset': lambda toolset: toolset.approval_required(lambda ctx, tool_def, args: False),
}
"""How to make each wrapper of the line, such that it neither hides a tool nor refuses a call. Only the first changes names."""

_FURTHER: dict[str, tuple[str, Callable[[Any], WrapperToolset[Any]]]] = {
    'DeferredLoadingToolset': ('defer_loading', lambda toolset: toolset.defer_loading(['no such tool'])),
    'IncludeReturnSchemasToolset': ('include_return_schemas', lambda toolset: toolset.include_return_schemas()),
    'SetMetadataToolset': ('with_metadata', lambda toolset: toolset.with_metadata(key='value')),
}
"""Wrappers that only some lines have, by the method that makes them."""

WRAPPERS.update({name: wrap for name, (method, wrap) in _FURTHER.items() if hasattr(AbstractToolset, method)})


@asynccontextmanager
async def stream_events(
    agent: Agent[Any, Any], prompt: str, **options: Any
) -> AsyncGenerator[AsyncIterator[Any], None]:
    """Stream a run's events: `run_stream_events()` is a context manager, or an iterator on older lines."""
    events: Any = agent.run_stream_events(prompt, **options)
    if hasattr(events, '__aenter__'):
        async with events as entered:
            yield entered
    else:
        async with aclosing(events):
            yield events
