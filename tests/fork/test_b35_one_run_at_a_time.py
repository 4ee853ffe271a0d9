"""B35: two runs at once with one scope are refused, with an error of its own that names both agents."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope

from .delegation import calling
from .toolsets import METHODS, Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


def check_refused(error: BaseException, *agents: str) -> None:
    assert type(error) is UserError, repr(error)
    for agent in agents:
        assert repr(agent) in str(error)


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
