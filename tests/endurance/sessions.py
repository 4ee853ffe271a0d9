"""Toolsets that hold state, one for each way to declare it, and a ledger that follows them through any number of runs."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field, replace
from typing import IO, Any

from pydantic_ai import AbstractToolset, FunctionToolset, RunContext, ToolsetTool, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from ..fork.toolsets import RUN, tool_of


@dataclass
class Ledger:
    """Counts what happens to toolsets. It keeps only what is in use, so that it doesn't grow with the number of runs."""

    originals: list[Any] = field(default_factory=list[Any])
    entered: int = 0
    exited: int = 0
    crossed: int = 0
    """How many values of another run a toolset has held."""
    wrong: list[str] = field(default_factory=list[str])
    """What else must not be."""
    in_use: dict[int, Any] = field(default_factory=dict[int, Any])

    def enter(self, toolset: Any, values: list[str]) -> None:
        self.entered += 1
        if any(toolset is original for original in self.originals):
            self.wrong.append(f'{RUN.get()} entered the original {toolset!r}')
        if self.in_use.setdefault(id(toolset), toolset) is not toolset or values:
            self.wrong.append(f'{RUN.get()} entered {toolset!r}, which was not fresh')

    def exit(self, toolset: Any, values: list[str], error: object) -> None:
        self.exited += 1
        if self.in_use.pop(id(toolset), None) is not toolset:
            self.wrong.append(f'{RUN.get()} exited {toolset!r}, which was not entered')
        if (error is None) != RUN.get().startswith('done'):
            self.wrong.append(f'{RUN.get()} exited {toolset!r} with {error!r}')
        self.look(values)

    async def use(self, values: list[str], value: str) -> str:
        """Put the value into the state, and let others run before and after."""
        await asyncio.sleep(0)
        values.append(value)
        await asyncio.sleep(0)
        self.look(values)
        return values[-1]

    def look(self, values: list[str]) -> None:
        self.crossed += sum(value != RUN.get() for value in values)


class Basket(FunctionToolset[Any]):
    """Declares its state in the class body."""

    stateful = True

    def __init__(self, ledger: Ledger):
        super().__init__([self.basket])
        self.ledger = ledger
        self.values: list[str] = []

    def copy(self) -> Self:
        return type(self)(self.ledger)

    async def __aenter__(self) -> Self:
        self.ledger.enter(self, self.values)
        return self

    async def __aexit__(self, *args: object) -> None:
        self.ledger.exit(self, self.values, args[0])

    async def basket(self, value: str) -> str:
        return await self.ledger.use(self.values, value)


@dataclass(eq=False)
class Memo(AbstractToolset[Any]):
    """Declares its state as a field."""

    name: str
    ledger: Ledger
    values: list[str] = field(default_factory=list[str])
    stateful: bool = True

    @property
    def id(self) -> str | None:
        return None

    def copy(self) -> Self:
        return replace(self, values=[])

    async def __aenter__(self) -> Self:
        self.ledger.enter(self, self.values)
        return self

    async def __aexit__(self, *args: object) -> None:
        self.ledger.exit(self, self.values, args[0])

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {self.name: tool_of(self, self.name)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        return await self.ledger.use(self.values, tool_args['value'])


@dataclass(eq=False)
class Audit(WrapperToolset[Any]):
    """Wraps what runs share, and has state of its own."""

    ledger: Ledger
    log: list[str] = field(default_factory=list[str])
    stateful: bool = True

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), log=[])

    async def __aenter__(self) -> Self:
        await self.wrapped.__aenter__()
        self.ledger.enter(self, self.log)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.ledger.exit(self, self.log, args[0])
        return await self.wrapped.__aexit__(*args)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        await self.ledger.use(self.log, tool_args['value'])
        return await super().call_tool(name, tool_args, ctx, tool)


class Scratch(Memo):
    """Writes into a file of its own, in a task of its own."""

    file: IO[str]
    task: asyncio.Task[None]
    queue: asyncio.Queue[str]

    async def __aenter__(self) -> Self:
        self.file = tempfile.TemporaryFile('w+')  # noqa: SIM115 (the exit closes it)
        self.queue = asyncio.Queue()
        self.task = asyncio.create_task(self.write())
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self.file.seek(0)
        self.values[:] = self.file.read().split()
        self.file.close()
        await super().__aexit__(*args)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        self.queue.put_nowait(tool_args['value'])
        await self.queue.join()
        return tool_args['value']

    async def write(self) -> None:
        while True:
            self.file.write(f'{await self.queue.get()}\n')
            self.queue.task_done()


async def lookup(value: str) -> str:
    """Answer without keeping anything."""
    return value


TOOLS = ['basket', 'memo', 'lookup', 'left', 'x_right', 'scratch']
"""The tools of these toolsets. Each keeps the value that it is given in its toolset."""


def five(ledger: Ledger) -> list[AbstractToolset[Any]]:
    """Make five toolsets that hold state. The combination contains two, so that a run has six copies in all."""
    left, right = Memo('left', ledger), Memo('right', ledger)
    others = [
        Basket(ledger),
        Memo('memo', ledger),
        Audit(FunctionToolset([lookup]), ledger),
        Scratch('scratch', ledger),
    ]
    ledger.originals = [*others, left, right]
    return [*others, CombinedToolset([left, right.prefixed('x')])]
