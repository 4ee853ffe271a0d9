"""What is spelled differently on the two lines of the fork."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pydantic_ai

IS_1 = pydantic_ai.__version__.startswith('1.')
_server_side = import_module(f'pydantic_ai.{"builtin_tools" if IS_1 else "native_tools"}')
DynamicToolset: Any = import_module('pydantic_ai.toolsets._dynamic').DynamicToolset
"""Public on 2.68.0 only."""


def agent_options(builtin_tools: Sequence[Any]) -> dict[str, Any]:
    """Return the option of `Agent()` for tools that the provider runs."""
    if IS_1:
        return {'builtin_tools': builtin_tools}
    capabilities: Any = import_module('pydantic_ai.capabilities')
    return {'capabilities': [*map(capabilities.NativeTool, builtin_tools)]}


def server_side_tools() -> dict[str, Any]:
    """Return the classes of tools that a model's provider runs, by what they are called in `.worker` files."""
    values: list[Any] = list(vars(_server_side).values())
    kinds = {str(vars(value).get('kind', 'unknown')): value for value in values if isinstance(value, type)}
    return {kind: one for kind, one in kinds.items() if not kind.startswith('unknown')}
