"""Random trees of toolsets, run by agents in random ways while random things fail.

The toolsets write down what happens to them, under the name of the run that it happens in. What must be true of these
notes follows from the contract alone: which copy a run works with (B6, B7), that each toolset that was entered is exited
once and in reverse order (B5, B8, B14), that exits got the right exception (B5), what `async with agent` enters (B9), and how
often factories are called (B12).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, cast

from hypothesis import event, given, note
from hypothesis import strategies as st
from pydantic_ai import (
    AbstractToolset,
    Agent,
    DeferredToolRequests,
    ExternalToolset,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolsetTool,
    UsageLimits,
    WrapperToolset,
)
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.toolsets import CombinedToolset, per_run
from typing_extensions import Self

from .line import (
    CANCELLED,
    EVENTS_KEEP_CONTEXT,
    HAS_FOR_RUN,
    TOOL_OPTIONS,
    WRAPPERS,
    DynamicToolset,
    HandWrittenBase,
    stream_events,
)
from .toolsets import RUN, SUCCESS, Event, Journal, Server, Session

AGENT = 'agent'
"""The name under which the toolsets note what `async with agent` does."""

FIGURES: Counter[str] = Counter()
"""What was done in all examples, for the table of `tests/endurance`, which says what counts there are."""


# What a tree is: plain data, which hypothesis draws and prints


@dataclass(frozen=True)
class Leaf:
    """A toolset that contains no other."""

    kind: str


@dataclass(frozen=True)
class Alias:
    """A toolset that stands elsewhere in the tree too: the one that was made that many places before."""

    back: int


@dataclass(frozen=True)
class Wrap:
    """A wrapper."""

    kind: str
    inner: Tree


@dataclass(frozen=True)
class Combine:
    """A combination."""

    inner: tuple[Tree, ...]


@dataclass(frozen=True)
class Dynamic:
    """A factory, which returns these in turn. `'again'` is what it returned before."""

    results: tuple[Tree | str | None, ...]
    called: str
    wait: bool


Tree = Leaf | Alias | Wrap | Combine | Dynamic

LEAVES = ['server', 'session', 'functions', 'counting functions', 'external']
WRAPPER_KINDS = [*WRAPPERS, 'asks', 'hides', 'prepares', 'audit', 'straight']


CALLED = ['at each step', 'at the first step', 'without context', 'class']
"""When and as what a factory is called. All but the first kind are called once per run."""


def trees(leaves: st.SearchStrategy[Tree], size: int) -> st.SearchStrategy[Tree]:
    """Draw trees with these leaves, and at most that many."""

    def extend(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.builds(Wrap, st.sampled_from(WRAPPER_KINDS), inner) | st.builds(
            Combine, st.lists(inner, max_size=3).map(tuple)
        )

    return st.recursive(leaves, extend, max_leaves=size)


def dynamics(results: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Draw factories with these results."""
    any_result = results | st.none() | st.just('again')
    several = st.lists(any_result, min_size=1, max_size=3).map(tuple)
    return st.builds(Dynamic, several, st.sampled_from(CALLED), st.booleans())


simple: st.SearchStrategy[Tree] = st.builds(Leaf, st.sampled_from(LEAVES))
made_by_factories = trees(simple | dynamics(trees(simple, 2)), 3)
wired = trees(simple | st.builds(Alias, st.integers(1, 8)) | dynamics(made_by_factories), 6)


# What happens to it


@dataclass(frozen=True)
class Plan:
    """What a run does, and what fails in it."""

    method: str = 'run'
    steps: tuple[tuple[int, ...], ...] = ()
    """For each step the tools that the model calls, as numbers among those it is offered."""
    pauses: tuple[int, ...] = (0,)
    """How often each await lets others run."""
    faults: tuple[tuple[str, int], ...] = ()
    """What raises: the second call of its kind, for example."""
    cancel_at: int | None = None
    """The await at which the run is cancelled, among those of the toolsets and the model."""
    cancel_after: int | None = None
    """How often the event loop goes round until the run is cancelled, wherever it is then."""
    request_limit: int | None = None


KINDS = ['copy', 'enter', 'get_tools', 'call', 'exit', 'factory', 'model', 'body']

plans = st.builds(
    Plan,
    method=st.sampled_from(['run', 'iter', 'run_stream', 'run_stream_events']),
    steps=st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), max_size=3).map(tuple),
    pauses=st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple),
    faults=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 4)), max_size=2).map(tuple),
    cancel_at=st.none() | st.none() | st.integers(1, 30),
    cancel_after=st.none() | st.none() | st.integers(0, 50),
    request_limit=st.none() | st.none() | st.integers(1, 2),
)
agent_plans = st.builds(
    Plan,
    pauses=st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple),
    faults=st.lists(st.tuples(st.sampled_from(['enter', 'exit', 'body']), st.integers(1, 3)), max_size=2).map(tuple),
)


@dataclass(frozen=True)
class Scenario:
    """An agent, its toolsets and its runs."""

    of_agent: tuple[Tree, ...]
    of_run: tuple[Tree, ...]
    override: bool
    """Whether all of them are given to `override()` instead."""
    rounds: tuple[tuple[Plan, ...], ...]
    """The runs: those of a round at the same time, the rounds one after another."""
    around: Plan | None
    """What happens to `async with agent` around the runs, if there is one."""


def scenarios() -> st.SearchStrategy[Scenario]:
    return st.builds(
        Scenario,
        st.lists(wired, max_size=3).map(tuple),
        st.lists(wired, max_size=2).map(tuple),
        st.integers(0, 3).map(lambda number: number == 3),
        st.lists(st.lists(plans, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
        st.none() | st.none() | agent_plans,
    )


class Boom(Exception):
    """What the scenarios raise."""


@dataclass
class Faulty(Journal):
    """A journal in which the things that it is told of fail as planned."""

    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict[str, 'asyncio.Task[Any]'])
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict[str, Counter[str]](Counter))

    def fail_if_planned(self, kind: str, toolset: Any) -> None:
        plan, counts = self.plans[RUN.get()], self.counts[RUN.get()]
        counts[kind] += 1
        if (kind, counts[kind]) in plan.faults:
            error = Boom(RUN.get(), kind, counts[kind])
            self.note('fault', toolset, kind, error)
            raise error

    def instant(self, kind: str, toolset: Any) -> None:
        self.fail_if_planned(kind, toolset)

    async def moment(self, kind: str, toolset: Any) -> None:
        plan, counts = self.plans[RUN.get()], self.counts[RUN.get()]
        counts['moment'] += 1
        pauses = plan.pauses[counts['moment'] % len(plan.pauses)]
        if counts['moment'] == plan.cancel_at and plan.method != 'run_stream_events':
            self.cancel()
            pauses += 1
        try:
            for _ in range(pauses):
                await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self.note('fault', toolset, kind, error)
            raise
        self.fail_if_planned(kind, toolset)

    def cancel(self) -> None:
        """Cancel the run that the caller is in, if it's still under way."""
        task = self.tasks[RUN.get()]
        if not task.done():
            self.note('cancel', None)
            task.cancel()


# The toolsets, besides `Server` and `Session`. They have `name`, `journal`, `original` and `values` as these do


class Functions(FunctionToolset[Any]):
    """A toolset that runs share, with a function as its tool."""

    def __init__(self, name: str, journal: Journal):
        super().__init__(max_retries=0)
        self.name = name
        self.journal = journal
        self.original: Functions = self
        self.values: list[str] = []
        self.add_function(self.answer, name=name)

    async def answer(self, value: str) -> list[str]:
        await self.journal.moment('call', self)
        self.journal.note('call', self)
        self.values.append(value)
        return list(self.values)

    async def __aenter__(self) -> Self:
        await self.journal.moment('enter', self)
        self.journal.note('enter', self)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.journal.note('exit', self, *args)
        await self.journal.moment('exit', self)
        return True  # which must not make a difference

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self.journal.moment('get_tools', self)
        self.journal.note('get_tools', self)
        return await super().get_tools(ctx)


class CountingFunctions(Functions):
    """The same with state that belongs to one run, declared by the instance."""

    def __init__(self, name: str, journal: Journal):
        super().__init__(name, journal)
        self.stateful = True

    def copy(self) -> Self:
        self.journal.instant('copy', self)
        copy = type(self)(self.name, self.journal)
        copy.original = self.original
        self.journal.note('copy', self, copy)
        return copy


class WithState(AbstractToolset[Any]):
    """What wrappers with state of their own have in common."""

    stateful = True
    name: str
    journal: Journal
    original: Any

    @property
    def inside(self) -> AbstractToolset[Any]:
        raise NotImplementedError

    def remember(self, name: str, journal: Journal) -> None:
        self.name = name
        self.journal = journal
        self.original = self
        self.values: list[str] = []

    def copy(self) -> Self:
        self.journal.instant('copy', self)
        return self.copy_around(self.inside.copy())

    def copy_around(self, inside: AbstractToolset[Any]) -> Self:
        copy = type(self)(inside, self.name, self.journal)  # pyright: ignore[reportCallIssue]
        copy.original = self.original
        self.journal.note('copy', self, copy)
        return copy

    async def __aenter__(self) -> Self:
        await self.journal.moment('enter', self)
        await self.inside.__aenter__()
        self.journal.note('enter', self)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.journal.note('exit', self, *args)
        try:
            await self.journal.moment('exit', self)
        except BaseException as error:
            mine = (type(error), error, error.__traceback__)
            await self.inside.__aexit__(*(mine if args == SUCCESS else args))
            raise
        return await self.inside.__aexit__(*args)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self.journal.moment('get_tools', self)
        self.journal.note('get_tools', self)
        return await self.inside.get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        await self.journal.moment('call', self)
        self.journal.note('call', self)
        self.values.append(tool_args['value'])
        return await self.inside.call_tool(name, tool_args, ctx, tool)


class Audit(WithState, WrapperToolset[Any]):
    """A wrapper with state of its own that derives from `WrapperToolset`."""

    def __init__(self, wrapped: AbstractToolset[Any], name: str, journal: Journal):
        super().__init__(wrapped)
        self.remember(name, journal)

    @property
    def inside(self) -> AbstractToolset[Any]:
        return self.wrapped


class Straight(WithState, HandWrittenBase):
    """One that's written straight on `AbstractToolset`."""

    def __init__(self, inner: AbstractToolset[Any], name: str, journal: Journal):
        self.inner = inner
        self.remember(name, journal)

    @property
    def id(self) -> str | None:
        return None

    @property
    def inside(self) -> AbstractToolset[Any]:
        return self.inner

    if HAS_FOR_RUN:

        async def for_run(self: Any, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            self.journal.instant('copy', self)
            return self.copy_around(await self.inner.for_run(ctx))

        async def for_run_step(self: Any, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            self.inner = await self.inner.for_run_step(ctx)
            return self


LEAF_CLASSES: dict[str, Callable[[str, Journal], Any]] = {
    'server': Server,
    'session': Session,
    'functions': Functions,
    'counting functions': CountingFunctions,
}
STATE_CLASSES: dict[str, Callable[[AbstractToolset[Any], str, Journal], Any]] = {'audit': Audit, 'straight': Straight}


@dataclass
class World:
    """The toolsets of a scenario, and the journal that they write into."""

    journal: Faulty
    numbers: Iterator[int] = field(default_factory=count)
    places: list[AbstractToolset[Any]] = field(default_factory=list[AbstractToolset[Any]])
    """The toolsets that were wired, in the order in which they were made."""
    originals: list[Any] = field(default_factory=list[Any])
    """The stateful ones among them."""
    shared: list[Any] = field(default_factory=list[Any])
    """Those that runs share."""
    factory_of: dict[int, int] = field(default_factory=dict[int, int])
    """For a toolset that a factory has made, by `id`, a number for that call of the factory."""
    kept: list[Any] = field(default_factory=list[Any])
    """Keeps these alive, so that no other object gets the `id`."""

    def build(self, tree: Tree, factory: int | None = None) -> AbstractToolset[Any]:
        """Make the toolsets of a tree, for the agent or in a call of a factory."""
        match tree:
            case Alias(back):
                if factory is not None or not self.places:
                    return self.build(Leaf('server'), factory)
                return self.places[-back % len(self.places)].prefixed(f'p{next(self.numbers)}')
            case Leaf('external'):
                toolset = ExternalToolset[Any]([ToolDefinition(name=f't{next(self.numbers)}', **TOOL_OPTIONS)])
            case Leaf(kind):
                toolset = LEAF_CLASSES[kind](f't{next(self.numbers)}', self.journal)
                self.register(toolset, factory)
            case Combine(inner):
                toolset = CombinedToolset([self.build(each, factory) for each in inner])
            case Dynamic(called='at each step'):
                toolset = DynamicToolset(self.factory(tree, factory))
            case Dynamic():
                toolset = per_run(self.factory(tree, factory))
            case Wrap(kind, inner):
                toolset = self.wrap(kind, self.build(inner, factory), factory)
        if factory is None:
            self.places.append(toolset)
        return toolset

    def item(self, tree: Tree) -> Any:
        """Make what stands in a list of toolsets: for a factory that is itself, if that means the same."""
        if isinstance(tree, Dynamic) and tree.called != 'at the first step':
            return self.factory(tree, None)
        return self.build(tree)

    def register(self, toolset: Any, factory: int | None) -> None:
        if factory is not None:
            self.factory_of[id(toolset)] = factory
            self.kept.append(toolset)
        elif toolset.stateful if isinstance(toolset, CountingFunctions) else isinstance(toolset, Session | WithState):
            self.originals.append(toolset)
        else:
            self.shared.append(toolset)

    def wrap(self, kind: str, inner: AbstractToolset[Any], factory: int | None) -> AbstractToolset[Any]:
        async def prepare(ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
            await self.journal.moment('get_tools', None)
            return tool_defs

        if kind in STATE_CLASSES:
            toolset = STATE_CLASSES[kind](inner, f'w{next(self.numbers)}', self.journal)
            self.register(toolset, factory)
            return toolset
        if kind == 'asks':
            return inner.approval_required()
        if kind == 'hides':
            return inner.filtered(lambda ctx, tool_def: ctx.run_step % 2 == 1)
        if kind == 'prepares':
            return inner.prepared(prepare)
        return WRAPPERS[kind](inner)

    def factory(self, tree: Dynamic, made_by: int | None) -> Callable[..., Any]:
        """Make a factory, for the agent or in a call of another one. What it remembers, it remembers for each run."""
        returned: dict[str, list[AbstractToolset[Any] | None]] = defaultdict(list)

        def make() -> AbstractToolset[Any] | None:
            assert RUN.get() != AGENT, '`async with agent` called a factory'
            before = returned[RUN.get()]
            # Where it stands twice, the second place may call it again when the first has failed, until that has cancelled it.
            failed = any(happened.run == RUN.get() for happened in self.journal.of('fault'))
            if made_by is None and tree.called != 'at each step' and not failed:
                assert not before, f'a factory was called twice in a run, though it is called {tree.called}'
            result = tree.results[len(before) % len(tree.results)]
            if result == 'again':
                made = before[-1] if before else None
            elif result is None:
                made = None
            else:
                made = self.build(cast(Tree, result), next(self.numbers))
            before.append(made)
            return made

        def sync(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
            self.journal.instant('factory', None)
            return make()

        async def wait(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
            await self.journal.moment('factory', None)
            return make()

        class Made(WrapperToolset[Any]):
            def __init__(self, wrapped: AbstractToolset[Any] | None = None):
                super().__init__(wrapped or sync(cast(Any, None)) or ExternalToolset[Any]([]))

        if tree.called == 'class':
            return Made
        function = wait if tree.wait else sync
        return partial(function, cast(Any, None)) if tree.called == 'without context' else function

    def is_wired(self, toolset: Any) -> bool:
        """Say whether a toolset is one that was wired, or a copy of one, rather than made by a factory."""
        return id(toolset.original) not in self.factory_of

    def entered_by_agent(self, tree: Sequence[AbstractToolset[Any]]) -> Iterator[Any]:
        """Find what `async with agent` has to enter: what isn't stateful, in combinations and the line's wrappers.

        Factories that stand in the list themselves are none of these.
        """
        for toolset in tree:
            if isinstance(toolset, CombinedToolset):
                yield from self.entered_by_agent(toolset.toolsets)
            elif isinstance(toolset, WrapperToolset) and not isinstance(toolset, Audit):
                yield from self.entered_by_agent([toolset.wrapped])
            elif toolset in self.shared:
                yield toolset


def model_of(journal: Faulty) -> FunctionModel:
    """Make the model of all runs, which follows the plan of the run that asks."""

    async def choose(messages: list[ModelMessage], info: AgentInfo) -> list[str]:
        await journal.moment('model', None)
        plan = journal.plans[RUN.get()]
        step = sum(isinstance(message, ModelResponse) for message in messages)
        names = sorted(tool_def.name for tool_def in info.function_tools)
        if step >= len(plan.steps) or not names:
            return []
        return [names[number % len(names)] for number in plan.steps[step]]

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        names = await choose(messages, info)
        return ModelResponse(parts=[ToolCallPart(name, {'value': RUN.get()}) for name in names] or [TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        names = await choose(messages, info)
        if not names:
            yield 'done'
        for index, name in enumerate(names):
            call_id = f'{len(messages)}_{index}'
            yield {index: DeltaToolCall(name, json.dumps({'value': RUN.get()}), tool_call_id=call_id)}

    return FunctionModel(respond, stream_function=stream)


async def run_to_the_end(agent: Agent[Any, Any], plan: Plan, journal: Faulty, options: dict[str, Any]) -> None:
    options = {**options, 'usage_limits': UsageLimits(request_limit=plan.request_limit)}
    if plan.method == 'run':
        await agent.run('go', **options)
    elif plan.method == 'iter':
        async with agent.iter('go', **options) as agent_run:
            async for _ in agent_run:
                await journal.moment('body', None)
    elif plan.method == 'run_stream':
        async with agent.run_stream('go', **options) as result:
            await journal.moment('body', None)
            await result.get_output()
    else:
        async with stream_events(agent, 'go', **options) as events:
            async for _ in events:
                pass


async def run_planned(
    agent: Agent[Any, Any], name: str, journal: Faulty, options: dict[str, Any]
) -> BaseException | None:
    """Do a run as planned, in a task of its own, and return what it raised."""

    async def cancel_later() -> None:
        for _ in range(plan.cancel_after or 0):
            await asyncio.sleep(0)
        journal.cancel()

    plan = journal.plans[name]
    RUN.set(name)
    journal.tasks[name] = cast('asyncio.Task[Any]', asyncio.current_task())
    canceller: asyncio.Task[None] | None = None
    if plan.cancel_after is not None and plan.method != 'run_stream_events':
        canceller = asyncio.create_task(cancel_later())
    try:
        await run_to_the_end(agent, plan, journal, options)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (the outcome is what is checked)
        return error
    finally:
        if canceller:
            canceller.cancel()
    return None


async def play(scenario: Scenario) -> tuple[World, list[Any], dict[str, BaseException | None]]:
    """Make the toolsets of a scenario and do its runs.

    Returns:
        The toolsets with their journal, what the agent was given, and what each run raised.
    """
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # of tasks that the base leaves behind
    journal = Faulty()
    world = World(journal)
    first = world.build(Leaf('server'))
    of_agent = [first, *map(world.item, scenario.of_agent)]
    of_run = list(map(world.item, scenario.of_run))
    of_run.append(world.build(Leaf('server')))  # is exited first, which tells when exiting begins
    rounds = [[f'run{index}.{number}' for number in range(len(names))] for index, names in enumerate(scenario.rounds)]
    for names, planned in zip(rounds, scenario.rounds, strict=True):
        journal.plans.update(zip(names, planned, strict=True))
    journal.plans[AGENT] = scenario.around or Plan()
    outcomes: dict[str, BaseException | None] = {}

    async def do_rounds() -> None:
        for names in rounds:
            runs = [asyncio.create_task(run_planned(agent, name, journal, options)) for name in names]
            outcomes.update(zip(names, await asyncio.gather(*runs), strict=True))

    options: dict[str, Any] = {} if scenario.override else {'toolsets': of_run}
    agent = Agent(
        model_of(journal),
        output_type=[str, DeferredToolRequests],
        toolsets=[] if scenario.override else of_agent,
    )
    has = [*of_agent, *of_run] if scenario.override else of_agent
    with ExitStack() as stack:
        if scenario.override:
            stack.enter_context(agent.override(toolsets=has))
        RUN.set(AGENT)
        if scenario.around is None:
            await do_rounds()
        else:
            try:
                async with agent:
                    await journal.moment('body', None)
                    await do_rounds()
                    await journal.moment('body', None)
            except Boom as error:
                outcomes[AGENT] = error
            else:
                outcomes[AGENT] = None
    for _ in range(30):  # in which what a run has left behind does its damage
        await asyncio.sleep(0)
    return world, has, outcomes


# What must be true of the journal


def errors_of(events: Sequence[Event]) -> list[BaseException]:
    return [event.got[1] for event in events]


def contexts_of(error: BaseException | None) -> list[BaseException]:
    """Return an exception and those in whose context it was raised."""
    found: list[BaseException] = []
    while error is not None:
        assert error not in found, f'{error!r} is in its own context'
        found.append(error)
        error = error.__context__
    return found


def same(one: BaseException | None, other: BaseException | None) -> bool:
    """Say whether two exceptions are one. A cancellation is made anew on its way from task to task."""
    return one is other or (isinstance(one, asyncio.CancelledError) and isinstance(other, asyncio.CancelledError))


def check_isolation(world: World) -> None:
    """Check that nothing happened to originals, and that each run worked with one copy of each."""
    copies: dict[tuple[int, str], Any] = {}
    for happened in world.journal.of('copy'):
        original, (copy,) = happened.toolset, happened.got
        if not world.is_wired(original):
            continue
        assert original.original is original, 'a copy was copied'
        assert (id(original), happened.run) not in copies, 'an original was copied twice in a run'
        copies[id(original), happened.run] = copy
    assert len({id(copy) for copy in copies.values()}) == len(copies), 'two runs have the same copy'
    for happened in world.journal.of('enter', 'exit', 'get_tools', 'call'):
        if happened.toolset.original in world.originals:
            assert happened.toolset is copies.get((id(happened.toolset.original), happened.run)), (
                'not the copy of the run'
            )
        elif world.is_wired(happened.toolset) or not isinstance(happened.toolset, Audit):
            # A wrapper that a factory has made may be made anew, around the dynamic toolsets inside as they're built for the run.
            assert happened.toolset.original is happened.toolset, 'what is shared was copied'
    for original in world.originals:
        assert original.values == [], 'an original has state'
    for (_, run), copy in copies.items():
        assert set(copy.values) <= {run}, 'a value has crossed from one run to another'


def check_balance(world: World, events: Sequence[Event], succeeded: bool) -> None:
    """Check that what a run entered it exited, in reverse order, and that it used nothing before or after."""
    stacks: dict[int | None, list[Any]] = defaultdict(list)
    times: Counter[int] = Counter()
    for happened in events:
        if happened.kind not in ('enter', 'exit', 'get_tools', 'call'):
            continue
        toolset = happened.toolset
        stack = stacks[world.factory_of.get(id(toolset.original))]
        if happened.kind == 'enter':
            times[id(toolset)] += 1
            stack.append(toolset)
        elif happened.kind == 'exit':
            assert toolset in stack, f'{toolset.name} was exited without having been entered'
            assert stack.pop() is toolset, f'{toolset.name} was not exited in reverse order of entry'
        elif succeeded:
            assert toolset in stack, f'{toolset.name} was used while it was not entered'
        if toolset.original in world.originals:
            assert times[id(toolset)] <= 1, f'{toolset.name} was entered twice'
    for stack in stacks.values():
        assert stack == [], f'{[toolset.name for toolset in stack]} were never exited'


def check_exits(  # noqa: C901 (one rule after another)
    world: World, events: Sequence[Event], outcome: BaseException | None, plan: Plan
) -> None:
    """Check what each exit got, and what the caller of the run got."""
    exits = [index for index, happened in enumerate(events) if happened.kind == 'exit']
    wired_exits = [index for index in exits if world.is_wired(events[index].toolset)]
    ending = wired_exits[0] if wired_exits else len(events)
    """Where exiting began."""

    def faults(begin: int, end: int) -> list[BaseException]:
        return errors_of([happened for happened in events[begin:end] if happened.kind == 'fault'])

    def cancelled(end: int) -> bool:
        return any(happened.kind == 'cancel' for happened in events[:end])

    def is_cause(error: BaseException | None, end: int) -> bool:
        """Say whether something that happened until then can have ended the run with this exception."""
        if isinstance(error, CANCELLED):
            return cancelled(end)
        if exceptions := getattr(error, 'exceptions', ()):  # of toolsets that failed beside each other
            return all(is_cause(each, end) for each in exceptions)
        return error in faults(0, end) or (isinstance(error, UsageLimitExceeded) and plan.request_limit is not None)

    late = isinstance(outcome, asyncio.CancelledError) and any(
        happened.kind == 'cancel' for happened in events[ending:]
    )
    """Whether the caller got a cancellation of the time when exiting had begun, which counts more than what had happened before."""

    exit_faults = [
        (index, happened.got[1])
        for index, happened in enumerate(events)
        if index > ending and happened.kind == 'fault' and happened.got[0] == 'exit'
    ]
    for _, error in exit_faults:
        assert isinstance(error, Boom) or cancelled(len(events)), 'an exit was cancelled, and nobody had asked for it'

    for index in exits:
        got = events[index].got
        assert len(got) == 3, f'an exit got {len(got)} arguments'
        if got != SUCCESS:
            assert got[0] is type(got[1]), 'an exit got a wrong type'
            assert isinstance(got[2], TracebackType), 'an exit got no traceback'

    primary = events[ending].got[1] if wired_exits else outcome
    """What ended the run, according to the first exit."""
    if primary is None:
        raised = [error for error in faults(0, ending) if not isinstance(error, asyncio.CancelledError)]
        assert raised == [], f'exits got no exception, though {raised} had been raised'
    else:
        assert is_cause(primary, ending), f'exits got {primary!r}, which did not end the run'

    for index in exits:
        got, name = events[index].got[1], events[index].toolset.name
        before = [error for at, error in exit_faults if at < index]
        if index < ending:
            # What fails may cancel what goes on beside it, before it ends the run.
            beside = isinstance(got, asyncio.CancelledError) and faults(0, index)
            assert got is None or beside or is_cause(got, index), f'{name} got {got!r}, which had not happened'
        elif primary is not None:
            # When entering fails inside a combination, one around it is told what came out of the inner one.
            inside = got in before and any(
                event.kind == 'fault' and event.got[0] == 'enter' for event in events[:ending]
            )
            # Before Python 3.11 a cancellation is made anew on its way.
            assert inside or same(got, primary), f'{name} got {got!r} and not {primary!r}'
        elif before:
            assert got in before, f'{name} got {got!r}, and {before} had been raised by exits'
        else:
            assert got is None, f'{name} got {got!r}, though the run had succeeded'

    if exit_faults:
        assert late or same(outcome, exit_faults[-1][1]), f'the caller got {outcome!r} and not {exit_faults[-1][1]!r}'
        contexts = contexts_of(outcome)
        for error in [primary, *(error for _, error in exit_faults)]:
            # Not one that is made anew on its way, or whose context is.
            lost = plan.method == 'run_stream_events' and not EVENTS_KEEP_CONTEXT
            if isinstance(error, Boom) and isinstance(outcome, Boom) and not lost:
                assert error in contexts, f'{error!r} is not in the context of {outcome!r}'
    elif primary is None:
        assert outcome is None or (isinstance(outcome, CANCELLED) and cancelled(len(events))), (
            f'the caller got {outcome!r}, though the run had succeeded'
        )
    else:
        assert late or same(outcome, primary), f'the caller got {outcome!r} and not {primary!r}'


def check_copies(world: World, events: Sequence[Event], outcome: BaseException | None) -> None:
    """Check that a run copied all originals before it entered anything, or nothing at all."""
    kinds = [happened.kind for happened in events]
    began = kinds.index('enter') if 'enter' in kinds else None
    copied = {id(happened.toolset) for happened in events[:began] if happened.kind == 'copy'}
    failed = any(happened.kind == 'fault' and happened.got[0] == 'copy' for happened in events)
    if failed:
        assert began is None, 'a copy failed, and toolsets had been entered'
    if began is not None or (outcome is None and not failed):
        assert copied >= {id(original) for original in world.originals}, 'not all originals were copied at the start'


@given(scenarios())
def test_random_trees_run_in_random_ways_keep_the_contract(scenario: Scenario):
    world, has, outcomes = asyncio.run(play(scenario))
    plans = world.journal.plans
    FIGURES.update(
        runs=len(outcomes.keys() - {AGENT}),
        faults=sum(isinstance(error, Boom) for error in errors_of(world.journal.of('fault')))
        + len(world.journal.of('cancel')),
        entered=len(world.journal.of('enter')),
        exited=len(world.journal.of('exit')),
    )
    by_run = {name: [happened for happened in world.journal.events if happened.run == name] for name in plans}
    for name, outcome in outcomes.items():
        event(f'{"agent" if name == AGENT else "run"} ended by {type(outcome).__name__}')
        note(f'{name}: {outcome!r}')
        for happened in by_run[name]:
            note(f'    {happened.kind} {getattr(happened.toolset, "name", "")} {happened.got}')

    check_isolation(world)
    for name, outcome in outcomes.items():
        events = by_run[name]
        check_balance(world, events, succeeded=outcome is None)
        check_exits(world, events, outcome, plans[name])
        if name != AGENT:
            check_copies(world, events, outcome)

    entered = [happened.toolset for happened in by_run[AGENT] if happened.kind == 'enter']
    if scenario.around is None:
        assert entered == []
    else:
        assert all(toolset in world.shared for toolset in entered), '`async with agent` entered what no run shares'
        if not any(happened.kind == 'fault' and happened.got[0] == 'enter' for happened in by_run[AGENT]):
            assert set(entered) >= set(world.entered_by_agent(has)), '`async with agent` did not enter what runs share'
