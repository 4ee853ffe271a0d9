"""B6, and what else means something for the toolsets that capabilities contribute, and in sessions with realtime models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    RunContext,
    UnexpectedModelBehavior,
    UserError,
    WrapperToolset,
)
from pydantic_ai.capabilities import AbstractCapability
from typing_extensions import Self

from .capabilities import contributing, realtime_session, wrapping
from .line import ALONE_OR_WRAPPED
from .toolsets import METHODS, SUCCESS, Journal, Requests, Server, Session, WithoutCopy, run_as, scripted

pytestmark = pytest.mark.anyio


class Counting(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def __init__(self, wrapped: AbstractToolset[Any], journal: Journal, name: str = 'wrapper'):
        super().__init__(wrapped)
        self.journal = journal
        self.name = name

    def copy(self) -> Self:
        copy = type(self)(self.wrapped.copy(), self.journal, self.name)
        self.journal.note('copy', self, copy)
        return copy

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.journal.note('enter', self)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.journal.note('exit', self, *args)
        return await super().__aexit__(*args)


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


async def test_b06_toolset_of_capability_of_run_is_copied():
    journal = Journal()
    session = Session('session', journal)
    capability = contributing(session)
    agent = Agent(scripted(['session']))

    await asyncio.gather(*(run_as(name, agent, capabilities=[capability]) for name in ('one', 'two')))

    assert sorted(event.got[0].values for event in journal.of('copy')) == [['one'], ['two']]
    assert session.values == []


async def test_b07_toolset_of_agent_and_capability_is_one_copy():
    journal = Journal()
    session = Session('session', journal)
    agent = Agent(
        scripted(['session'], ['x_session']), toolsets=[session], capabilities=[contributing(session.prefixed('x'))]
    )

    await run_as('one', agent)

    assert [event.got[0].values for event in journal.of('copy')] == [['one', 'one']]
    assert journal.lifecycle == ['+session', '-session']


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


async def test_b12_factory_of_capability_is_called_once_per_run():
    journal = Journal()
    made: list[Server] = []

    def make() -> Server:
        made.append(Server('server', journal))
        return made[-1]

    agent = Agent(scripted(['server'], ['server']), capabilities=[contributing(make)])
    for name in ('one', 'two'):
        await run_as(name, agent)

    assert [server.values for server in made] == [['one', 'one'], ['two', 'two']]


async def test_b09_async_with_agent_enters_what_runs_share_of_capabilities():
    journal = Journal()
    server, session = Server('server', journal), Session('session', journal)
    factory = lambda: Session('made', journal)
    capabilities = [contributing(each) for each in (server, session, factory)]
    agent = Agent(Requests().model, capabilities=capabilities)

    async with agent:
        assert journal.lifecycle == ['+server']

    assert journal.lifecycle == ['+server', '-server']
    assert journal.exit_of('server') == SUCCESS


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


async def test_b10_wrapper_of_capability_with_state_is_entered_once_and_sees_the_exception():
    journal = Journal()
    error = ValueError('the model is down')
    session = Session('session', journal)
    agent = Agent(
        scripted(['session'], error),
        toolsets=[session],
        capabilities=[wrapping(lambda toolset: Counting(toolset, journal))],
    )

    for name in ('one', 'two'):
        with pytest.raises(ValueError, match='the model is down'):
            await run_as(name, agent)

    assert journal.lifecycle == ['+session', '+wrapper', '-wrapper', '-session'] * 2
    assert [event.got[1] for event in journal.of('exit')] == [error] * 4
    sessions = [event.got[0] for event in journal.of('copy') if event.toolset is session]
    assert [copy.values for copy in sessions] == [['one'], ['two']]
    assert session.values == []


async def test_b18_for_sub_agent_hands_on_no_toolset_of_a_capability():
    journal = Journal()
    given, own = Session('given', journal), Session('own', journal)
    handed: list[int] = []

    async def delegate(ctx: RunContext[Any], value: str) -> str:
        toolsets = ctx.for_sub_agent()
        handed.append(len(toolsets))
        return await run_as('child', Agent(scripted(['given'], ['own']), retries=0), toolsets=toolsets)

    agent = Agent(
        scripted(['own'], ['given'], ['delegate']),
        toolsets=[given, FunctionToolset([delegate])],
        capabilities=[contributing(own), wrapping(lambda toolset: Counting(toolset, journal))],
    )
    with pytest.raises(UnexpectedModelBehavior, match='own'):
        await run_as('parent', agent)

    assert handed == [2]
    assert [(event.toolset.name, event.run) for event in journal.of('call')] == [
        ('own', 'parent'),
        ('given', 'parent'),
        ('given', 'child'),
    ]


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


async def test_b06_realtime_session_works_with_a_copy():
    journal = Journal()
    session, of_capability = Session('session', journal), Session('of_capability', journal)
    agent = Agent(toolsets=[session], capabilities=[contributing(of_capability)])

    for _ in range(2):
        async with realtime_session(agent, 'session', 'of_capability') as realtime:
            async for _ in realtime:
                pass

    copies = [event.got[0] for event in journal.of('copy')]
    assert [copy.values for copy in copies] == [['call']] * 4
    assert session.values == of_capability.values == []
    assert [event.got for event in journal.of('exit')] == [SUCCESS] * 4


async def test_b05_realtime_session_passes_its_exception_to_exits():
    journal = Journal()
    error = ValueError('in the body')
    agent = Agent(toolsets=[Session('session', journal), Server('server', journal)])

    with pytest.raises(ValueError, match='in the body'):
        async with realtime_session(agent):
            raise error

    assert journal.lifecycle == ['+session', '+server', '-server', '-session']
    assert [event.got[1] for event in journal.of('exit')] == [error, error]


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
