# pyright: strict
"""Every way to declare state. `test_b01_declaring_state.py` runs this, and `make types` checks it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import AbstractToolset, FunctionToolset, RunContext, ToolsetTool, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, PrefixedToolset
from typing_extensions import Self


class Plain(AbstractToolset[Any]):
    """A toolset that declares nothing."""

    @property
    def id(self) -> str | None:
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        raise NotImplementedError


class InClassBody(Plain):
    stateful = True

    def copy(self) -> Self:
        return type(self)()


class InAnnotatedClassBody(Plain):
    stateful: bool = True

    def copy(self) -> Self:
        return type(self)()


@dataclass
class AsDataclassField(Plain):
    stateful: bool = True
    cache: dict[str, str] = field(default_factory=dict[str, str])

    def copy(self) -> Self:
        return replace(self, cache={})


class AsInstanceAttribute(Plain):
    def __init__(self, stateful: bool = True) -> None:
        self.stateful = stateful

    def copy(self) -> Self:
        return type(self)(self.stateful)


class OnFunctionToolset(FunctionToolset[Any]):
    stateful = True

    def copy(self) -> Self:
        return type(self)()


@dataclass
class WrapperInClassBody(WrapperToolset[Any]):
    stateful = True

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy())


@dataclass
class WrapperAsDataclassField(WrapperToolset[Any]):
    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), log=[])


class WrapperAsInstanceAttribute(WrapperToolset[Any]):
    def __init__(self, wrapped: AbstractToolset[Any], stateful: bool = True) -> None:
        super().__init__(wrapped)
        self.stateful = stateful

    def copy(self) -> Self:
        return type(self)(self.wrapped.copy(), self.stateful)


@dataclass
class OnPrefixedToolset(PrefixedToolset[Any]):
    stateful: bool = True

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy())


@dataclass
class OnCombinedToolset(CombinedToolset[Any]):
    stateful = True

    def copy(self) -> Self:
        return replace(self, toolsets=[toolset.copy() for toolset in self.toolsets])


TOOLSETS: list[AbstractToolset[Any]] = [
    InClassBody(),
    InAnnotatedClassBody(),
    AsDataclassField(),
    AsInstanceAttribute(),
    OnFunctionToolset(),
    WrapperInClassBody(Plain()),
    WrapperAsDataclassField(Plain()),
    WrapperAsInstanceAttribute(Plain()),
    OnPrefixedToolset(Plain(), 'x'),
    OnCombinedToolset([Plain()]),
]
"""One toolset of each class above that declares state."""
