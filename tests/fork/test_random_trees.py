"""Random trees of toolsets, run by agents in random ways while random things fail.

The toolsets write down what happens to them, under the name of the run that it happens in. What must be true of these
notes follows from the contract alone: which copy a run works with (B6, B7), that each toolset that was entered is exited
once and in reverse order (B5, B8, B14), that exits got the right exception (B5), what `async with agent` enters (B9), and how
often factories are called (B12).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, cast

from hypothesis import event, given, note
from hypothesis import strategies as st
from pydantic_ai import (
    AbstractToolset,
    Agent,
    DeferredToolRequests,
    ExternalToolset,
    FunctionToolset,
    RunContext,
    ToolDefinition,
    ToolsetTool,
    UserError,
    WrapperToolset,
)
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import RUN, Boom, Event, Journal, Server, Session, once_per_run
from .trees import (
    Audit,
    Call,
    Combine,
    Faulty,
    Plan,
    Straight,
    WithState,
    Wrap,
    check_balance,
    check_exits,
    count_faults,
    model_of,
    run_planned,
    settle,
    wrapped,
)

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
class Instance:
    """What the run works with in place of one of the originals, which a factory returns. Elsewhere it's a server."""

    number: int


@dataclass(frozen=True)
class Shared:
    """`.shared()` of a session, the same each time, which a factory returns. Elsewhere it's a server."""

    number: int


@dataclass(frozen=True)
class Dynamic:
    """A factory, which returns these in turn. `'again'` is what it returned before."""

    results: tuple[Tree | str | None, ...]
    called: str
    wait: bool


Tree = Leaf | Alias | Instance | Shared | Wrap | Combine | Dynamic

LEAVES = ['server', 'session', 'functions', 'counting functions', 'external']
WRAPPER_KINDS = [*WRAPPERS, 'asks', 'hides', 'prepares', 'audit', 'straight']


CALLED = ['at each step', 'once, with the context', 'without context', 'class']
"""When and as what a factory is called. All but the first kind are called once per run."""


def trees(leaves: st.SearchStrategy[Tree], size: int) -> st.SearchStrategy[Tree]:
    """Draw trees with these leaves, and at most that many."""
    return st.recursive(leaves, partial(wrapped, WRAPPER_KINDS), max_leaves=size)


def dynamics(results: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """Draw factories with these results."""
    any_result = results | st.none() | st.just('again')
    several = st.lists(any_result, min_size=1, max_size=3).map(tuple)
    return st.builds(Dynamic, several, st.sampled_from(CALLED), st.booleans())


simple: st.SearchStrategy[Tree] = st.builds(Leaf, st.sampled_from(LEAVES))
returned = simple | st.builds(Instance, st.integers(0, 5)) | st.builds(Shared, st.integers(0, 1))
made_by_factories = trees(returned | dynamics(trees(returned, 2)), 3)
wired = trees(simple | st.builds(Alias, st.integers(1, 8)) | dynamics(made_by_factories), 6)
originals = trees(st.builds(Leaf, st.sampled_from(['session', 'counting functions'])), 2)
finding = trees(
    st.builds(
        Dynamic,
        st.lists(trees(returned, 2) | st.builds(Instance, st.integers(0, 5)), min_size=1, max_size=3).map(tuple),
        st.sampled_from(CALLED[:2]),
        st.booleans(),
    ),
    2,
)


# What happens to it


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
    leave_at=st.none() | st.integers(1, 6),
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
        st.lists(wired, max_size=3).map(tuple) | st.tuples(originals, finding) | st.tuples(finding, wired, originals),
        st.lists(wired, max_size=2).map(tuple),
        st.integers(0, 3).map(lambda number: number == 3),
        st.lists(st.lists(plans, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
        st.none() | st.none() | agent_plans,
    )


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
    sessions: dict[int, AbstractToolset[Any]] = field(default_factory=dict[int, AbstractToolset[Any]])
    """Those that are only ever shared, by their number."""
    factory_of: dict[int, int] = field(default_factory=dict[int, int])
    """For a toolset that a factory has made, by `id`, a number for that call of the factory."""
    kept: list[Any] = field(default_factory=list[Any])
    """Keeps these alive, so that no other object gets the `id`."""
    has_aliases: bool = False
    """Whether a toolset stands in several places, in each of which a factory inside of it is called (B7)."""

    def build(self, tree: Tree, factory: int | None = None, ctx: RunContext[Any] | None = None) -> AbstractToolset[Any]:
        """Make the toolsets of a tree, for the agent or in a call of a factory, which has a context if it takes that."""
        match tree:
            case Instance() | Shared():
                return self.returned(tree, factory, ctx) or self.build(Leaf('server'), factory)
            case Alias(back):
                if factory is not None or not self.places:
                    return self.build(Leaf('server'), factory)
                self.has_aliases = True
                return self.places[-back % len(self.places)].prefixed(f'p{next(self.numbers)}')
            case Leaf('external'):
                toolset = ExternalToolset[Any](
                    [ToolDefinition(name=f't{next(self.numbers)}', return_schema={'type': 'array'})]
                )
            case Leaf(kind):
                toolset = LEAF_CLASSES[kind](f't{next(self.numbers)}', self.journal)
                self.register(toolset, factory)
            case Combine(inner):
                toolset = CombinedToolset([self.build(each, factory, ctx) for each in inner])
            case Dynamic(called='at each step'):
                toolset = DynamicToolset(self.factory(tree, factory))
            case Dynamic():
                made = self.factory(tree, factory)
                with_context = tree.called == 'once, with the context'
                toolset = DynamicToolset(made, per_run_step=False) if with_context else once_per_run(made)
            case Wrap('straight', inner):
                # It enters what it holds itself, and nobody can look into it
                toolset = self.wrap('straight', self.build(inner, factory), factory)
            case Wrap(kind, inner):
                toolset = self.wrap(kind, self.build(inner, factory, ctx), factory)
        if factory is None:
            self.places.append(toolset)
        return toolset

    def item(self, tree: Tree) -> Any:
        """Make what stands in a list of toolsets: for a factory that is itself, if that means the same."""
        if isinstance(tree, Dynamic) and tree.called != 'once, with the context':
            return self.factory(tree, None)
        return self.build(tree)

    def returned(
        self, tree: Instance | Shared, factory: int | None, ctx: RunContext[Any] | None
    ) -> AbstractToolset[Any] | None:
        """Find what only a factory can return."""
        if factory is None:
            return None
        if isinstance(tree, Shared):
            if tree.number not in self.sessions:
                self.sessions[tree.number] = Session(f'shared{tree.number}', self.journal)
                self.factory_of[id(self.sessions[tree.number])] = next(self.numbers)
            return self.sessions[tree.number].shared().prefixed(f'p{next(self.numbers)}')
        # A wrapper may have the factory itself inside
        originals = [original for original in self.originals if not isinstance(original, WithState)]
        if ctx is None or not originals:
            return None
        original = originals[tree.number % len(originals)]
        try:
            found = ctx.instance_of(original)
        except UserError:
            # While a run begins, it may have none yet
            assert not self.has_begun()
            return None
        assert found is not original
        return found.prefixed(f'p{next(self.numbers)}')

    def has_begun(self) -> bool:
        """Say whether the run that the caller is in has all of its instances, by which time it has entered something."""
        return any(happened.run == RUN.get() for happened in self.journal.of('enter', 'get_tools'))

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

        if kind == 'straight' and isinstance(inner, Straight):
            # Where a `for_run()` of the user's calls another one directly, no run can know of it
            inner = inner.prefixed(f'p{next(self.numbers)}')
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

        def make(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
            assert RUN.get() != AGENT, '`async with agent` called a factory'
            before = returned[RUN.get()]
            if made_by is None and tree.called != 'at each step' and not self.has_aliases:
                assert not before, f'a factory was called twice in a run, though it is called {tree.called}'
            result = tree.results[len(before) % len(tree.results)]
            if result == 'again':
                made = before[-1] if before else None
            elif result is None:
                made = None
            else:
                made = self.build(cast(Tree, result), next(self.numbers), ctx)
            before.append(made)
            return made

        def sync(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
            self.journal.instant('factory', None)
            return make(ctx)

        async def wait(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
            await self.journal.moment('factory', None)
            return make(ctx)

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


async def run_in_task(
    agent: Agent[Any, Any], name: str, journal: Faulty, options: dict[str, Any]
) -> BaseException | None:
    """Do a run as planned, in a task of its own, and return what it raised."""
    RUN.set(name)
    journal.tasks[name] = cast('asyncio.Task[Any]', asyncio.current_task())
    try:
        await run_planned(agent, journal, options)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (the outcome is what is checked)
        return error
    return None


async def play(scenario: Scenario) -> tuple[World, list[Any], dict[str, BaseException | None]]:
    """Make the toolsets of a scenario and do its runs.

    Returns:
        The toolsets with their journal, what the agent was given, and what each run raised.
    """
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

    async def choose(step: int, names: list[str]) -> list[Call]:
        await journal.moment('model', None)
        steps = journal.plans[RUN.get()].steps
        if step >= len(steps) or not names:
            return []
        chosen = [names[number % len(names)] for number in steps[step]]
        return [(name, RUN.get(), f'{step}.{index}') for index, name in enumerate(chosen)]

    async def do_rounds() -> None:
        for names in rounds:
            runs = [asyncio.create_task(run_in_task(agent, name, journal, options)) for name in names]
            outcomes.update(zip(names, await asyncio.gather(*runs), strict=True))

    options: dict[str, Any] = {} if scenario.override else {'toolsets': of_run}
    agent = Agent(
        model_of(choose),
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
    await settle()
    return world, has, outcomes


# What must be true of the journal


def check_isolation(world: World) -> None:
    """Check that nothing happened to originals, and that each run worked with one copy of each."""
    copies: dict[tuple[int, str], list[Any]] = {}
    used: dict[tuple[int, str], Any] = {}
    for happened in world.journal.of('copy'):
        original, (copy,) = happened.toolset, happened.got
        assert original not in world.sessions.values(), 'what is only shared was copied'
        if not world.is_wired(original):
            continue
        assert original.original is original, 'a copy was copied'
        made = copies.setdefault((id(original), happened.run), [])
        # Its `for_run()` waits, and is asked for each of its places at once. One of what it returns is used.
        assert not made or isinstance(original, Straight), 'an original was copied twice in a run'
        made.append(copy)
    each = [copy for made in copies.values() for copy in made]
    assert len({id(copy) for copy in each}) == len(each), 'two runs have the same copy'
    for happened in world.journal.of('enter', 'exit', 'get_tools', 'call'):
        if happened.toolset.original in world.originals:
            key = id(happened.toolset.original), happened.run
            assert any(happened.toolset is copy for copy in copies.get(key, [])), 'not the copy of the run'
            assert used.setdefault(key, happened.toolset) is happened.toolset, 'two copies are used in a run'
        elif world.is_wired(happened.toolset) or not isinstance(happened.toolset, Audit):
            # A wrapper that a factory has made may be made again, around the dynamic toolsets inside as they're built for the run.
            assert happened.toolset.original is happened.toolset, 'what is shared was copied'
    for original in world.originals:
        assert original.values == [], 'an original has state'
    for (_, run), made in copies.items():
        assert all(set(copy.values) <= {run} for copy in made), 'a value has crossed from one run to another'


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
        faults=count_faults(world.journal),
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
        check_balance(
            events,
            outcome is None,
            stack_of=lambda toolset: world.factory_of.get(id(toolset.original)),
            once=lambda toolset: toolset.original in world.originals,
        )
        check_exits(events, outcome, plans[name], world.is_wired)
        if name != AGENT:
            check_copies(world, events, outcome)

    entered = [happened.toolset for happened in by_run[AGENT] if happened.kind == 'enter']
    if scenario.around is None:
        assert entered == []
    else:
        assert all(toolset in world.shared for toolset in entered), '`async with agent` entered what no run shares'
        if not any(happened.kind == 'fault' and happened.got[0] == 'enter' for happened in by_run[AGENT]):
            assert set(entered) >= set(world.entered_by_agent(has)), '`async with agent` did not enter what runs share'
