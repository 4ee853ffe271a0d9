"""B7: one original is one copy within a run, wherever and however often it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import METHODS, HandWritten, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio


@dataclass
class Audit(WrapperToolset[Any]):
    """A user's wrapper with state of its own."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), log=[])


class Subclassed(Session):
    """A toolset whose methods call those that they override."""

    def copy(self) -> Self:
        return super().copy()

    async def __aenter__(self) -> Self:
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        return await super().__aexit__(*args)


Trees = Callable[[Any], Sequence[AbstractToolset[Any]]]

TREES: dict[str, Trees] = {
    'beside each other': lambda t: [t.prefixed('a'), t.prefixed('b')],
    'three times': lambda t: [t.prefixed('a'), t, t.prefixed('b')],
    'in a combination': lambda t: [CombinedToolset([t.prefixed('a'), t.prefixed('b')])],
    'in a combination and beside it': lambda t: [
        CombinedToolset([Server('x', t.journal), t.prefixed('a')]),
        t.prefixed('b'),
    ],
    'at different depths': lambda t: [t.prefixed('a'), CombinedToolset([CombinedToolset([t.prefixed('b')])])],
    'in a hand-written wrapper': lambda t: [HandWritten(t.prefixed('a')), t.prefixed('b')],
    'in hand-written wrappers': lambda t: [HandWritten(t).prefixed('a'), HandWritten(HandWritten(t)).prefixed('b')],
    'in a hand-written wrapper of a combination': lambda t: [
        HandWritten(CombinedToolset([t.prefixed('a'), HandWritten(t).prefixed('b')]))
    ],
    "in a user's wrapper": lambda t: [Audit(t).prefixed('a'), t.prefixed('b')],
    "in two users' wrappers": lambda t: [Audit(t).prefixed('a'), HandWritten(Audit(t.prefixed('b')))],
    **{
        f'in a {name}': lambda t, wrap=wrap: [wrap(t).prefixed('a'), t.prefixed('b')] for name, wrap in WRAPPERS.items()
    },
}
"""Lists in which a toolset called `t` stands such that tools end in `t`, after `a_` and `b_` among others."""

trees = pytest.mark.parametrize('tree', TREES.values(), ids=TREES.keys())
kinds = pytest.mark.parametrize('kind', [Session, Subclassed])


async def tool_names(agent: Agent[Any, Any]) -> list[str]:
    """Return the names of the tools that end in `t`."""
    names: list[str] = []

    async def note(ctx: RunContext[Any], tool_defs: list[Any]) -> list[Any]:
        names.extend(tool_def.name for tool_def in tool_defs if tool_def.name.endswith('t'))
        return tool_defs

    noting = CombinedToolset(list(agent.toolsets)).prepared(note)
    await Agent(scripted(), toolsets=[noting]).run('go')
    return names


async def check(session: Session, tree: Sequence[AbstractToolset[Any]], method: str = 'run') -> None:
    """Check that all places of the session share one copy in each run."""
    journal = session.journal
    names = await tool_names(Agent(scripted(), toolsets=tree))
    assert len(names) > 1
    journal.events.clear()

    agent = Agent(scripted(names, names), toolsets=tree)
    await asyncio.gather(*(run_as(run, agent, method) for run in 'abc'))

    assert session.values == []
    for run in 'abc':
        events = [event for event in journal.events if event.run == run and event.toolset.name == 't']
        (made,) = (event for event in events if event.kind == 'copy')
        assert made.toolset is session
        (copy,) = made.got
        assert all(event.toolset is copy for event in events if event is not made)
        assert copy.values == [run] * len(names) * 2
        kinds = [event.kind for event in events]
        assert kinds.count('enter') == kinds.count('exit') == 1
        assert kinds[:2] == ['copy', 'enter']
        assert kinds[-1] == 'exit'


@trees
@kinds
async def test_b07_toolset_in_several_places_is_one_copy_per_run(tree: Trees, kind: type[Session]):
    session = kind('t', Journal())
    await check(session, tree(session))


@pytest.mark.parametrize('method', METHODS)
async def test_b07_toolset_in_several_places_is_one_copy_in_each_kind_of_run(method: str):
    session = Session('t', Journal())
    await check(session, [session.prefixed('a'), HandWritten(session).prefixed('b')], method)


async def test_b07_toolset_given_to_agent_and_run_is_one_copy():
    session = Session('t', Journal())
    agent = Agent(scripted(['a_t', 'b_t']), toolsets=[session.prefixed('a')])
    await agent.run('go', toolsets=[session.prefixed('b')])
    assert session.journal.lifecycle == ['+t', '-t']
    (made,) = session.journal.of('copy')
    assert made.got[0].values == ['', '']


async def test_b07_toolset_twice_in_an_override_is_one_copy():
    session = Session('t', Journal())
    agent = Agent(scripted(['a_t', 'b_t']))
    with agent.override(toolsets=[session.prefixed('a'), session.prefixed('b')]):
        await agent.run('go')
    assert session.journal.lifecycle == ['+t', '-t']


async def test_b07_wrapper_in_several_places_is_one_copy():
    class Counting(Audit):
        def copy(self) -> Self:
            made = super().copy()
            copies.append(made)
            return made

    copies: list[Counting] = []
    session = Session('t', Journal())
    audit = Counting(session)
    agent = Agent(scripted(['a_t', 'b_t']), toolsets=[audit.prefixed('a'), HandWritten(audit).prefixed('b')])
    await agent.run('go')
    assert len(copies) == 1
    assert session.journal.lifecycle == ['+t', '-t']
    assert len(session.journal.of('copy')) == 1


async def test_b07_wrapper_in_several_places_is_entered_once():
    class Entered(Audit):
        async def __aenter__(self) -> Self:
            entered.append(self)
            return await super().__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            exited.append(self)
            return await super().__aexit__(*args)

    entered: list[Entered] = []
    exited: list[Entered] = []
    audit = Entered(Server('t', Journal()))
    agent = Agent(scripted(['a_t', 'b_t']), toolsets=[audit.prefixed('a'), HandWritten(audit).prefixed('b')])
    await agent.run('go')
    assert len(entered) == len(exited) == 1
    assert entered[0] is exited[0] is not audit


async def test_b07_exits_run_in_reverse_order_of_the_first_entries():
    journal = Journal()
    t, u = Session('t', journal), Session('u', journal)
    toolsets = [
        t.prefixed('a'),
        Server('s', journal),
        CombinedToolset([u.prefixed('b'), t.prefixed('c')]),
        HandWritten(u).prefixed('d'),
    ]
    await Agent(scripted(), toolsets=toolsets).run('go')
    assert journal.lifecycle == ['+t', '+s', '+u', '-u', '-s', '-t']


async def test_b07_toolset_in_several_places_whose_run_fails_is_exited_once_with_the_exception():
    journal = Journal()
    error = RuntimeError('model')
    t = Session('t', journal)
    agent = Agent(scripted(error), toolsets=[t.prefixed('a'), HandWritten(t.prefixed('b'))])
    with pytest.raises(RuntimeError):
        await agent.run('go')
    assert journal.exit_of('t')[1] is error


async def test_b07_toolset_in_several_places_that_fails_to_enter_is_tried_once():
    journal = Journal()
    error = RuntimeError('enter')
    t = Session('t', journal, fail={'enter': error})
    toolsets = [Server('first', journal), t.prefixed('a'), t.prefixed('b')]
    with pytest.raises(RuntimeError):
        await Agent(scripted(), toolsets=toolsets).run('go')
    assert journal.lifecycle == ['+first', '-first']
    assert journal.exit_of('first')[1] is error


async def test_b07_toolset_in_two_places_one_of_which_fails_to_enter_is_exited_once():
    journal = Journal()
    error = RuntimeError('enter')
    t = Session('t', journal)
    faulty = Server('faulty', journal, fail={'enter': error})
    with pytest.raises(RuntimeError):
        await Agent(scripted(), toolsets=[t.prefixed('a'), CombinedToolset([t.prefixed('b'), faulty])]).run('go')
    assert journal.lifecycle == ['+t', '-t']
    assert journal.exit_of('t')[1] is error


async def test_b07_two_originals_of_a_class_are_two_copies():
    journal = Journal()
    t, u = Session('t', journal), Session('u', journal)
    await Agent(scripted(['t', 'u']), toolsets=[t, u]).run('go')
    assert [event.toolset for event in journal.of('copy')] == [t, u]
    assert journal.lifecycle == ['+t', '+u', '-u', '-t']


async def test_b07_copy_called_between_runs_is_no_copy_of_a_run():
    session = Session('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[session])
    await agent.run('go')
    own = session.copy()
    assert own is not session.copy()
    async with own, own:
        pass
    assert session.journal.lifecycle == ['+t', '-t', '+t', '+t', '-t', '-t']


async def test_b07_stateless_toolset_in_several_places_is_entered_as_on_the_base():
    journal = Journal()
    server = Server('t', journal)
    await Agent(scripted(['a_t', 'b_t']), toolsets=[server.prefixed('a'), server.prefixed('b')]).run('go')
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']
    assert server.values == ['', '']


@pytest.mark.parametrize('per_run_step', [True, False])
async def test_b07_toolset_that_is_not_stateful_and_overrides_for_run_is_asked_in_each_place(per_run_step: bool):
    """As on the base: so are dynamic toolsets."""
    journal = Journal()
    asked: list[str] = []

    class Connects(Server):
        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            asked.append(self.name)
            return Server(self.name, self.journal)

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        asked.append('made')
        return Server('made', journal)

    connects, dynamic = Connects('t', journal), DynamicToolset(make, per_run_step=per_run_step)
    places = [toolset.prefixed(prefix) for toolset in (connects, dynamic) for prefix in 'ab']
    await run_as('run', Agent(scripted(['a_t', 'b_t', 'a_made', 'b_made']), toolsets=[*places, Session('s', journal)]))
    assert asked.count('t') == 2
    assert asked.count('made') == (4 if per_run_step else 2)
    assert [event.toolset.values for event in journal.of('call')] == [['run']] * 4
