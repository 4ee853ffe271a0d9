"""B14: a step-wise factory's old toolset is exited exactly once, and what was never entered is never exited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .factories import AT_EACH_STEP, WAYS, Made, given_to
from .line import WRAPPERS
from .toolsets import METHODS, SUCCESS, HandWritten, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)
ways = pytest.mark.parametrize(('place', 'method'), WAYS)
factories = pytest.mark.parametrize('factory', AT_EACH_STEP)


class Boom(Exception):
    """What the tests raise."""


def in_turn(*results: Any) -> Callable[[], Any]:
    """Make a function that returns these in turn, or raises those that are exceptions."""
    left = list(results)

    def make() -> Any:
        result = left.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    return make


def check_exited_once(journal: Journal) -> None:
    """Check that each toolset was exited as often as it was entered, and after it was."""
    entered: list[Any] = []
    for event in journal.of('enter', 'exit'):
        if event.kind == 'enter':
            entered.append(event.toolset)
        else:
            entered.remove(event.toolset)
    assert entered == []


@ways
@factories
async def test_b14_old_toolset_is_exited_once_before_the_new_one_is_entered(factory: str, place: str, method: str):
    journal = Journal()
    made = [Session(name, journal) for name in 'abc']
    toolsets = [Server('s', Journal()), AT_EACH_STEP[factory](in_turn(*made))]
    with given_to(place, toolsets, scripted(['a'], ['b', 's'])) as run:
        assert await run('run', method) == 'done'
    assert journal.lifecycle == ['+a', '-a', '+b', '-b', '+c', '-c']
    assert all(event.got == SUCCESS for event in journal.of('exit'))
    assert [toolset.values for toolset in made] == [['run'], ['run'], []]


@ways
@factories
async def test_b14_toolset_is_not_exited_again_when_the_next_cannot_be_made(factory: str, place: str, method: str):
    journal = Journal()
    error = Boom('factory')
    toolsets = [
        Server('s', journal),
        AT_EACH_STEP[factory](in_turn(Session('a', journal), Session('b', journal), error)),
        Made(journal, Session, 't'),
    ]
    with given_to(place, toolsets, scripted(['a'], ['b'])) as run, pytest.raises(Boom) as caught:
        await run('run', method)
    assert caught.value is error
    assert sorted(journal.lifecycle[:2]) == ['+s', '+t']
    assert journal.lifecycle[2:5] == ['+a', '-a', '+b']
    assert journal.exit_of('a') == SUCCESS
    assert sorted(journal.lifecycle[5:]) == ['-b', '-s', '-t']
    assert journal.exit_of('b')[:2] == (Boom, error)
    assert journal.exit_of('s')[:2] == journal.exit_of('t')[:2] == (Boom, error)


@ways
@factories
async def test_b14_toolset_that_cannot_be_entered_is_not_exited(factory: str, place: str, method: str):
    journal = Journal()
    error = Boom('enter')
    toolsets = [
        Server('s', journal),
        AT_EACH_STEP[factory](in_turn(Session('a', journal), Session('b', journal, fail={'enter': error}))),
    ]
    with given_to(place, toolsets, scripted(['a'], ['s'])) as run, pytest.raises(Boom) as caught:
        await run('run', method)
    assert caught.value is error
    assert journal.lifecycle == ['+s', '+a', '-a', '-s']
    assert journal.exit_of('a') == SUCCESS
    assert journal.exit_of('s')[:2] == (Boom, error)


@methods
@factories
async def test_b14_toolset_of_the_first_step_that_cannot_be_entered_is_not_exited(factory: str, method: str):
    journal = Journal()
    error = Boom('enter')
    toolset = Session('a', journal, fail={'enter': error})
    agent = Agent(scripted(['a']), toolsets=[Server('s', journal), AT_EACH_STEP[factory](in_turn(toolset))])
    with pytest.raises(Boom):
        await run_as('run', agent, method)
    assert journal.lifecycle == ['+s', '-s']


@methods
@factories
async def test_b14_combination_that_cannot_be_entered_exits_what_was_entered_in_it(factory: str, method: str):
    journal = Journal()
    error = Boom('enter')
    new = CombinedToolset(
        [
            Session('b', journal),
            HandWritten(CombinedToolset([Server('c', journal), Session('d', journal, fail={'enter': error})])),
            Server('e', journal),
        ]
    )
    toolset = AT_EACH_STEP[factory](in_turn(Session('a', journal), new))
    with pytest.raises(Boom) as caught:
        await run_as('run', Agent(scripted(['a']), toolsets=[toolset]), method)
    assert caught.value is error
    assert journal.lifecycle == ['+a', '-a', '+b', '+c', '-c', '-b']
    assert journal.exit_of('b')[1] is journal.exit_of('c')[1] is error


@methods
@factories
async def test_b14_old_toolset_whose_exit_raises_is_not_exited_again(factory: str, method: str):
    journal = Journal()
    error = Boom('exit')
    old = Session('a', journal, fail={'exit': error})
    toolset = AT_EACH_STEP[factory](in_turn(old, Session('b', journal)))
    agent = Agent(scripted(['a']), toolsets=[Server('s', journal), toolset])
    with pytest.raises(Boom) as caught:
        await run_as('run', agent, method)
    assert caught.value is error
    assert journal.lifecycle == ['+s', '+a', '-a', '-s']
    assert journal.exit_of('s')[1] is error


@methods
@factories
async def test_b14_last_toolset_gets_what_ended_the_run_and_those_before_success(factory: str, method: str):
    journal = Journal()
    error = Boom('call')
    toolset = AT_EACH_STEP[factory](in_turn(Session('a', journal), Session('b', journal, fail={'call': error})))
    with pytest.raises(Boom):
        await run_as('run', Agent(scripted(['a'], ['b']), toolsets=[toolset]), method)
    assert journal.lifecycle == ['+a', '-a', '+b', '-b']
    assert journal.exit_of('a') == SUCCESS
    assert journal.exit_of('b')[:2] == (Boom, error)


@methods
@factories
async def test_b14_toolset_that_is_returned_again_is_exited_as_often_as_it_was_entered(factory: str, method: str):
    journal = Journal()
    a, b = Session('a', journal), Server('b', journal)
    toolset = AT_EACH_STEP[factory](in_turn(a, a, b, b, a))
    await run_as('run', Agent(scripted(['a'], ['a'], ['b'], ['b']), toolsets=[toolset]), method)
    assert journal.lifecycle == ['+a', '-a', '+b', '-b', '+a', '-a']


@methods
@factories
async def test_b14_toolset_before_a_step_without_one_is_exited_once(factory: str, method: str):
    journal = Journal()
    toolset = AT_EACH_STEP[factory](in_turn(None, Session('a', journal), None, None, Session('b', journal), None))
    agent = Agent(
        scripted(['s'], ['a'], ['s'], ['s'], ['b']),
        toolsets=[Server('s', Journal()), toolset],
    )
    await run_as('run', agent, method)
    assert journal.lifecycle == ['+a', '-a', '+b', '-b']


@factories
@pytest.mark.parametrize('result', [42, Session])
async def test_b14_old_toolset_is_exited_once_when_the_factory_returns_no_toolset(result: Any, factory: str):
    journal = Journal()
    toolset = AT_EACH_STEP[factory](in_turn(Session('a', journal), result))
    with pytest.raises(UserError) as caught:
        await Agent(scripted(['a']), toolsets=[toolset]).run('go')
    assert journal.lifecycle == ['+a', '-a']
    assert journal.exit_of('a')[:2] == (UserError, caught.value)


INSIDE: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'HandWritten': HandWritten,
    'CombinedToolset': lambda toolset: CombinedToolset([toolset, Server('s', Journal())]),
    'DynamicToolset': lambda toolset: DynamicToolset(lambda ctx: toolset, per_run_step=False),
}


@pytest.mark.parametrize('inside', INSIDE)
@pytest.mark.parametrize('fails', ['factory', 'enter', 'exit', 'nothing'])
@factories
async def test_b14_holds_in_wrappers_and_combinations(factory: str, fails: str, inside: str):
    journal = Journal()
    error = Boom(fails)
    results: dict[str, list[Any]] = {
        'factory': [Session('a', journal), error],
        'enter': [Session('a', journal), Session('b', journal, fail={'enter': error})],
        'exit': [Session('a', journal, fail={'exit': error}), Session('spare', journal)],
        'nothing': [Session('a', journal), Session('b', journal)],
    }
    toolset = DynamicToolset(AT_EACH_STEP[factory](in_turn(*results[fails])))
    agent = Agent(scripted(['a']), toolsets=[INSIDE[inside](toolset)])
    if fails == 'nothing':
        await agent.run('go')
        assert journal.lifecycle == ['+a', '-a', '+b', '-b']
    else:
        with pytest.raises(Boom) as caught:
            await agent.run('go')
        assert caught.value is error
        assert journal.lifecycle == ['+a', '-a']


@pytest.mark.parametrize('waits', [0, 1, 2, 5])
@pytest.mark.parametrize('slow_at', ['enter', 'exit', 'factory'])
async def test_b14_failure_of_a_factory_beside_it_leaves_nothing_entered(slow_at: str, waits: int):
    class Slow(Session):
        async def _happen(self, kind: str) -> None:
            if kind == slow_at:
                await wait()
            await super()._happen(kind)

    async def wait() -> None:
        for _ in range(waits):
            await asyncio.sleep(0)

    async def slow(ctx: RunContext[Any]) -> Session:
        if slow_at == 'factory':
            await wait()
        return Slow('a', journal)

    async def fails(ctx: RunContext[Any]) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        if ctx.run_step == 2:
            raise Boom('beside')

    journal = Journal()
    with pytest.raises(Boom):
        await Agent(scripted(['a']), toolsets=[slow, fails, Server('s', journal)]).run('go')
    changes = list(journal.lifecycle)
    for _ in range(10):
        await asyncio.sleep(0)
    assert journal.lifecycle == changes
    check_exited_once(journal)
    assert len({id(event.toolset) for event in journal.of('exit')}) == len(journal.of('exit'))


@pytest.mark.parametrize('hangs', ['factory', 'enter', 'exit'])
async def test_b14_cancellation_between_two_steps_exits_each_toolset_once(hangs: str):
    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    class Hangs(Session):
        async def _happen(self, kind: str) -> None:
            await super()._happen(kind)
            if kind == hangs and self.name == ('b' if hangs == 'enter' else 'a'):
                await hang()

    async def factory(ctx: RunContext[Any]) -> Session:
        if ctx.run_step == 2 and hangs == 'factory':
            await hang()
        return Hangs('a' if ctx.run_step == 1 else 'b', journal)

    journal = Journal()
    reached = asyncio.Event()
    agent = Agent(scripted(['a']), toolsets=[Server('s', journal), factory])
    task = asyncio.ensure_future(agent.run('go'))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal.lifecycle == ['+s', '+a', '-a', '-s']
    if hangs == 'factory':
        assert journal.exit_of('a')[0] is asyncio.CancelledError
    else:
        assert journal.exit_of('a') == SUCCESS
    assert journal.exit_of('s')[0] is asyncio.CancelledError


@methods
@pytest.mark.parametrize('fails', ['factory', 'enter', 'exit'])
@factories
async def test_b14_run_after_one_that_failed_begins_anew(factory: str, fails: str, method: str):
    journal = Journal()
    error = Boom(fails)
    results: dict[str, list[Any]] = {
        'factory': [Session('a', journal), error],
        'enter': [Session('a', journal), Session('b', journal, fail={'enter': error})],
        'exit': [Session('a', journal, fail={'exit': error}), Session('spare', journal)],
    }
    toolset = AT_EACH_STEP[factory](in_turn(*results[fails], Session('a', journal), Session('b', journal)))
    agent = Agent(scripted(['a']), toolsets=[toolset])
    with pytest.raises(Boom):
        await run_as('first', agent, method)
    assert await run_as('second', agent, method) == 'done'
    assert journal.lifecycle == ['+a', '-a', '+a', '-a', '+b', '-b']


@methods
@factories
async def test_b14_runs_at_the_same_time_exit_their_own_only(factory: str, method: str):
    journal = Journal()
    agent = Agent(scripted(['t'], ['t']), toolsets=[AT_EACH_STEP[factory](Made(journal, Session))])
    await asyncio.gather(*(run_as(name, agent, method) for name in 'abcde'))
    owner = {id(event.toolset): event.run for event in journal.of('make')}
    assert len(owner) == 15
    for name in 'abcde':
        changes = [event for event in journal.of('enter', 'exit') if event.run == name]
        assert [event.kind for event in changes] == ['enter', 'exit'] * 3
        assert all(owner[id(event.toolset)] == name for event in changes)
        assert [event.toolset for event in changes[::2]] == [event.toolset for event in changes[1::2]]


async def test_b14_exit_is_given_three_arguments_at_each_step():
    class Strict(Session):
        async def __aexit__(self, exc_type: object, exc: object, traceback: object, /) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            await super().__aexit__(exc_type, exc, traceback)

    journal = Journal()
    await Agent(scripted(['t'], ['t']), toolsets=[lambda ctx: Strict('t', journal)]).run('go')
    assert [event.got for event in journal.of('exit')] == [SUCCESS] * 3


async def test_b14_iteration_that_is_left_exits_the_step_it_is_at():
    journal = Journal()
    agent = Agent(scripted(['t'], ['t']), toolsets=[lambda ctx: Session('t', journal)])
    async with agent.iter('go') as agent_run:
        async for _ in agent_run:
            if len(journal.of('enter')) == 2:
                break
        assert journal.lifecycle == ['+t', '-t', '+t']
    assert journal.lifecycle == ['+t', '-t', '+t', '-t']
    check_exited_once(journal)
