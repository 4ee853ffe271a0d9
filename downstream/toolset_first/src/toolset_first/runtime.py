"""The runtime: agents, and scopes to call entries in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage

from toolset_first.agents import Agents, AgentToolset, CallFrame, CallRuntime
from toolset_first.contracts import AgentSpec, EntrySpec
from toolset_first.kept import Kept
from toolset_first.scope import CallScope
from toolset_first.turn import Turn


class Runtime(Agents):
    """The agents of a project, each built once, the settings, and the calls of entries."""

    def create_scope(self, entry: EntrySpec, history: Sequence[ModelMessage] = (), *, chat: bool = False) -> CallScope:
        """Return a scope with the toolset of an entry: `async with runtime.create_scope(entry) as scope`.

        Args:
            entry: The entry.
            history: What the first agent that it calls goes on with.
            chat: Whether that agent also goes on with its stateful toolsets, from turn to turn until the scope is closed.

        Raises:
            EntryError: The tools aren't exactly `main`. If that shows only when the toolset is open, then opening raises it.
        """
        frame = CallFrame(entry.name, messages=list(history))
        kept = Kept.of([one for spec in self._first(entry) for one in spec.toolset_specs]) if chat else None
        return CallScope(entry, CallRuntime(self, frame, Turn(), kept))

    def _first(self, entry: EntrySpec) -> Sequence[AgentSpec]:
        """Return the agents of which an entry may call one first."""
        toolset = entry.toolset_spec.toolset
        if not isinstance(toolset, AgentToolset):
            return list(self.agents.values())
        return [self.built(toolset.agent)[0]]

    async def run_entry(self, entry: EntrySpec, input_data: Any, history: Sequence[ModelMessage] = ()) -> Any:
        """Call `main` of an entry once, and return what it returns. Then `usage` and `message_log` tell what that took."""
        async with self.create_scope(entry, history) as scope:
            return await scope.run_turn(input_data)
