"""Measure what watching costs: `python downstream/toolset_leaks/cost.py`, in an environment with this package.

It prints, for each agent, the processor time of a run and of a run under watch, the shortest of many each, so that other programs
on the machine matter little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pydantic_ai
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolset_leaks import Watch


def call_one(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the first tool, then end."""
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart('done')])
    return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, {'text': 'milk'})])


class Todo(FunctionToolset[Any]):
    """Has tools that share a list."""

    def __init__(self, number: int):
        super().__init__()
        self.todos: list[str] = []
        for index in range(number):
            self.add_function(self.add, name=f'add_{index}')

    def add(self, text: str) -> str:
        """Add a to-do."""
        self.todos.append(text)
        return text


class Holding(Todo):
    """Holds many objects."""

    def __init__(self, number: int):
        super().__init__(1)
        self.rows = {index: {'id': index, 'words': ['a', 'b']} for index in range(number)}


@dataclass
class Row:
    """A row."""

    number: int
    words: list[str]


class HoldingObjects(Todo):
    """Holds objects of a class of its own."""

    def __init__(self, number: int):
        super().__init__(1)
        self.rows = [Row(index, ['a', 'b']) for index in range(number)]


def closures(number: int) -> FunctionToolset[Any]:
    """Make a toolset of functions with a closure each."""
    storage: list[str] = []

    def make() -> Callable[[str], str]:
        def add(text: str) -> str:
            storage.append(text)
            return text

        return add

    toolset = FunctionToolset[Any]()
    for index in range(number):
        toolset.add_function(make(), name=f'add_{index}')
    return toolset


AGENTS: dict[str, Callable[[], list[Any]]] = {
    'one tool': lambda: [Todo(1)],
    '10 tools, which are methods': lambda: [Todo(10)],
    '10 tools with closures': lambda: [closures(10)],
    '50 tools in 5 toolsets': lambda: [Todo(10).prefixed(f'set{index}') for index in range(5)],
    'one tool, 100 rows of plain data': lambda: [Holding(100)],
    'one tool, 1,000 rows of plain data': lambda: [Holding(1000)],
    'one tool, 100 instances of a class': lambda: [HoldingObjects(100)],
    'one tool, 1,000 instances of a class': lambda: [HoldingObjects(1000)],
}


async def shortest(agent: Agent[Any, str], number: int) -> tuple[float, float]:
    """Return the processor time of the shortest of some runs, in milliseconds, without and with a watch, in turns."""
    plain: list[float] = []
    watched: list[float] = []
    watch = Watch()
    for _ in range(number):
        for times, around in (plain, nullcontext()), (watched, watch):
            with around:
                begun = time.process_time()
                await agent.run('Add milk')
                times.append(time.process_time() - begun)
    return min(plain) * 1000, min(watched) * 1000


async def main() -> None:
    """Print a table."""
    print(f'pydantic-ai {pydantic_ai.__version__}')
    print('\n| agent | a run | under watch | times |\n| --- | --- | --- | --- |')
    for name, make in AGENTS.items():
        agent = Agent(FunctionModel(call_one), name='cost', toolsets=make())
        plain, watched = await shortest(agent, 100)
        print(f'| {name} | {plain:.2f} ms | {watched:.2f} ms | {watched / plain:.1f} |')


if __name__ == '__main__':
    asyncio.run(main())
