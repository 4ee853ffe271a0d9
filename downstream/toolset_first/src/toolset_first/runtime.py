"""The runtime: agents, and scopes to call entries in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.toolsets import CombinedToolset, ToolsetScope, WrapperToolset

from toolset_first.agents import Agents, AgentToolset, CallFrame, CallRuntime
from toolset_first.contracts import EntrySpec
from toolset_first.guard import parts
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
        return CallScope(entry, CallRuntime(self, frame, Turn(), self._kept(entry) if chat else None))

    def _kept(self, entry: EntrySpec) -> ToolsetScope | None:
        """Return what keeps the stateful toolsets of the agents of which an entry may call one first, or `None` if there are none."""
        toolset = entry.toolset_spec.toolset
        agents = [self.built(toolset.agent)[0]] if isinstance(toolset, AgentToolset) else self.agents.values()
        own = [one.toolset for agent in agents for one in agent.toolset_specs if not one.shared]
        inner = [part for one in own if one is not None for part in parts(one)]
        stateful = [one for one in inner if one.stateful and not isinstance(one, WrapperToolset | CombinedToolset)]
        return ToolsetScope(*{id(one): one for one in stateful}.values(), name='chat') if stateful else None

    async def run_entry(self, entry: EntrySpec, input_data: Any, history: Sequence[ModelMessage] = ()) -> Any:
        """Call `main` of an entry once, and return what it returns. Then `usage` and `message_log` tell what that took."""
        async with self.create_scope(entry, history) as scope:
            return await scope.run_turn(input_data)
