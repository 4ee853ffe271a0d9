"""B29 on DBOS and a real PostgreSQL: a stateful toolset is copied for each run, inside the workflow."""

from __future__ import annotations

import asyncio

import pytest
from dbos import DBOS
from pydantic_ai import UserError

from ..line import GIVEN_TOOLSETS, WAYS_TO_MAKE_DURABLE
from ..toolsets import SUCCESS, Journal, Server, Session, scripted
from .agents import INSIDE, call_given, for_dbos, run_as

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures('dbos'),
    pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE),
]


@pytest.mark.parametrize('method', ['run', 'run_sync'])
async def test_b29_each_workflow_has_its_own_copy(way: str, method: str):
    journal = Journal()
    session, server = Session('session', journal), Server('server', journal)
    agent = for_dbos(way, scripted(['session', 'server'], ['session']), [session, server])
    DBOS.launch()

    for name in ('first', 'second'):
        await run_as(name, agent, method)

    (one, one_again, two, two_again) = [event.toolset for event in journal.of('call') if event.toolset is not server]
    assert one is one_again is not two is two_again
    assert session.values == []
    assert one.values == ['first', 'first']
    assert two.values == ['second', 'second']
    assert server.values == ['first', 'second']
    assert journal.lifecycle == ['+session', '+server', '-server', '-session'] * 2
    assert len(await DBOS.list_workflows_async(status='SUCCESS', name=f'agent.{method}')) == 2


async def test_b29_overlapping_workflows_do_not_share(way: str):
    journal = Journal()
    session = Session('session', journal)
    agent = for_dbos(way, scripted(['session'], ['session']), [session])
    DBOS.launch()

    names = [f'run {number}' for number in range(20)]
    await asyncio.gather(*(run_as(name, agent) for name in names))

    copies = {id(event.toolset): event.toolset for event in journal.of('call')}.values()
    assert sorted(copy.values for copy in copies) == sorted([name, name] for name in names)
    assert session.values == []


@pytest.mark.parametrize('wrapper', INSIDE)
async def test_b29_state_inside_other_toolsets_is_copied(way: str, wrapper: str):
    journal = Journal()
    session = Session('session', journal)

    tool = 'x_session' if wrapper == 'PrefixedToolset' else 'session'
    agent = for_dbos(way, scripted([tool]), [INSIDE[wrapper](session)])
    DBOS.launch()

    for name in ('first', 'second'):
        await run_as(name, agent)

    (one, two) = [event.toolset for event in journal.of('call')]
    assert (one.values, two.values, session.values) == (['first'], ['second'], [])


async def test_b29_exits_see_the_exception_of_the_workflow(way: str):
    journal = Journal()
    error = ConnectionError('the model is down')
    agent = for_dbos(way, scripted(['session'], error), [Session('session', journal)])
    DBOS.launch()

    with pytest.raises(ConnectionError, match='the model is down'):
        await run_as('failing', agent)

    exc_type, exc, traceback = journal.exit_of('session')
    assert exc_type is ConnectionError
    assert str(exc) == 'the model is down'
    assert traceback is not None
    assert len(await DBOS.list_workflows_async(status='ERROR', name='agent.run')) == 1


async def test_b29_workflow_of_the_user_with_two_runs(way: str):
    journal = Journal()
    agent = for_dbos(way, scripted(['session']), [Session('session', journal)])

    @DBOS.workflow()
    async def both() -> None:
        for name in ('first', 'second'):
            await run_as(name, agent)

    DBOS.launch()
    await both()

    assert [event.toolset.values for event in journal.of('call')] == [['first'], ['second']]
    assert [event.got for event in journal.of('exit')] == [SUCCESS, SUCCESS]


async def test_b29_toolsets_of_a_run_are_used_or_refused(way: str):
    agent = for_dbos(way, scripted(['given']), [Server('own', Journal())])
    DBOS.launch()

    @DBOS.workflow()
    async def run() -> list[str]:
        return await call_given(agent)

    try:
        assert await run() == ['given']
    except UserError as error:
        assert GIVEN_TOOLSETS in str(error)
