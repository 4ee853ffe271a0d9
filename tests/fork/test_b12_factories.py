"""B12: `toolsets=` takes instances and factories, mixed, in the constructor, in every run method and in `override`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, cast

import pytest
from anyio import create_task_group
from anyio.abc import TaskGroup
from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    UsageLimits,
    UserError,
    WrapperToolset,
)
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AgentToolset, CombinedToolset, DynamicToolset
from typing_extensions import Self

from .factories import (
    AT_EACH_STEP,
    CLASSES,
    FACTORIES,
    FACTORIES_BY_METHOD,
    FUNCTIONS,
    ONCE_PER_RUN,
    PER_RUN,
    PLACES,
    WAYS,
    WITHOUT_CONTEXT,
    Made,
    as_toolset,
    check_one_per_run,
    given_to,
)
from .line import WRAPPERS
from .toolsets import (
    METHODS,
    SUCCESS,
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
places = pytest.mark.parametrize('place', PLACES)
ways = pytest.mark.parametrize(('place', 'method'), WAYS)
toolset_kinds = pytest.mark.parametrize('kind', [Server, Session, WithoutCopy])


class Boom(Exception):
    """What the tests raise."""


# Once per run


@ways
@pytest.mark.parametrize('factory', ONCE_PER_RUN)
async def test_b12_factory_makes_one_toolset_for_each_run(factory: str, place: str, method: str):
    journal = Journal()
    toolsets = [ONCE_PER_RUN[factory](Made(journal, Session))]
    with given_to(place, toolsets, scripted(['t', 't'], ['t'])) as run:
        for name in 'ab':
            assert await run(name, method) == 'done'
        await asyncio.gather(*(run(name, method) for name in 'cde'))
    check_one_per_run(journal, 'abcde')
    assert len(journal.of('call')) == 15
    assert all(event.got == SUCCESS for event in journal.of('exit'))


@toolset_kinds
@pytest.mark.parametrize('factory', ONCE_PER_RUN)
async def test_b12_what_a_factory_makes_is_used_as_it_is(factory: str, kind: Callable[[str, Journal], Any]):
    journal = Journal()
    agent = Agent(scripted(['t'], ['t']), toolsets=[ONCE_PER_RUN[factory](Made(journal, kind))])
    await asyncio.gather(*(run_as(name, agent) for name in 'abc'))
    check_one_per_run(journal, 'abc')


@toolset_kinds
async def test_b12_toolset_class_itself_is_a_factory(kind: Callable[[str, Journal], Any]):
    class InClassBody(kind):  # pyright: ignore[reportUntypedBaseClass,reportGeneralTypeIssues]
        def __init__(self):
            Server.__init__(self, 't', journal)
            journal.note('make', self)

    journal = Journal()
    agent = Agent[Any, Any](scripted(['t'], ['t']), toolsets=[InClassBody])
    await asyncio.gather(*(run_as(name, agent) for name in 'abc'))
    check_one_per_run(journal, 'abc')


@methods
async def test_b12_agent_that_calls_itself_makes_one_toolset_for_each_run(method: str):
    class Delegates(Session):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            await super().call_tool(*args, **kwargs)
            if len(journal.of('make')) < 4:
                await run_as(f'run{len(journal.of("make"))}', agent, method)

    journal = Journal()
    agent = Agent(scripted(['t']), toolsets=[lambda: Made(journal, Delegates)()])
    await run_as('run0', agent, method)
    check_one_per_run(journal, [f'run{number}' for number in range(4)])


@methods
async def test_b12_factory_is_called_when_the_run_enters_its_toolsets_and_exited_after_the_last_request(method: str):
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        journal.note('request', model)
        return ModelResponse(parts=[TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        journal.note('request', model)
        yield 'done'

    journal = Journal()
    model = FunctionModel(respond, stream_function=stream)
    await METHODS[method](Agent(model, toolsets=[Made(journal, Session)]))
    assert [event.kind for event in journal.events] == ['make', 'enter', 'get_tools', 'request', 'exit']


async def test_b12_factory_is_called_before_the_body_of_iter():
    journal = Journal()
    async with Agent(scripted(), toolsets=[Made(journal, Session)]).iter('go'):
        assert journal.lifecycle == ['+t']
    assert journal.lifecycle == ['+t', '-t']


@methods
async def test_b12_wrapper_agent_takes_factories(method: str):
    journal = Journal()
    agent: Any = WrapperAgent(Agent(scripted(['t'])))
    await run_as('a', agent, method, toolsets=[Made(journal, Session)])
    with agent.override(toolsets=[Made(journal, Session)]):
        await run_as('b', agent, method)
    check_one_per_run(journal, 'ab')


async def test_b12_any_sequence_of_toolsets_will_do():
    journal = Journal()
    make = Made(journal, Session)
    await run_as('a', Agent(scripted(['t']), toolsets=(make,)))
    await run_as('b', Agent(scripted(['t'])), toolsets=(make,))
    check_one_per_run(journal, 'ab')


async def test_b12_list_that_is_changed_later_makes_no_difference_to_the_agent():
    journal = Journal()
    toolsets: list[Any] = [Made(journal, Session)]
    agent = Agent(scripted(['t']), toolsets=toolsets)
    toolsets.clear()
    await run_as('a', agent)
    check_one_per_run(journal, 'a')


@methods
@pytest.mark.parametrize('factory', ['async function', 'class', 'per run', 'per run, of an async function'])
async def test_b12_what_is_made_without_context_is_entered_and_exited_in_one_task(factory: str, method: str):
    class HoldsTaskGroup(Server):
        group: TaskGroup

        async def __aenter__(self) -> Self:
            self.group = await create_task_group().__aenter__()
            return await super().__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            await super().__aexit__(*args)
            return await self.group.__aexit__(*cast(Any, args))

    journal = Journal()
    agent = Agent(scripted(['t'], ['t']), toolsets=[FACTORIES[factory](Made(journal, HoldsTaskGroup))])
    await run_as('a', agent, method)
    check_one_per_run(journal, 'a')


# The run context


@ways
@pytest.mark.parametrize('factory', AT_EACH_STEP)
async def test_b12_function_of_the_context_is_called_at_each_step(factory: str, place: str, method: str):
    journal = Journal()
    toolsets = [AT_EACH_STEP[factory](Made(journal, Session))]
    with given_to(place, toolsets, scripted(['t'], ['t', 't'])) as run:
        await asyncio.gather(*(run(name, method) for name in 'abc'))
    assert len({id(event.toolset) for event in journal.of('make')}) == 9
    for name in 'abc':
        events = [event for event in journal.events if event.run == name]
        made = [event.toolset for event in events if event.kind == 'make']
        assert [toolset.values for toolset in made] == [[name], [name, name], []]
        changes = [(event.kind, made.index(event.toolset)) for event in events if event.kind in ('enter', 'exit')]
        assert changes == [('enter', 0), ('exit', 0), ('enter', 1), ('exit', 1), ('enter', 2), ('exit', 2)]


async def test_b12_functions_of_the_context_get_the_context_of_the_step():
    def note(kind: str) -> Callable[[RunContext[str]], FunctionToolset[str]]:
        def factory(ctx: RunContext[str]) -> FunctionToolset[str]:
            got.append((kind, ctx.deps, ctx.run_step, ctx.prompt))
            return FunctionToolset()

        return factory

    got: list[tuple[Any, ...]] = []
    agent = Agent(
        scripted(['s'], ['s']),
        deps_type=str,
        toolsets=[note('step'), DynamicToolset(note('run'), per_run_step=False).prefixed('x'), Server('s', Journal())],
    )
    await agent.run('go', deps='Ada')
    await agent.run('again', deps='Bob')
    assert sorted(got) == [
        ('run', 'Ada', 0, 'go'),
        ('run', 'Bob', 0, 'again'),
        *(('step', 'Ada', step, 'go') for step in (1, 2, 3)),
        *(('step', 'Bob', step, 'again') for step in (1, 2, 3)),
    ]


# The list


@ways
async def test_b12_instances_and_factories_can_be_mixed(place: str, method: str):
    journal = Journal()
    server, session = Server('server', journal), Session('session', journal)
    toolsets: list[AgentToolset[Any]] = [
        server,
        lambda ctx: Session('step', journal),
        partial(Session, 'partial', journal),
        session,
        DynamicToolset(partial(Session, 'per_run', journal)).prefixed('x'),
        CombinedToolset([Server('inner', journal), once_per_run(lambda: Session('context', journal))]),
        no_toolset,
    ]
    names = ['server', 'step', 'partial', 'session', 'x_per_run', 'inner', 'context']
    with given_to(place, toolsets, scripted(names, names)) as run:
        await run('a', method)
        await run('b', method)
    assert server.values == ['a', 'a', 'b', 'b']
    assert session.values == []
    calls = journal.of('call')
    assert len(calls) == 28
    for name, expected in {
        'partial': ['aa', 'bb'],
        'session': ['aa', 'bb'],
        'per_run': ['aa', 'bb'],
        'context': ['aa', 'bb'],
        'step': ['a', 'a', 'b', 'b'],
    }.items():
        used = {id(event.toolset): event.toolset for event in calls if event.toolset.name == name}
        assert sorted(''.join(toolset.values) for toolset in used.values()) == expected
    entered_at_once = ['server', 'partial', 'session', 'per_run', 'inner', 'context']
    assert journal.names('enter')[:6] == entered_at_once
    assert sorted(journal.names('enter')) == sorted(journal.names('exit'))


def no_toolset() -> None:
    """Make no toolset."""


@places
async def test_b12_toolsets_are_entered_in_the_order_of_the_list_and_exited_in_reverse(place: str):
    journal = Journal()
    toolsets: list[Any] = [
        Made(journal, Session, 'a'),
        Server('b', journal),
        once_per_run(Made(journal, Server, 'c')),
        Session('d', journal),
        CombinedToolset([once_per_run(Made(journal, Session, 'e')).prefixed('x'), Server('f', journal)]),
        class_of('g', journal),
        partial(Server, 'h', journal),
    ]
    with given_to(place, toolsets, scripted(['a'])) as run:
        await run('run')
    assert journal.lifecycle == ['+' + name for name in 'abcdefgh'] + ['-' + name for name in 'hgfedcba']


def class_of(name: str, journal: Journal) -> type[AbstractToolset[Any]]:
    class Named(Session):
        def __init__(self):
            super().__init__(name, journal)

    return Named


async def test_b12_toolsets_of_the_run_come_after_those_of_the_agent():
    journal = Journal()
    agent = Agent(scripted(), toolsets=[Made(journal, Session, 'a'), Session('b', journal)])
    await agent.run('go', toolsets=[Made(journal, Session, 'c'), Session('d', journal)])
    assert journal.lifecycle == ['+a', '+b', '+c', '+d', '-d', '-c', '-b', '-a']


async def test_b12_functions_of_the_context_are_called_when_the_others_have_been_entered():
    journal = Journal()
    agent = Agent(scripted(), toolsets=[lambda ctx: Session('step', journal), Made(journal, Session, 'a')])
    await agent.run('go', toolsets=[once_per_run(lambda: Session('run', journal)), Server('b', journal)])
    assert journal.names('enter') == ['a', 'run', 'b', 'step']
    assert sorted(journal.names('exit')) == ['a', 'b', 'run', 'step']
    assert all(event.got == SUCCESS for event in journal.of('exit'))


async def test_b12_decorated_functions_come_after_the_list():
    journal = Journal()
    agent = Agent(scripted(['a', 'b', 'c', 'd'], ['d']), toolsets=[Made(journal, Session, 'a')])

    @agent.toolset
    def make() -> Session:
        return Session('b', journal)

    @agent.toolset(per_run_step=False)
    def once(ctx: RunContext[Any]) -> Session:
        return Session('c', journal)

    @agent.toolset
    def each(ctx: RunContext[Any]) -> Session:
        return Session('d', journal)

    await agent.run('go')
    assert journal.names('enter')[:3] == ['a', 'b', 'c']
    assert sorted(journal.names('enter')) == ['a', 'b', 'c', 'd', 'd', 'd']
    assert sorted(journal.names('exit')) == ['a', 'b', 'c', 'd', 'd', 'd']


# Overrides


async def test_b12_override_with_factories_calls_none_of_the_agents_own():
    journal = Journal()
    agent = Agent(scripted(['t']), toolsets=[Made(journal, Server, 't')])
    others = Journal()
    with agent.override(toolsets=[Made(others, Session)]):
        await run_as('a', agent)
        with agent.override(toolsets=[Made(others, Session)]):
            await run_as('b', agent)
        await run_as('c', agent)
        assert journal.events == []
    check_one_per_run(others, 'abc')
    await run_as('d', agent)
    check_one_per_run(journal, 'd')


async def test_b12_override_does_not_call_the_factories_itself():
    journal = Journal()
    agent = Agent(scripted())
    with agent.override(toolsets=[Made(journal, Session), once_per_run(Made(journal, Session))]):
        pass
    assert journal.events == []


# No toolset


@ways
@pytest.mark.parametrize('factory', FUNCTIONS)
async def test_b12_factory_that_returns_none_gives_the_run_no_toolset(factory: str, place: str, method: str):
    def make() -> Any:
        results.append(None)

    results: list[None] = []
    journal = Journal()
    toolsets = [FUNCTIONS[factory](make), Server('s', journal)]
    with given_to(place, toolsets, scripted(['s'], ['s'])) as run:
        assert await run('a', method) == 'done'
    assert journal.lifecycle == ['+s', '-s']
    assert len(results) == (3 if factory in AT_EACH_STEP else 1)


@pytest.mark.parametrize('factory', {**WITHOUT_CONTEXT, **PER_RUN})
async def test_b12_each_run_asks_anew_whether_it_has_a_toolset(factory: str):
    results: list[Any] = [None, 'toolset', None, 'toolset']
    journal = Journal()
    make = Made(journal, Session)
    toolset = ONCE_PER_RUN[factory](lambda: make() if results.pop(0) else None)
    agent = Agent(scripted(['s'], ['s']), toolsets=[Server('s', Journal()), toolset])
    for name in 'abcd':
        await run_as(name, agent)
    assert [(event.kind, event.run) for event in journal.of('make', 'enter', 'exit')] == [
        (kind, run) for run in 'bd' for kind in ('make', 'enter', 'exit')
    ]


async def test_b12_function_of_the_context_is_asked_at_each_step_whether_there_is_a_toolset():
    results = iter([None, Session, Session, None])
    journal = Journal()

    def factory(ctx: RunContext[Any]) -> Session | None:
        kind = next(results)
        return kind and kind('t', journal)

    agent = Agent(scripted(['s'], ['t'], ['t', 's']), toolsets=[factory, Server('s', Journal())])
    await agent.run('go')
    assert journal.lifecycle == ['+t', '-t', '+t', '-t']
    assert next(results, 'end') == 'end'


# Dynamic toolsets in wrappers and combinations

INSIDE: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'HandWritten': HandWritten,
    'CombinedToolset': lambda toolset: CombinedToolset([toolset, FunctionToolset[Any]()]),
    'deeper': lambda toolset: CombinedToolset([HandWritten(CombinedToolset([toolset.renamed({'new': 'old'})]))]),
}


@pytest.mark.parametrize('inside', INSIDE)
@pytest.mark.parametrize('factory', PER_RUN)
@places
async def test_b12_dynamic_toolset_works_in_wrappers_and_combinations(place: str, factory: str, inside: str):
    journal = Journal()
    toolset = INSIDE[inside](PER_RUN[factory](Made(journal, Session)))
    with given_to(place, [toolset], scripted(['t', 't'], ['t'])) as run:
        await run('a')
        await asyncio.gather(*(run(name) for name in 'bcd'))
    check_one_per_run(journal, 'abcd')


async def test_b12_dynamic_toolset_of_two_agents_is_one_result_in_each_run():
    journal = Journal()
    toolset = once_per_run(Made(journal, Session))
    agents = [Agent(scripted(['t']), toolsets=[toolset]) for _ in range(3)]
    await asyncio.gather(*(run_as(f'run{number}', agent) for number, agent in enumerate(agents)))
    check_one_per_run(journal, ['run0', 'run1', 'run2'])


@pytest.mark.parametrize('outer', FUNCTIONS)
@pytest.mark.parametrize('inner', ['lambda', 'class', *PER_RUN, 'async function of the context'])
async def test_b12_factory_can_return_what_contains_a_factory(inner: str, outer: str):
    def make() -> AbstractToolset[Any]:
        return CombinedToolset([as_toolset(FACTORIES[inner](Made(journal, Session))).prefixed('x')])

    journal = Journal()
    agent = Agent(scripted(['x_t']), toolsets=[FUNCTIONS[outer](make)])
    await asyncio.gather(*(run_as(name, agent) for name in 'ab'))
    times = 4 if outer in AT_EACH_STEP else 2
    kinds = [event.kind for event in journal.of('make', 'enter', 'exit')]
    assert [kinds.count(kind) for kind in ('make', 'enter', 'exit')] == [times] * 3
    assert len({id(event.toolset) for event in journal.of('exit')}) == times
    assert len(journal.of('call')) == 2


@pytest.mark.parametrize('outer', FUNCTIONS)
@pytest.mark.parametrize('inner', ['lambda', 'class', *PER_RUN, 'async function of the context'])
async def test_b12_factory_can_return_a_wrapper_with_state_around_a_factory(inner: str, outer: str):
    """Which isn't copied either."""

    class View(WrapperToolset[Any]):
        stateful = True
        copy: Any = None

    journal = Journal()
    agent = Agent(
        scripted(['t']), toolsets=[FUNCTIONS[outer](lambda: View(as_toolset(FACTORIES[inner](Made(journal, Session)))))]
    )
    await asyncio.gather(*(run_as(name, agent) for name in 'ab'))
    times = 4 if outer in AT_EACH_STEP else 2
    kinds = [event.kind for event in journal.of('make', 'enter', 'exit')]
    assert [kinds.count(kind) for kind in ('make', 'enter', 'exit')] == [times] * 3
    assert len(journal.of('call')) == 2


# Failures


def failing_once(make: Callable[[], Any], error: BaseException) -> Callable[[], Any]:
    """Make a function that raises when it's called for the first time."""
    errors = [error]

    def call() -> Any:
        if errors:
            raise errors.pop()
        return make()

    return call


@ways
@pytest.mark.parametrize('factory', FACTORIES)
async def test_b12_factory_that_raises_exits_what_was_entered_before_it(factory: str, place: str, method: str):
    journal = Journal()
    error = Boom('factory')
    toolsets = [
        Server('a', journal),
        Made(journal, Session, 'b'),
        CombinedToolset([Session('c', journal)]),
        FACTORIES[factory](failing_once(Made(journal, Session), error)),
    ]
    requests = Requests()
    with given_to(place, toolsets, requests.model) as run:
        with pytest.raises(Boom) as caught:
            await run('first', method)
        assert caught.value is error
        assert requests.count == 0
        nothing_entered = factory in ONCE_PER_RUN
        assert journal.lifecycle == ([] if nothing_entered else ['+a', '+b', '+c', '-c', '-b', '-a'])
        assert all(event.got[:2] == (Boom, error) for event in journal.of('exit'))

        journal.events.clear()
        assert await run('second', method) == 'done'
    assert journal.lifecycle[:4] == ['+a', '+b', '+c', '+t']
    assert sorted(journal.lifecycle[4:]) == ['-a', '-b', '-c', '-t']


@pytest.mark.parametrize('factory', [*WITHOUT_CONTEXT, *CLASSES])
async def test_b12_factory_that_raises_leaves_those_after_it_unentered(factory: str):
    journal = Journal()
    toolsets = [
        FACTORIES[factory](failing_once(no_toolset, Boom('factory'))),
        Made(journal, Session),
        Server('s', journal),
    ]
    with pytest.raises(Boom):
        await Agent(scripted(), toolsets=toolsets).run('go')
    assert journal.lifecycle == []


@ways
@pytest.mark.parametrize('factory', FACTORIES)
async def test_b12_what_cannot_be_entered_is_not_exited_and_those_before_it_are(factory: str, place: str, method: str):
    journal = Journal()
    error = Boom('enter')
    toolsets = [
        Server('a', journal),
        Made(journal, Session, 'b'),
        FACTORIES[factory](lambda: Session('t', journal, fail={'enter': error})),
    ]
    requests = Requests()
    with given_to(place, toolsets, requests.model) as run:
        for name in 'xy':
            with pytest.raises(Boom) as caught:
                await run(name, method)
            assert caught.value is error
    assert requests.count == 0
    assert journal.lifecycle == ['+a', '+b', '-b', '-a'] * 2
    assert all(event.got[:2] == (Boom, error) for event in journal.of('exit'))


@pytest.mark.parametrize('factory', [*WITHOUT_CONTEXT, *CLASSES])
async def test_b12_what_was_made_is_exited_when_a_later_toolset_cannot_be_entered(factory: str):
    journal = Journal()
    error = Boom('enter')
    toolsets = [FACTORIES[factory](Made(journal, Session)), Server('s', journal, fail={'enter': error})]
    with pytest.raises(Boom):
        await Agent(scripted(), toolsets=toolsets).run('go')
    assert journal.lifecycle == ['+t', '-t']
    assert journal.exit_of('t')[1] is error


@pytest.mark.parametrize('place', PLACES)
async def test_b12_nothing_is_entered_when_a_copy_is_refused(place: str):

    class ReturnsItself(Session):
        def copy(self) -> Self:
            return self

    journal = Journal()
    toolsets = [Made(journal, Session), once_per_run(Made(journal, Server)).prefixed('x'), ReturnsItself('s', journal)]
    requests = Requests()
    with given_to(place, toolsets, requests.model) as run, pytest.raises(UserError):
        await run('a')
    assert {event.kind for event in journal.events} <= {'make'}
    assert requests.count == 0


@pytest.mark.parametrize(('factory', 'method'), FACTORIES_BY_METHOD)
@pytest.mark.parametrize('cause', ['model', 'tool', 'limit'])
async def test_b12_what_was_made_is_exited_with_what_ended_the_run(cause: str, factory: str, method: str):
    class FailsLater(Server):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            await super().call_tool(*args, **kwargs)
            if cause == 'tool' and len(self.values) == 2:
                raise error

    journal = Journal()
    error = Boom(cause)
    model = scripted(['s'], *([error] if cause == 'model' else [['s'], ['s']]))
    agent = Agent(model, toolsets=[FACTORIES[factory](Made(journal, Session)), FailsLater('s', Journal())])
    options: dict[str, Any] = {'usage_limits': UsageLimits(request_limit=2)} if cause == 'limit' else {}
    with pytest.raises(UsageLimitExceeded if cause == 'limit' else Boom) as caught:
        await run_as('a', agent, method, **options)
    *before, last = exits = journal.of('exit')
    assert last.got[:2] == (type(caught.value), caught.value)
    assert all(event.got == SUCCESS for event in before)
    assert bool(before) == (factory in AT_EACH_STEP)
    assert [event.toolset for event in exits] == [event.toolset for event in journal.of('enter')]
    assert [event.toolset for event in exits] == [event.toolset for event in journal.of('make')]


@pytest.mark.parametrize('factory', FACTORIES)
async def test_b12_what_was_made_is_exited_with_what_the_body_of_iter_raised(factory: str):
    journal = Journal()
    error = Boom('body')
    agent = Agent(scripted(['t'], ['t']), toolsets=[FACTORIES[factory](Made(journal, Session))])
    with pytest.raises(Boom):
        async with agent.iter('go') as agent_run:
            async for _ in agent_run:
                if journal.of('call'):
                    raise error
    assert journal.of('exit')[-1].got[:2] == (Boom, error)


@pytest.mark.parametrize('factory', FACTORIES)
async def test_b12_what_was_made_is_exited_with_the_cancellation_of_the_run(factory: str):
    class Hangs(Session):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            called.set()
            await asyncio.Event().wait()

    journal = Journal()
    called = asyncio.Event()
    agent = Agent(scripted(['t']), toolsets=[FACTORIES[factory](Made(journal, Hangs))])
    task = asyncio.ensure_future(agent.run('go'))
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal.lifecycle == ['+t', '-t']
    assert journal.exit_of('t')[0] is asyncio.CancelledError


@pytest.mark.parametrize('takes', ['nothing', 'context', 'context, once'])
async def test_b12_cancellation_while_a_factory_waits_exits_what_was_entered(takes: str):
    async def wait(ctx: Any) -> Any:
        called.set()
        await asyncio.Event().wait()

    journal = Journal()
    called = asyncio.Event()
    factories: dict[str, Any] = {
        'nothing': partial(wait, None),
        'context': wait,
        'context, once': DynamicToolset(wait, per_run_step=False),
    }
    toolsets = [Made(journal, Session, 'a'), Session('b', journal), factories[takes]]
    task = asyncio.ensure_future(Agent(scripted(), toolsets=toolsets).run('go'))
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    nothing_entered = takes != 'context'
    assert journal.lifecycle == ([] if nothing_entered else ['+a', '+b', '-b', '-a'])
    assert all(event.got[0] is asyncio.CancelledError for event in journal.of('exit'))


@pytest.mark.parametrize('factory', [*WITHOUT_CONTEXT, *CLASSES])
async def test_b12_exit_that_raises_keeps_no_other_from_being_exited(factory: str):
    journal = Journal()
    error = Boom('exit')
    toolsets = [
        FACTORIES[factory](Made(journal, Session, 'a')),
        FACTORIES[factory](lambda: Session('b', journal, fail={'exit': error})),
        FACTORIES[factory](Made(journal, Session, 'c')),
    ]
    agent = Agent(scripted(), toolsets=toolsets)
    with pytest.raises(Boom) as caught:
        await agent.run('go')
    assert caught.value is error
    assert journal.lifecycle == ['+a', '+b', '+c', '-c', '-b', '-a']
    assert journal.exit_of('c') == SUCCESS
    assert journal.exit_of('a')[1] is error


# `async with agent`


@pytest.mark.parametrize('factory', FACTORIES)
async def test_b12_async_with_agent_calls_no_factory(factory: str):
    journal = Journal()
    make = Made(journal, Session)
    toolset = FACTORIES[factory](make)
    inside = as_toolset(toolset)
    server = Server('server', journal)
    toolsets = [toolset, CombinedToolset([inside.prefixed('x'), server]), HandWritten(inside).prefixed('y')]
    agent = Agent(scripted(['t'], ['t']), toolsets=toolsets)
    async with agent:
        assert [(event.kind, event.toolset) for event in journal.events] == [('enter', server)]
        await run_as('a', agent)
    assert [event.run for event in journal.of('make')] == ['a'] * len(journal.of('make')) != []
    assert journal.lifecycle[-1] == '-server'


async def test_b12_async_with_agent_inside_an_override_calls_no_factory():
    journal = Journal()
    agent = Agent(scripted())
    with agent.override(toolsets=[Made(journal, Server), Server('server', journal)]):
        async with agent:
            pass
    assert journal.lifecycle == ['+server', '-server']


# Types


class OfStr(FunctionToolset[str]):
    """A toolset class that needs dependencies."""

    def __init__(self, name: str = 'name'):
        super().__init__()


async def async_function() -> OfStr | None:
    return None


async def async_function_of_context(ctx: RunContext[str]) -> OfStr:
    return OfStr(ctx.deps)


async def test_b12_types_allow_everything_that_works():
    toolset: AgentToolset[str] = OfStr
    toolsets: list[AgentToolset[str]] = [
        OfStr,
        OfStr(),
        toolset,
        partial(OfStr, 'name'),
        lambda: OfStr(),
        lambda ctx: OfStr(ctx.deps),
        no_toolset,
        async_function,
        async_function_of_context,
        DynamicToolset(async_function_of_context, per_run_step=False).prefixed('x'),
        DynamicToolset(OfStr),
        DynamicToolset(lambda ctx: OfStr(ctx.deps)),
    ]
    agent = Agent(scripted(), deps_type=str, toolsets=toolsets)
    assert (await agent.run('go', deps='', toolsets=toolsets)).output == 'done'
    with agent.override(toolsets=toolsets):
        assert (await agent.run('go', deps='')).output == 'done'
