"""B13: a factory that returns the same stateful instance in two runs that overlap is refused, since the two would share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, UserError, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .factories import (
    AT_EACH_STEP,
    FACTORIES,
    FACTORIES_BY_METHOD,
    FUNCTIONS,
    PER_RUN,
    PLACES,
    WAYS,
    WITHOUT_CONTEXT,
    Made,
    given_to,
)
from .line import WRAPPERS
from .toolsets import (
    METHODS,
    HandWritten,
    Journal,
    Requests,
    Server,
    Session,
    WithoutCopy,
    once_per_run,
    run_as,
    scripted,
)

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)
factories_by_method = pytest.mark.parametrize(('factory', 'method'), FACTORIES_BY_METHOD)
kinds = pytest.mark.parametrize('kind', [Session, WithoutCopy])

REFUSED = r"returned .*'t'.* stateful .* in use by an agent run already\. Return a new toolset each time.*\.$"


class Boom(Exception):
    """What the tests raise."""


@asynccontextmanager
async def live(toolset: Any):
    """Have a run under way that works with what a factory returns."""
    async with Agent(scripted(), toolsets=[toolset]).iter('go') as agent_run:
        # Up to the model's response, so that functions of the context have been called
        await agent_run.next(await agent_run.next(agent_run.next_node))  # pyright: ignore[reportArgumentType]
        yield


# Refused


@pytest.mark.parametrize(('place', 'method'), WAYS)
@pytest.mark.parametrize('factory', FACTORIES)
async def test_b13_same_instance_in_a_run_that_overlaps_is_refused(factory: str, place: str, method: str):
    journal = Journal()
    session = Session('t', journal)
    toolset = FACTORIES[factory](lambda: session)
    others = Journal()
    requests = Requests()
    with given_to(place, [Server('a', others), Session('b', others), toolset], requests.model) as run:
        async with live(toolset):
            assert journal.lifecycle == ['+t']
            for name in 'xy':
                with pytest.raises(UserError, match=REFUSED) as caught:
                    await run(name, method)
                assert requests.count == 0
                assert others.lifecycle == ['+a', '+b', '-b', '-a']
                assert all(event.got[1] is caught.value for event in others.of('exit'))
                others.events.clear()
            assert journal.lifecycle == ['+t']
        assert journal.lifecycle == ['+t', '-t']
        assert await run('z', method) == 'done'
    assert journal.lifecycle == ['+t', '-t'] * 2
    assert journal.of('copy') == []


@factories_by_method
async def test_b13_same_instance_in_a_nested_run_is_refused_and_the_outer_run_goes_on(factory: str, method: str):
    class Delegates(Session):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            with pytest.raises(UserError, match=REFUSED):
                await run_as('inner', agent, method)
            return await super().call_tool(*args, **kwargs)

    journal = Journal()
    session = Delegates('t', journal)
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: session)])
    for name in ('first', 'second'):
        assert await run_as(name, agent, method) == 'done'
    assert session.values == ['first', 'second']
    assert {event.run for event in journal.events} == {'first', 'second'}
    changes = journal.lifecycle
    assert changes == ['+t', '-t'] * (len(changes) // 2)


@factories_by_method
async def test_b13_same_instance_in_runs_at_the_same_time_is_used_by_one_of_them(factory: str, method: str):
    class Waits(Session):
        async def __aenter__(self) -> Self:
            await super().__aenter__()
            for _ in range(5000):
                if len(refused) == 2:
                    break
                await asyncio.sleep(0.001)
            return self

    async def attempt(name: str) -> Any:
        try:
            return await run_as(name, agent, method)
        except UserError as error:
            refused.append(error)

    refused: list[UserError] = []
    journal = Journal()
    session = Waits('t', journal)
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: session)])
    outcomes = await asyncio.gather(*(attempt(name) for name in 'abc'))
    assert sorted(outcomes, key=str) == [None, None, 'done']
    assert len(refused) == 2
    assert len(session.values) == 1
    assert journal.lifecycle == ['+t', '-t']
    assert await run_as('d', agent, method) == 'done'


class Declares(WrapperToolset[Any]):
    """A wrapper that has state itself."""

    stateful = True

    @property
    def id(self) -> str | None:
        return 't'

    def copy(self) -> Self:
        return type(self)(self.wrapped.copy())


INSIDE: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **WRAPPERS,
    'CombinedToolset': lambda toolset: CombinedToolset([FunctionToolset[Any](), toolset]),
    'deeper': lambda toolset: CombinedToolset(
        [CombinedToolset([toolset.prefixed('x'), Server('s', Journal())]).prefixed('y')]
    ),
    'Declares': Declares,
}


@kinds
@pytest.mark.parametrize('inside', INSIDE)
async def test_b13_same_instance_is_found_in_wrappers_and_combinations(
    inside: str, kind: Callable[[str, Journal], Any]
):
    journal = Journal()
    toolset = kind('t', journal)

    def wrapped() -> AbstractToolset[Any]:
        return INSIDE[inside](toolset)

    for outer, inner in ((wrapped, wrapped), (lambda: toolset, wrapped), (wrapped, lambda: toolset)):
        for is_of_context in (False, True):
            factory: Any = AT_EACH_STEP['function of the context'](inner) if is_of_context else inner
            async with live(outer):
                with pytest.raises(UserError, match='in use by an agent run already'):
                    await Agent(scripted(), toolsets=[factory]).run('go')
            assert (await Agent(scripted(), toolsets=[factory]).run('go')).output == 'done'
    assert journal.lifecycle == ['+t', '-t'] * len(journal.of('enter'))
    assert len(journal.of('enter')) == 12


@pytest.mark.parametrize('wrapper', [Declares, HandWritten])
async def test_b13_wrapper_with_state_around_a_server_is_refused_like_any_other(wrapper: Callable[..., Any]):
    toolset = wrapper(Server('s', Journal()))
    async with live(lambda: toolset):
        with pytest.raises(UserError, match='in use by an agent run already'):
            await Agent(scripted(), toolsets=[lambda: toolset]).run('go')


async def test_b13_refused_combination_leaves_what_else_is_in_it_free():
    journal = Journal()
    t, u = Session('t', journal), Session('u', journal)
    async with live(lambda: t):
        with pytest.raises(UserError, match=REFUSED):
            await Agent(scripted(), toolsets=[lambda: CombinedToolset([u, t])]).run('go')
        assert journal.lifecycle == ['+t']
        assert (await Agent(scripted(), toolsets=[lambda: u]).run('go')).output == 'done'
        with pytest.raises(UserError, match=REFUSED):
            await Agent(scripted(), toolsets=[lambda: t]).run('go')
    assert journal.lifecycle == ['+t', '+u', '-u', '-t']


async def test_b13_instance_is_in_use_while_it_is_entered_and_exited():
    class Waits(Session):
        async def __aenter__(self) -> Self:
            await attempt()
            return await super().__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            await attempt()
            return await super().__aexit__(*args)

    async def attempt() -> None:
        with pytest.raises(UserError, match=REFUSED):
            await Agent(scripted(), toolsets=[lambda: session]).run('go')

    journal = Journal()
    session = Waits('t', journal)
    assert (await Agent(scripted(), toolsets=[lambda: session]).run('go')).output == 'done'
    assert journal.lifecycle == ['+t', '-t']


async def test_b13_two_factories_of_different_agents_are_refused_too():
    session = Session('t', Journal())
    async with live(once_per_run(lambda: session)):
        for factory in FACTORIES.values():
            with pytest.raises(UserError, match=REFUSED):
                await Agent(scripted(), toolsets=[factory(lambda: session)]).run('go')


async def test_b13_message_names_the_factory_and_the_toolset():
    def my_factory() -> Session:
        return session

    session = Session('my id', Journal())
    async with live(my_factory):
        with pytest.raises(UserError) as caught:
            await Agent(scripted(), toolsets=[my_factory]).run('go')
    assert 'my_factory' in str(caught.value)
    assert session.label in str(caught.value)
    assert 'Return a new toolset each time' in str(caught.value)


async def test_b13_same_factory_from_a_factory_in_a_run_that_overlaps_is_refused_or_makes_another():
    """On 2.x, the run gets one of its own instead."""
    journal = Journal()
    make = Made(journal, Session)
    toolset = once_per_run(make)
    agent = Agent(scripted(['t']), toolsets=[lambda: toolset])
    async with live(lambda: toolset):
        with suppress(UserError):
            await run_as('a', agent)
    for name in 'bc':
        await run_as(name, agent)
    assert [event.toolset.values for event in journal.of('call') if event.run != 'a'] == [['b'], ['c']]
    assert journal.names('enter') == journal.names('exit')


# Allowed


@pytest.mark.parametrize(('place', 'method'), WAYS)
@pytest.mark.parametrize('factory', FACTORIES)
async def test_b13_same_instance_in_runs_one_after_another_is_allowed(factory: str, place: str, method: str):
    journal = Journal()
    session = Session('t', journal)
    with given_to(place, [FACTORIES[factory](lambda: session)], scripted(['t'], ['t'])) as run:
        for name in 'abc':
            assert await run(name, method) == 'done'
    assert session.values == ['a', 'a', 'b', 'b', 'c', 'c']
    assert journal.lifecycle == ['+t', '-t'] * 3
    assert journal.of('copy') == []


@factories_by_method
@pytest.mark.parametrize('fails', ['enter', 'get_tools', 'call', 'exit', 'model'])
async def test_b13_same_instance_after_a_run_that_failed_is_allowed(fails: str, factory: str, method: str):
    journal = Journal()
    error = Boom(fails)
    fail: dict[str, BaseException] = {fails: error}
    session = Session('t', journal, fail=fail)
    made = FACTORIES[factory](lambda: session)
    toolsets = [CombinedToolset([made]) if factory in PER_RUN else made]
    agent = Agent(scripted(['t'], error) if fails == 'model' else scripted(['t']), toolsets=toolsets)
    for name in 'ab':
        with pytest.raises(Boom) as caught:
            await run_as(name, agent, method)
        assert caught.value is error
    fail.clear()
    assert await run_as('c', agent, method, **({'model': scripted(['t'])} if fails == 'model' else {})) == 'done'
    assert journal.lifecycle == ['+t', '-t'] * len(journal.of('enter'))


@pytest.mark.parametrize('factory', FACTORIES)
async def test_b13_same_instance_after_another_toolset_could_not_be_entered_is_allowed(factory: str):
    journal = Journal()
    fail: dict[str, BaseException] = {'enter': Boom('enter')}
    session = Session('t', journal)
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: session), Server('s', Journal(), fail=fail)])
    for _ in range(2):
        with pytest.raises(Boom):
            await agent.run('go')
    fail.clear()
    assert (await agent.run('go')).output == 'done'


@pytest.mark.parametrize('factory', FACTORIES)
@pytest.mark.parametrize('hangs', ['enter', 'call', 'exit'])
async def test_b13_same_instance_after_a_run_that_was_cancelled_is_allowed(hangs: str, factory: str):
    class Hangs(Session):
        async def _happen(self, kind: str) -> None:
            await super()._happen(kind)
            if kind == hangs and not reached.is_set():
                reached.set()
                await asyncio.Event().wait()

    reached = asyncio.Event()
    session = Hangs('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: session)])
    task = asyncio.ensure_future(agent.run('go'))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await agent.run('go')).output == 'done'


@pytest.mark.parametrize('factory', FACTORIES)
async def test_b13_same_instance_after_a_run_whose_iteration_was_left_is_allowed(factory: str):
    session = Session('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: session)])
    for _ in range(3):
        async with agent.iter('go') as agent_run:
            async for _ in agent_run:
                break
        async with agent.run_stream('go'):
            pass


@factories_by_method
async def test_b13_same_instance_that_is_not_stateful_is_allowed(factory: str, method: str):
    class Delegates(Server):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            if len(journal.of('call')) < 3:
                journal.note('call', self)
                assert await run_as('inner', agent, method) == 'done'
            return await super().call_tool(*args, **kwargs)

    journal = Journal()
    server = Delegates('t', journal)
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](lambda: server)])
    assert await asyncio.gather(*(run_as(name, agent, method) for name in 'abc')) == ['done'] * 3
    assert len(journal.of('enter')) == len(journal.of('exit')) >= 3 + 1


@pytest.mark.parametrize('inside', WRAPPERS)
async def test_b13_same_wrapper_around_what_is_not_stateful_is_allowed(inside: str):
    toolset = WRAPPERS[inside](CombinedToolset([Server('s', Journal())]))
    agent = Agent(scripted(), toolsets=[lambda: toolset])
    async with live(lambda: toolset):
        assert (await agent.run('go')).output == 'done'


@pytest.mark.parametrize('factory', FUNCTIONS)
async def test_b13_instance_that_stands_in_the_list_too_is_copied_there(factory: str):
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['x_t', 't']), toolsets=[session.prefixed('x'), FUNCTIONS[factory](lambda: session)])
    other = Agent(scripted(['t']), toolsets=[session])
    for name in 'ab':
        await run_as(name, agent)
    async with live(lambda: session):
        await run_as('c', other)
    assert session.values == ['a', 'b']
    assert [copy.got[0].values for copy in journal.of('copy')] == [['a'], ['b'], ['c']]


@pytest.mark.parametrize('factory', AT_EACH_STEP)
async def test_b13_function_of_the_context_can_return_the_same_instance_at_each_step(factory: str):
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['t'], ['t']), toolsets=[AT_EACH_STEP[factory](lambda: session)])
    await run_as('a', agent)
    assert journal.lifecycle == ['+t', '-t']
    assert session.values == ['a', 'a']


async def test_b13_instance_of_an_earlier_step_is_free_for_other_runs():
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


async def test_b13_function_that_is_refused_at_a_later_step_ends_the_run_as_any_error_does():
    def factory(ctx: RunContext[Any]) -> Session:
        return Session('mine', journal) if ctx.run_step == 1 else session

    journal = Journal()
    session = Session('t', Journal())
    agent = Agent(scripted(['mine']), toolsets=[Server('s', journal), factory])
    async with live(lambda: session):
        with pytest.raises(UserError, match=REFUSED) as caught:
            await agent.run('go')
    assert session.journal.lifecycle == ['+t', '-t']
    assert journal.lifecycle == ['+s', '+mine', '-mine', '-s']
    assert journal.exit_of('s')[1] is caught.value


@methods
async def test_b13_many_runs_with_new_instances_do_not_disturb_each_other(method: str):
    journal = Journal()
    agent = Agent(scripted(['t']), toolsets=[lambda: Session('t', journal), lambda ctx: Session('u', journal)])
    for _ in range(5):
        outcomes = await asyncio.gather(*(run_as(str(number), agent, method) for number in range(20)))
        assert outcomes == ['done'] * 20
        journal.events.clear()  # so that new instances get the `id` of old ones


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('factory', WITHOUT_CONTEXT)
async def test_b13_instances_are_in_use_by_the_runs_that_work_with_them_only(factory: str, place: str):
    """Of two instances that are returned in turn each is used by one run at a time."""
    journal = Journal()
    sessions = [Session('t', journal), Session('t', journal)]
    returned = iter([0, 1, 0, 1, 1, 0, 1])
    toolset = WITHOUT_CONTEXT[factory](lambda: sessions[next(returned)])
    with given_to(place, [toolset], scripted(['t'])) as run:
        async with AsyncExitStack() as first:
            await first.enter_async_context(live(toolset))  # 0
            async with live(toolset):  # 1
                with pytest.raises(UserError, match=REFUSED):
                    await run('a')  # 0
                with pytest.raises(UserError, match=REFUSED):
                    await run('b')  # 1
            assert await run('c') == 'done'  # 1
            with pytest.raises(UserError, match=REFUSED):
                await run('d')  # 0
        assert await run('e') == 'done'  # 1
    assert [session.values for session in sessions] == [[], ['c', 'e']]
