"""B6, and what else means something for the toolsets that capabilities contribute, and in sessions with realtime models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    FunctionToolset,
    RunContext,
    UserError,
)
from pydantic_ai.capabilities import AbstractCapability

from .capabilities import contributing
from .line import ALONE_OR_WRAPPED
from .toolsets import METHODS, Journal, Requests, Server, Session, WithoutCopy, run_as, scripted

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('method', METHODS)
async def test_b06_toolset_of_capability_is_copied_for_each_run(method: str):
    journal = Journal()
    session = Session('session', journal)
    agent = Agent(scripted(['session'], ['session']), capabilities=[contributing(session)])

    for name in ('one', 'two'):
        await run_as(name, agent, method)

    copies = [event.got[0] for event in journal.of('copy')]
    assert [copy.values for copy in copies] == [['one', 'one'], ['two', 'two']]
    assert session.values == []
    assert [event.toolset for event in journal.of('enter', 'exit')] == [copies[0]] * 2 + [copies[1]] * 2


@pytest.mark.parametrize('make', [Server, Session])
async def test_b05_toolset_of_capability_sees_the_exception(make: Callable[..., Server]):
    journal = Journal()
    error = ValueError('the model is down')
    toolset = make('toolset', journal)
    agent = Agent(scripted(['toolset'], error), capabilities=[contributing(toolset)])

    with pytest.raises(ValueError, match='the model is down'):
        await agent.run('go')

    assert journal.lifecycle == ['+toolset', '-toolset']
    assert journal.exit_of('toolset')[:2] == (ValueError, error)


@pytest.mark.parametrize('by', ['agent', 'run'])
@pytest.mark.parametrize('method', METHODS)
async def test_b02_toolset_of_capability_that_cannot_be_copied_is_refused(method: str, by: str):
    journal, requests = Journal(), Requests()
    capability = contributing(WithoutCopy('toolset', journal).prefixed('x'))
    with pytest.raises(UserError, match=r"'toolset'.*`copy\(\)"):
        if by == 'run':
            await METHODS[method](Agent(requests.model), capabilities=[capability])
        else:
            await METHODS[method](Agent(requests.model, capabilities=[capability]))
    assert (requests.count, journal.of('enter')) == (0, [])


async def test_b16_toolset_of_parent_and_capability_of_child_is_the_live_one():
    journal = Journal()
    session = Session('session', journal)
    child = Agent(scripted(['session']), capabilities=[contributing(session)])

    async def delegate(value: str) -> str:
        return await run_as('child', child)

    agent = Agent(scripted(['session'], ['delegate']), toolsets=[session, FunctionToolset([delegate])])
    await run_as('parent', agent)

    assert [event.got[0].values for event in journal.of('copy')] == [['parent', 'child']]
    assert journal.lifecycle == ['+session', '-session']


@pytest.mark.parametrize('returns', ['itself', 'kept', 'new'])
@pytest.mark.parametrize('wrap', ALONE_OR_WRAPPED.values(), ids=ALONE_OR_WRAPPED)
@pytest.mark.parametrize('given', ['agent', 'run'])
async def test_b06_capability_whose_for_run_keeps_its_toolset_does_not_leak(given: str, wrap: Any, returns: str):
    """What a run works with is its own, whether `for_run()` returns the capability, one that it kept, or one around a kept toolset."""
    journal = Journal()
    session = wrap(Session('t', journal))

    class Keeps(AbstractCapability[Any]):
        async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
            return {'itself': self, 'kept': kept, 'new': Keeps()}[returns]

        def get_toolset(self) -> Any:
            return session

    kept, capability = Keeps(), Keeps()
    listed: list[Any] = [capability]
    agent = Agent(scripted(['t']), capabilities=[] if given == 'run' else listed)
    for run in ('first', 'second'):
        await run_as(run, agent, **({'capabilities': listed} if given == 'run' else {}))  # pyright: ignore
    assert [event.toolset.values for event in journal.of('call')] == [['first'], ['second']]
    assert journal.lifecycle == ['+t', '-t'] * 2
