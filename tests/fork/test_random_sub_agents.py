"""Random agents that delegate to each other, five runs deep and in parallel, while random things fail.

Tools start the sub-agents, and the toolsets of the agents say all that there is to say in `for_sub_agent()`. What must be true
of the toolsets' notes follows from the contract alone: which instance each run works with and whom it asks for it (B6, B7, B12,
B16, B18, B19, B21), who enters and exits it and with which exception (B5, B8, B17), that nothing is used after its owner has
begun to exit (B20), and that a sub-agent's failure that the tool catches is none of the parent's. No run is
refused, and in the end all that was made for a run is freed (B39).
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from pydantic_ai import AbstractToolset, Agent, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .delegation import Answer, Ledger, Notes, forked
from .line import WRAPPERS, not_on_1
from .toolsets import RUN, Boom, Event, Server
from .trees import (
    Audit,
    Call,
    Combine,
    Faulty,
    Plan,
    WithState,
    Wrap,
    check_balance,
    check_exits,
    count_faults,
    leaves_of,
    model_of,
    run_planned,
    settle,
    wrapped,
)

FIGURES: Counter[str] = Counter()
"""How many runs there were, and how many faults in them."""


# What a scenario is: plain data, which hypothesis draws and prints


@dataclass(frozen=True)
class Leaf:
    """A toolset that contains no other, with what it says about sub-agents."""

    policy: str


@dataclass(frozen=True)
class Around:
    """A wrapper with state of its own."""

    inner: Tree


@dataclass(frozen=True)
class Factory:
    """A factory, which is called once per run in each place, with what its toolsets say about sub-agents."""

    policy: str
    takes_context: bool
    wait: bool


@dataclass(frozen=True)
class Use:
    """One of the originals, which can stand in several agents, and several times in each."""

    number: int


@dataclass(frozen=True)
class Shared:
    """`.shared()` of what is inside."""

    inner: Tree


Tree = Use | Shared | Wrap | Combine
Original = Leaf | Around | Factory


@dataclass(frozen=True)
class Run:
    """A run of one of the agents."""

    agent: int
    method: str
    steps: tuple[tuple[int, ...], ...]
    """For each response of the model the tools that it calls, as numbers among those it is offered."""
    pauses: tuple[int, ...]
    inside: tuple[int, int] | None
    """The run and the step that it's a sub-agent in: how many runs before this one, of those that can have one, and the number."""
    caught: bool
    """Whether the tool that delegates puts up with the run's failure."""
    own_task: bool
    """Whether that tool starts the run in a task of its own."""
    leave_at: int | None
    """The node at which the body of `iter()` is left."""
    handed: tuple[int, ...] | None
    """The toolsets that the tool hands over, as numbers among those of the run that it's called in. `()` is all of them."""


@dataclass(frozen=True)
class Scenario:
    """Originals, the toolsets of some agents that are made of them, the runs, and what fails in them."""

    originals: tuple[Original, ...]
    agents: tuple[tuple[Tree, ...], ...]
    runs: tuple[Run, ...]
    """Those that aren't inside of others are concurrent, and so are those in the same step."""
    faults: tuple[tuple[int, str, int], ...]
    """What raises: in the run with this number, the second call of its kind, for example."""
    cancel: tuple[int, int, int, bool] | None
    """In which run, at which of its awaits a run is cancelled, how many levels further up that is, and whether it's how often the
    event loop goes round that counts, rather than the awaits of the toolsets and the model."""


KINDS = ['copy', 'ask', 'factory', 'enter', 'model', 'get_tools', 'call', 'delegate', 'body', 'exit']
METHODS = ['run', 'run', 'iter', 'iter', 'run_stream']
DEPTH = 4


runs = st.builds(
    Run,
    agent=st.integers(0, 3),
    method=st.sampled_from(METHODS),
    steps=st.lists(st.lists(st.integers(0, 9), max_size=2).map(tuple), min_size=1, max_size=2).map(tuple),
    pauses=st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple),
    inside=st.tuples(st.integers(0, 5), st.integers(0, 1))
    | st.tuples(st.integers(0, 1), st.integers(0, 1))
    | st.none(),
    caught=st.booleans(),
    own_task=st.booleans(),
    leave_at=st.none() | st.integers(1, 5),
    handed=st.none() | st.none() | st.lists(st.integers(0, 5), max_size=2).map(tuple),
)

uses: st.SearchStrategy[Tree] = st.builds(Use, st.integers(0, 5))


trees: st.SearchStrategy[Tree] = st.recursive(uses, partial(wrapped, sorted(WRAPPERS)), max_leaves=3)
wired: st.SearchStrategy[Tree] = uses | st.recursive(
    uses, lambda inner: wrapped(sorted(WRAPPERS), inner) | st.builds(Shared, inner), max_leaves=3
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    policies = st.sampled_from([*POLICIES, 'says nothing'])
    originals: st.SearchStrategy[Original] = (
        st.builds(Leaf, policies)
        | st.builds(Leaf, policies)
        | st.builds(Around, trees)
        | st.builds(Factory, policies, st.booleans(), st.booleans())
    )
    run_number = st.integers(0, 11)
    scenario = st.builds(
        Scenario,
        originals=st.lists(originals, min_size=1, max_size=5).map(tuple),
        agents=st.lists(st.lists(wired, min_size=1, max_size=3).map(tuple), min_size=2, max_size=4).map(tuple),
        runs=st.lists(runs, min_size=2, max_size=12).map(tuple),
        faults=st.lists(st.tuples(run_number, st.sampled_from(KINDS), st.integers(1, 3)), max_size=3).map(tuple),
        cancel=st.none()
        | st.none()
        | st.tuples(run_number, st.integers(1, 15), st.integers(0, 3), st.just(False))
        | st.tuples(run_number, st.integers(0, 60), st.integers(0, 3), st.just(True)),
    )
    # Hypothesis takes exponential time to print nested objects that it knows how it has built
    return deepcopy(draw(scenario))


# The toolsets


class Nest(Audit):
    """What a sub-agent gets of a toolset that nests: one of its own around the live one, like a savepoint in a transaction."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.journal.instant('ask', self)
        nest = Nest(self, self.name, self.journal)
        self.journal.note('ask', self, ctx, nest)
        return nest


class AskedAudit(Audit):
    """A wrapper that says nothing of its own about sub-agents, and writes down that it was asked."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.journal.instant('ask', self)
        answer = super().for_sub_agent(ctx)
        self.journal.note('ask', self, ctx, answer)
        return answer


def insides(toolset: Any) -> Iterator[Any]:
    """Find what's inside of a wrapper with state of its own, past what may stand between."""
    while isinstance(toolset, WithState):
        toolset = toolset.inside
        # A stand-in has the attributes of what it stands for
        while 'journal' not in vars(toolset) and hasattr(toolset, 'wrapped'):
            toolset = toolset.wrapped
        yield getattr(toolset, 'template_of', None) or toolset


def snapshot(live: Any, ctx: RunContext[Any]) -> Any:
    new = forked(live, ctx)
    live.journal.snapshots[id(new)] = list(live.values)
    return new


def shares(live: Any, ctx: RunContext[Any]) -> Any:
    return live


def copies(live: Any, ctx: RunContext[Any]) -> Any:
    return live.copy()


def views(live: Any, ctx: RunContext[Any]) -> Any:
    return AskedAudit(live, live.name, live.journal)


def nests(live: Any, ctx: RunContext[Any]) -> Any:
    return Nest(live, live.name, live.journal)


POLICIES: dict[str, tuple[type[Notes], Answer]] = {
    'shares': (Notes, shares),
    'copies': (Notes, copies),
    'snapshots': (Notes, snapshot),
    'nests': (Notes, nests),
    'views': (Notes, views),
    'stateless, shares': (Ledger, shares),
    'stateless, snapshots': (Ledger, snapshot),
}
"""What a toolset can say about sub-agents, and its class. `'says nothing'` is a server, which all runs share."""


@dataclass(eq=False)
class Wired:
    """A toolset as it was wired, which is what runs have their instances of."""

    toolset: AbstractToolset[Any]
    kind: str
    """`'original'`, `'factory'`, `'shared'`, `'handed'`, or `'plain'` if it's only about what is inside."""
    inner: Sequence[Wired] = ()

    @property
    def is_server(self) -> bool:
        """Whether it's neither stateful nor says anything."""
        return type(self.toolset) is Server

    def walk(self) -> Iterator[Wired]:
        """Go through this one and what is inside."""
        yield self
        for inner in self.inner:
            yield from inner.walk()

    def originals(self, *, shared: bool) -> set[Wired]:
        """Find the originals inside that are shared, or those that aren't."""
        if self.kind == 'shared':
            return {each for each in self.walk() if shared and each.kind == 'original'}
        found = {each for inner in self.inner for each in inner.originals(shared=shared)}
        return found if shared or self.kind != 'original' or self.is_server else {self, *found}


def enclosing(run: str) -> list[str]:
    """Return the names of the runs that one is inside of, the nearest first: `'0.2'` for `'0.2.1'`, and then `'0'`."""
    parts = run.split('.')
    return ['.'.join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


@dataclass
class World(Faulty):
    """The toolsets, agents and runs of a scenario, with the journal of what happens to them."""

    scenario: Scenario = field(default_factory=lambda: Scenario((), (), (), (), None))
    numbers: Iterator[int] = field(default_factory=count)
    sharing: bool = True
    originals: list[Wired] = field(default_factory=list[Wired])
    toolsets: list[list[Wired]] = field(default_factory=list['list[Wired]'])
    """Those of each agent."""
    agents: list[Agent[Any, Any]] = field(default_factory=list[Agent[Any, Any]])
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    children: dict[tuple[str, int], list[str]] = field(
        default_factory=lambda: defaultdict[tuple[str, int], list[str]](list)
    )
    """The sub-agents in each step of each run."""
    given: dict[str, list[Wired]] = field(default_factory=dict[str, 'list[Wired]'])
    """The toolsets of each run that was started."""
    outcomes: dict[str, BaseException | None] = field(default_factory=dict[str, 'BaseException | None'])
    """What each of them raised."""
    snapshots: dict[int, list[str]] = field(default_factory=dict[int, 'list[str]'])
    """The values that toolsets began with, by `id`."""

    # Wiring

    def __post_init__(self) -> None:
        for spec in self.scenario.originals:
            self.originals.append(self.original(spec))
        model = model_of(self.choose)
        for number, trees in enumerate(self.scenario.agents):
            first, last = (Wired(Server(f'{name}{number}', self), 'original') for name in ('first', 'last'))
            self.toolsets.append([first, *self.wire_all(trees), last])
            toolsets = [wired.toolset for wired in self.toolsets[-1]]
            self.agents.append(Agent(model, name=f'agent{number}', toolsets=toolsets, tools=[self.delegate]))
        for run in self.scenario.runs:
            self.add_run(run)
        names = list(self.runs)
        for number, kind, nth in self.scenario.faults:
            name = names[number % len(names)]
            self.plans[name] = replace(self.plans[name], faults=(*self.plans[name].faults, (kind, nth)))
        if self.scenario.cancel:
            number, at, _, by_loop = self.scenario.cancel
            name = names[number % len(names)]
            cancel: dict[str, int] = {'cancel_after' if by_loop else 'cancel_at': at}
            self.plans[name] = replace(self.plans[name], **cancel)

    def add_run(self, run: Run) -> None:
        above = [name for name in self.runs if len(enclosing(name)) < DEPTH]
        if run.inside is None or not above:
            name = str(sum('.' not in name for name in self.runs))
        else:
            back, step = run.inside
            parent = above[-1 - back % len(above)]
            children = self.children[parent, step % len(self.runs[parent].steps)]
            name = f'{parent}.{sum(name.startswith(parent + ".") and name.count(".") == parent.count(".") + 1 for name in self.runs)}'
            children.append(name)
        self.runs[name] = run
        self.plans[name] = Plan(run.method, pauses=run.pauses, leave_at=run.leave_at)

    def original(self, spec: Original) -> Wired:
        match spec:
            case Leaf(policy):
                return Wired(self.leaf(policy), 'original')
            case Around(inner):
                inside = self.wire(inner)
                return Wired(AskedAudit(inside.toolset, f'w{next(self.numbers)}', self), 'original', [inside])
            case Factory():
                return self.factory(spec)

    def leaf(self, policy: str) -> Server:
        name = f't{next(self.numbers)}'
        if policy == 'says nothing':
            return Server(name, self)
        cls, answer = POLICIES[policy]

        def asked(live: Any, ctx: RunContext[Any]) -> Any:
            self.instant('ask', live)
            return answer(live, ctx)

        return cls(name, self, answer=asked)

    def factory(self, spec: Factory) -> Wired:
        def make(ctx: Any = None) -> AbstractToolset[Any]:
            self.instant('factory', None)
            made = self.leaf(spec.policy)
            self.note('made', made, wired)
            return made

        async def wait(ctx: RunContext[Any]) -> AbstractToolset[Any]:
            await self.moment('factory', None)
            return make()

        wired = Wired(DynamicToolset(wait if spec.wait else make, per_run_step=False), 'factory')
        return wired

    def wire_all(self, trees: Sequence[Tree]) -> list[Wired]:
        """Make what stands in a list. What counts of an original that is shared in one place and not in another is left open."""
        for self.sharing in (True, False):
            several = [self.wire(tree) for tree in trees]
            found = [
                set[Wired]().union(*(each.originals(shared=shared) for each in several)) for shared in (True, False)
            ]
            if not found[0] & found[1]:
                break
        return several

    def wire(self, tree: Tree) -> Wired:
        """Make what stands in a list, or inside of an original. Originals that don't exist yet can't stand there."""
        match tree:
            case Use(number):
                if not self.originals:
                    return self.original(Leaf('snapshots'))
                original = self.originals[number % len(self.originals)]
                # So that its tools have different names wherever it stands
                return Wired(original.toolset.prefixed(f'p{next(self.numbers)}'), 'plain', [original])
            case Shared(inner):
                wired = self.wire(inner)
                # What's shared by all runs is nothing that a factory makes for each
                if not self.sharing or any(isinstance(each.toolset, DynamicToolset) for each in wired.walk()):
                    return wired
                return Wired(wired.toolset.shared(), 'shared', [wired])
            case Wrap(kind, inner):
                wired = self.wire(inner)
                return Wired(WRAPPERS[kind](wired.toolset), 'plain', [wired])
            case Combine(inner):
                several = [self.wire(each) for each in inner]
                return Wired(CombinedToolset([wired.toolset for wired in several]), 'plain', several)

    # Running

    def agent_of(self, run: str) -> int:
        return self.runs[run].agent % len(self.agents)

    def shared(self) -> list[Any]:
        """Find the originals that are shared by all runs."""
        tops = [each for toolsets in self.toolsets for top in toolsets for each in top.walk() if each.kind == 'shared']
        return [each.toolset for top in tops for each in top.walk() if each.kind == 'original']

    async def choose(self, step: int, names: list[str]) -> list[Call]:
        """Answer in place of the model."""
        self.note('model', None)
        await self.moment('model', None)
        run = RUN.get()
        if step >= self.steps_of(run):
            return []
        names.remove('delegate')
        numbers = self.runs[run].steps[step]
        calls = [(names[number % len(names)], run, f'call {step}.{at}') for at, number in enumerate(numbers)]
        return [*calls, *(('delegate', child, child) for child in self.children[run, step])]

    def steps_of(self, run: str) -> int:
        """Say how many steps a run has until one in which it has nothing to do."""
        steps = enumerate(self.runs[run].steps)
        return next(
            (step for step, calls in steps if not (calls or self.children[run, step])), len(self.runs[run].steps)
        )

    async def delegate(self, ctx: RunContext[Any], value: str) -> str:
        """Run another agent, in a tool call that has the name of the run as its ID."""
        await self.moment('delegate', None)
        try:
            if self.runs[value].own_task:
                self.tasks[value] = asyncio.create_task(self.start(value, ctx))
                await self.tasks[value]
            else:
                await self.start(value, ctx)
        except BaseException as error:
            if isinstance(error, (Boom, UserError)) and self.runs[value].caught:
                return 'failed'
            if isinstance(error, asyncio.CancelledError) and self.is_cancelled(value) and not self.is_disturbed(value):
                return 'cancelled'
            self.note('fault', None, 'call', error)
            raise
        return 'done'

    async def start(self, run: str, ctx: RunContext[Any] | None = None) -> None:
        """Do a run in the task that the caller is in."""
        token = RUN.set(run)
        self.given[run] = list(self.toolsets[self.agent_of(run)])
        self.outcomes[run] = None
        try:
            options = {} if ctx is None else {'toolsets': self.hand_over(run, ctx)}
            await run_planned(self.agents[self.agent_of(run)], self, options)
        except BaseException as error:
            self.outcomes[run] = error
            for each in leaves_of(error):
                if isinstance(each, UserError):
                    self.note('refused', None, each)
            raise
        finally:
            RUN.reset(token)

    def hand_over(self, run: str, ctx: RunContext[Any]) -> list[AbstractToolset[Any]]:
        numbers, of_parent = self.runs[run].handed, self.given[enclosing(run)[0]]
        if numbers is None:
            return []
        chosen = [of_parent[number] for number in {number % len(of_parent) for number in numbers}] or of_parent
        # What counts of an original that the agent has anyway is left open, too
        has = {each for top in self.given[run] for each in top.walk() if not each.is_server}
        if any(each in has for top in chosen for each in top.walk()):
            return []
        # The run is given them even if what they are asked for fails
        handed = [Wired(wired.toolset, 'handed', [wired]) for wired in chosen]
        self.given[run].extend(handed)
        toolsets = ctx.for_sub_agent(*(wired.toolset for wired in chosen if numbers))
        for number, (wired, toolset) in enumerate(zip(handed, toolsets, strict=True)):
            wired.toolset = toolset.prefixed(f'h{number}')
        return [wired.toolset for wired in handed]

    async def moment(self, kind: str, toolset: Any) -> None:
        if kind in ('get_tools', 'call'):
            self.note('begin', toolset)
        await super().moment(kind, toolset)

    def cancel(self) -> None:
        """Cancel the run that the caller is in or one further up, the nearest that has a task of its own."""
        assert self.scenario.cancel is not None
        run = RUN.get()
        above = [run, *enclosing(run)][self.scenario.cancel[2] :] or [run.split('.')[0]]
        cancelled = next(run for run in above if run in self.tasks)
        if not self.tasks[cancelled].done():
            self.events.append(Event('cancel', None, cancelled))
            self.tasks[cancelled].cancel()

    def note(self, kind: str, toolset: Any, *got: Any) -> None:
        """Write it down of what the toolset is a shallow copy of, since a run may work with one of what was answered."""
        super().note(kind, getattr(toolset, 'template_of', None) or toolset, *got)

    def is_cancelled(self, run: str) -> bool:
        return any(happened.run == run for happened in self.of('cancel'))

    def is_disturbed(self, run: str) -> bool:
        """Say whether a run further up is cancelled or about to fail, which cancels this one."""
        return any(happened.run in enclosing(run) for happened in self.of('cancel', 'fault'))


async def play(scenario: Scenario) -> World:
    """Do the runs of a scenario."""
    world = World(scenario=scenario)
    for run in world.runs:
        if not enclosing(run):
            world.tasks[run] = asyncio.create_task(world.start(run))
    await asyncio.gather(*list(world.tasks.values()), return_exceptions=True)
    await settle()
    return world


# What must be true of the journal


@dataclass
class Works:
    """What a run works with."""

    instances: dict[Wired, list[Any]] = field(default_factory=lambda: defaultdict[Wired, list[Any]](list))
    """In place of each toolset that was wired. There are several only where the contract leaves open which counts, and none where
    it's only what is inside that counts."""
    known: set[Wired] = field(default_factory=set[Wired])
    """Those that runs inside of it find its instance of. What a wrapper has put inside of its answer is none (B19)."""
    owned: list[Any] = field(default_factory=list[Any])
    borrowed: list[Any] = field(default_factory=list[Any])
    copied: list[Any] = field(default_factory=list[Any])
    """The originals that it has fresh copies of."""
    asked: dict[tuple[int, str], set[str]] = field(default_factory=lambda: defaultdict[tuple[int, str], set[str]](set))
    """The tool calls whose context live instances are asked with. The key is the `id` of the instance and how it came that it's
    asked: once as it was named, and once as it was handed over."""

    def with_insides(self) -> list[Any]:
        """Return the instances, and those of enclosing runs that they nest in."""
        found = [instance for instances in self.instances.values() for instance in instances]
        return [*found, *(inside for instance in found for inside in insides(instance))]


class Contract:
    """What the contract says that each run of a world works with. Given who answered what, there's no choice left."""

    def __init__(self, world: World):
        self.world = world
        self.works: dict[str, Works] = {}
        self.happened: dict[str, list[Event]] = {run: [] for run in world.given}
        for happened in world.events:
            self.happened[happened.run].append(happened)
        for run in sorted(world.given, key=len):
            self.works[run] = Works()
            for wired in world.given[run]:
                self.work_with(run, wired)

    def of(self, run: str, *kinds: str) -> list[Event]:
        return [happened for happened in self.happened[run] if happened.kind in kinds]

    def has_begun(self, run: str) -> bool:
        """Say whether a run has asked its model, by which time it has all of its toolsets."""
        return bool(self.of(run, 'model'))

    def nearest(self, run: str, wired: Wired) -> str | None:
        """Return the nearest enclosing run that has a toolset live."""
        return next((above for above in enclosing(run) if wired in self.works[above].known), None)

    def is_reentered(self, run: str) -> bool:
        return any(self.world.agent_of(above) == self.world.agent_of(run) for above in enclosing(run))

    def work_with(self, run: str, wired: Wired) -> None:
        """Say what a run gets that names a toolset (B16)."""
        above = self.nearest(run, wired)
        if wired.kind == 'plain':
            self.add(run, wired, [], [])
            for inner in wired.inner:
                self.work_with(run, inner)
        elif wired.kind == 'shared':
            for inner in wired.inner:
                self.share(run, inner)
        elif wired.kind == 'handed':
            for inner in wired.inner:
                self.ask(run, enclosing(run)[0], inner, 'handed')
        elif wired.kind == 'factory':
            made = [happened.toolset for happened in self.of(run, 'made') if happened.got[0] is wired]
            if not self.of(run, 'fault'):  # in one of the places where it stands, which another one doesn't wait for
                places = sum(each is wired for top in self.world.given[run] for each in top.walk())
                called = 1 <= len(made) <= places or (not made and not self.has_begun(run))
                assert called, f'a factory that stands in {places} places was called {len(made)} times in {run}'
            self.works[run].known.add(wired)
            self.add(run, wired, made, self.works[run].owned)
        elif above is None or self.is_reentered(run):
            self.own(run, wired)
        elif not wired.is_server:
            self.ask(run, above, wired, 'named')
        else:
            self.add(run, wired, [wired.toolset], [])

    def own(self, run: str, wired: Wired) -> None:
        """Say that a run has its own (B6), also of what is inside."""
        works, instances = self.works[run], [wired.toolset]
        works.known.add(wired)
        if wired.toolset.stateful:
            works.copied.append(wired.toolset)
            copies = [happened.got[0] for happened in self.of(run, 'copy') if happened.toolset is wired.toolset]
            # An original that is shared can be asked, and answer with its copy
            # By `id`, since wrappers are equal if what they wrap is
            answers = {id(happened.got[1]) for happened in self.of(run, 'ask')}
            instances = [copy for copy in copies if id(copy) not in answers]
            self.expect_one(run, instances, f'{wired.toolset.label} was copied')
        self.add(run, wired, instances, works.owned)
        for inner in wired.inner:
            self.work_with(run, inner)

    def ask(self, run: str, above: str, wired: Wired, how: str, *, inside: bool = False) -> None:
        """Say that a run gets what the live instance answers (B15), and so do those inside of it (B19)."""
        works = self.works[run]
        if not inside:
            works.known.add(wired)
        if wired.is_server:
            # Whether it's live depends on whether it's a part of something that is: it's shared by all runs anyway.
            self.add(run, wired, [wired.toolset], [])
        elif wired.kind in ('original', 'factory'):
            for live in self.works[above].instances[wired]:
                if type(live) is Server:
                    self.add(run, wired, [live], [])
                    continue
                works.asked[id(live), how].add([*reversed(enclosing(run)), run][len(enclosing(above)) + 1])
                for happened in self.of(run, 'ask'):
                    if happened.toolset is live:
                        for answer in (happened.got[1], *(() if wired.inner else insides(happened.got[1]))):
                            is_live = any(
                                answer is owned for each in enclosing(run) for owned in self.works[each].owned
                            )
                            self.add(run, wired, [answer], works.borrowed if is_live else works.owned)
            has_answered = works.instances[wired] or not self.has_begun(run)
            assert has_answered, f'{wired.toolset.label} was not asked'
        else:
            self.add(run, wired, [], [])
        # What a factory has returned was not handed over by its name
        inside = inside or wired.kind == 'original' or isinstance(wired.toolset, DynamicToolset)
        for inner in wired.inner:
            self.ask(run, above, inner, how, inside=inside)

    def share(self, run: str, wired: Wired) -> None:
        """Say that a run gets the live instance, or else the original itself (B18)."""
        # A wrapper without state of its own is none that a run works with: it's what is inside that counts
        above = None if wired.kind == 'plain' else self.nearest(run, wired)
        if above is not None or wired.kind == 'original':
            self.works[run].known.update([wired] if above else wired.walk())
            for each in wired.walk():
                if above is None:
                    self.add(run, each, [each.toolset] if each.kind == 'original' else [], self.works[run].owned)
                else:
                    self.add(run, each, self.works[above].instances[each], self.works[run].borrowed)
        else:
            self.add(run, wired, [], [])
            for inner in wired.inner:
                self.share(run, inner)

    def add(self, run: str, wired: Wired, instances: Sequence[Any], to: list[Any]) -> None:
        known = self.works[run].instances[wired]
        for found in (known, to):
            ids = {id(instance) for instance in found}
            found.extend(instance for instance in instances if id(instance) not in ids)

    def expect_one(self, run: str, found: Sequence[Any], what: str) -> None:
        assert len(found) == 1 or (not found and not self.has_begun(run)), f'{what} {len(found)} times in {run}'

    # Checks

    def check_asked(self, run: str) -> None:
        """Check that a run has asked and copied just what it should, and once."""
        works = self.works[run]
        ways = Counter(live for live, _ in works.asked)
        times = Counter(id(happened.toolset) for happened in self.of(run, 'ask'))
        places = sum(1 for given in self.world.given[run] for _ in given.walk())
        for happened in self.of(run, 'ask'):
            live, ctx = happened.toolset, happened.got[0]
            calls = works.asked[id(live), 'named'] | works.asked[id(live), 'handed']
            assert ctx.tool_name == 'delegate', f'{live.name} was asked with a context of {ctx.tool_name}'
            assert ctx.tool_call_id in calls, (
                f'{live.name} was asked with the context of call {ctx.tool_call_id} by {run}'
            )
            # A wrapper that asks what is inside doesn't know what else the sub-agent names
            assert times[id(live)] <= ways[id(live)] * places, f'{live.name} was asked {times[id(live)]} times by {run}'
        for happened in self.of(run, 'copy'):
            toolset = happened.toolset
            assert toolset in works.copied or id(toolset) in ways, f'{toolset.name} was copied for {run}'
        for happened in self.of(run, 'made'):
            assert happened.toolset in works.owned, f'a factory was called for {run}'

    def check_used(self, run: str) -> None:
        """Check that a run used what it works with and nothing else, and all of that from the start."""
        works = self.works[run]
        may_use = works.with_insides()
        for happened in self.of(run, 'begin', 'get_tools', 'call'):
            assert happened.toolset in may_use, f'{run} used {happened.toolset.name}, with which it does not work'
        events = self.happened[run]
        kinds = [happened.kind for happened in events]
        if 'model' in kinds:
            before = events[: kinds.index('model')]
            listed = [happened.toolset for happened in before if happened.kind == 'get_tools']
            for wired, instances in works.instances.items():
                used = not instances or any(instance in listed for instance in instances)
                assert used, f'{wired.toolset.label} is not used by {run}'

    def check_entered(self, run: str) -> None:
        """Check that a run entered its own before its first request, and no other, and exited it in reverse order."""
        works = self.works[run]
        # What concurrent runs share, the combination around it may enter once for all of them
        shared = self.world.shared()
        events = [happened for happened in self.of(run, 'enter', 'exit') if happened.toolset not in shared]
        for happened in events:
            known = happened.toolset in works.owned or type(happened.toolset) is Server
            assert known, f'{run} did {happened.kind} {happened.toolset.name}, which is not its own'
        made = self.made()
        times = Counter(id(happened.toolset) for happened in events if happened.kind == 'enter')
        for owned in works.owned:
            # A server that was handed over, to this run or one around it, is borrowed
            handed = any(self.world.runs[each].handed is not None for each in (run, *enclosing(run)))
            is_open = owned in [*works.borrowed, *shared] or (type(owned) is Server and handed)
            # Where a wrapper stands in two places, a factory inside may make one that the run has no use for
            is_used = id(owned) not in made or any(each.toolset is owned for each in self.of(run, 'get_tools'))
            if self.has_begun(run) and not is_open and is_used:
                assert times[id(owned)] >= 1, f'{run} has not entered {owned.name}'
            if owned.stateful:
                assert times[id(owned)] <= 1, f'{run} has entered {owned.name} twice'
        kinds = [happened.kind for happened in self.of(run, 'enter', 'model')]
        assert kinds == sorted(kinds), f'{run} has entered a toolset after its first request'
        check_balance(events, True, stack_of=lambda toolset: made.get(id(toolset)), once=lambda toolset: False)

    def made(self) -> dict[int, Any]:
        return {id(happened.toolset): happened.toolset for happened in self.world.of('made')}

    def check_exits(self, run: str) -> None:
        """Check what a run's exits got, and that the runs inside of it had ended by then."""
        above = enclosing(run)
        cancel = Event('cancel', None, run)
        events: list[Event] = []
        exiting = False
        cancelled_below = False
        for happened in self.world.events:
            cancelled_below = cancelled_below or (happened.kind == 'cancel' and run in enclosing(happened.run))
            if happened.run == run:
                if cancelled_below and happened.kind == 'fault' and isinstance(happened.got[1], asyncio.CancelledError):
                    # A tool that doesn't know whether it's meant passes the cancellation of a sub-agent on
                    events.append(cancel)
                events.append(happened)
                exiting = exiting or happened.kind == 'exit'
            elif happened.run in above and happened.kind in ('cancel', 'fault'):
                # Which ends the tool calls there
                events.append(cancel)
            elif run in enclosing(happened.run):
                assert not exiting, f'{happened.run} went on after {run} had begun to exit its toolsets'
        world = self.world
        made = self.made()
        check_exits(events, world.outcomes[run], world.plans[run], lambda each: id(each) not in made)

    def check_values(self, run: str) -> None:
        """Check that the state of a run's own toolsets is from the run, those below it, and a snapshot only."""
        for owned in self.works[run].owned:
            if owned.stateful and owned not in self.world.shared():
                for value in owned.values[len(self.world.snapshots.get(id(owned), [])) :]:
                    assert run in [value, *enclosing(value)], f'{owned.name} of {run} has a value of {value}'

    def check_refused(self, run: str) -> None:
        """Check that the run was not refused."""
        refused = [happened.got[0] for happened in self.of(run, 'refused')]
        assert refused == [], f'{run} was refused: {refused}'

    def check_success(self, run: str) -> None:
        """Check that a run that succeeded has done all that was planned, whatever became of its sub-agents."""
        assert len(self.of(run, 'model')) == self.world.steps_of(run) + 1, f'{run} has ended early'


def check_originals(world: World) -> None:
    """Check that originals that no agent shares are as they were, and that the others were exited as often as they were entered."""
    shared = world.shared()
    for original in {each for toolsets in world.toolsets for top in toolsets for each in top.walk()}:
        toolset: Any = original.toolset
        if toolset in shared:
            happened = Counter(happened.kind for happened in world.of('enter', 'exit') if happened.toolset is toolset)
            assert happened['enter'] == happened['exit'], f'{toolset.name} was not exited as often as it was entered'
        elif original.kind == 'original' and toolset.stateful:
            assert toolset.values == [], f'{toolset.name} has state'


def check_owners(world: World) -> None:
    """Check that no toolset was entered by a run while another one had it, apart from those that are for all runs."""
    shared = world.shared()
    owners: dict[int, str] = {}
    for happened in world.of('enter', 'exit'):
        toolset = happened.toolset
        if type(toolset) is Server or toolset in shared or not toolset.stateful:
            continue
        if happened.kind == 'enter':
            before = owners.setdefault(id(toolset), happened.run)
            assert before == happened.run, f'{happened.run} entered {toolset.name} of {before}'
        else:
            assert owners.pop(id(toolset), None) == happened.run, f'{happened.run} exited {toolset.name}'
    assert owners == {}


@settings(max_examples=settings().max_examples // 4)
@given(scenarios())
def test_random_sub_agents_keep_the_contract(scenario: Scenario):
    world = asyncio.run(play(scenario))
    FIGURES['runs'] += len(world.outcomes)
    FIGURES['faults'] += count_faults(world)
    for run, outcome in world.outcomes.items():
        event(f'{len(enclosing(run))} deep: {type(outcome).__name__}')
        note(f'{run} of agent {world.agent_of(run)}: {outcome!r}')
        for happened in world.events:
            if happened.run == run:
                error = [repr(each) for each in happened.got if isinstance(each, BaseException)]
                note(f'    {happened.kind} {getattr(happened.toolset, "name", "")} {" ".join(error)}')
    contract = Contract(world)
    for run, outcome in world.outcomes.items():
        contract.check_asked(run)
        contract.check_used(run)
        contract.check_entered(run)
        contract.check_exits(run)
        contract.check_values(run)
        contract.check_refused(run)
        if outcome is None and not contract.of(run, 'left'):
            contract.check_success(run)
    check_originals(world)
    check_owners(world)


@not_on_1
@settings(max_examples=settings().max_examples // 16)
@given(scenarios())
def test_b39_random_sub_agents_leave_nothing(scenario: Scenario):
    """Python's cyclic garbage collector is needed only for what exceptions hold, and wrappers that refer to themselves."""
    # The base's wrappers that prepare tools by a function of their own refer to themselves in it
    cyclic = 'SetMetadataToolset' in repr(scenario) or 'IncludeReturnSchemasToolset' in repr(scenario)
    failing = cyclic or bool(scenario.faults or scenario.cancel)
    gc.collect()
    gc.disable()
    try:
        world = asyncio.run(play(scenario))
        failing = failing or any(world.outcomes.values())
        wired = {id(each.toolset) for toolsets in world.toolsets for top in toolsets for each in top.walk()}
        made = [happened.toolset for happened in world.events if happened.toolset is not None]
        left = [weakref.ref(toolset) for toolset in made if id(toolset) not in wired]
        for container in (world.events, world.outcomes, world.given, world.tasks, made):
            container.clear()
        if failing:
            gc.collect()
        alive = {id(toolset) for each in left if (toolset := each()) is not None}
        assert not alive, f'{len(alive)} of {len({id(each) for each in left})} were not freed'
    finally:
        gc.enable()
