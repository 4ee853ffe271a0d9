"""B39: what a run worked with is freed when the run has ended and nobody refers to it, without Python's cyclic garbage collector."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, ToolsetTool, WrapperToolset
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .delegation import delegating
from .line import IS_1, stream_events
from .toolsets import METHODS, once_per_run, run_as, scripted, tool_of

ALIVE: list[weakref.ref[Any]] = []
"""The toolsets that were made for runs, in this test."""


class Plain(AbstractToolset[Any]):
    """A toolset that has no cycle of its own, and holds something large."""

    stateful = True

    def __init__(self, name: str = 't', fails: BaseException | None = None, policy: str = 'share'):
        self.name = name
        self.fails = fails
        self.policy = policy
        self.values: list[str] = []
        self.data = bytearray(1000)

    @property
    def id(self) -> str:
        return self.name

    def copy(self) -> Self:
        return made(type(self)(self.name, self.fails, self.policy))

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        if self.policy == 'view':
            return made(View(self))
        return self if self.policy == 'share' else self.copy()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {self.name: tool_of(self, self.name)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.values.append(tool_args['value'])
        if self.fails:
            raise type(self.fails)(*self.fails.args)
        return len(self.values)


class View(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def copy(self) -> Self:
        return made(type(self)(self.wrapped.copy()))


def made(toolset: Any) -> Any:
    ALIVE.append(weakref.ref(toolset))
    return toolset


NEEDS_THE_COLLECTOR = {
    ('run_stream', 'model'),
    ('run_stream_events', 'model'),
    ('run_stream_events', 'cancelled'),
    ('run_stream', 'left'),
    ('run_stream_events', 'left'),
}
"""After what the base keeps what a run worked with in a cycle of its own; on 1.x, it always does."""


def check_freed(number: int, method: str = '', how: str = '') -> None:
    """Check that at least so many toolsets were made, and that all of them are gone."""
    if IS_1 or (method, how) in NEEDS_THE_COLLECTOR:
        gc.collect()
    assert len(ALIVE) >= number
    kept = Counter(type(toolset).__name__ for each in ALIVE if (toolset := each()) is not None)
    assert not kept, f'{dict(kept)} of {len(ALIVE)} were not freed'


TOOLSETS: dict[str, Callable[..., list[Any]]] = {
    'alone': lambda **options: [Plain(**options)],
    'in two places': lambda **options: [(t := Plain(**options)), t.prefixed('x'), CombinedToolset([t.prefixed('y')])],
    'combined and renamed': lambda **options: [CombinedToolset([Plain(**options)]).renamed({})],
    'in a wrapper with state': lambda **options: [View(Plain(**options))],
    'beside one for all runs': lambda **options: [Plain(**options), Plain('shared').shared()],
    'a factory': lambda **options: [lambda: made(Plain(**options))],
    'a factory per run': lambda **options: [once_per_run(lambda: made(Plain(**options)))],
    'a factory at each step': lambda **options: [DynamicToolset[Any](lambda ctx: made(Plain(**options)))],
    'a factory of a wrapper': lambda **options: [lambda: made(View(made(Plain(**options))))],
}
toolsets = pytest.mark.parametrize('make', TOOLSETS.values(), ids=TOOLSETS)
ASYNC = [method for method in METHODS if method != 'run_sync']
methods = pytest.mark.parametrize('method', [*METHODS, 'WrapperAgent'])


async def do(agent: Agent[Any, Any], method: str, **options: Any) -> Any:
    if method == 'WrapperAgent':
        return await run_as('run', WrapperAgent[Any, Any](agent), **options)  # pyright: ignore[reportArgumentType]
    return await run_as('run', agent, method, **options)


async def settle(method: str = '', how: str = '') -> None:
    """Let what's on its way out go."""
    for _ in range(20):
        await asyncio.sleep(0)
    if (method, how) in NEEDS_THE_COLLECTOR:
        # It may find generators, which the event loop closes then, and whose errors it finds after that
        gc.collect()
        await settle()
    if method.startswith('run_sync'):
        # A thread lets go of a call, and on Python 3.10 of the frames that raised, after it has handed over the result
        for _ in range(10_000):
            if not any(each() is not None for each in ALIVE):
                break
            await asyncio.sleep(0.001)


@toolsets
@methods
@pytest.mark.parametrize('given', ['agent', 'run', 'override'])
def test_b39_after_success(make: Any, method: str, given: str):
    async def main() -> None:
        several = make()
        agent = Agent(scripted(['t'], ['t']), toolsets=several if given == 'agent' else [])
        for _ in range(3):
            if given == 'override':
                with agent.override(toolsets=several):
                    assert await do(agent, method) == 'done'
            else:
                assert await do(agent, method, **({'toolsets': several} if given == 'run' else {})) == 'done'
        await settle()
        check_freed(3)

    asyncio.run(main())


def clear(error: BaseException | None) -> None:
    """Let go of what an exception and those before it hold: a model's script raises the same one in each run."""
    seen: set[int] = set()
    queue = [error]
    while queue:
        each = queue.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            queue += [each.__context__, each.__cause__, *getattr(each, 'exceptions', ())]
            each.__traceback__ = each.__context__ = each.__cause__ = None


@toolsets
@pytest.mark.parametrize('method', ASYNC)
def test_b39_after_cancellation(make: Any, method: str):
    async def main() -> None:
        reached = asyncio.Event()

        async def wait(value: str) -> None:
            reached.set()
            await asyncio.Event().wait()

        agent = Agent(scripted(['t'], ['wait']), toolsets=make(), tools=[wait])
        for _ in range(3):
            reached.clear()
            task = asyncio.ensure_future(do(agent, method))
            await reached.wait()
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                clear(error)
            del task
        await settle()
        check_freed(3, method, 'cancelled')

    asyncio.run(main())


async def _leave_iter(agent: Any) -> None:
    async with agent.iter('go') as agent_run:
        number = 0
        async for _ in agent_run:
            number += 1
            if number == 3:
                break


async def _leave_stream(agent: Any) -> None:
    async with agent.run_stream('go') as result:
        async for _ in result.stream_text():
            break


async def _leave_events(agent: Any) -> None:
    async with stream_events(agent, 'go') as events:
        async for _ in events:
            break
        if hasattr(events, 'aclose'):
            await events.aclose()  # pyright: ignore[reportAttributeAccessIssue]


LEFT: dict[str, Callable[[Any], Awaitable[None]]] = {
    'iter': _leave_iter,
    'run_stream': _leave_stream,
    'run_stream_events': _leave_events,
}


@toolsets
@pytest.mark.parametrize('method', LEFT)
def test_b39_after_a_run_that_was_left(make: Any, method: str):
    async def main() -> None:
        # Generators of the base fail when they're closed, and what is logged of that is kept for the report of the test
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        agent = Agent(scripted(['t'], ['t']), toolsets=make())
        for _ in range(3):
            await LEFT[method](agent)
        await settle(method, 'left')
        check_freed(1, method, 'left')

    asyncio.run(main())


@pytest.mark.parametrize('policy', ['share', 'own', 'view'])
@pytest.mark.parametrize('method', [*ASYNC, 'run_sync in a sync tool', 'task', 'gather'])
@pytest.mark.parametrize('handed', [False, True])
def test_b39_after_sub_agents(policy: str, method: str, handed: bool):
    async def main() -> None:
        plain = Plain(policy=policy)
        given = [] if handed else [plain]
        options = lambda ctx: {'toolsets': ctx.for_sub_agent(plain)} if handed else {}
        grandchild = Agent(scripted(['t']), toolsets=given)
        inner = delegating(grandchild, method, options=options)
        child = Agent(scripted(['t'], ['delegate']), toolsets=[*given, inner])
        agent = Agent(
            scripted(['t'], ['delegate'], ['t']), toolsets=[plain, delegating(child, method, options=options)]
        )
        for _ in range(3):
            assert await run_as('run', agent) == 'done'
        await settle(method)
        check_freed(3)

    asyncio.run(main())


# What a run leaves to the garbage collector


def unreachable_after(run: Callable[[], Awaitable[Any]]) -> int:
    """Count the objects that a run leaves to the garbage collector, once all that is made once has been made."""

    async def main() -> int:
        for _ in range(3):
            await run()
        await settle()
        gc.collect()
        await run()
        await settle()
        return gc.collect()

    return asyncio.run(main())


def t() -> str:
    return 't'


KINDS: dict[str, Callable[[], list[Any]]] = {
    'nothing': list,
    'a toolset for all runs': lambda: [shared_by_all()],
    'stateful': lambda: [Plain()],
    'in two places': lambda: [(t := Plain()), t.prefixed('x')],
    'wrapped and combined': lambda: [CombinedToolset([View(Plain()).filtered(lambda ctx, tool_def: True)])],
    'a factory': lambda: [lambda: Plain()],
    'shared': lambda: [Plain().shared()],
}


def shared_by_all() -> Plain:
    plain = Plain()
    plain.stateful = False
    return plain


@pytest.mark.parametrize('make', KINDS.values(), ids=KINDS)
@pytest.mark.parametrize('method', ASYNC)
def test_b39_run_leaves_no_more_to_the_garbage_collector_than_on_the_base(make: Any, method: str):
    if IS_1 and method == 'iter' and sys.version_info < (3, 11):
        pytest.skip('There, the base keeps the run and all that it holds in a cycle.')
    several = make()
    steps = [['t']] if several else []
    agent, plain = Agent(scripted(*steps), toolsets=several), Agent(scripted(*steps), tools=[t])
    # The nodes of a run make cycles of their own
    assert unreachable_after(lambda: do(agent, method)) <= unreachable_after(lambda: do(plain, method))


@pytest.mark.parametrize('policy', ['share', 'own', 'view'])
def test_b39_sub_agent_leaves_no_more_to_the_garbage_collector_than_another_run(policy: str):
    plain = Plain(policy=policy)
    child = Agent(scripted(['t']), toolsets=[plain])
    agent = Agent(scripted(['t'], ['delegate']), toolsets=[plain, delegating(child)])
    other = Agent(scripted(['t']), tools=[t])
    others = Agent(scripted(['t'], ['delegate']), tools=[t], toolsets=[delegating(other)])
    assert unreachable_after(lambda: do(agent, 'run')) <= unreachable_after(lambda: do(others, 'run'))
