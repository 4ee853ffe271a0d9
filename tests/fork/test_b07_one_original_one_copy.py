"""B7: one original is one copy within a run, wherever and however often it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
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
