"""B21: sub-agents that run in parallel each get their own call of `for_sub_agent`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from pydantic_ai import FunctionToolset

from .delegation import SYNC, WAYS, Ledger, Notes, called, calling, delegating, entries_and_exits, forked
from .toolsets import RUN, SUCCESS, Journal, Server, run_as

pytestmark = pytest.mark.anyio

COUNT = 4  # fewer than the threads of the default executor
CHILDREN = [f'child{number}' for number in range(COUNT)]
ways = pytest.mark.parametrize('way', WAYS)
kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


@dataclass
class Together(Journal):
    """A journal whose toolsets of sub-agents wait in their calls until all of them are there."""

    there: set[str] = field(default_factory=set[str])

    async def moment(self, kind: str, toolset: Any) -> None:
        if kind == 'call' and RUN.get() in CHILDREN:
            self.there.add(RUN.get())
            while len(self.there) < COUNT:
                await asyncio.sleep(0.001)


def check_own(journal: Journal) -> None:
    """Check that each sub-agent was asked for and had its own fork of the parent's."""
    asked = journal.of('ask')
    live = called(journal, 'parent')
    assert sorted(event.run for event in asked) == CHILDREN
    assert all(event.toolset is live for event in asked)
    answers = {event.run: event.got[1] for event in asked}
    assert len({id(answer) for answer in answers.values()}) == COUNT
    for run in CHILDREN:
        assert called(journal, run) is answers[run]
        assert answers[run].values == ['parent', run]
        assert entries_and_exits(journal, answers[run]) == [('enter', run), ('exit', run)]
    assert entries_and_exits(journal, live)[0] == ('enter', 'parent')
    assert entries_and_exits(journal, live)[-1] == ('exit', 'parent')


@ways
@kinds
async def test_b21_parallel_tool_calls_each_ask(kind: type[Notes], way: str):
    journal = Together()
    notes = kind('t', journal, answer=forked)
    child = calling(['t'], toolsets=[notes])
    toolsets = [notes, *(delegating(child, way, name=f'd{run}', run=run) for run in CHILDREN)]
    await run_as('parent', calling(['t'], [f'd{run}' for run in CHILDREN], toolsets=toolsets))
    check_own(journal)
    assert len({event.got[0].tool_call_id for event in journal.of('ask')}) == COUNT


@kinds
@pytest.mark.parametrize('how', ['gather', 'task group', 'threads', 'one object'])
async def test_b21_sub_agents_of_one_tool_call_each_ask(kind: type[Notes], how: str):
    journal = Together()
    notes = kind('t', journal, answer=forked)
    child = calling(['t'], toolsets=[notes])

    async def all_at_once(value: str) -> None:
        if how == 'gather':
            await asyncio.gather(*(run_as(run, child) for run in CHILDREN))
        elif how == 'threads':
            in_thread = SYNC['run_sync in a sync tool']
            await asyncio.gather(*(asyncio.to_thread(in_thread, child, run, {}) for run in CHILDREN))
        else:
            async with anyio.create_task_group() as group:
                for run in CHILDREN:
                    agent = child if how == 'one object' else calling(['t'], toolsets=[notes])
                    group.start_soon(run_as, run, agent)

    await run_as('parent', calling(['t'], ['all_at_once'], toolsets=[notes, FunctionToolset[Any]([all_at_once])]))
    check_own(journal)
    assert len({event.got[0].tool_call_id for event in journal.of('ask')}) == 1


@ways
async def test_b21_parallel_sub_agents_that_share_have_one_instance(way: str):
    journal = Together()
    notes = Notes('t', journal)
    child = calling(['t'], toolsets=[notes])
    toolsets = [notes, *(delegating(child, way, name=f'd{run}', run=run) for run in CHILDREN)]
    await run_as('parent', calling(['t'], [f'd{run}' for run in CHILDREN], ['t'], toolsets=toolsets))
    live = called(journal, 'parent')
    assert len(journal.of('ask')) == COUNT
    assert all(called(journal, run) is live for run in CHILDREN)
    assert live.values[0] == live.values[-1] == 'parent'
    assert sorted(live.values[1:-1]) == CHILDREN
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b21_one_that_fails_leaves_the_others_theirs():
    journal = Journal()
    error = RuntimeError('child3')
    notes = Notes('t', journal, answer=forked)
    child = calling(['t'], ['t'], toolsets=[notes])
    failing = calling(['t'], ['faulty'], toolsets=[notes, Server('faulty', Journal(), fail={'call': error})])

    async def all_at_once(value: str) -> None:
        agents = {run: failing if run == 'child3' else child for run in CHILDREN}
        outcomes = await asyncio.gather(*(run_as(*item) for item in agents.items()), return_exceptions=True)
        assert [outcome for outcome in outcomes if outcome != 'done'] == [error]

    await run_as('parent', calling(['t'], ['all_at_once'], toolsets=[notes, FunctionToolset[Any]([all_at_once])]))
    got = {event.run: event.got for event in journal.of('exit')}
    assert got.pop('child3')[1] is error
    assert got == dict.fromkeys({*CHILDREN, 'parent'} - {'child3'}, SUCCESS)


async def test_b21_parallel_sub_agents_of_sub_agents_each_ask_that_of_their_own():
    journal = Journal()
    notes = Notes('t', journal, answer=forked)
    leaf = calling(['t'], toolsets=[notes])

    def middle(number: int) -> Any:
        delegates = [delegating(leaf, name=f'd{inner}', run=f'leaf{number}{inner}') for inner in range(3)]
        return calling(['t'], [f'd{inner}' for inner in range(3)], toolsets=[notes, *delegates])

    delegates = [delegating(middle(number), name=f'd{number}', run=f'middle{number}') for number in range(3)]
    await run_as('parent', calling(['t'], [f'd{number}' for number in range(3)], toolsets=[notes, *delegates]))
    asked = {event.run: event.toolset for event in journal.of('ask')}
    assert len(journal.of('ask')) == len(asked) == 12
    for number in range(3):
        assert asked[f'middle{number}'] is called(journal, 'parent')
        for inner in range(3):
            run = f'leaf{number}{inner}'
            assert asked[run] is called(journal, f'middle{number}')
            assert called(journal, run).values == ['parent', f'middle{number}', run]


def opcodes_of(function: Any) -> int:
    """Count what the package does while a function runs, in the bytecodes of its Python."""
    opcodes = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal opcodes
        if 'pydantic_ai' not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        opcodes += event == 'opcode'
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return opcodes


@kinds
@pytest.mark.parametrize('answer', [None, forked], ids=['share', 'own'])
def test_b21_cost_of_a_sub_agent_grows_in_proportion_to_its_toolsets(kind: type[Notes], answer: Any):
    def cost(number: int) -> int:
        journal = Journal()
        several = [kind(f't{index}', journal, answer=answer) for index in range(number)]
        parent = calling(['delegate'], toolsets=[*several, delegating(calling(['t0'], toolsets=several))])
        return opcodes_of(lambda: asyncio.run(parent.run('go')))

    cost(1)
    few, many = cost(30), cost(120)
    assert many < few * 6
