"""Random projects: agents that refer to each other, toolsets of all kinds, failures and cancellations."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import (
    AbstractToolset,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support import calling, this_run
from toolset_first import (
    AgentSpec,
    Answer,
    ApprovalDenied,
    Approvals,
    CallEvent,
    CallRuntime,
    DepthError,
    Question,
    Runtime,
    ToolsetSpec,
    agent_as_toolset,
)
from typing_extensions import Self

Kind = Literal['asked about', 'stateful', 'own for sub-agents', 'factory', 'stateful factory', 'prefixed', 'shared']


class FailedError(Exception):
    """What a step of a random project fails with."""


Path = tuple[int, ...]
RUN: ContextVar[Path] = ContextVar('RUN', default=())
"""The run that the code is in: the numbers of those that enclose it, and its own."""


@dataclass
class World:
    """What all toolsets of a project tell; the same for each copy of them."""

    pauses: int
    entered: list[Recorder] = field(default_factory=list['Recorder'])
    faults: list[str] = field(default_factory=list[str])
    runs: int = 0

    def tell(self, event: CallEvent) -> None:
        """Give each run that starts a number."""
        if event.kind == 'start':
            self.runs += 1
            RUN.set((*RUN.get(), self.runs))


class Recorder(FunctionToolset[CallRuntime]):
    """Notes which runs use it, and that nobody uses it before it is entered or after it is exited."""

    shared_attributes = frozenset({'world'})

    def __init__(self, world: World, name: str, *, many: bool = False) -> None:
        super().__init__()
        self.world = world
        self.name = name
        self.many = many
        self.owner: Path = ()
        self.users: list[Path] = []
        self.open = 0
        self.add_function(self.use, name=f'use_{name}')

    async def use(self, ctx: RunContext[CallRuntime]) -> str:
        """Use it."""
        if not self.open:
            self.world.faults.append(f'{self.name} is used while it is not open.')
        self.users.append(RUN.get())
        for _ in range(self.world.pauses):
            await asyncio.sleep(0)
        if not self.open:
            self.world.faults.append(f'{self.name} was exited while it was used.')
        return 'used'

    async def __aenter__(self) -> Self:
        for _ in range(self.world.pauses):
            await asyncio.sleep(0)
        self.open += 1
        self.owner = RUN.get()
        self.world.entered.append(self)
        if self.open > 1 and not self.many:
            self.world.faults.append(f'{self.name} is entered twice.')
        return self

    async def __aexit__(self, *failure: object) -> None:
        if not self.open:
            self.world.faults.append(f'{self.name} is exited while it is not open.')
            return
        self.open -= 1
        ok = {type(None), FailedError, ApprovalDenied, DepthError, asyncio.CancelledError, GeneratorExit}
        if type(failure[1]) not in ok:
            self.world.faults.append(f'{self.name} is exited with {failure[1]!r}.')
        for _ in range(self.world.pauses):
            await asyncio.sleep(0)


class Stateful(Recorder):
    """Shared with sub-agents."""

    stateful = True

    def copy(self) -> Self:
        return type(self)(self.world, self.name)


class Apart(Stateful):
    """Fresh for each sub-agent."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self.copy()


def toolset(world: World, name: str, kind: Kind) -> ToolsetSpec:
    if kind == 'factory':
        return ToolsetSpec(factory=lambda context: Recorder(world, name))
    if kind == 'stateful factory':
        return ToolsetSpec(factory=lambda context: Stateful(world, name))
    if kind == 'shared':
        return ToolsetSpec(toolset=Recorder(world, name, many=True), shared=True)
    if kind == 'asked about':
        return ToolsetSpec(toolset=Stateful(world, name), approval_config={'use_a': 'ask'})
    made = {'stateful': Stateful, 'own for sub-agents': Apart, 'prefixed': Stateful}[kind]
    one = made(world, name)
    if kind == 'prefixed':
        return ToolsetSpec(toolset=one.prefixed('p'), approval_config={'p_use_f': 'ask'})
    return ToolsetSpec(toolset=one)


KINDS: dict[str, Kind] = {
    'a': 'asked about',
    'b': 'stateful',
    'c': 'own for sub-agents',
    'd': 'factory',
    'e': 'stateful factory',
    'f': 'prefixed',
    'g': 'shared',
}
AGENTS: tuple[str, ...] = ('x', 'y', 'z')
Step = tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A random project, and what happens to it.

    Attributes:
        toolsets: Those of each agent.
        steps: What each agent does: the tools of each response, or `fail`.
        entries: The agents that are called, all at once.
        cancelled: After how many rounds of the loop which of them is cancelled.
        approved: The answers that are given, one after another.
    """

    toolsets: dict[str, frozenset[str]]
    steps: dict[str, list[Step]]
    entries: list[str]
    cancelled: dict[int, int]
    approved: list[bool]
    stop: bool
    pauses: int


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    toolsets: dict[str, frozenset[str]] = {}
    steps: dict[str, list[Step]] = {}
    for agent in AGENTS:
        toolsets[agent] = draw(st.frozensets(st.sampled_from(sorted(KINDS)), max_size=5))
        tools = [f'p_use_{name}' if KINDS[name] == 'prefixed' else f'use_{name}' for name in sorted(toolsets[agent])]
        calls = st.lists(st.sampled_from([*tools, *AGENTS]), min_size=1, max_size=2, unique=True).map(tuple)
        steps[agent] = draw(st.lists(st.one_of(calls, calls, calls, calls, st.just(('fail',))), max_size=3))
    entries = draw(st.lists(st.sampled_from(AGENTS), min_size=1, max_size=3))
    cancelled = draw(st.dictionaries(st.integers(0, len(entries) - 1), st.integers(0, 120), max_size=2))
    return Plan(
        toolsets,
        steps,
        entries,
        cancelled,
        draw(st.lists(st.booleans(), max_size=4)),
        draw(st.booleans()),
        draw(st.integers(0, 2)),
    )


def model(world: World, steps: list[Step]) -> FunctionModel:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(isinstance(message, ModelResponse) for message in this_run(messages))
        await asyncio.sleep(0)
        if done >= len(steps):
            return ModelResponse([TextPart('done')])
        if steps[done] == ('fail',):
            raise FailedError
        return ModelResponse([ToolCallPart(name, {'input': 'Go'} if name in AGENTS else {}) for name in steps[done]])

    return FunctionModel(respond)


async def carry_out(plan: Plan) -> None:
    world = World(pauses=plan.pauses)
    specs = {name: toolset(world, name, kind) for name, kind in KINDS.items()}
    originals = [spec.toolset for spec in specs.values() if spec.toolset]
    answers = iter(plan.approved)

    async def ask(question: Question) -> Answer:
        await asyncio.sleep(0)
        return Answer(next(answers, True))

    agents = [
        AgentSpec(
            agent,
            model=model(world, plan.steps[agent]),
            toolset_specs=[
                *(specs[name] for name in sorted(plan.toolsets[agent])),
                *(agent_as_toolset(other, tool=other) for other in AGENTS),
            ],
        )
        for agent in AGENTS
    ]
    approvals = Approvals(ask=ask, on_denial='stop' if plan.stop else 'tell')
    runtime = Runtime(agents, approvals=approvals, max_depth=3, on_event=world.tell)
    tasks = [asyncio.create_task(runtime.run_entry(calling(name), 'Go')) for name in plan.entries]
    for turn in range(max([*plan.cancelled.values(), 0]) + 1):
        for number, when in plan.cancelled.items():
            if when == turn:
                tasks[number].cancel()
        await asyncio.sleep(0)
    ended = await asyncio.gather(*tasks, return_exceptions=True)

    unexpected = [one for one in ended if isinstance(one, BaseException) and not isinstance(one, EXPECTED)]
    assert unexpected == []
    assert world.faults == []
    assert [one.name for one in world.entered if one.open] == []
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
    for recorder in world.entered:
        if not recorder.many:
            _check_users(recorder)
    for original in originals:
        inner: Any = getattr(original, 'wrapped', original)
        if not inner.many:
            assert (inner.users, inner.open) == ([], 0), f'The original of {inner.name} was used.'


def _check_users(recorder: Recorder) -> None:
    """Fail if another run used it than that which entered it, or one inside of that where it says so."""
    handed_on = KINDS[recorder.name] in ('asked about', 'stateful', 'prefixed')
    for user in recorder.users:
        owner = user[: len(recorder.owner)] if handed_on else user
        assert owner == recorder.owner, f'{recorder.name} of the run {recorder.owner} is used by {user}.'


EXPECTED = (FailedError, ApprovalDenied, DepthError, asyncio.CancelledError)


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_random_projects_share_nothing_that_should_not_be_shared_and_leave_nothing_open(plan: Plan) -> None:
    asyncio.run(carry_out(plan))
