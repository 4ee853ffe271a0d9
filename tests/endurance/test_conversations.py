"""Many chats with a server that keeps a pool of toolset scopes: nobody's toolset is exited while it's in use, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import ToolsetScopePool
from typing_extensions import Self

from ..fork.toolsets import RUN
from .leaks import held, kept

pytestmark = pytest.mark.anyio

LIVE = 50
"""How many chats go on at once."""
LIMIT = 10
"""How many scopes the pool keeps. As it's less than `LIVE`, chats lose theirs between two messages."""
TURNS = 3
HANGS = 'hangs'
"""The key of a chat whose toolset isn't exited before all others are done."""


class Boom(Exception):
    """What the tool raises."""


@dataclass
class Counts:
    """Counts what happens to toolsets, and keeps none of them."""

    entered: int = 0
    exited: int = 0
    crossed: int = 0
    outside: int = 0
    continued: int = 0
    """How many messages found what an earlier one of the chat had left."""
    others_done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Session(FunctionToolset[Any]):
    """Belongs to a chat."""

    counts: Counts
    values: list[str] = field(default_factory=list[str])
    is_entered: bool = False
    stateful = True
    shared_attributes = frozenset({'counts'})

    def __post_init__(self) -> None:
        super().__init__([self.remember])

    def copy(self) -> Self:
        return type(self)(self.counts)

    async def __aenter__(self) -> Self:
        self.counts.outside += self.is_entered
        self.is_entered = True
        self.counts.entered += 1
        return self

    async def __aexit__(self, *args: object) -> None:
        self.counts.outside += not self.is_entered
        self.is_entered = False
        if self.values and self.values[0].startswith(HANGS):
            await self.counts.others_done.wait()
        self.counts.exited += 1

    async def remember(self, value: str) -> int:
        """Remember a value, while others go on."""
        self.counts.outside += not self.is_entered
        self.counts.continued += bool(self.values)
        self.values.append(value)
        await asyncio.sleep(random.choice([0, 0, 0.001]))
        self.counts.outside += not self.is_entered
        self.counts.crossed += any(kept.partition('/')[0] != RUN.get() for kept in self.values)
        if value.endswith('fail'):
            raise Boom
        return len(self.values)


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if isinstance(messages[-1].parts[-1], ToolCallPart) or len(messages) > 1:
        return ModelResponse(parts=[TextPart('done')])
    prompt: Any = messages[0].parts[-1]
    return ModelResponse(parts=[ToolCallPart('remember', {'value': prompt.content})])


async def steps(number: int) -> None:
    """Let the event loop go on for so many steps, which is the same on any machine."""
    for _ in range(number):
        await asyncio.sleep(0)


async def serve(number: int, counts: Counts, progress: Callable[[int, int], None]) -> int:
    """Have so many chats of three messages each, and return how many messages failed or were cancelled."""
    session = Session(counts)
    agent = Agent(FunctionModel(respond), toolsets=[session])
    choose = random.Random(number)
    ends = Counter(dict.fromkeys(['done', 'fail', 'cancel'], 0))

    async def message(key: str, text: str) -> None:
        async with pool(key) as chat:
            await agent.run(text, toolsets=[chat])

    async def chat(index: int) -> None:
        RUN.set(f'chat-{index}')
        for turn in range(TURNS):
            end = choose.choices(['done', 'fail', 'cancel'], [8, 1, 1])[0]
            task = asyncio.create_task(message(RUN.get(), f'{RUN.get()}/{turn}-{end}'))
            if end == 'cancel':
                await steps(choose.randrange(40))
                task.cancel()
            try:
                await task
            except (Boom, asyncio.CancelledError):
                ends[end] += 1
            # Most chats wait at any time, so that the pool isn't full of those in use
            await steps(choose.choice([0, 100, 1_000]))

    async def worker() -> None:
        for index in waiting:
            await chat(index)
            progress(index + 1, number)

    waiting = iter(range(number))
    async with ToolsetScopePool(session, limit=LIMIT) as pool:
        RUN.set(HANGS)
        await message(HANGS, f'{HANGS}/0-done')
        await asyncio.gather(*(worker() for _ in range(LIVE)))
        assert len(pool.keys) <= LIVE
        # It was ended long ago, and nobody has waited for its exit
        assert HANGS not in pool.keys
        assert counts.entered - counts.exited == len(pool.keys) + 1
        counts.others_done.set()
    assert ends['done'] == 0
    return sum(ends.values())


async def test_load_chats_of_a_pool_are_not_ended_in_use(
    full: bool, figures: Callable[[str], Counter[str]], progress: Callable[[int, int], None]
) -> None:
    number = 10_000 if full else 200
    await serve(200, Counts(), progress)  # fills caches
    counts = Counts()
    row = figures(f'Chats in a pool of {LIMIT} scopes, {LIVE} at once, of {TURNS} messages each')
    before = await held()

    faults = await serve(number, counts, progress)

    left = kept(before, await held())
    row.update(runs=number * TURNS, faults=faults, entered=counts.entered, exited=counts.exited)
    row.update(crossed=counts.crossed, outside=counts.outside)
    row.update({name: left[name] for name in ('objects', 'tasks', 'descriptors')})
    assert counts.entered == counts.exited > number
    assert (counts.crossed, counts.outside) == (0, 0)
    assert faults > 0
    # Some chats have kept their scope between two messages, and some have lost it
    assert 0 < counts.continued < number * (TURNS - 1)
    assert (left['tasks'], left['descriptors']) == (0, 0)
    assert left['objects'] < 1_000 + number // 2
