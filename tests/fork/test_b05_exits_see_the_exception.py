"""B5: a toolset's exit gets the exception that ended the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import anyio
import pytest
from pydantic_ai import AbstractToolset, Agent, ModelRetry, RunContext, UsageLimits, WrapperToolset
from pydantic_ai.exceptions import AgentRunError, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .line import WRAPPERS, stream_events
from .toolsets import METHODS, SUCCESS, HandWritten, Journal, Server, Session, scripted

pytestmark = pytest.mark.anyio


class Boom(Exception):
    """What the tests raise."""


@dataclass
class PlainWrapper(WrapperToolset[Any]):
    """A user's wrapper that changes nothing."""


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    **WRAPPERS,
    'PlainWrapper': PlainWrapper,
    'HandWritten': HandWritten,
    'CombinedToolset': lambda toolset: CombinedToolset([toolset]),
    'combinations': lambda toolset: CombinedToolset([CombinedToolset([CombinedToolset([toolset])])]),
    'wrappers and combinations': lambda toolset: CombinedToolset(
        [HandWritten(CombinedToolset([PlainWrapper(CombinedToolset([toolset.filtered(lambda ctx, tool: True)]))]))]
    ),
    'dynamic per run': lambda toolset: DynamicToolset(lambda ctx: toolset, per_run_step=False),
    'dynamic per step': lambda toolset: DynamicToolset(lambda ctx: toolset),
    'dynamic inside others': lambda toolset: CombinedToolset([HandWritten(DynamicToolset(lambda ctx: toolset))]),
    'combination inside dynamic': lambda toolset: DynamicToolset(lambda ctx: CombinedToolset([PlainWrapper(toolset)])),
}
"""Where a toolset can stand."""

places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())
kinds = pytest.mark.parametrize('kind', [Server, Session], ids=['stateless', 'stateful'])


def check(got: tuple[Any, ...], error: BaseException) -> None:
    """Check that an exit got this exception."""
    assert len(got) == 3
    assert got[0] is type(error)
    assert got[1] is error
    assert isinstance(got[2], TracebackType)


@places
@kinds
async def test_b05_exit_after_success_gets_three_nones(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], kind: type[Server]
):
    journal = Journal()
    agent = Agent(scripted(['other']), toolsets=[place(kind('toolset', journal)), Server('other', Journal())])
    assert (await agent.run('go')).output == 'done'
    assert journal.names('call') == []
    assert journal.of('exit')[-1].got == SUCCESS


@places
@kinds
async def test_b05_exit_after_exception_of_a_tool_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], kind: type[Server]
):
    journal = Journal()
    error = Boom('tool')
    faulty = Server('faulty', Journal(), fail={'call': error})
    agent = Agent(scripted(['faulty']), toolsets=[place(kind('toolset', journal)), faulty])
    with pytest.raises(Boom) as caught:
        await agent.run('go')
    assert caught.value is error
    check(journal.exit_of('toolset'), error)


@places
async def test_b05_exit_after_exception_of_its_own_tool_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    error = Boom('tool')
    toolset = place(Session('toolset', journal, fail={'call': error}))
    names = ['x_toolset' if place is WRAPPERS['PrefixedToolset'] else 'toolset']
    with pytest.raises(Boom):
        await Agent(scripted(names), toolsets=[toolset]).run('go')
    check(journal.exit_of('toolset'), error)


@places
@kinds
async def test_b05_exit_after_model_error_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], kind: type[Server]
):
    journal = Journal()
    error = Boom('model')
    agent = Agent(scripted(error), toolsets=[place(kind('toolset', journal))])
    with pytest.raises(Boom):
        await agent.run('go')
    check(journal.exit_of('toolset'), error)


@places
async def test_b05_exit_after_usage_limit_gets_its_exception(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    agent = Agent(scripted(['other']), toolsets=[place(Session('toolset', journal)), Server('other', Journal())])
    with pytest.raises(UsageLimitExceeded) as caught:
        await agent.run('go', usage_limits=UsageLimits(request_limit=1))
    check(journal.of('exit')[-1].got, caught.value)


async def test_b05_exit_after_tool_calls_limit_gets_its_exception():
    journal = Journal()
    agent = Agent(scripted(['toolset'], ['toolset']), toolsets=[Session('toolset', journal)])
    with pytest.raises(UsageLimitExceeded) as caught:
        await agent.run('go', usage_limits=UsageLimits(tool_calls_limit=1))
    check(journal.exit_of('toolset'), caught.value)


async def test_b05_exit_after_too_many_retries_gets_the_exception():
    journal = Journal()
    toolset = Session('toolset', journal, fail={'call': ModelRetry('again')})
    with pytest.raises(UnexpectedModelBehavior) as caught:
        await Agent(scripted(['toolset']), toolsets=[toolset]).run('go')
    check(journal.exit_of('toolset'), caught.value)


async def test_b05_exit_after_exception_of_get_tools_gets_it():
    journal = Journal()
    error = Boom('get_tools')
    toolsets = [Session('toolset', journal), Server('faulty', journal, fail={'get_tools': error})]
    with pytest.raises(Boom):
        await Agent(scripted(), toolsets=toolsets).run('go')
    check(journal.exit_of('toolset'), error)
    check(journal.exit_of('faulty'), error)


async def test_b05_exit_after_exception_of_a_factory_gets_it():
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        raise error

    journal = Journal()
    error = Boom('factory')
    with pytest.raises(Boom):
        await Agent(scripted(), toolsets=[Session('toolset', journal), factory]).run('go')
    check(journal.exit_of('toolset'), error)


async def wait_until(happened: Callable[[], Any]) -> None:
    """Let others run until something has happened."""
    for _ in range(1000):
        if happened():
            return
        await asyncio.sleep(0)
    pytest.fail('It never happened')


class Hanging(Server):
    """A toolset whose tool never returns."""

    async def call_tool(self, *args: Any, **kwargs: Any) -> list[str]:
        self.journal.note('call', self)
        await asyncio.Event().wait()
        raise AssertionError


@places
@pytest.mark.parametrize('method', [name for name in METHODS if name not in ('run_sync', 'run_stream_events')])
async def test_b05_exit_after_cancellation_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], method: str
):
    journal = Journal()
    hanging = Hanging('hanging', Journal())
    agent = Agent(scripted(['hanging']), toolsets=[place(Session('toolset', journal)), hanging])
    task = asyncio.ensure_future(METHODS[method](agent))
    await wait_until(lambda: hanging.journal.of('call'))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    type_, value, traceback = journal.exit_of('toolset')
    assert type_ is asyncio.CancelledError
    assert isinstance(value, asyncio.CancelledError)
    assert isinstance(traceback, TracebackType)


async def test_b05_exit_after_timeout_gets_the_cancellation():
    journal = Journal()
    hanging = Hanging('hanging', Journal())
    agent = Agent(scripted(['hanging']), toolsets=[Session('toolset', journal), hanging])
    task = asyncio.ensure_future(agent.run('go'))
    await wait_until(lambda: hanging.journal.of('call'))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(task, 0.01)
    assert journal.exit_of('toolset')[0] is asyncio.CancelledError


@places
@kinds
async def test_b05_exit_after_exception_in_the_body_of_iter_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], kind: type[Server]
):
    journal = Journal()
    error = Boom('body')
    toolset = place(kind('toolset', journal))
    agent = Agent(scripted(['other']), toolsets=[toolset, Server('other', Journal())])
    with pytest.raises(Boom):
        async with agent.iter('go') as agent_run:
            async for node in agent_run:
                if Agent.is_call_tools_node(node):
                    raise error
    check(journal.exit_of('toolset'), error)


async def test_b05_exit_after_exception_in_the_body_of_iter_before_the_first_node_gets_it():
    journal = Journal()
    error = Boom('body')
    with pytest.raises(Boom):
        async with Agent(scripted(), toolsets=[Session('toolset', journal)]).iter('go'):
            raise error
    check(journal.exit_of('toolset'), error)


@kinds
async def test_b05_exit_of_a_run_that_is_left_before_it_has_a_result_gets_an_exception(
    kind: Callable[[str, Journal], AbstractToolset[Any]],
):
    journal = Journal()
    agent = Agent(scripted(['toolset']), toolsets=[CombinedToolset([kind('toolset', journal)]).prefixed('x')])
    async with agent.iter('go') as agent_run:
        async for _ in agent_run:
            break
    async with agent.run_stream('go') as result:
        async for _ in result.stream_text(debounce_by=None):
            break
    assert len(journal.of('exit')) == 2
    for event in journal.of('exit'):
        check(event.got, event.got[1])
        assert isinstance(event.got[1], AgentRunError)
        assert 'before it had a result' in str(event.got[1])


class WithTaskGroup(Session):
    """A toolset that holds a task group as clients do that are written with the `mcp` package."""

    async def __aenter__(self) -> Any:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(anyio.create_task_group())
            await stack.enter_async_context(anyio.create_task_group())
            self.stack = stack.pop_all()
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> Any:
        await super().__aexit__(*args)
        return await cast(Any, self.stack).__aexit__(*args)


@pytest.mark.parametrize(
    'place',
    # At a step, it would be entered in another task than it's exited in
    [
        place
        for name, place in PLACES.items()
        if name not in ('dynamic per step', 'dynamic inside others', 'combination inside dynamic')
    ],
)
@pytest.mark.parametrize('kind', [Boom, KeyError, ValueError])
async def test_b05_exit_does_not_put_the_exception_of_the_run_into_a_group(
    kind: type[Exception], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]]
):
    journal = Journal()
    error = kind('model')
    session = WithTaskGroup('toolset', journal)
    agent = Agent(scripted(error), toolsets=[Server('outer', journal), place(session)])
    with pytest.raises(kind) as caught:
        await agent.run('go')
    assert caught.value is error
    check(journal.exit_of('outer'), error)


async def test_b05_exit_after_exception_in_the_body_of_run_stream_gets_it():
    journal = Journal()
    error = Boom('body')
    with pytest.raises(Boom):
        async with Agent(scripted(), toolsets=[Session('toolset', journal)]).run_stream('go') as result:
            async for _ in result.stream_text():
                raise error
    check(journal.exit_of('toolset'), error)


@pytest.mark.parametrize('method', METHODS)
async def test_b05_exit_after_success_of_each_kind_of_run_gets_three_nones(method: str):
    journal = Journal()
    agent = Agent(scripted(['toolset']), toolsets=[Session('toolset', journal)])
    assert await METHODS[method](agent) == 'done'
    assert journal.exit_of('toolset') == SUCCESS


@pytest.mark.parametrize('method', METHODS)
async def test_b05_exit_after_failure_of_each_kind_of_run_gets_the_exception(method: str):
    journal = Journal()
    error = Boom('tool')
    agent = Agent(scripted(['toolset']), toolsets=[Session('toolset', journal, fail={'call': error})])
    with pytest.raises(Boom):
        await METHODS[method](agent)
    check(journal.exit_of('toolset'), error)


async def test_b05_exit_after_model_error_while_events_are_streamed_gets_it():
    journal = Journal()
    error = Boom('model')
    agent = Agent(scripted(['toolset'], error), toolsets=[Session('toolset', journal)])
    with pytest.raises(Boom):
        async with stream_events(agent, 'go') as events:
            async for _ in events:
                pass
    check(journal.exit_of('toolset'), error)


# The body of `async with agent`


@pytest.mark.parametrize(
    'place',
    [
        place
        for name, place in PLACES.items()
        if 'dynamic' not in name and name not in ('HandWritten', 'wrappers and combinations')
    ],
    ids=[name for name in PLACES if 'dynamic' not in name and name not in ('HandWritten', 'wrappers and combinations')],
)
async def test_b05_exit_after_exception_in_the_body_of_async_with_agent_gets_it(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    error = Boom('body')
    with pytest.raises(Boom):
        async with Agent(scripted(), toolsets=[place(Server('server', journal))]):
            assert journal.lifecycle == ['+server']
            raise error
    check(journal.exit_of('server'), error)


async def test_b05_exit_after_success_of_async_with_agent_gets_three_nones():
    journal = Journal()
    async with Agent(scripted(), toolsets=[Server('server', journal)]):
        pass
    assert journal.exit_of('server') == SUCCESS


async def test_b05_exit_after_cancellation_of_async_with_agent_gets_it():
    async def body() -> None:
        async with Agent(scripted(), toolsets=[Server('server', journal)]):
            await asyncio.Event().wait()

    journal = Journal()
    task = asyncio.ensure_future(body())
    await wait_until(lambda: journal.of('enter'))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal.exit_of('server')[0] is asyncio.CancelledError


async def test_b05_exit_after_inner_of_two_async_with_agent_waits_for_the_outer():
    journal = Journal()
    error = Boom('outer')
    agent = Agent(scripted(), toolsets=[Server('server', journal)])
    with pytest.raises(Boom):
        async with agent:
            async with agent:
                pass
            assert journal.lifecycle == ['+server']
            raise error
    check(journal.exit_of('server'), error)


async def test_b05_exit_of_a_run_inside_async_with_agent_gets_the_exception_of_the_run():
    journal = Journal()
    error = Boom('model')
    agent = Agent(scripted(error), toolsets=[Server('server', journal)])
    async with agent:
        with pytest.raises(Boom):
            await agent.run('go')
    during, after = journal.of('exit')
    check(during.got, error)
    assert after.got == SUCCESS


async def test_b05_agent_entered_again_after_a_failed_exit_works():
    journal = Journal()
    error = Boom('exit')
    server = Server('server', journal, fail={'exit': error})
    agent = Agent(scripted(), toolsets=[server])
    with pytest.raises(Boom):
        async with agent:
            pass
    server.fail = {}
    async with agent:
        pass
    assert journal.lifecycle == ['+server', '-server'] * 2


# Dynamic toolsets


class Factory:
    """A factory that makes a new toolset each time it is asked."""

    def __init__(
        self, journal: Journal, *, fail: dict[int, dict[str, BaseException]] | None = None, wait: bool = False
    ):
        self.journal = journal
        self.fail = fail or {}
        self.wait = wait
        self.made: list[Server] = []

    def __call__(self, ctx: RunContext[Any]) -> AbstractToolset[Any] | Awaitable[AbstractToolset[Any]]:
        return self.slowly() if self.wait else self.make()

    async def slowly(self) -> AbstractToolset[Any]:
        await asyncio.sleep(0)
        return self.make()

    def make(self) -> AbstractToolset[Any]:
        number = len(self.made) + 1
        toolset = Server(f'made{number}', self.journal, fail=self.fail.get(number))
        self.made.append(toolset)
        return toolset


@pytest.mark.parametrize('wait', [False, True], ids=['sync', 'async'])
async def test_b05_dynamic_toolset_evaluated_at_each_step_exits_each_with_what_happened(wait: bool):
    journal = Journal()
    error = Boom('model')
    factory = Factory(journal, wait=wait)
    agent = Agent(scripted(['made1'], ['made2'], error), toolsets=[factory])
    with pytest.raises(Boom):
        await agent.run('go')
    assert journal.lifecycle == ['+made1', '-made1', '+made2', '-made2', '+made3', '-made3']
    assert journal.exit_of('made1') == SUCCESS
    assert journal.exit_of('made2') == SUCCESS
    check(journal.exit_of('made3'), error)


@pytest.mark.parametrize('wait', [False, True], ids=['sync', 'async'])
async def test_b05_dynamic_toolset_evaluated_once_exits_with_the_exception(wait: bool):
    journal = Journal()
    error = Boom('model')
    toolset = DynamicToolset(Factory(journal, wait=wait), per_run_step=False)
    agent = Agent(scripted(['made1'], ['made1'], error), toolsets=[toolset])
    with pytest.raises(Boom):
        await agent.run('go')
    assert journal.lifecycle == ['+made1', '-made1']
    check(journal.exit_of('made1'), error)


async def test_b05_dynamic_toolset_whose_next_fails_to_enter_exits_only_the_entered():
    journal = Journal()
    error = Boom('enter')
    agent = Agent(scripted(['made1']), toolsets=[Factory(journal, fail={2: {'enter': error}})])
    with pytest.raises(Boom):
        await agent.run('go')
    assert journal.lifecycle == ['+made1', '-made1']


async def test_b05_dynamic_toolset_whose_old_fails_to_exit_exits_it_once():
    journal = Journal()
    error = Boom('exit')
    agent = Agent(scripted(['made1']), toolsets=[Server('other', journal), Factory(journal, fail={1: {'exit': error}})])
    with pytest.raises(Boom):
        await agent.run('go')
    assert journal.lifecycle.count('-made1') == 1
    assert journal.lifecycle.count('+made2') == journal.lifecycle.count('-made2')
    check(journal.exit_of('other'), error)


async def test_b05_dynamic_toolset_whose_factory_raises_later_exits_the_old_once():
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        if made.made:
            raise error
        return made.make()

    journal = Journal()
    made = Factory(journal)
    error = Boom('factory')
    with pytest.raises(Boom):
        await Agent(scripted(['made1']), toolsets=[factory]).run('go')
    assert journal.lifecycle == ['+made1', '-made1']


async def test_b05_dynamic_toolset_whose_factory_returns_none_later_exits_the_old_once():
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        return None if made.made else made.make()

    journal = Journal()
    made = Factory(journal)
    await Agent(scripted(['made1'], ['other']), toolsets=[factory, Server('other', Journal())]).run('go')
    assert journal.lifecycle == ['+made1', '-made1']
    assert journal.exit_of('made1') == SUCCESS


async def test_b05_dynamic_toolset_beside_one_whose_get_tools_fails_exits_what_it_enters():
    class SlowToEnter(Server):
        async def __aenter__(self):
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().__aenter__()

    journal = Journal()
    error = Boom('get_tools')
    slow = SlowToEnter('slow', journal)
    faulty = Server('faulty', Journal(), fail={'get_tools': error})
    with pytest.raises(Boom):
        await Agent(scripted(), toolsets=[faulty, lambda ctx: slow]).run('go')
    for _ in range(20):
        await asyncio.sleep(0)
    assert journal.lifecycle in ([], ['+slow', '-slow'])


# Order


async def test_b05_exits_run_in_reverse_order_of_entry():
    journal = Journal()

    def make(name: str) -> Server:
        return (Session if name in 'bdf' else Server)(name, journal)

    toolsets = [
        make('a'),
        CombinedToolset([make('b'), CombinedToolset([make('c'), make('d').prefixed('x')])]),
        HandWritten(CombinedToolset([make('e'), make('f')])),
    ]
    agent = Agent(scripted(), toolsets=toolsets)
    await agent.run('go', toolsets=[make('g')])
    assert journal.lifecycle == ['+a', '+b', '+c', '+d', '+e', '+f', '+g', '-g', '-f', '-e', '-d', '-c', '-b', '-a']


def failing_exits(journal: Journal, *failing: str) -> tuple[list[AbstractToolset[Any]], dict[str, Boom]]:
    """Make toolsets `a` to `e`, nested, some of whose exits raise."""
    errors = {name: Boom(name) for name in failing}

    def make(name: str) -> AbstractToolset[Any]:
        return Session(name, journal, fail={'exit': errors[name]} if name in errors else None)

    return [
        make('a'),
        CombinedToolset([make('b'), CombinedToolset([make('c')]).prefixed('x'), make('d')]),
        make('e'),
    ], errors


def contexts_of(error: BaseException | None) -> list[BaseException]:
    """Return an exception and those in whose context it was raised."""
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__context__
    return found


@pytest.mark.parametrize(
    'failing', [['a'], ['c'], ['e'], ['d', 'c'], ['e', 'c', 'a'], ['e', 'd', 'c', 'b', 'a']], ids=''.join
)
async def test_b05_exits_of_a_run_that_succeeded_all_run_when_some_raise(failing: list[str]):
    journal = Journal()
    toolsets, errors = failing_exits(journal, *failing)
    with pytest.raises(Boom) as caught:
        await Agent(scripted(['a']), toolsets=toolsets).run('go')
    assert journal.names('exit') == ['e', 'd', 'c', 'b', 'a']
    assert caught.value is errors[failing[-1]]
    before: list[Boom] = []
    for event in journal.of('exit'):
        if before:
            assert event.got[1] in before
            check(event.got, event.got[1])
        else:
            assert event.got == SUCCESS
        if error := errors.get(event.toolset.name):
            before.append(error)


@pytest.mark.parametrize(
    'failing', [['a'], ['c'], ['e'], ['d', 'c'], ['e', 'c', 'a'], ['e', 'd', 'c', 'b', 'a']], ids=''.join
)
async def test_b05_exits_of_a_run_that_failed_all_get_an_exception_when_some_raise(failing: list[str]):
    journal = Journal()
    toolsets, errors = failing_exits(journal, *failing)
    error = Boom('model')
    with pytest.raises(Boom) as caught:
        await Agent(scripted(error), toolsets=toolsets).run('go')
    assert journal.names('exit') == ['e', 'd', 'c', 'b', 'a']
    raised: list[BaseException] = [error]
    for event in journal.of('exit'):
        # As with any exit stack, those after one that raises get what it has raised
        check(event.got, raised[-1])
        raised += [errors[name] for name in (event.toolset.name,) if name in errors]
    assert caught.value is errors[failing[-1]]
    assert {error, *errors.values()} <= set(contexts_of(caught.value))


async def test_b05_exits_of_async_with_agent_all_run_when_one_raises():
    journal = Journal()
    body, error = Boom('body'), Boom('exit')
    toolsets = [
        Server('a', journal),
        CombinedToolset([Server('b', journal), Server('c', journal, fail={'exit': error})]),
        Server('d', journal),
    ]
    with pytest.raises(Boom) as caught:
        async with Agent(scripted(), toolsets=toolsets):
            raise body
    assert caught.value is error
    assert body in contexts_of(error)
    assert journal.names('exit') == ['d', 'c', 'b', 'a']
    for event in journal.of('exit'):
        check(event.got, body if event.toolset.name in 'dc' else error)


# Swallowing


class Swallowing(Server):
    async def __aexit__(self, *args: object) -> bool | None:
        await super().__aexit__(*args)
        return True


@places
async def test_b05_exit_returning_true_does_not_swallow_the_exception(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    error = Boom('model')
    toolsets = [Server('first', journal), place(Swallowing('swallowing', journal)), Server('last', journal)]
    with pytest.raises(Boom) as caught:
        await Agent(scripted(error), toolsets=toolsets).run('go')
    assert caught.value is error
    check(journal.exit_of('first'), error)


async def test_b05_exit_returning_true_does_not_swallow_the_exception_of_another_exit():
    journal = Journal()
    error = Boom('exit')
    toolsets = [
        Server('first', journal),
        Swallowing('swallowing', journal),
        Server('last', journal, fail={'exit': error}),
    ]
    with pytest.raises(Boom) as caught:
        await Agent(scripted(), toolsets=toolsets).run('go')
    assert caught.value is error
    check(journal.exit_of('first'), error)


async def test_b05_exit_returning_true_does_not_swallow_the_exception_of_a_failed_entry():
    journal = Journal()
    error = Boom('enter')
    toolsets = [Swallowing('swallowing', journal), Server('faulty', journal, fail={'enter': error})]
    with pytest.raises(Boom) as caught:
        await Agent(scripted(), toolsets=[CombinedToolset(toolsets)]).run('go')
    assert caught.value is error


async def test_b05_exit_returning_true_does_not_swallow_a_cancellation():
    hanging = Hanging('hanging', Journal())
    agent = Agent(scripted(['hanging']), toolsets=[Swallowing('swallowing', Journal()), hanging])
    task = asyncio.ensure_future(agent.run('go'))
    await wait_until(lambda: hanging.journal.of('call'))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_b05_exit_returning_true_does_not_swallow_the_exception_in_async_with_agent():
    error = Boom('body')
    with pytest.raises(Boom) as caught:
        async with Agent(scripted(), toolsets=[Swallowing('swallowing', Journal())]):
            raise error
    assert caught.value is error
