"""Measure what watching costs: `python downstream/toolset_leaks/cost.py`, in an environment with this package.

Each agent runs without and with a watch in turn. A row has the medians of the processor time, so that other programs on the machine
matter little, and how many times as long a run takes under watch: that of the medians, and that of the first runs of agents that were
just built. What was too much to look at all of it is marked. It ends with 1 if one of the medians is more than three times a run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
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


@dataclass
class Row:
    """A row."""

    number: int
    title: str


class Branch:
    """Holds a list of its own with up to three others."""

    def __init__(self, number: int):
        self.number = number
        self.branches: list[Branch] = []


def tree(objects: int) -> Branch:
    """Build a tree of objects, every second of which is a small list."""
    made = [Branch(number) for number in range(objects // 2)]
    for branch in made[1:]:
        made[(branch.number - 1) // 3].branches.append(branch)
    return made[0]


def data(objects: int) -> dict[int, Any]:
    """Build rows of plain data, every second of which is a small list."""
    return {number: {'id': number, 'words': ['a', 'b']} for number in range(objects // 2)}


SHAPES: dict[str, Callable[[int], Any]] = {
    'instances in one list': lambda objects: [Row(number, 'a') for number in range(objects)],
    'dicts in one dict, with a list each': data,
    'instances in a tree, with a list each': tree,
}
SIZES = 100, 300, 1_000, 10_000


class Holding(Todo):
    """Holds many objects."""

    def __init__(self, held: Any):
        super().__init__(1)
        self.held = held


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
}
for _size in SIZES:
    for _shape, _make in SHAPES.items():
        AGENTS[f'one tool, {_size:,} {_shape}'] = lambda size=_size, make=_make: [Holding(make(size))]


@dataclass
class Cost:
    """What a watch costs.

    Attributes:
        plain: The median of runs without a watch, in seconds of the processor.
        watched: The median of runs under watch.
        first: How many times as long the first run of an agent takes under watch, the median again.
        complete: Whether all was looked at in each run.
    """

    plain: float
    watched: float
    first: float
    complete: bool

    @property
    def times(self) -> float:
        """How many times as long a run takes under watch."""
        return self.watched / self.plain


def build(make: Callable[[], list[Any]]) -> Agent[Any, str]:
    """Build an agent on a scripted model, which answers at once."""
    return Agent(FunctionModel(call_one), name='cost', toolsets=make())


async def measure(make: Callable[[], list[Any]], number: int) -> Cost:
    """Run agents that many times, and a fifth as many for their first runs, without and with a watch in turn."""
    agent = build(make)
    watch = Watch()
    plain, watched = await _in_turn(lambda: agent, lambda: watch, number)
    first = await _in_turn(lambda: build(make), Watch, number // 5)
    return Cost(plain, watched, first[1] / first[0], not watch.report.incomplete)


async def _in_turn(
    agent: Callable[[], Agent[Any, str]], watch: Callable[[], Watch], number: int
) -> tuple[float, float]:
    """Return the medians of runs without and with a watch."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(number):
        for taken, make in zip(times, (nullcontext, watch), strict=True):
            run = agent().run
            with make():
                begun = time.process_time()
                await run('Add milk')
                taken.append(time.process_time() - begun)
    return statistics.median(times[0]), statistics.median(times[1])


async def main(arguments: list[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description='Measure what watching costs.')
    parser.add_argument('--runs', type=int, default=60, help='how many runs of each kind (default: %(default)s)')
    parser.add_argument('--only', default='', help='a part of the names of the agents')
    given = parser.parse_args(arguments)
    print(f'pydantic-ai {pydantic_ai.__version__}, Python {sys.version.split()[0]}')
    print('\n| agent | a run | under watch | times | first run |\n| --- | --- | --- | --- | --- |')
    worst = 0.0
    for name, make in AGENTS.items():
        if given.only in name:
            cost = await measure(make, given.runs)
            worst = max(worst, cost.times)
            part = '' if cost.complete else ', in part'
            print(
                f'| {name} | {cost.plain * 1000:.2f} ms | {cost.watched * 1000:.2f} ms | {cost.times:.1f} ×{part} '
                f'| {cost.first:.1f} × |',
                flush=True,
            )
    return int(worst > 3)


if __name__ == '__main__':
    sys.exit(asyncio.run(main()))
