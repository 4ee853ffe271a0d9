"""What is measured: functions that make something ready, and return what is then called again and again.

They run in the environments of the base and of the fork, on what both have, and import nothing but that.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolsetTool,
    UserPromptPart,
    WrapperToolset,
)
from pydantic_ai.capabilities import PrepareTools
from pydantic_ai.models.function import AgentInfo, FunctionModel

Call = Callable[[], Awaitable[Any]]
"""What is measured: one operation."""

Workload = Callable[[int], Call]
"""Makes an operation of a size ready."""

_TOOL = '''
async def tool_{number}(self, value: int, text: str = 'nothing') -> str:
    """Look something up.

    Args:
        value: What to look up.
        text: What to put before it.
    """
    self.calls.append(value)
    return text
'''


def _tools_class(number: int) -> type[Any]:
    """Make a class with that many methods that differ in nothing but their names."""
    namespace: dict[str, Any] = {}
    for index in range(number):
        exec(_TOOL.format(number=index), namespace)  # noqa: S102 (our own text)
    methods = {name: value for name, value in namespace.items() if name.startswith('tool_')}

    def __init__(self: Any) -> None:
        self.calls = []

    return type('Tools', (), {**methods, '__init__': __init__, 'names': list(methods)})


_CLASSES: dict[int, type[Any]] = {}


def methods(number: int) -> list[Any]:
    """Return that many methods of a new object."""
    if number not in _CLASSES:
        _CLASSES[number] = _tools_class(number)
    tools: Any = _CLASSES[number]()
    return [getattr(tools, name) for name in tools.names]


def _toolset(number: int) -> FunctionToolset[Any]:
    return FunctionToolset(methods(number))


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the first tool once, then answer."""
    parts = cast(ModelRequest, messages[-1]).parts
    if any(isinstance(part, UserPromptPart) for part in parts) and info.function_tools:
        name = info.function_tools[0].name
        return ModelResponse([ToolCallPart(name, {'value': 1})])
    return ModelResponse([TextPart('done')])


_MODEL = FunctionModel(_respond)


def run(number: int) -> Call:
    """A run with one tool call, on an agent with that many tools."""
    agent = Agent(_MODEL, toolsets=[_toolset(number)])
    return lambda: agent.run('go')


def factory(number: int) -> Call:
    """The same with new tools for each run, from a factory."""
    agent = Agent(_MODEL)

    def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return _toolset(number)

    agent.toolset(per_run_step=False)(make)
    return lambda: agent.run('go')


def new_agent(number: int) -> Call:
    """The same with a new agent for each run."""
    return lambda: Agent(_MODEL, toolsets=[_toolset(number)]).run('go')


@dataclass
class _Log:
    calls: list[str] = field(default_factory=list[str])


def deps(number: int) -> Call:
    """A run whose state is in its deps."""
    toolset = _toolset(number)

    async def remember(ctx: RunContext[_Log], value: int) -> int:
        """Remember a value."""
        ctx.deps.calls.append(str(value))
        return len(ctx.deps.calls)

    first = FunctionToolset[_Log]([remember])
    agent = Agent(_MODEL, deps_type=_Log, toolsets=[first, cast(Any, toolset)])
    return lambda: agent.run('go', deps=_Log())


@dataclass
class _Remembering(WrapperToolset[Any]):
    """State of a run around tools that have none."""

    stateful: bool = True
    calls: list[str] = field(default_factory=list[str])

    def copy(self) -> _Remembering:
        return replace(self, calls=[])

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.calls.append(name)
        return await super().call_tool(name, tool_args, ctx, tool)


def copy(number: int) -> Call:
    """A run with a copy of a stateful toolset, which wraps that many tools."""
    agent = Agent(_MODEL, toolsets=[_Remembering(_toolset(number))])
    return lambda: agent.run('go')


def scope(number: int) -> Call:
    """The same in a chat whose scope has the copy already."""
    from pydantic_ai.toolsets import ToolsetScopePool

    toolset = _Remembering(_toolset(number))
    agent = Agent(_MODEL, toolsets=[toolset])
    chats = ToolsetScopePool(toolset)

    async def message() -> Any:
        async with chats('chat') as chat:
            return await agent.run('go', toolsets=[chat])

    return message


class _Rebuilding(FunctionToolset[Any]):
    """Tools that are methods of what has the state, so that a copy has to make all of them."""

    stateful = True

    def __init__(self, number: int):
        self.number = number
        super().__init__(methods(number))

    def copy(self) -> _Rebuilding:
        return type(self)(self.number)


def copy_with_tools(number: int) -> Call:
    """A run with a copy of a stateful toolset, which makes that many tools again."""
    agent = Agent(_MODEL, toolsets=[_Rebuilding(number)])
    return lambda: agent.run('go')


def build(number: int) -> Call:
    """Building an agent and its tools, whose functions were made into tools before."""

    async def make() -> None:
        Agent(_MODEL, toolsets=[_toolset(number)])

    return make


def toolsets(number: int) -> Call:
    """A run on an agent with that many toolsets of one tool."""

    def one(index: int) -> AbstractToolset[Any]:
        return _toolset(1).prefixed(f't{index}')

    agent = Agent(_MODEL, toolsets=[one(index) for index in range(number)])
    return lambda: agent.run('go')


def wrappers(number: int) -> Call:
    """A run on an agent with 15 tools in that many wrappers, one around the other."""
    toolset: AbstractToolset[Any] = _toolset(15)
    for _ in range(number):
        toolset = WrapperToolset(toolset)
    agent = Agent(_MODEL, toolsets=[toolset])
    return lambda: agent.run('go')


async def _prepare(ctx: RunContext[Any], definitions: list[ToolDefinition]) -> list[ToolDefinition]:
    return definitions


def prepared(number: int) -> Call:
    """A run on an agent with that many tools, and a capability that prepares them."""
    agent = Agent(_MODEL, toolsets=[_toolset(number)], capabilities=[PrepareTools(_prepare)])
    return lambda: agent.run('go')


def history(number: int) -> Call:
    """A run after that many turns of a conversation."""
    turns: list[ModelMessage] = []
    for index in range(number):
        turns.append(ModelRequest([UserPromptPart(f'question {index}')]))
        turns.append(ModelResponse([TextPart(f'answer {index}')]))
    agent = Agent(_MODEL, toolsets=[_toolset(15)])
    return lambda: agent.run('go', message_history=turns)


def concurrent(number: int) -> Call:
    """That many runs at once; the seconds are those of one."""
    agent = Agent(_MODEL, toolsets=[_toolset(15)])
    return lambda: asyncio.gather(*(agent.run('go') for _ in range(number)))


WORKLOADS: dict[str, Workload] = {
    'run': run,
    'factory': factory,
    'new agent': new_agent,
    'deps': deps,
    'copy': copy,
    'scope': scope,
    'copy with tools': copy_with_tools,
    'build': build,
    'toolsets': toolsets,
    'wrappers': wrappers,
    'prepared': prepared,
    'history': history,
    'concurrent': concurrent,
}

ONE_CALL_IS_MANY = {'concurrent'}
"""Those of which a call is as many operations as the size says."""


async def memory(number: int) -> float:
    """Measure the bytes that each of that many runs holds while all of them wait for the model's second response."""
    waiting = 0
    everyone, go_on = asyncio.Event(), asyncio.Event()

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal waiting
        response = await _respond(messages, info)
        if isinstance(response.parts[0], TextPart):
            waiting += 1
            if waiting == number:
                everyone.set()
            await go_on.wait()
        return response

    agent = Agent(FunctionModel(respond), toolsets=[_toolset(15)])
    await Agent(_MODEL, toolsets=[_toolset(15)]).run('go')  # imports and caches are none of the runs'
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    runs = [asyncio.create_task(agent.run('go')) for _ in range(number)]
    await everyone.wait()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    go_on.set()
    await asyncio.gather(*runs)
    return held / number


async def measure(call: Call, seconds: float, clock: Callable[[], float]) -> list[float]:
    """Call again and again for that many seconds, at least once, and return how many each call took."""
    taken: list[float] = []
    end = clock() + seconds
    for _ in itertools.count():
        start = clock()
        await call()
        taken.append(clock() - start)
        if clock() >= end:
            break
    return taken
