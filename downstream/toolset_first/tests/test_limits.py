"""Limits on what calls use, what they have used, and what was said in them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Write
from pydantic_ai import FunctionToolset, RunContext, UsageLimitExceeded
from pydantic_ai.usage import UsageLimits
from support import call, calling, entry, script, scripts
from toolset_first import (
    AgentSpec,
    CallRuntime,
    EntrySpec,
    Runtime,
    ToolsetFirstError,
    ToolsetSpec,
    agent_as_toolset,
    load_project,
)
from toolset_first.cli import app
from typer.testing import CliRunner


def note(text: str) -> str:
    """Note."""
    return text


NOTES = ToolsetSpec(toolset=FunctionToolset[Any]([note]))


def noting(times: int, name: str = 'one', **options: Any) -> AgentSpec:
    """Make an agent that makes so many requests, and a last one."""
    return AgentSpec(name, model=script(*[call('note', text='x')] * times), toolset_specs=[NOTES], **options)


def repeated(agent: Any, times: int) -> EntrySpec:
    async def main(ctx: RunContext[CallRuntime], input: str) -> int:
        for _ in range(times):
            await ctx.deps.call_agent(agent, input)
        return ctx.deps.usage.requests

    return entry(main)


async def test_agents_may_make_more_than_50_requests_together() -> None:
    runtime = Runtime([noting(9)])
    assert await runtime.run_entry(repeated('one', 8), 'Go') == 80
    assert runtime.usage.requests == 80


async def test_agent_that_goes_on_for_ever_ends_after_50_requests_unless_it_may_make_more() -> None:
    with pytest.raises(UsageLimitExceeded, match='request_limit of 50'):
        await Runtime([noting(60)]).run_entry(calling('one'), 'Go')
    more = UsageLimits(request_limit=61)
    for runtime in (Runtime([noting(60)], call_limits=more), Runtime([noting(60, usage_limits=more)])):
        await runtime.run_entry(calling('one'), 'Go')
        assert runtime.usage.requests == 61


async def test_limits_of_a_call_count_each_call_by_itself() -> None:
    limits = UsageLimits(request_limit=3, tool_calls_limit=2)
    runtime = Runtime([noting(2, usage_limits=limits), noting(3, 'more', usage_limits=limits)])
    assert await runtime.run_entry(repeated('one', 4), 'Go') == 12
    with pytest.raises(UsageLimitExceeded):
        await runtime.run_entry(repeated('more', 1), 'Go')


@pytest.mark.parametrize(
    ('limits', 'message'),
    [
        (UsageLimits(request_limit=5), 'request_limit of 5'),
        (UsageLimits(request_limit=None, tool_calls_limit=3), 'tool_calls_limit of 3'),
        (UsageLimits(request_limit=None, total_tokens_limit=200), 'total_tokens_limit of 200'),
    ],
)
async def test_limits_of_all_calls_count_them_together(limits: UsageLimits, message: str) -> None:
    runtime = Runtime([noting(2)], usage_limits=limits)
    assert await runtime.run_entry(repeated('one', 1), 'Go') == 3
    with pytest.raises(UsageLimitExceeded, match=message):
        await runtime.run_entry(repeated('one', 9), 'Go')
    assert await runtime.run_entry(repeated('one', 1), 'Go') == 3  # each call of the entry counts again
    of_entry = EntrySpec(repeated('one', 9).toolset_spec, 'start', usage_limits=limits)
    with pytest.raises(UsageLimitExceeded, match=message):
        await Runtime([noting(2)]).run_entry(of_entry, 'Go')


async def test_nested_and_parallel_calls_count_together() -> None:
    model = scripts({'Go': [call('inner', input='In'), call('inner', input='In')], 'In': ['x']})
    inner = AgentSpec('inner', model=model)
    outer = AgentSpec('outer', model=model, toolset_specs=[agent_as_toolset(inner, tool='inner')])

    async def main(ctx: RunContext[CallRuntime], input: str) -> None:
        await asyncio.gather(*(ctx.deps.call_agent(outer, input) for _ in range(3)))

    runtime = Runtime()
    await runtime.run_entry(entry(main), 'Go')
    assert (runtime.usage.requests, runtime.usage.tool_calls) == (15, 6)
    with pytest.raises(UsageLimitExceeded):
        await Runtime(usage_limits=UsageLimits(request_limit=9)).run_entry(entry(main), 'Go')


async def test_usage_and_messages_can_be_read_after_the_entry_was_called() -> None:
    model = scripts({'Go': [call('inner', input='In')], 'In': [call('note', text='x')]})
    inner = AgentSpec('inner', model=model, toolset_specs=[NOTES])
    outer = AgentSpec('outer', model=model, toolset_specs=[agent_as_toolset(inner, tool='inner')])
    runtime = Runtime([inner, outer])
    await runtime.run_entry(calling('outer'), 'Go')

    assert (runtime.usage.requests, runtime.usage.tool_calls) == (4, 2)
    told = [(agent, depth, message.kind, message.parts[0].part_kind) for agent, depth, message in runtime.message_log]
    assert told == [
        ('outer', 1, 'request', 'user-prompt'),
        ('outer', 1, 'response', 'tool-call'),
        ('inner', 2, 'request', 'user-prompt'),
        ('inner', 2, 'response', 'tool-call'),
        ('inner', 2, 'request', 'tool-return'),
        ('inner', 2, 'response', 'text'),
        ('outer', 1, 'request', 'tool-return'),
        ('outer', 1, 'response', 'text'),
    ]


async def test_usage_and_messages_can_be_read_after_a_failure() -> None:
    def fail() -> str:
        """Fail."""
        raise ConnectionError

    agent = AgentSpec(
        'one', model=script(call('fail')), toolset_specs=[ToolsetSpec(toolset=FunctionToolset[Any]([fail]))]
    )
    runtime = Runtime([agent])
    with pytest.raises(ConnectionError):
        await runtime.run_entry(calling('one'), 'Go')
    assert runtime.usage.requests == 1
    assert [one.message.kind for one in runtime.message_log] == ['request', 'response']


TOOLS = """
    from support import call, script

    def note(text: str) -> str:
        return text

    looping = script(*[call('note', text='x')] * 60)
    """
WORKER = '---\nname: a\nmodel: tools.py:looping\nentry: true\ntools: [note]\n{}---\n'


@pytest.mark.parametrize(
    ('front', 'arguments', 'message'),
    [
        ('', [], 'request_limit of 50'),
        ('usage_limits: {request_limit: 100}\n', [], None),
        ('usage_limits: {request_limit: 10}\n', ['--call-limit', 'request_limit=100'], 'request_limit of 10'),
        (
            'usage_limits: {request_limit: 100}\ntotal_usage_limits: {tool_calls_limit: 20}\n',
            [],
            'tool_calls_limit of 20',
        ),
        ('', ['--call-limit', 'request_limit=100'], None),
        ('', ['--call-limit', 'request_limit=none', '--limit', 'request_limit=61'], None),
        ('', ['--call-limit', 'request_limit=none', '--limit', 'request_limit=60'], 'request_limit of 60'),
        ('', ['--limit', 'request=60'], "There is no limit 'request'. There are: "),
        ('', ['--limit', 'request_limit=many'], '`--limit request_limit=many` is no limit.'),
    ],
)
def test_limits_are_set_in_worker_files_and_on_the_command_line(
    front: str, arguments: list[str], message: str | None, write: Write
) -> None:
    folder = write(tools__py=TOOLS, a__worker=WORKER.format(front))
    done = CliRunner().invoke(app, ['run', str(folder), 'Go', *arguments])
    assert done.exit_code == (0 if message is None else 1), done.stderr
    if message:
        assert message in done.stderr.splitlines()[-1]


def test_limits_of_all_agents_are_for_the_entry(write: Write) -> None:
    worker = '---\nname: b\nmodel: test\ntotal_usage_limits: {request_limit: 3}\n---\n'
    with pytest.raises(ToolsetFirstError, match=r'b.worker:4: Only the entry has limits for all agents together'):
        load_project(write(tools__py=TOOLS, a__worker=WORKER.format(''), b__worker=worker))
