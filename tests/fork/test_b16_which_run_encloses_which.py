"""B16: a run that starts in a tool call gets what the live instances of the enclosing runs say, and any other its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from pydantic_ai import FunctionToolset, ModelMessage, RunContext, TextOutput
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import PrepareTools, ProcessHistory
from pydantic_ai.output import ToolOutput

from .delegation import (
    SYNC,
    WAYS,
    Ledger,
    Notes,
    called,
    calling,
    calls,
    delegating,
    entries_and_exits,
    forked,
    fresh,
    happened,
    never,
    parent_of,
)
from .toolsets import METHODS, RUN, Journal, Server, run_as, scripted

pytestmark = pytest.mark.anyio

ways = pytest.mark.parametrize('way', WAYS)
methods = pytest.mark.parametrize('method', METHODS)
kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


@ways
@methods
async def test_b16_sub_agent_gets_the_live_instance(way: str, method: str):
    journal = Journal()
    notes = Notes('t', journal)
    await run_as('parent', parent_of(calling(['t'], toolsets=[notes]), notes, way=way), method)
    live = called(journal, 'parent')
    assert live is not notes
    assert called(journal, 'child') is live
    assert live.values == ['parent', 'child', 'parent']
    assert notes.values == []
    assert len(journal.of('copy')) == 1
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


@ways
async def test_b16_sub_agent_gets_what_the_live_instance_answers(way: str):
    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    await run_as('parent', parent_of(calling(['t'], toolsets=[notes]), notes, way=way))
    (asked,) = journal.of('ask')
    assert asked.toolset is called(journal, 'parent')
    assert called(journal, 'child') is asked.got[1]
    assert called(journal, 'child').values == ['parent', 'child']
    assert called(journal, 'parent').values == ['parent', 'parent']


@methods
async def test_b16_run_without_a_tool_call_gets_its_own_copy(method: str):
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    await run_as('parent', parent_of(child, Server('t', Journal())), method)
    await run_as('alone', child, method)
    assert called(journal, 'child') is not called(journal, 'alone')
    assert called(journal, 'child').values == ['child']
    assert called(journal, 'alone').values == ['alone']


async def test_b16_toolsets_of_the_run_and_of_override_are_matched_too():
    journal = Journal()
    notes, other, over = (Notes(name, journal) for name in ('t', 'u', 'v'))
    child = calling(['t', 'u'], ['v'], toolsets=[notes])

    async def overridden(ctx: RunContext[Any], value: str) -> None:
        with child.override(toolsets=[notes, other, over]):
            await run_as('overridden', child)

    tools = FunctionToolset[Any]()
    tools.add_function(overridden)
    delegate = delegating(child, options=lambda ctx: {'toolsets': [other, over]})
    parent = calling(['t', 'u', 'v'], ['delegate'], ['overridden'], toolsets=[notes, delegate, tools])
    await run_as('parent', parent, toolsets=[other, over])
    assert calls(journal, 'parent') == calls(journal, 'child') == calls(journal, 'overridden')
    assert len(journal.of('copy')) == 3

    journal.events.clear()
    with parent.override(toolsets=[notes, other, over, delegate, tools]):
        await run_as('parent', parent)
    assert calls(journal, 'parent') == calls(journal, 'child') == calls(journal, 'overridden')
    assert len(journal.of('copy')) == 3


async def test_b16_agent_that_comes_with_the_deps_is_enclosed_like_any_other():
    journal = Journal()
    notes = Notes('t', journal)
    delegate = delegating(lambda ctx: ctx.deps['agent'])  # pyright: ignore[reportUnknownLambdaType,reportUnknownMemberType]
    parent = calling(['t'], ['delegate'], toolsets=[notes, delegate])
    await run_as('parent', parent, deps={'agent': calling(['t'], toolsets=[notes])})
    assert called(journal, 'child') is called(journal, 'parent')


async def test_b16_concurrent_runs_do_not_see_each_other():
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])

    async def one(number: int) -> None:
        parent = calling(
            ['t'], ['delegate'], ['t'], toolsets=[notes, delegating(child, WAYS[number % 8], run=f'child{number}')]
        )
        await run_as(f'parent{number}', parent)

    await asyncio.gather(*map(one, range(100)))
    for number in range(100):
        live = called(journal, f'parent{number}')
        assert called(journal, f'child{number}') is live
        assert live.values == [f'parent{number}', f'child{number}', f'parent{number}']


async def test_b16_concurrent_runs_of_one_parent_do_not_see_each_other():
    journal = Journal()
    notes = Notes('t', journal)

    class Named(FunctionToolset[Any]):
        async def delegate(self, value: str) -> None:
            await run_as(f'child of {value}', child)

    named = Named()
    named.add_function(named.delegate)
    child = calling(['t'], toolsets=[notes])
    parent = calling(['t'], ['delegate'], ['t'], toolsets=[notes, named])
    await asyncio.gather(*(run_as(f'p{number}', parent, list(METHODS)[number % 5]) for number in range(50)))
    for number in range(50):
        live = called(journal, f'p{number}')
        assert called(journal, f'child of p{number}') is live
        assert live.values == [f'p{number}', f'child of p{number}', f'p{number}']


# Levels


@pytest.mark.parametrize('way', ['run', 'run_stream', 'iter', *SYNC])
async def test_b16_three_levels_share_one_instance(way: str):
    journal = Journal()
    notes = Notes('t', journal)
    agent = calling(['t'], toolsets=[notes])
    for level in (3, 2, 1):
        delegate = delegating(agent, way, run=f'level{level}')
        agent = calling(['t'], ['delegate'], ['t'], toolsets=[notes, delegate])
    await run_as('level0', agent)
    live = called(journal, 'level0')
    assert [called(journal, f'level{level}') is live for level in range(4)] == [True] * 4
    assert live.values == [f'level{level}' for level in (0, 1, 2, 3, 2, 1, 0)]
    assert entries_and_exits(journal, live) == [('enter', 'level0'), ('exit', 'level0')]


async def test_b16_nearest_run_that_has_it_is_asked():
    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    agent = calling(['t'], toolsets=[notes])
    for level in (3, 2, 1):
        # The run at level 2 doesn't know the toolset
        toolsets = [delegating(agent, run=f'level{level}'), *([] if level == 3 else [notes])]
        agent = calling(*([] if level == 3 else [['t']]), ['delegate'], toolsets=toolsets)
    await run_as('level0', agent)
    zero, one, three = (called(journal, f'level{level}') for level in (0, 1, 3))
    assert [event.toolset for event in journal.of('ask')] == [zero, one]
    assert three.values == ['level0', 'level1', 'level3']
    assert one.values == ['level0', 'level1']
    assert zero.values == ['level0']


async def test_b16_run_that_has_ended_does_not_enclose():
    """The second sub-agent gets that of the parent, not that of the first, which had its own."""
    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    first, second = (calling(['t'], toolsets=[notes]) for _ in range(2))
    toolsets = [notes, delegating(first, name='d1', run='first'), delegating(second, name='d2', run='second')]
    await run_as('parent', calling(['t'], ['d1'], ['d2'], toolsets=toolsets))
    live = called(journal, 'parent')
    assert [event.toolset for event in journal.of('ask')] == [live, live]
    assert called(journal, 'second').values == ['parent', 'second']


async def test_b16_sub_agent_beside_a_run_that_is_under_way_is_not_enclosed_by_it():
    """Between the nodes of a sub-agent that a tool drives by hand, the parent is the nearest."""

    async def drive(ctx: RunContext[Any], value: str) -> None:
        async with driven.iter('go') as agent_run:
            async for _ in agent_run:
                await run_as('beside', beside)

    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    driven, beside = (calling(['t'], toolsets=[notes]) for _ in range(2))
    tools = FunctionToolset[Any]()
    tools.add_function(drive)
    await run_as('parent', calling(['t'], ['drive'], toolsets=[notes, tools]))
    (live,) = {event.toolset for event in journal.of('copy')} and {event.got[0] for event in journal.of('copy')}
    asked = journal.of('ask')
    assert len(asked) > 3
    assert all(event.toolset is live for event in asked)
    assert all(toolset.values[-2:] == ['parent', 'beside'] for toolset in calls(journal, 'beside'))


# Runs driven by hand


@methods
async def test_b16_code_between_tool_calls_is_not_enclosed(method: str):
    """What the caller of a run does between its tool calls is none of its tool calls."""
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    parent = parent_of(child, notes)
    RUN.set('parent')
    async with parent.iter('go') as agent_run:
        async for _ in agent_run:
            await run_as('beside', child, method)
    live = called(journal, 'parent')
    assert called(journal, 'child') is live
    beside = calls(journal, 'beside')
    assert len(beside) > 5
    assert all(toolset.values == ['beside'] for toolset in beside)


async def test_b16_body_of_a_stream_is_not_enclosed():
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    async with calling(['t'], toolsets=[notes]).run_stream('go') as result:
        await run_as('beside', child)
        await result.get_output()
    assert called(journal, 'beside').values == ['beside']


@ways
async def test_b16_parent_that_another_task_drives_encloses(way: str):
    """Each node of the parent runs in a task of its own, and what the tool starts is enclosed all the same."""
    journal = Journal()
    notes = Notes('t', journal)
    parent = parent_of(calling(['t'], toolsets=[notes]), notes, way=way)
    RUN.set('parent')
    async with parent.iter('go') as agent_run:
        node: Any = agent_run.next_node
        while agent_run.result is None:
            node = await asyncio.ensure_future(agent_run.next(node))
    assert called(journal, 'child') is called(journal, 'parent')
    assert called(journal, 'child').values == ['parent', 'child', 'parent']


async def test_b16_sub_agent_that_is_driven_over_several_tool_calls_keeps_what_it_got():
    """One tool call starts it, others let it go on, from a task that was there before, and the last ends it."""
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], ['t'], toolsets=[notes])
    commands, answers = asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def hold() -> None:
        RUN.set('child')
        async with child.iter('go') as agent_run:
            node: Any = agent_run.next_node
            while agent_run.result is None:
                await answers.put('waiting')
                await commands.get()
                node = await agent_run.next(node)
        await answers.put('ended')

    holders: list[asyncio.Task[None]] = []

    async def start(value: str) -> str:
        holders.append(asyncio.ensure_future(hold()))
        return await answers.get()

    async def go_on(value: str) -> str:
        await commands.put(None)
        return await answers.get()

    tools = FunctionToolset[Any]([start, go_on])
    steps = ['t'], ['start'], *[['go_on']] * 7
    await run_as('parent', calling(*steps, ['t'], toolsets=[notes, tools]))
    await holders[0]
    live = called(journal, 'parent')
    assert called(journal, 'child') is live
    assert live.values == ['parent', 'child', 'child', 'parent']
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b16_sub_agent_that_a_task_from_before_starts_is_not_enclosed():
    """A worker that the tool only asks is not in the tool call, so nobody can know."""
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    jobs, done = asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def work() -> None:
        await jobs.get()
        await done.put(await run_as('child', child))

    async def ask(value: str) -> str:
        await jobs.put('job')
        return await done.get()

    worker = asyncio.ensure_future(work())
    await run_as('parent', calling(['t'], ['ask'], ['t'], toolsets=[notes, FunctionToolset[Any]([ask])]))
    await worker
    assert called(journal, 'child').values == ['child']
    assert called(journal, 'parent').values == ['parent', 'parent']


async def test_b16_iter_of_a_sub_agent_that_another_task_drives():
    journal = Journal()
    notes = Notes('t', journal)
    child = calling(
        ['t'], ['delegate'], toolsets=[notes, delegating(calling(['t'], toolsets=[notes]), run='grandchild')]
    )
    jobs, done = asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def work() -> None:
        while job := await jobs.get():
            await done.put(await job())

    async def drive(value: str) -> None:
        token = RUN.set('child')
        async with child.iter('go') as agent_run:
            node: Any = agent_run.next_node
            while agent_run.result is None:
                await jobs.put(lambda node=node: agent_run.next(node))
                node = await done.get()
        RUN.reset(token)

    RUN.set('child')  # of what the worker does
    worker = asyncio.ensure_future(work())
    await run_as('parent', calling(['t'], ['drive'], ['t'], toolsets=[notes, FunctionToolset[Any]([drive])]))
    await jobs.put(None)
    await worker
    live = called(journal, 'parent')
    assert called(journal, 'child') is called(journal, 'grandchild') is live
    assert live.values == ['parent', 'child', 'grandchild', 'parent']
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


# Code that is no tool call


async def _in_instructions(start: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    async def instructions(ctx: RunContext[Any]) -> str:
        return await start()

    return calling(['t'], instructions=instructions, **options)


async def _in_history_processor(start: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    async def process(messages: list[ModelMessage]) -> list[ModelMessage]:
        await start()
        return messages

    return calling(['t'], capabilities=[ProcessHistory(process)], **options)


async def _in_output_validator(start: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    async def validate(output: str) -> str:
        await start()
        return output

    agent = calling(['t'], **options)
    agent.output_validator(validate)
    return agent


async def _in_text_output(start: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    async def finish(text: str) -> str:
        await start()
        return text

    return calling(['t'], output_type=TextOutput(finish), **options)


async def _in_prepare(start: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    async def prepare(ctx: RunContext[Any], tool_defs: list[Any]) -> list[Any]:
        await start()
        return tool_defs

    return calling(['t'], capabilities=[PrepareTools(prepare)], **options)


ELSEWHERE = [_in_instructions, _in_history_processor, _in_output_validator, _in_text_output, _in_prepare]


@pytest.mark.parametrize('elsewhere', ELSEWHERE)
async def test_b16_run_that_starts_elsewhere_than_in_a_tool_call_gets_its_own_copy(elsewhere: Any):
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    await run_as('parent', await elsewhere(lambda: run_as('child', child), toolsets=[notes]))
    assert calls(journal, 'child')
    assert all(toolset.values == ['child'] for toolset in calls(journal, 'child'))
    assert called(journal, 'parent').values == ['parent']


async def test_b16_output_tool_is_a_tool_call():
    async def finish(ctx: RunContext[Any], value: str) -> str:
        return await run_as('child', child)

    def finish_in_thread(ctx: RunContext[Any], value: str) -> str:
        return SYNC['run_sync in a sync tool'](child, 'child', {})

    for function in (finish, finish_in_thread):
        journal = Journal()
        notes = Notes('t', journal)
        child = calling(['t'], toolsets=[notes])
        parent = calling(['t'], ['finish'], toolsets=[notes], output_type=ToolOutput(function, name='finish'))
        assert await run_as('parent', parent) == 'done'
        assert called(journal, 'child') is called(journal, 'parent')
        assert called(journal, 'child').values == ['parent', 'child']


# Agents that run again within their own run


@ways
@kinds
async def test_b16_agent_that_calls_itself_gets_fresh_copies(kind: type[Notes], way: str):
    journal = Journal()
    notes = kind('t', journal, answer=never)

    def itself(ctx: RunContext[Any]) -> Any:
        return agent

    tools = delegating(itself, way, options=lambda ctx: {'model': scripted(['t'])})
    agent = calling(['t'], ['delegate'], ['t'], toolsets=[notes, tools])
    await run_as('outer', agent)
    if kind is Notes:
        assert called(journal, 'outer').values == ['outer', 'outer']
        assert called(journal, 'child').values == ['child']
        assert len(journal.of('copy')) == 2
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']


def circle(journal: Journal, notes: Notes, *names: str, end: int) -> Callable[[], Awaitable[Any]]:
    """Make agents that call each other in a circle: each calls `t`, then the next agent, then `t`."""
    agents: dict[str, Any] = {}
    order = [names[number % len(names)] for number in range(end)]

    def make(name: str) -> Any:
        async def delegate(ctx: RunContext[int], value: str) -> None:
            await start(ctx.deps + 1)

        agent = calling(name=name, toolsets=[notes])
        agent.tool(delegate)
        return agent

    async def start(depth: int) -> Any:
        steps = [['t'], ['delegate'], ['t']] if depth < end - 1 else [['t']]
        return await run_as(f'{order[depth]}{depth}', agents[order[depth]], model=scripted(*steps), deps=depth)

    agents.update({name: make(name) for name in names})
    return lambda: start(0)


async def test_b16_agent_that_calls_itself_through_another_gets_fresh_copies():
    journal = Journal()
    notes = Notes('t', journal)
    await circle(journal, notes, 'a', 'b', end=3)()
    # The first gets a copy, the second shares it, and the first again gets a fresh one
    a0, b1, a2 = (called(journal, run) for run in ('a0', 'b1', 'a2'))
    assert a0 is b1
    assert a0.values == ['a0', 'b1', 'b1', 'a0']
    assert a2.values == ['a2']
    assert len(journal.of('ask')) == 1


async def test_b16_agents_that_call_each_other_again_and_again_get_fresh_copies():
    journal = Journal()
    notes = Notes('t', journal)
    await circle(journal, notes, 'a', 'b', end=7)()
    a0, b1, *others = (called(journal, f'{"ab"[number % 2]}{number}') for number in range(7))
    assert a0 is b1
    assert len({id(toolset) for toolset in [a0, *others]}) == 6
    assert journal.lifecycle == ['+t'] * 6 + ['-t'] * 6
    assert others[-1].values == ['a6']


async def test_b16_agent_that_calls_itself_many_times_over():
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    await circle(journal, notes, 'a', end=20)()
    assert len({id(called(journal, f'a{number}')) for number in range(20)}) == 20
    assert called(journal, 'a0').values == ['a0', 'a0']
    assert journal.lifecycle == ['+t'] * 20 + ['-t'] * 20


async def test_b16_another_agent_below_one_that_runs_again_gets_that_of_the_nearest_run():
    journal = Journal()
    notes = Notes('t', journal)
    leaf = calling(['t'], toolsets=[notes])
    tools = FunctionToolset[Any]()

    async def again(ctx: RunContext[Any], value: str) -> None:
        await run_as('inner', agent, model=scripted(['t'], ['to_leaf']))

    tools.add_function(again)
    agent = calling(['t'], ['again'], ['t'], toolsets=[notes, tools, delegating(leaf, name='to_leaf', run='leaf')])
    await run_as('outer', agent)
    assert called(journal, 'leaf') is called(journal, 'inner') is not called(journal, 'outer')
    assert called(journal, 'inner').values == ['inner', 'leaf']


async def test_b16_wrapped_agent_is_the_agent():
    """A `WrapperAgent` around an agent that's running already runs that one again."""

    async def again(ctx: RunContext[Any], value: str) -> None:
        await run_as('inner', WrapperAgent[Any, Any](agent), model=scripted(['t']))  # pyright: ignore[reportArgumentType]

    journal = Journal()
    notes = Notes('t', journal, answer=never)
    tools = FunctionToolset[Any]()
    tools.add_function(again)
    agent = calling(['t'], ['again'], ['t'], toolsets=[notes, tools])
    await run_as('outer', WrapperAgent[Any, Any](agent))  # pyright: ignore[reportArgumentType]
    assert called(journal, 'inner').values == ['inner']


async def test_b16_run_of_the_agent_that_has_ended_is_no_running_again():
    """An agent that runs twice in the same tool call, one after the other, is a sub-agent each time."""

    async def twice(ctx: RunContext[Any], value: str) -> None:
        await run_as('one', child)
        await run_as('two', child)
        await asyncio.gather(run_as('three', child), run_as('four', child))

    journal = Journal()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    tools = FunctionToolset[Any]()
    tools.add_function(twice)
    await run_as('parent', calling(['t'], ['twice'], toolsets=[notes, tools]))
    live = called(journal, 'parent')
    assert all(called(journal, run) is live for run in ('one', 'two', 'three', 'four'))


# What else starts in a tool call


async def test_b16_tool_call_of_a_toolset_in_the_list_knows_itself():
    """A tool of a live toolset that passes the toolset on passes on the live one."""

    class Delegating(Notes):
        async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
            if RUN.get() == 'parent' and not self.values:
                await super().call_tool(name, tool_args, ctx, tool)
                return await run_as('child', calling(['t'], toolsets=[self]))
            return await super().call_tool(name, tool_args, ctx, tool)

    journal = Journal()
    await run_as('parent', calling(['t'], ['t'], toolsets=[Delegating('t', journal)]))
    live = called(journal, 'parent')
    assert live.values == ['parent', 'child', 'parent']
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b16_task_that_goes_on_after_the_tool_call_is_no_longer_in_it():
    """A tool may start a task and leave it to a later tool to wait for it. Whether that is still in a call of the run, nobody can know."""
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    tasks: list[asyncio.Future[Any]] = []
    returned = anyio.Event()

    async def later() -> None:
        await returned.wait()
        await run_as('child', child)

    async def start(value: str) -> None:
        tasks.append(asyncio.ensure_future(later()))

    async def wait(value: str) -> None:
        returned.set()
        await tasks[0]

    tools = FunctionToolset[Any]([start, wait])
    await run_as('parent', calling(['t'], ['start'], ['wait'], ['t'], toolsets=[notes, tools]))
    assert called(journal, 'child').values == ['child']
    assert called(journal, 'parent').values == ['parent', 'parent']


@pytest.mark.parametrize('awaited', [False, True], ids=['in the call', 'after the call'])
@kinds
async def test_b16_worker_that_a_tool_call_has_started_works_for_nobody_else_with_that_runs_toolset(
    kind: type[Notes], awaited: bool
):
    """It's started by the first call that needs it, and then does the jobs of all users, while that run goes on and afterwards."""
    journal = Journal()
    notes = kind('t', journal)
    jobs = asyncio.Queue[str]()
    done: dict[str, asyncio.Future[Any]] = {}
    workers: list[asyncio.Task[None]] = []
    child = calling(['t'], toolsets=[notes])

    async def work() -> None:
        while job := await jobs.get():
            done[job].set_result(await run_as(f'job of {job}', child))

    async def ask(job: str) -> None:
        if not workers:
            workers.append(asyncio.create_task(work()))
        done[job] = asyncio.get_running_loop().create_future()
        await jobs.put(job)
        if not awaited or job != 'Ada':
            await done[job]

    async def delegate(value: str) -> None:
        await ask(value)

    async def others(value: str) -> None:
        if value == 'Ada':
            await asyncio.gather(*done.values())
            await run_as('Bob', agent)

    tools = FunctionToolset[Any]([delegate, others])
    agent = calling(['t'], ['delegate'], ['others'], ['t'], toolsets=[notes, tools], name='agent')
    await run_as('Ada', agent)
    await run_as('Eve', agent)
    await jobs.put('')
    await workers[0]
    for user in ('Bob', 'Eve'):
        if kind is Notes:
            assert called(journal, user).values == [user, user]
            assert called(journal, f'job of {user}').values == [f'job of {user}']
        own = called(journal, f'job of {user}')
        assert ('enter', f'job of {user}') in entries_and_exits(journal, own)
    # A call that has started a run and waits for it is one that the run is in
    assert {event.run for event in journal.of('ask')} <= (set() if awaited else {'job of Ada'})


async def test_b16_run_that_starts_after_the_enclosing_one_has_ended_gets_its_own_copy():
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    tasks: list[asyncio.Future[Any]] = []
    ended = anyio.Event()

    async def later() -> None:
        await ended.wait()
        await run_as('child', child)

    async def start(value: str) -> None:
        tasks.append(asyncio.ensure_future(later()))

    await run_as('parent', calling(['t'], ['start'], toolsets=[notes, FunctionToolset[Any]([start])]))
    ended.set()
    await tasks[0]
    assert called(journal, 'child').values == ['child']
    assert [kind for kind, _ in entries_and_exits(journal, called(journal, 'child'))] == ['enter', 'exit']


async def test_b16_run_that_starts_while_the_enclosing_one_exits_gets_its_own_copy():
    """Its toolsets are about to be exited, or have been."""
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    child = calling(['t'], toolsets=[notes])
    tasks: list[asyncio.Future[Any]] = []
    exiting, done = anyio.Event(), anyio.Event()

    class Last(Server):
        async def __aexit__(self, *args: object) -> bool | None:
            exiting.set()
            await done.wait()
            return await super().__aexit__(*args)

    async def later() -> None:
        await exiting.wait()
        await run_as('child', child)
        done.set()

    async def start(value: str) -> None:
        tasks.append(asyncio.ensure_future(later()))

    toolsets = [notes, FunctionToolset[Any]([start]), Last('last', Journal())]
    await run_as('parent', calling(['t'], ['start'], toolsets=toolsets))
    await tasks[0]
    assert called(journal, 'child').values == ['child']


async def test_b16_exit_that_runs_an_agent_is_no_tool_call():
    class Summing(Notes):
        async def __aexit__(self, *args: object) -> bool | None:
            if RUN.get() == 'parent':
                await run_as('child', calling(['u'], toolsets=[other]))
            return await super().__aexit__(*args)

    journal = Journal()
    other = Notes('u', journal, answer=never)
    await run_as('parent', calling(['u'], toolsets=[other, Summing('t', journal)]))
    assert called(journal, 'child').values == ['child']


async def test_b16_toolset_that_is_not_stateful_and_says_nothing_is_used_as_on_the_base():
    """It's shared with all runs, each of which enters it."""
    journal = Journal()
    server = Server('t', journal)
    await run_as('parent', parent_of(calling(['t'], toolsets=[server]), server))
    assert entries_and_exits(journal, server) == [
        ('enter', 'parent'),
        ('enter', 'child'),
        ('exit', 'child'),
        ('exit', 'parent'),
    ]


async def test_b16_sub_agent_whose_own_toolsets_nobody_knows_gets_them_as_ever():
    journal = Journal()
    notes, other = Notes('t', journal, answer=never), Notes('t', journal, answer=never)
    await run_as('parent', parent_of(calling(['t'], toolsets=[other]), notes))
    assert called(journal, 'child').original is other
    assert called(journal, 'parent').original is notes
    assert len(happened(journal, called(journal, 'child'), 'enter', 'exit')) == 2


async def test_b16_copy_in_another_run_is_no_matter_of_the_sub_agent():
    """A fresh toolset that one run made is not what another agent's toolset stands for."""
    journal = Journal()
    notes = Notes('t', journal, answer=fresh)
    child = calling(['t'], toolsets=[notes])
    grandchild = calling(['t'], toolsets=[notes])
    middle = calling(['t'], ['delegate'], toolsets=[notes, delegating(grandchild, run='grandchild')])
    toolsets = [notes, delegating(middle, name='d1', run='middle'), delegating(child, name='d2')]
    await run_as('parent', calling(['t'], ['d1', 'd2'], toolsets=toolsets))
    asked = {event.run: event.toolset for event in journal.of('ask')}
    assert asked['middle'] is asked['child'] is called(journal, 'parent')
    assert asked['grandchild'] is called(journal, 'middle')
