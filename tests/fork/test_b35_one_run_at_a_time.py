"""B35: two runs at once with one scope are refused, with an error of its own that names both agents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope

from .delegation import calling, delegating
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


def check_refused(error: BaseException, *agents: str) -> None:
    assert type(error) is UserError, repr(error)
    for agent in agents:
        assert repr(agent) in str(error)


@methods
async def test_b35_second_run_is_refused_with_the_names_of_both_agents(method: str):
    journal = Journal()
    one, two = Session('one', journal), Session('two', journal)
    inside, go = asyncio.Event(), asyncio.Event()

    async def wait(value: str) -> None:
        inside.set()
        await go.wait()

    first = calling(['wait'], toolsets=[one, two], tools=[wait], name='Ada')
    second = calling(['one', 'two'], toolsets=[one, two, Server('s', journal)], name='Bob')
    async with ToolsetScope(one, two) as chat:
        task = asyncio.ensure_future(run_as('first', first, method, toolsets=[chat]))
        await inside.wait()
        with pytest.raises(UserError) as caught:
            await run_as('second', second, method, toolsets=[chat])
        check_refused(caught.value, 'Ada', 'Bob')
        await run_as('not given', second, method)
        go.set()
        await task
        await run_as('second', second, method, toolsets=[chat])
        assert chat.instance_of(one).values == ['second']
    assert journal.names('exit')[-2:] == ['two', 'one']
    assert journal.names('enter').count('one') == journal.names('exit').count('one') == 2


@methods
async def test_b35_second_run_that_starts_at_any_step_gets_the_error_alone(method: str):
    """Never in a group, and the first run never notices."""
    for step in range(1000):
        journal = Journal()
        session = Session('t', journal)
        first, second = (calling(['t'], toolsets=[session], name=name) for name in ('Ada', 'Bob'))
        async with ToolsetScope(session) as chat:
            task = asyncio.ensure_future(run_as('first', first, method, toolsets=[chat]))
            for _ in range(step):
                await asyncio.sleep(0)
            ended = task.done()
            try:
                await run_as('second', second, method, toolsets=[chat])
            except BaseException as error:  # noqa: BLE001 (the type is what is checked)
                check_refused(error, 'Ada', 'Bob')
            try:
                assert await task == 'done'
            except UserError as error:
                # The second may have begun before it
                assert step == 0
                check_refused(error, 'Ada', 'Bob')
            assert chat.instance_of(session).values in (['first'], ['first', 'second'], ['second'])
        assert journal.lifecycle == ['+t', '-t']
        if ended:
            break
    else:
        pytest.fail('The run never ended')


@methods
async def test_b35_runs_that_start_together_are_one_and_refused_ones(method: str):
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session], name='Ada')
    async with ToolsetScope(session) as chat:
        runs = [run_as(f'run{number}', agent, method, toolsets=[chat]) for number in range(5)]
        outcomes: list[Any] = await asyncio.gather(*runs, return_exceptions=True)
        assert outcomes.count('done') == 1
        for outcome in outcomes:
            if outcome != 'done':
                check_refused(outcome, 'Ada')
        assert len(chat.instance_of(session).values) == 1


async def test_b35_sub_agent_that_is_given_the_scope_of_its_parent_is_a_second_run():
    journal = Journal()
    session = Session('t', journal)
    child = calling(['t'], toolsets=[session], name='child')
    async with ToolsetScope(session) as chat:
        delegate = delegating(child, options=lambda ctx: {'toolsets': [chat]})
        with pytest.raises(UserError) as caught:
            await run_as('parent', calling(['delegate'], toolsets=[session, delegate], name='boss'), toolsets=[chat])
        check_refused(caught.value, 'boss', 'child')
        await run_as('child', child, toolsets=[chat])


async def test_b35_runs_in_scopes_of_their_own_go_on_at_once():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], ['t'], toolsets=[session])

    async def chat() -> list[str]:
        async with ToolsetScope(session) as scope:
            for _ in range(3):
                await run_as('run', agent, toolsets=[scope])
            return scope.instance_of(session).values

    assert await asyncio.gather(*(chat() for _ in range(50))) == [['run'] * 6] * 50
    assert journal.names('copy') == ['t'] * 50
