"""A stateful toolset that exports its state."""

from __future__ import annotations

from typing import Any

from pydantic_ai import FunctionToolset
from typing_extensions import Self


class Notes(FunctionToolset[Any]):
    """Keeps what it is told, and returns all of it."""

    stateful = True

    def __init__(self):
        super().__init__([self.keep], id='notes')
        self.kept: list[str] = []

    def copy(self) -> Self:
        return type(self)()

    async def export_state(self) -> list[str]:
        return self.kept

    async def restore_state(self, state: Any) -> None:
        self.kept = list(state)

    async def keep(self, value: str) -> str:
        self.kept.append(value)
        return ' '.join(self.kept)
