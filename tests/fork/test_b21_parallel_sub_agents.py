"""B21: sub-agents that run in parallel each get their own call of `for_sub_agent`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from pydantic_ai import FunctionToolset

from .delegation import SYNC, Ledger, Notes, called, calling, delegating, entries_and_exits, forked
from .toolsets import RUN, Journal, run_as

pytestmark = pytest.mark.anyio

COUNT = 4  # fewer than the threads of the default executor
CHILDREN = [f'child{number}' for number in range(COUNT)]
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
