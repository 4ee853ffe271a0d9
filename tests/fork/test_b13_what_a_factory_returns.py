"""B13: what a factory returns is used as it is: freshness is the factory's promise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext
from pydantic_ai.toolsets import CombinedToolset

from .factories import AT_EACH_STEP, FACTORIES, FACTORIES_BY_METHOD, FUNCTIONS, WAYS, Made, given_to
from .line import WRAPPERS
from .toolsets import METHODS, HandWritten, Journal, Server, Session, WithoutCopy, run_as, scripted

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Session, WithoutCopy, Server])


@pytest.mark.parametrize(('place', 'method'), WAYS)
@pytest.mark.parametrize('factory', FACTORIES)
async def test_b13_same_instance_in_runs_one_after_another_is_used_as_it_is(factory: str, place: str, method: str):
    journal = Journal()
    session = Session('t', journal)
    with given_to(place, [FACTORIES[factory](lambda: session)], scripted(['t'], ['t'])) as run:
        for name in 'abc':
            assert await run(name, method) == 'done'
    assert session.values == ['a', 'a', 'b', 'b', 'c', 'c']
    assert journal.lifecycle == ['+t', '-t'] * 3
    assert journal.of('copy') == []


INSIDE: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'CombinedToolset': lambda toolset: CombinedToolset([Server('s', Journal()), toolset]),
    'HandWritten': HandWritten,
}


@kinds
@pytest.mark.parametrize('inside', INSIDE)
@pytest.mark.parametrize('factory', FUNCTIONS)
async def test_b13_what_is_returned_is_used_as_it_is_wherever_it_stands(factory: str, inside: str, kind: type[Server]):
    journal = Journal()
    toolset = INSIDE[inside](kind('t', journal))
    agent = Agent(scripted(['t'], ['t']), toolsets=[FUNCTIONS[factory](lambda: toolset)])
    for run in 'ab':
        await run_as(run, agent)
    (used,) = {event.toolset for event in journal.of('call')}
    assert used.values == ['a', 'a', 'b', 'b']
    assert (journal.lifecycle, journal.of('copy')) == (['+t', '-t'] * 2, [])


@pytest.mark.parametrize(('factory', 'method'), FACTORIES_BY_METHOD)
async def test_b13_same_instance_in_runs_at_the_same_time_is_not_refused(factory: str, method: str):
    """As on the base. A factory that returns one instance again and again shares it."""
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: session)])
    assert await asyncio.gather(*(run_as(name, agent, method) for name in 'abc')) == ['done'] * 3
    assert sorted(session.values) == ['a', 'b', 'c']
    assert journal.of('copy') == []
    assert len(journal.of('enter')) == len(journal.of('exit')) >= 1


@pytest.mark.parametrize('factory', FUNCTIONS)
async def test_b13_instance_that_stands_in_the_list_too_is_copied_there(factory: str):
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['x_t', 't']), toolsets=[session.prefixed('x'), FUNCTIONS[factory](lambda: session)])
    for name in 'ab':
        await run_as(name, agent)
    assert session.values == ['a', 'b']
    assert [copy.got[0].values for copy in journal.of('copy')] == [['a'], ['b']]


@pytest.mark.parametrize('factory', AT_EACH_STEP)
async def test_b13_function_of_the_context_can_return_the_same_instance_at_each_step(factory: str):
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['t'], ['t']), toolsets=[AT_EACH_STEP[factory](lambda: session)])
    await run_as('a', agent)
    assert journal.lifecycle == ['+t', '-t']
    assert session.values == ['a', 'a']


async def test_b13_instance_of_an_earlier_step_can_be_used_by_other_runs():
    def factory(ctx: RunContext[Any]) -> Session:
        return t if ctx.run_step == 1 else u

    class Delegates(Session):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            assert await run_as('inner', inner) == 'done'
            return await super().call_tool(*args, **kwargs)

    journal = Journal()
    t, u = Session('t', journal), Delegates('u', journal)
    inner = Agent(scripted(['t']), toolsets=[lambda: t])
    await run_as('outer', Agent(scripted(['t'], ['u']), toolsets=[factory]))
    assert t.values == ['outer', 'inner']
    assert journal.lifecycle == ['+t', '-t', '+u', '+t', '-t', '-u']


@pytest.mark.parametrize('method', METHODS)
async def test_b13_runs_with_new_instances_do_not_disturb_each_other(method: str):
    journal = Journal()
    agent = Agent(scripted(['t', 'u']), toolsets=[Made(journal, Session, 't'), lambda ctx: Session('u', journal)])
    names = [str(number) for number in range(20)]
    assert await asyncio.gather(*(run_as(name, agent, method) for name in names)) == ['done'] * 20
    assert sorted(event.toolset.values for event in journal.of('call')) == sorted([[name] for name in names] * 2)
