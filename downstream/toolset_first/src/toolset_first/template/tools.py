"""The toolsets of this project. What is here is found by its type, and named after its variable."""

from __future__ import annotations

from typing import Any

from pydantic_ai import FunctionToolset
from typing_extensions import Self


class Notes(FunctionToolset[Any]):
    """Holds the notes of a run. Each run has its own, since it is stateful."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.note])
        self.notes: list[str] = []

    def copy(self) -> Self:
        """Return a toolset without notes."""
        return type(self)()

    async def note(self, text: str) -> list[str]:
        """Write something down, and return all notes."""
        self.notes.append(text)
        return self.notes


notes = Notes()
