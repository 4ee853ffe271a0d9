"""What a conversation costs when it has its own agent, and when one agent serves all.

`python benchmarks/per_agent.py` prints the processor time of a conversation with one prompt, a tool call and an answer, and the
memory that stays in use while it is open. On the unmodified pydantic-ai it measures only what can be done there: tools that belong
to a context, a toolset of these and an agent around it, built for each conversation.
"""

from __future__ import annotations

import asyncio
import gc
import platform
import time
import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pydantic_ai
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

ON_FORK = find_spec('hookable_toolset') is not None
if TYPE_CHECKING or ON_FORK:
    from hookable_toolset import AgentContext, BaseTool, Toolset
else:
    BaseTool = object

TOOLS, CONVERSATIONS, ROUNDS = 15, 60, 5


class WithState(BaseTool):
    """A tool as agents for code have them: some parameters, and state that belongs to a conversation."""

    name = 'tool_0'
    description = 'Edit a file.'
    stateful = True

    def __init__(self) -> None:
        self.edited: list[str] = []

    async def call(self, ctx: RunContext[Any], path: str, lines: list[str], at: int = 0, create: bool = False) -> str:
        """Edit a file.

        Args:
            ctx: The context.
            path: The path of the file.
            lines: The lines to put in.
            at: The line to put them at.
            create: Whether the file may be a new one.
        """
        self.edited.append(path)
        return f'{len(self.edited)} edited'


CLASSES: list[Any] = [type(f'Tool{n}', (WithState,), {'name': f'tool_{n}', 'stateful': n < 5}) for n in range(TOOLS)]


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call a tool, and then answer."""
    if len(messages) == 1:
        return ModelResponse([ToolCallPart('tool_0', {'path': 'x', 'lines': ['y']})])
    return ModelResponse([TextPart('done')])


def agent_of_its_own() -> Callable[[], Any]:
    """The design of the note: a context is bound at construction, so tools, toolset and agent are built around it."""
    tools = [cls() for cls in CLASSES]
    functions = [Tool(tool.call, takes_ctx=True, name=tool.name, description=tool.description) for tool in tools]
    agent = Agent(FunctionModel(answer), toolsets=[FunctionToolset(functions)])
    return lambda: agent.run('Go')


def one_for_all() -> Callable[[], Callable[[], Any]]:
    """An agent that is built once, and a context for each conversation."""
    agent = Agent(FunctionModel(answer), deps_type=AgentContext, toolsets=[Toolset[AgentContext](tools=CLASSES)])

    def begin() -> Callable[[], Any]:
        context = AgentContext()
        return lambda: agent.run('Go', deps=context)

    return begin


def measure(begin: Callable[[], Callable[[], Any]]) -> tuple[float, float]:
    """Return the milliseconds of processor time and the KiB in use of a conversation."""

    async def conversations() -> None:
        for _ in range(CONVERSATIONS):
            await begin()()

    asyncio.run(conversations())
    times: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time()
        asyncio.run(conversations())
        times.append((time.process_time() - start) * 1000 / CONVERSATIONS)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    open_ones = [begin() for _ in range(CONVERSATIONS)]
    gc.collect()
    used = (tracemalloc.get_traced_memory()[0] - before) / 1024 / len(open_ones)
    tracemalloc.stop()
    return min(times), used


if __name__ == '__main__':
    print(f'pydantic-ai {pydantic_ai.__version__}, Python {platform.python_version()}, {TOOLS} tools')
    designs: dict[str, Any] = {'an agent per conversation': agent_of_its_own}
    if ON_FORK:
        designs['one agent for all'] = one_for_all()
    for name, begin in designs.items():
        milliseconds, kib = measure(begin)
        print(f'{name}: {milliseconds:.2f} ms of processor time, {kib:.1f} KiB while it is open')
