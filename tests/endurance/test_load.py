"""Many runs of one agent, at once and one after another: nothing crosses from one to another, and nothing is left of them."""

from __future__ import annotations

import asyncio
import resource
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import cycle, islice
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from typing_extensions import Self

from ..fork.toolsets import RUN, run_as
from .leaks import held, kept
from .orders import Orders, connections, ordered
from .sessions import TOOLS, Audit, Ledger, five

pytestmark = pytest.mark.anyio

Figures = Callable[[str], Counter[str]]
Progress = Callable[[int, int], None]
COPIES = 6
"""How many copies a run has of the toolsets of `five()`."""


class Boom(Exception):
    """What the tests raise."""


def deciding(decide: Callable[[int], Awaitable[Sequence[str]]]) -> FunctionModel:
    """Make a model of which a function decides what tools it calls, by how often it has responded. None means that it's done.

    The calls have the same IDs in each run.
    """

    async def names(messages: list[ModelMessage]) -> Sequence[str]:
        return await decide(sum(isinstance(message, ModelResponse) for message in messages))

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = [
            ToolCallPart(name, {'value': RUN.get()}, tool_call_id=f'{len(messages)}_{index}')
            for index, name in enumerate(await names(messages))
        ]
        return ModelResponse(parts=[*calls] or [TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        calls = await names(messages)
        for index, name in enumerate(calls):
            args = f'{{"value": "{RUN.get()}"}}'
            yield {index: DeltaToolCall(name, args, tool_call_id=f'{len(messages)}_{index}')}
        if not calls:
            yield 'done'

    return FunctionModel(respond, stream_function=stream)


def check(row: Counter[str], ledger: Ledger, left: Counter[str]) -> None:
    """Put what was found into the table, and check that nothing is lost."""
    row.update(entered=ledger.entered, exited=ledger.exited, crossed=ledger.crossed, **left)
    assert ledger.wrong == []
    assert ledger.entered == ledger.exited == row['runs'] * COPIES
    assert ledger.in_use == {}
    assert ledger.crossed == 0
    for original in ledger.originals:
        assert getattr(original, 'log' if isinstance(original, Audit) else 'values') == []
    # Caches fill up. A toolset that is left is more than ten objects, with what it holds.
    assert left['objects'] < 1_000 + row['runs'] // 2
    assert (left['tasks'], left['descriptors'], left['processes'], left['connections']) == (0, 0, 0, 0)


@pytest.fixture
def many_descriptors() -> None:
    """Allow as many open files as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def run_at_once(number: int, ledger: Ledger, **options: Any) -> None:
    """Do so many runs of one agent with options, in each way and some in others, none of which ends before all have begun."""
    begun = 0
    everyone = asyncio.Event()

    async def again(value: str) -> str:
        return await run_as(f'{value}.inner', agent, **options)

    async def decide(step: int) -> Sequence[str]:
        nonlocal begun
        begun += step == 0
        if begun == number:
            everyone.set()
        calls_itself = RUN.get().startswith('done-itself') and not RUN.get().endswith('inner')
        if calls_itself and step == 0:
            return ['again']
        await everyone.wait()
        return TOOLS if step == calls_itself else []

    agent = Agent(deciding(decide), toolsets=[*five(ledger), FunctionToolset([again])])
    ways = ['run', 'iter', 'run_stream', 'run_stream_events']
    share = number // 5
    await asyncio.gather(
        *(run_as(f'done-{way}-{index}', agent, way, **options) for way in ways for index in range(share)),
        *(run_as(f'done-itself-{index}', agent, **options) for index in range(share // 2)),  # each of which is two runs
    )


@pytest.mark.usefixtures('without_garbage_collection', 'many_descriptors')
async def test_load_runs_at_once_share_nothing_and_leave_nothing(full: bool, figures: Figures) -> None:
    number = 10_000 if full else 200
    await run_at_once(number, Ledger())  # fills caches, whose size depends on how many are alive
    ledger = Ledger()
    row = figures('Runs at once')
    await held()
    before = await held()

    await run_at_once(number, ledger)

    left = kept(before, await held())
    del left['kilobytes']  # how much the allocator gives back is its own affair
    row.update(runs=number, faults=0)
    check(row, ledger, left)


@pytest.mark.usefixtures('without_garbage_collection', 'many_descriptors')
async def test_load_runs_at_once_with_equal_ids_share_nothing(full: bool, figures: Figures) -> None:
    number = 2_000 if full else 100
    options = {'run_id': 'the same'}
    await run_at_once(number, Ledger(), **options)
    ledger = Ledger()
    row = figures('Runs at once with the same run ID and the same tool call IDs')
    await held()
    before = await held()

    await run_at_once(number, ledger, **options)

    left = kept(before, await held())
    del left['kilobytes']
    row.update(runs=number, faults=0)
    check(row, ledger, left)


# How runs of the same agent end, in turn. `run_stream_events` isn't cancelled: on 1.x its run goes on in the background.
ENDS = [
    ('run', 'done'),
    ('iter', 'done'),
    ('run_stream', 'done'),
    ('run_stream_events', 'done'),
    ('run_sync', 'done'),
    ('run', 'tool'),
    ('iter', 'model'),
    ('run_stream', 'tool'),
    ('run', 'cancelled'),
    ('iter', 'cancelled'),
]


async def run_one_after_another(number: int, ledger: Ledger, progress: Progress) -> tuple[int, int]:
    """Do so many runs of one agent, of which some fail or are cancelled.

    Returns:
        How many do, and the most tasks that were pending after any run.
    """

    async def decide(step: int) -> Sequence[str]:
        if step == 0:
            return TOOLS
        end = RUN.get().partition('-')[0]
        if end == 'model':
            raise Boom
        return [] if end == 'done' else [end]

    async def tool(value: str) -> None:
        raise Boom

    async def cancelled(value: str) -> None:
        hanging.set()
        await asyncio.Event().wait()

    hanging = asyncio.Event()
    before = len(asyncio.all_tasks())
    pending = 0
    ended: Counter[str] = Counter()
    agent = Agent(deciding(decide), toolsets=[*five(ledger), FunctionToolset([tool, cancelled])])
    for index, (way, end) in enumerate(islice(cycle(ENDS), number)):
        task = asyncio.create_task(run_as(f'{end}-{index}', agent, way))
        if end == 'cancelled':
            await hanging.wait()
            hanging.clear()
            task.cancel()
        try:
            await task
            ended['done'] += 1
        except Boom:
            ended['failed'] += 1
        except asyncio.CancelledError:
            ended['cancelled'] += 1
        await asyncio.sleep(0)
        pending = max(pending, len(asyncio.all_tasks()) - before)
        progress(index + 1, number)
    assert ended == {'done': number // 2, 'failed': number * 3 // 10, 'cancelled': number // 5}
    return ended['failed'] + ended['cancelled'], pending


@pytest.mark.usefixtures('many_descriptors')
async def test_load_runs_one_after_another_share_nothing_and_leave_nothing(
    full: bool, figures: Figures, progress: Progress
) -> None:
    number = 100_000 if full else 300
    await run_one_after_another(1_000 if full else 100, Ledger(), progress)  # fills caches
    ledger = Ledger()
    row = figures('Runs one after another')
    await held()
    before = await held()

    faults, pending = await run_one_after_another(number, ledger, progress)

    left = kept(before, await held())
    row.update(runs=number, faults=faults, pending=pending)
    check(row, ledger, left)
    assert pending == 0
    assert left['kilobytes'] < 4_000 + number // 10


class Echo(FunctionToolset[Any]):
    """Holds a process."""

    stateful = True
    process: Process

    def __init__(self) -> None:
        super().__init__([self.echo])

    def copy(self) -> Self:
        return type(self)()

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec('cat', stdin=PIPE, stdout=PIPE)
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.process.communicate(b'')  # without input, Python 3.11 and older don't close it

    async def echo(self, value: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f'{value}\n'.encode())
        return (await self.process.stdout.readline()).decode().strip()


async def test_load_runs_with_processes_and_transactions_leave_none(
    full: bool, figures: Figures, progress: Progress, database: str
) -> None:
    async def decide(step: int) -> Sequence[str]:
        end = RUN.get().partition('-')[0]
        return ['order', 'echo'] if step == 0 else [] if end == 'done' else [end]

    async def tool(value: str) -> None:
        raise Boom

    async def cancelled(value: str) -> None:
        tasks[value].cancel()
        await asyncio.Event().wait()

    toolsets = [Orders(database, 'load'), Echo(), FunctionToolset([tool, cancelled])]
    agent = Agent(deciding(decide), toolsets=toolsets)
    number = 1_000 if full else 20
    names = [f'{end}-{index:03}' for index, end in zip(range(number), cycle(['done', 'tool', 'done', 'cancelled']))]
    tasks: dict[str, asyncio.Task[Any]] = {}
    row = figures('Runs with a process and a transaction each, ten at once')
    before = await held()
    for begin in range(0, number, 10):
        tasks = {name: asyncio.create_task(run_as(name, agent)) for name in names[begin : begin + 10]}
        for name, outcome in zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True):
            assert outcome == 'done' if name.startswith('done') else isinstance(outcome, (Boom, asyncio.CancelledError))
        progress(begin + 10, number)
    tasks.clear()

    left = kept(before, await held())
    done = [name for name in names if name.startswith('done')]
    row.update(runs=number, faults=number - len(done))
    row.update({name: left[name] for name in ('tasks', 'descriptors', 'processes', 'connections')})
    row['connections'] += await connections(database, 'load')
    assert await ordered(database) == done
    assert (row['tasks'], row['descriptors'], row['processes'], row['connections']) == (0, 0, 0, 0)
