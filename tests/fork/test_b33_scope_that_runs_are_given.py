"""B33: a scope makes and enters copies of the toolsets that it names, and a run works with them when it's given the scope."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
import pickle
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, UserError
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.toolsets import CombinedToolset, FilteredToolset, ToolsetScope, ToolsetScopePool, ToolsetStateWarning

from .delegation import Notes, called, calling, delegating, entries_and_exits, forked, fresh, never
from .line import WRAPPERS
from .test_b17_at_every_depth import AGENTS, ANSWERS, check_owners, tower
from .toolsets import METHODS, RUN, Journal, Server, Session, WithoutCopy, once_per_run, run_as, scripted

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

methods = pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])


@methods
async def test_b33_all_runs_that_are_given_the_scope_have_one_copy(method: str):
    journal = Journal()
    session, server = Session('t', journal), Server('s', journal)
    agents = [calling(['t'], ['s', 't'], toolsets=[session, server], name=name) for name in ('one', 'two')]
    async with ToolsetScope(session) as chat:
        assert journal.lifecycle == ['+t']
        for agent in agents:
            await run_as('run', agent, method, toolsets=[chat])
            await asyncio.ensure_future(run_as('task', agent, method, toolsets=[chat]))
            await run_as('wrapped', WrapperAgent[Any, Any](agent), method, toolsets=[chat])  # pyright: ignore[reportArgumentType]
    (copy,) = {event.toolset for event in journal.of('call') if event.toolset.name == 't'}
    assert copy.values == ['run', 'run', 'task', 'task', 'wrapped', 'wrapped'] * 2
    assert (session.values, journal.names('copy')) == ([], ['t'])
    assert [event for event in journal.lifecycle if event.endswith('t')] == ['+t', '-t']
    assert all(event.toolset is not session for event in journal.of('enter', 'exit', 'call'))
    assert journal.lifecycle.count('+s') == 6


@methods
async def test_b33_toolsets_of_the_run_stand_beside_the_scope(method: str):
    journal = Journal()
    session, other, server = Session('t', journal), Session('u', journal), Server('s', journal)
    agent = calling(['t', 'u', 's'])
    async with ToolsetScope(session) as chat:
        for toolsets in ([chat, session, other, server], [session, other, chat, server]):
            await run_as('run', agent, method, toolsets=toolsets)
        assert chat.instance_of(session).values == ['run', 'run']
    assert journal.names('copy') == ['t', 'u', 'u']


@methods
async def test_b33_runs_that_were_not_given_it_know_nothing_of_it(method: str):
    """Whatever block, generator, task or thread they start in."""
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])

    async def chunks() -> AsyncIterator[Any]:
        async with ToolsetScope(session) as inner:
            yield await run_as('given', agent, method, toolsets=[inner])
            yield await run_as('in generator', agent, method)

    async with ToolsetScope(session) as chat:
        await run_as('in block', agent, method)
        await asyncio.ensure_future(run_as('in task', agent, method))
        await run_as('in thread', agent, 'run_sync')
        async for _ in chunks():
            await run_as('between chunks', agent, method)
        assert chat.instance_of(session).values == []
    await run_as('after', agent, method)
    for event in journal.of('call'):
        assert set(event.toolset.values) == {event.run}
    assert len({id(event.toolset) for event in journal.of('call')}) == 8


async def test_b33_worker_that_was_started_inside_knows_nothing_of_it():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    jobs, done = asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def work() -> None:
        while job := await jobs.get():
            await done.put(await run_as(job, agent))

    async with ToolsetScope(session) as chat:
        worker = asyncio.create_task(work())
        await jobs.put('Bob')
        await done.get()
        await run_as('Ada', agent, toolsets=[chat])
    await jobs.put('Eve')
    await done.get()
    await jobs.put(None)
    await worker
    assert [event.toolset.values for event in journal.of('call')] == [['Bob'], ['Ada'], ['Eve']]


@pytest.mark.parametrize('wrapper', WRAPPERS)
async def test_b33_toolset_in_any_wrapper_and_place_is_the_same(wrapper: str):
    journal = Journal()
    session = Session('t', journal)
    wrapped: Any = WRAPPERS[wrapper](session)
    async with ToolsetScope(session) as chat:
        for toolsets in ([wrapped], [session], [CombinedToolset([session, Server('s', journal)])]):
            result = await calling(toolsets=toolsets).run('go', toolsets=[chat])
            assert result.instance_of(session) is chat.instance_of(session)
        assert chat.instance_of(session).original is session
    assert journal.names('copy') == ['t']
    assert [event for event in journal.lifecycle if event.endswith('t')] == ['+t', '-t']


async def test_b33_only_what_was_named_is_kept_and_factories_never():
    journal = Journal()
    one, two = Session('one', journal), Session('two', journal)
    agent = calling(['one', 'two', 'made'], toolsets=[one, two, lambda: Session('made', journal)])
    async with ToolsetScope(one) as chat:
        for _ in range(3):
            await run_as('run', agent, toolsets=[chat])
    for name, number in (('one', 1), ('two', 3), ('made', 3)):
        assert journal.lifecycle.count(f'+{name}') == journal.lifecycle.count(f'-{name}') == number


async def test_b33_agent_without_the_toolset_gets_no_tools_of_it():
    names: list[str] = []

    async def note(ctx: RunContext[Any], tool_defs: list[Any]) -> list[Any]:
        names.extend(tool_def.name for tool_def in tool_defs)
        return tool_defs

    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['s']), toolsets=[Server('s', journal).prepared(note)])
    async with ToolsetScope(session) as chat:
        await agent.run('go', toolsets=[chat])
    assert set(names) == {'s'}
    assert journal.of('call')[0].toolset.name == 's'


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    'a class': (lambda: Session, 'Session'),
    'an agent': (lambda: calling(), 'Agent'),
    'a list': (lambda: [Session('t', Journal())], 'list'),
    'None': (lambda: None, 'None'),
    'a function': (lambda: lambda: Session('t', Journal()), 'function'),
    'a toolset that is not stateful': (lambda: Server('s', Journal()), "'s'"),
    'a toolset made once per run': (lambda: once_per_run(lambda: Session('t', Journal())), 'DynamicToolset'),
    'what cannot be copied': (lambda: WithoutCopy('t', Journal()), "'t'"),
    'a scope': (lambda: ToolsetScope(Session('t', Journal())), 'scope'),
    'a combination with a scope': (
        lambda: CombinedToolset([Session('t', Journal()), ToolsetScope(Session('t', Journal()))]),
        'Combined',
    ),
    'an empty combination': (lambda: CombinedToolset[Any]([]), 'Combined'),
}


@pytest.mark.parametrize(('wrong', 'said'), WRONG.values(), ids=WRONG)
async def test_b33_anything_but_stateful_instances_is_refused_with_what_was_passed(wrong: Any, said: str):
    session = Session('t', Journal())
    with pytest.raises(UserError) as caught:
        async with ToolsetScope(session, wrong()):
            pytest.fail('The block was entered')
    assert said in str(caught.value)
    assert session.journal.names('enter') == session.journal.names('exit')


async def test_b33_scope_that_an_agent_is_built_with_is_refused():
    session = Session('t', Journal())
    for place in (lambda chat: [chat], lambda chat: [session, chat]):
        async with ToolsetScope(session) as chat:
            with pytest.raises(UserError, match=r'(?i)scope.*run'):
                Agent(scripted(), toolsets=place(chat))
        with pytest.raises(UserError, match=r'(?i)scope.*run'):
            Agent(scripted(), toolsets=place(ToolsetScope(session)))


@pytest.mark.parametrize('place', ['agent', 'decorator', 'run', 'override'])
@pytest.mark.parametrize('made', ['class', 'function', 'open', 'inside'])
async def test_b33_scope_that_a_factory_returns_is_refused(made: str, place: str):
    journal = Journal()
    session = Session('t', journal)
    async with ToolsetScope(session) as chat:
        makes: dict[str, Any] = {
            'class': ToolsetScope,
            'function': lambda: ToolsetScope(session),
            'open': lambda: chat,
            'inside': lambda ctx: CombinedToolset([Server('s', journal), chat.prefixed('x')]),
        }
        make = makes[made]
        agent = Agent(scripted(['t']), toolsets=[session, make] if place == 'agent' else [session])
        if place == 'decorator':
            agent.toolset(lambda ctx: make(ctx) if made == 'inside' else make())
        overriding = agent.override(toolsets=[session, make]) if place == 'override' else nullcontext()
        with overriding, pytest.raises(UserError, match=r'(?i)scope'):
            await agent.run('go', toolsets=[make] if place == 'run' else None)
    assert journal.names('enter') == journal.names('exit')


async def test_b33_scope_cannot_go_to_another_process():
    async with ToolsetScope(Session('t', Journal())) as chat:
        with pytest.raises(UserError, match='Open one there'):
            pickle.dumps(chat)


async def test_b33_entry_that_fails_exits_those_entered_with_its_exception():
    journal = Journal()
    error = RuntimeError('enter')
    a, b = Session('a', journal), Session('b', journal)
    c, d = Session('c', journal, fail={'enter': error}), Session('d', journal)
    with pytest.raises(RuntimeError) as caught:
        async with ToolsetScope(a, b, c, d):
            pytest.fail('The block was entered')
    assert caught.value is error
    assert journal.lifecycle == ['+a', '+b', '-b', '-a']
    assert all(event.got[1] is error for event in journal.of('exit'))


async def test_b33_copy_that_is_bad_is_refused_and_nothing_stays_entered():
    class ReturnsItself(Session):
        def copy(self) -> Any:
            return self

    journal = Journal()
    with pytest.raises(UserError, match="'bad'"):
        async with ToolsetScope(Session('a', journal), ReturnsItself('bad', journal)):
            pytest.fail('The block was entered')
    assert journal.lifecycle in ([], ['+a', '-a'])


# Nested runs


@pytest.mark.parametrize('answer', [None, fresh, forked])
async def test_b33_nested_runs_get_what_the_run_around_them_says(answer: Any):
    journal = Journal()
    notes, own = Notes('t', journal, answer=answer), Session('own', journal)
    child = calling(['t'], ['own'], toolsets=[notes, own])
    parent = calling(['t'], ['delegate'], toolsets=[notes, delegating(child)], name='parent')
    async with ToolsetScope(notes) as chat:
        for _ in range(2):
            await run_as('parent', parent, toolsets=[chat])
        expected = ['parent', 'child'] * 2 if answer is None else ['parent'] * 2
        assert chat.instance_of(notes).values == expected
    assert journal.lifecycle.count('+own') == journal.lifecycle.count('-own') == 2
    assert {event.run for event in journal.of('ask')} == {'child'}
    check_owners(journal)


async def test_b33_run_that_is_given_the_scope_works_with_its_copy_without_asking():
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    async with ToolsetScope(notes) as chat:
        await run_as('run', calling(['t'], toolsets=[notes]), toolsets=[chat])
        assert called(journal, 'run') is chat.instance_of(notes)


async def test_b33_agent_that_calls_itself_has_fresh_copies_inside():
    journal = Journal()
    session = Session('t', journal)
    rounds = iter([True])

    async def again(value: str) -> None:
        if next(rounds, False):
            await run_as('inner', agent)

    agent: Any = calling(['t'], ['again'], toolsets=[session], tools=[again], name='self')
    async with ToolsetScope(session) as chat:
        await run_as('outer', agent, toolsets=[chat])
        assert chat.instance_of(session).values == ['outer']
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']


async def test_b33_sub_agent_that_is_given_a_scope_of_its_own_works_with_that():
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    async with ToolsetScope(notes) as outer, ToolsetScope(notes) as inner:
        delegate = delegating(child, options=lambda ctx: {'toolsets': [inner]})
        await run_as('parent', calling(['t'], ['delegate'], toolsets=[notes, delegate]), toolsets=[outer])
        assert outer.instance_of(notes).values == ['parent']
        assert inner.instance_of(notes).values == ['child']


@pytest.mark.parametrize('answer', ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize('tree', AGENTS.values(), ids=AGENTS)
async def test_b17_below_a_scope_everything_has_one_owner(tree: Any, answer: Any):
    """The scope keeps the leaf, and the agents hold wrappers around it."""
    journal = Journal()
    notes = Notes('t', journal, answer=answer())
    async with ToolsetScope(notes) as chat:
        await tower(*tree(notes), journal=journal, toolsets=[chat])
        live = chat.instance_of(notes)
        assert [event for event in entries_and_exits(journal, live) if event[0] == 'exit'] == []
    check_owners(journal)
    assert notes.values == []


# What a run's instance is


async def test_b33_two_runs_of_an_approval_that_is_answered_by_hand():
    """What the first run collected is there when the answer arrives."""
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[session])
    async with ToolsetScope(session) as chat:
        first = await agent.run('go', toolsets=[chat])
        second = await agent.run('go on', toolsets=[chat])
    assert first.instance_of(session) is second.instance_of(session)
    assert second.instance_of(session).values == ['', '']


async def test_b33_context_run_and_result_find_the_instance():
    found: list[Any] = []

    async def look(ctx: RunContext[Any], value: str) -> None:
        found.append(ctx.instance_of(session))

    session = Session('t', Journal())
    agent = calling(['look'], toolsets=[session.prefixed('p'), FunctionToolset([look])])
    async with ToolsetScope(session) as chat:
        async with agent.iter('go', toolsets=[chat]) as agent_run:
            during = agent_run.instance_of(session)
            async for _ in agent_run:
                pass
        assert agent_run.result is not None
        assert agent_run.result.instance_of(session) is during is chat.instance_of(session) is found[0] is not session
        for toolset in (Session('other', Journal()), Server('s', Journal())):
            with pytest.raises(UserError) as caught:
                chat.instance_of(toolset)
            assert toolset.label in str(caught.value)
    RUN.set('')


async def test_b10_what_a_wrapper_reads_from_its_inside_is_there_in_a_scope():
    """Also attributes that only the wrapped class has."""

    class Reads(Notes):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            return await super().call_tool(*args, **kwargs)

    journal = Journal()
    notes = Reads('t', journal)
    audit_seen: list[Any] = []

    class Audits(FilteredToolset[Any]):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            result = await super().call_tool(*args, **kwargs)
            inside: Any = self.wrapped
            audit_seen.append((list(inside.values), inside.original))
            return result

    agent = calling(['t'], toolsets=[Audits(notes, lambda ctx, tool_def: True)])
    async with ToolsetScope(notes) as chat:
        await run_as('run', agent, toolsets=[chat])
    assert audit_seen == [(['run'], notes)]


# A scope that nothing used


@pytest.mark.parametrize('pooled', [False, True])
@pytest.mark.parametrize('mistake', ['another instance', 'an agent without it', 'not given', 'no run'])
async def test_b33_toolset_that_no_run_has_worked_with_is_warned_about_once(mistake: str, pooled: bool):
    session = Session('t', Journal())
    given = {'another instance': [Session('t', Journal())], 'an agent without it': []}.get(mistake, [session])
    agent = calling(['t'] if given else [], toolsets=given)
    chats = ToolsetScopePool(session)

    async def talk() -> None:
        async with chats('Ada') if pooled else ToolsetScope(session, name='Ada') as chat:
            if mistake != 'no run':
                await run_as('run', agent, toolsets=[] if mistake == 'not given' else [chat])
        await chats.aclose()

    with pytest.warns(ToolsetStateWarning) as caught:
        await talk()
    (message,) = {str(warning.message) for warning in caught}
    for part in (session.label, "scope 'Ada'", 'by identity', 'the instances that the agent was given'):
        assert part in message
    assert len(caught) == 1


async def test_b33_toolset_that_a_run_or_its_sub_agent_has_worked_with_is_not_warned_about():
    session, inner = Session('t', Journal()), Session('i', Journal())
    child = calling(['i'], toolsets=[inner.prefixed('x')])
    with warnings.catch_warnings():
        warnings.simplefilter('error', ToolsetStateWarning)
        async with ToolsetScope(session, inner) as chat:
            tools = [session, inner, delegating(child)]
            await run_as('parent', calling(['t'], ['delegate'], toolsets=tools), toolsets=[chat])
        with pytest.raises(RuntimeError, match='before any run'):
            async with ToolsetScope(session):
                raise RuntimeError('before any run')


async def test_b33_warning_names_what_was_not_used_and_nothing_else():
    one, two, three = (Session(name, Journal()) for name in ('one', 'two', 'three'))
    with pytest.warns(ToolsetStateWarning) as caught:
        async with ToolsetScope(one, CombinedToolset([two]), three) as chat:
            await run_as('run', calling(['two'], toolsets=[two]), toolsets=[chat])
    (message,) = {str(warning.message) for warning in caught}
    assert one.label in message
    assert three.label in message
    assert two.label not in message
