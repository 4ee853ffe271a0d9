"""B16: a run that starts in a tool call gets what the live instances of the enclosing runs say, and any other its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import FunctionToolset, ModelMessage, RunContext, TextOutput
from pydantic_ai.capabilities import PrepareTools, ProcessHistory

from .delegation import (
    SYNC,
    Ledger,
    Notes,
    called,
    calling,
    calls,
    delegating,
    entries_and_exits,
    never,
)
from .toolsets import Journal, run_as

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


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


# What else starts in a tool call


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
