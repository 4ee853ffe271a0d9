"""B8: a copy is entered before the first request and exited once when the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .line import ALONE_OR_WRAPPED
from .toolsets import METHODS, HandWritten, Journal, Server, Session, scripted

pytestmark = pytest.mark.anyio


class Boom(Exception):
    """What the tests raise."""


def noting(journal: Journal) -> FunctionModel:
    """Make a model that writes into the journal when it is asked."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        journal.note('request', model)
        return ModelResponse(parts=[TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        journal.note('request', model)
        yield 'done'

    model = FunctionModel(respond, stream_function=stream)
    return model


@pytest.mark.parametrize('method', METHODS)
async def test_b08_copy_is_entered_before_the_first_request_and_exited_after_the_last(method: str):
    journal = Journal()
    await METHODS[method](Agent(noting(journal), toolsets=[Session('session', journal)]))
    assert [event.kind for event in journal.events] == ['copy', 'enter', 'get_tools', 'request', 'exit']


async def test_b08_copy_is_entered_before_the_body_of_iter_and_exited_after_it():
    journal = Journal()
    async with Agent(noting(journal), toolsets=[Session('session', journal)]).iter('go') as agent_run:
        assert journal.lifecycle == ['+session']
        async for _ in agent_run:
            pass
        assert journal.lifecycle == ['+session']
    assert journal.lifecycle == ['+session', '-session']


def tree(journal: Journal, fail: dict[str, dict[str, BaseException]]) -> list[AbstractToolset[Any]]:
    """Make toolsets `a` to `e`, stateful ones and others, nested."""

    def make(name: str) -> AbstractToolset[Any]:
        return (Session if name in 'bde' else Server)(name, journal, fail=fail.get(name))

    return [
        make('a'),
        CombinedToolset([make('b'), HandWritten(CombinedToolset([make('c').prefixed('x'), make('d')]))]).prefixed('y'),
        make('e'),
    ]


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('faulty', list('abcde'))
async def test_b08_entry_that_fails_exits_those_entered_with_its_exception(faulty: str, method: str):
    journal = Journal()
    error = Boom(faulty)
    agent = Agent(noting(journal), toolsets=tree(journal, {faulty: {'enter': error}}))
    with pytest.raises(Boom) as caught:
        await METHODS[method](agent)
    assert caught.value is error
    entered = list('abcde'[: 'abcde'.index(faulty)])
    assert journal.names('enter') == entered
    assert journal.names('exit') == entered[::-1]
    for event in journal.of('exit'):
        assert event.got[:2] == (Boom, error)
    assert journal.of('request') == []


async def test_b08_entry_that_is_cancelled_exits_those_entered():
    class Hanging(Session):
        async def __aenter__(self) -> Any:
            started.set()
            await asyncio.Event().wait()

    journal = Journal()
    started = asyncio.Event()
    toolsets = [Session('a', journal), CombinedToolset([Server('b', journal), Hanging('hanging', journal)])]
    task = asyncio.ensure_future(Agent(noting(journal), toolsets=toolsets).run('go'))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal.lifecycle == ['+a', '+b', '-b', '-a']
    assert all(event.got[0] is asyncio.CancelledError for event in journal.of('exit'))


async def test_b08_entry_that_fails_when_an_exit_fails_too_exits_all_entered():
    journal = Journal()
    first, second = Boom('enter'), Boom('exit')
    agent = Agent(noting(journal), toolsets=tree(journal, {'e': {'enter': first}, 'b': {'exit': second}}))
    with pytest.raises(Boom) as caught:
        await agent.run('go')
    assert caught.value is second
    assert second.__context__ is first
    assert journal.lifecycle == ['+a', '+b', '+c', '+d', '-d', '-c', '-b', '-a']


async def test_b08_run_after_one_that_failed_to_enter_works():
    journal = Journal()
    fail: dict[str, BaseException] = {'enter': Boom('enter')}
    agent = Agent(scripted(['session']), toolsets=[Session('session', journal, fail=fail)])
    with pytest.raises(Boom):
        await agent.run('go')
    fail.clear()
    assert (await agent.run('go')).output == 'done'
    assert journal.lifecycle == ['+session', '-session']


async def test_b08_exit_can_wait_for_something_after_a_failure():
    class RollsBack(Session):
        async def __aexit__(self, *args: object) -> bool | None:
            for _ in range(3):
                await asyncio.sleep(0.001)
            ended.append(args[1])
            return await super().__aexit__(*args)

    ended: list[object] = []
    error = Boom('tool')
    for name in ('get_tools', 'call'):
        toolset = RollsBack('session', Journal(), fail={name: error})
        with pytest.raises(Boom):
            await Agent(scripted(['session']), toolsets=[toolset]).run('go')
    assert ended == [error, error]


@pytest.mark.parametrize('kind', [Server, Session])
async def test_b08_exit_of_a_cancelled_run_can_wait_for_something(kind: Callable[..., AbstractToolset[Any]]):
    class Slow(kind):  # pyright: ignore[reportUntypedBaseClass,reportGeneralTypeIssues]
        async def __aexit__(self, *args: object) -> bool | None:
            for _ in range(3):
                await asyncio.sleep(0.001)
            ended.append(args[0])
            return None

        async def call_tool(self, *args: Any) -> Any:
            called.set()
            await asyncio.Event().wait()

    ended: list[Any] = []
    called = asyncio.Event()
    task = asyncio.ensure_future(Agent(scripted(['slow']), toolsets=[Slow('slow', Journal())]).run('go'))
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [asyncio.CancelledError]


async def test_b08_places_that_are_entered_at_the_same_time():
    class AtTheSameTime(CombinedToolset[Any]):
        async def __aenter__(self) -> Self:
            await asyncio.gather(*(toolset.__aenter__() for toolset in self.toolsets))
            return self

        async def __aexit__(self, *args: object) -> None:
            await asyncio.gather(*(toolset.__aexit__(*args) for toolset in self.toolsets))

    journal = Journal()
    session = Session('session', journal)
    agent = Agent(scripted(), toolsets=[AtTheSameTime([session.prefixed('a'), session.prefixed('b')])])
    await agent.run('go')
    assert journal.lifecycle == ['+session', '-session']


@pytest.mark.parametrize('wrap', ALONE_OR_WRAPPED.values(), ids=ALONE_OR_WRAPPED)
async def test_b08_stateful_toolset_that_stands_after_a_shared_one_is_entered_in_its_place(wrap: Callable[[Any], Any]):
    journal = Journal()
    a, b, c, d = Session('a', journal), Session('b', journal), Server('c', journal), Session('d', journal)
    agent = Agent(scripted(), toolsets=[wrap(toolset) for toolset in (a.shared(), b, c.shared(), d)])
    await agent.run('go')
    assert journal.lifecycle == ['+a', '+b', '+c', '+d', '-d', '-c', '-b', '-a']
