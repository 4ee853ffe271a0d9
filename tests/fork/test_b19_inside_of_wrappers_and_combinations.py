"""B19: wrappers, combinations and dynamic toolsets pass `for_sub_agent` on, and may mix what's borrowed and owned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .delegation import (
    Ledger,
    Notes,
    Options,
    called,
    calling,
    calls,
    delegating,
    entries_and_exits,
    forked,
    fresh,
    parent_of,
)
from .line import WRAPPERS
from .toolsets import Event, Journal, Server, run_as

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])
answers = pytest.mark.parametrize('answer', [None, fresh], ids=['borrowed', 'owned'])


@dataclass
class Audit(WrapperToolset[Any]):
    """A user's wrapper with state of its own, that says nothing about sub-agents."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])
    entered: list[int] = field(default_factory=list[int])
    made: list[Any] = field(default_factory=list[Any])
    shared_attributes = frozenset({'made'})

    def copy(self) -> Self:
        copy = replace(self, wrapped=self.wrapped.copy(), log=[], entered=[])
        self.made.append(copy)
        return copy

    async def __aenter__(self) -> Self:
        self.entered.append(1)
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        self.entered.append(-1)
        return await super().__aexit__(*args)

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: Any) -> Any:
        self.log.append(f'{tool_args["value"]}: {name}')
        return await super().call_tool(name, tool_args, ctx, tool)


@dataclass
class OwnLog(Audit):
    """One that builds the sub-agent's around what the inside answered, as the contract's example does."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        new = replace(self, wrapped=self.wrapped.for_sub_agent(ctx), log=['begin'], entered=[])
        self.made.append(new)
        return new


@dataclass
class Keeps(Audit):
    """One that puts the live inside into its own without asking it."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        new = replace(self, log=['begin'], entered=[])
        self.made.append(new)
        return new


@dataclass
class Totals(CombinedToolset[Any]):
    """A combination with state of its own."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])
    made: list[Any] = field(default_factory=list[Any])
    shared_attributes = frozenset({'made'})

    def copy(self) -> Self:
        copy = replace(self, toolsets=[toolset.copy() for toolset in self.toolsets], log=[])
        self.made.append(copy)
        return copy

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: Any) -> Any:
        self.log.append(f'{tool_args["value"]}: {name}')
        return await super().call_tool(name, tool_args, ctx, tool)


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'CombinedToolset': lambda toolset: CombinedToolset([toolset]),
    'Audit': Audit,
    'OwnLog': OwnLog,
    'Totals': lambda toolset: Totals([toolset]),
    'many': lambda toolset: CombinedToolset(
        [OwnLog(Totals([Audit(toolset).filtered(lambda ctx, tool: True)])).renamed({})]
    ),
}
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())


def check(journal: Journal, answer: Any) -> None:
    """Check that the sub-agent has what the live instance said, and that each has entered and exited its own."""
    live, used = called(journal, 'parent'), called(journal, 'child')
    (asked,) = journal.of('ask')
    assert asked.toolset is live
    assert used is asked.got[1]
    assert (used is live) is (answer is None)
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    if used is not live:
        assert entries_and_exits(journal, used) == [('enter', 'child'), ('exit', 'child')]


@places
@kinds
@answers
async def test_b19_what_is_inside_answers(
    answer: Any, kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    """Whether the agents have the same tree, or trees of their own around the same toolset."""
    journal = Journal()
    notes = kind('t', journal, answer=answer)
    placed = place(notes)
    for of_parent, of_child in ((placed, placed), (placed, place(notes)), (notes, placed), (placed, notes)):
        journal.events.clear()
        await run_as('parent', parent_of(calling(['t'], toolsets=[of_child]), of_parent))
        check(journal, answer)


@places
@kinds
@answers
async def test_b19_for_sub_agent_of_a_tree_passes_the_call_on(
    answer: Any, kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    """Through `ctx.for_sub_agent()`, which asks the live tree."""
    journal = Journal()
    placed = place(kind('t', journal, answer=answer))
    delegate = delegating(calling(['t']), options=lambda ctx: {'toolsets': ctx.for_sub_agent(placed)})
    await run_as('parent', calling(['t'], ['delegate'], toolsets=[placed, delegate]))
    check(journal, answer)


async def test_b19_borrowed_and_owned_stand_side_by_side():
    journal = Journal()
    error = RuntimeError('child')
    borrowed, owned = Notes('borrowed', journal), Notes('owned', journal, answer=fresh)
    server, new = Server('server', journal), Notes('new', journal)
    tools = ['borrowed', 'owned', 'server']
    for combine in (CombinedToolset, Totals):
        journal.events.clear()
        tree = combine([borrowed, CombinedToolset([owned, server])])
        child = calling([*tools, 'new'], toolsets=[tree, new, Server('boom', journal, fail={'call': error})])
        failing = calling([*tools, 'new'], ['boom'], toolsets=list(child.toolsets)[1:])
        for agent in (child, failing):
            journal.events.clear()
            parent = calling(tools, ['delegate'], toolsets=[tree, delegating(agent)])
            if agent is child:
                await run_as('parent', parent)
            else:
                with pytest.raises(RuntimeError):
                    await run_as('parent', parent)
            exits = [event for event in journal.of('exit') if event.run == 'child' and event.toolset.name != 'boom']
            # The server is nobody's: whether a sub-agent enters it too makes no difference
            assert [event.toolset.name for event in exits if event.toolset is not server] == ['new', 'owned']
            assert all(event.got[1] is (error if agent is failing else None) for event in exits)
            assert calls(journal, 'child')[0] is calls(journal, 'parent')[0]
            assert calls(journal, 'child')[1] is not calls(journal, 'parent')[1]
            assert calls(journal, 'child')[2] is server


@pytest.mark.parametrize('wrapper', [Audit, OwnLog, Keeps])
@kinds
async def test_b19_wrapper_with_state_gives_the_sub_agent_one_of_its_own(kind: type[Notes], wrapper: type[Audit]):
    journal = Journal()
    notes = kind('t', journal)
    audit = wrapper(notes)
    await run_as('parent', parent_of(calling(['x_t'], toolsets=[audit.prefixed('x')]), audit))
    begin = [] if wrapper is Audit else ['begin']
    of_parent, of_child = audit.made
    assert of_parent.log == ['parent: t', 'parent: delegate', 'parent: t'][::2]
    assert of_child.log == [*begin, 'child: t']
    assert audit.log == audit.entered == []
    assert of_parent.entered == of_child.entered == [1, -1]
    live = called(journal, 'parent')
    assert called(journal, 'child') is live
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b19_combination_with_state_gives_the_sub_agent_one_of_its_own():
    journal = Journal()
    borrowed, owned = Notes('b', journal), Notes('o', journal, answer=fresh)
    totals = Totals([borrowed, owned])
    child = calling(['b', 'o'], toolsets=[totals])
    await run_as('parent', calling(['b', 'o'], ['delegate'], toolsets=[totals, delegating(child)]))
    of_parent, of_child = totals.made
    assert of_parent.log == ['parent: b', 'parent: o']
    assert of_child.log == ['child: b', 'child: o']
    assert calls(journal, 'child')[0] is calls(journal, 'parent')[0]
    assert calls(journal, 'child')[1] is not calls(journal, 'parent')[1]
    assert len(journal.of('copy')) == 2


async def test_b19_tree_is_the_sub_agents_and_exits_with_its_exception():
    class Exits(OwnLog):
        async def __aexit__(self, *args: object) -> bool | None:
            got.append(args[1])
            return await super().__aexit__(*args)

    got: list[Any] = []
    error = RuntimeError('child')
    journal = Journal()
    audit = Exits(Notes('t', journal))
    child = calling(['t'], ['faulty'], toolsets=[audit, Server('faulty', Journal(), fail={'call': error})])

    async def delegate(ctx: RunContext[Any], value: str) -> None:
        with pytest.raises(RuntimeError):
            await run_as('child', child)

    await run_as('parent', calling(['delegate'], ['t'], toolsets=[audit], tools=[delegate]))
    assert got == [error, None]
    assert journal.lifecycle == ['+t', '-t']


@pytest.mark.parametrize('per_step', [True, False])
@answers
@pytest.mark.parametrize('how', ['handed over', 'all handed over', 'shared', 'inside of a wrapper with state'])
@kinds
async def test_b19_dynamic_toolset_passes_it_on_to_what_it_has_made(
    kind: type[Notes], how: str, answer: Any, per_step: bool
):
    """The borrower neither makes another one nor ends its step."""
    made: list[Any] = []

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        made.append(kind('t', journal, answer=answer))
        return made[-1]

    journal = Journal()
    dynamic: AbstractToolset[Any] = DynamicToolset(make, per_run_step=per_step)
    if how.startswith('inside'):
        dynamic = Audit(dynamic)
    child = calling(
        ['t'], ['t'], toolsets={'shared': [dynamic.shared()]}.get(how, [dynamic] if 'inside' in how else [])
    )
    options: dict[str, Options] = {
        'handed over': lambda ctx: {'toolsets': ctx.for_sub_agent(dynamic)},
        'all handed over': lambda ctx: {'toolsets': [ctx.for_sub_agent()[0]]},
    }
    delegate = delegating(child, options=options.get(how))
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[dynamic, delegate]))
    of_delegating_step = made[1 if per_step else 0]
    used = called(journal, 'child')
    if how == 'shared' or answer is None:
        assert used is of_delegating_step
    else:
        assert used is journal.of('ask')[0].got[1]
        assert journal.of('ask')[0].toolset is of_delegating_step
        assert entries_and_exits(journal, used) == [('enter', 'child'), ('exit', 'child')]
    assert len(made) == (4 if per_step else 1)
    for toolset in made:
        assert entries_and_exits(journal, toolset) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b19_dynamic_toolset_that_has_made_nothing_hands_over_nothing():
    async def delegate(ctx: RunContext[Any], value: str) -> str:
        return await run_as('child', calling(), toolsets=ctx.for_sub_agent(dynamic))

    dynamic = DynamicToolset[Any](lambda ctx: None)
    assert await run_as('parent', calling(['delegate'], toolsets=[dynamic], tools=[delegate])) == 'done'


@answers
async def test_b19_toolset_that_is_inside_of_several_is_asked_once(answer: Any):
    journal = Journal()
    notes = Notes('t', journal, answer=answer)
    trees = [Audit(notes).prefixed('a'), CombinedToolset([Audit(notes)]).prefixed('b'), notes]
    child = calling(['a_t', 'b_t', 't'], toolsets=trees)
    parent = calling(['a_t', 'b_t', 't'], ['delegate'], toolsets=[*trees, delegating(child)])
    await run_as('parent', parent)
    check(journal, answer)
    assert called(journal, 'child').values[-3:] == ['child'] * 3


@pytest.mark.parametrize(
    # What a class has built in its own `for_sub_agent()` stands for nothing that was wired
    'place',
    [place for name, place in PLACES.items() if name not in ('OwnLog', 'many')],
)
@pytest.mark.parametrize('is_handed_over', [False, True])
async def test_b19_what_is_inside_of_an_answer_is_live_for_sub_agents_below(
    is_handed_over: bool, place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    """The sub-agent has a snapshot of its own inside, and the one below it begins with that."""
    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    placed = place(notes)
    grandchild = delegating(calling(['t'], toolsets=[notes]), run='grandchild')
    child = calling(['t'], ['delegate'], toolsets=[grandchild])
    options: Options = lambda ctx: {'toolsets': ctx.for_sub_agent(placed) if is_handed_over else [placed]}
    await run_as('parent', calling(['t'], ['delegate'], toolsets=[placed, delegating(child, options=options)]))
    assert called(journal, 'grandchild').values == ['parent', 'child', 'grandchild']


@places
async def test_b19_what_is_inside_of_a_shared_toolset_is_live_for_sub_agents(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    notes = Notes('t', journal)
    await run_as('parent', parent_of(calling(['t'], toolsets=[notes]), place(notes).shared()))
    assert called(journal, 'child') is called(journal, 'parent') is notes
    assert entries_and_exits(journal, notes) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b19_three_levels_of_wrappers():
    """Each level has its own log around the same live toolset."""
    journal = Journal()
    audit = OwnLog(Notes('t', journal))
    agent = calling(['t'], toolsets=[audit])
    for level in (2, 1):
        agent = calling(['t'], ['delegate'], toolsets=[audit, delegating(agent, run=f'level{level}')])
    await run_as('level0', agent)
    assert [made.log for made in audit.made] == [['level0: t'], ['begin', 'level1: t'], ['begin', 'level2: t']]
    assert [made.entered for made in audit.made] == [[1, -1]] * 3
    live = called(journal, 'level0')
    assert live.values == ['level0', 'level1', 'level2']
    assert entries_and_exits(journal, live) == [('enter', 'level0'), ('exit', 'level0')]
    assert all(isinstance(event, Event) for event in journal.events)
