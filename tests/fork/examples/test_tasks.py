from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRequest
from pydantic_ai.toolsets import ToolsetScope

from examples import tasks
from examples.support import Step, call, script
from examples.tasks import TasksToolset

pytestmark = pytest.mark.anyio


def add(task: str) -> Any:
    """Make a call that adds a task."""
    return call('add_task', task=task)


def finish(task: str) -> Any:
    """Make a call that ticks a task off."""
    return call('finish_task', task=task)


async def output(agent: Agent[Any, str], *steps: Step, scope: ToolsetScope | None = None) -> str:
    """Run an agent on a script, and return what its last tool call returned."""
    return (await agent.run('go', model=script(*steps), toolsets=[scope] if scope else None)).output


async def test_main_prints_a_list_for_each_chat(capsys: pytest.CaptureFixture[str]) -> None:
    await tasks.main(tasks.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        tasks.OURS[0],
        '  [ ] book a flight, [ ] book a hotel',
        tasks.OURS[1],
        '  [x] book a flight, [ ] book a hotel',
        tasks.THEIRS[0],
        '  [ ] water the plants',
        tasks.THEIRS[1],
        '  [x] water the plants',
    ]
    assert tasks.tasks.tasks == {}


async def test_run_without_a_scope_has_a_list_of_its_own() -> None:
    agent = Agent(toolsets=[TasksToolset()])

    assert await asyncio.gather(*(output(agent, add(str(n)), add('b')) for n in range(3))) == [
        f'[ ] {n}, [ ] b' for n in range(3)
    ]
    assert await output(agent, add('c')) == '[ ] c'


async def test_runs_in_a_scope_have_one_list_and_a_new_scope_has_another() -> None:
    toolset = TasksToolset()
    agent, other = Agent(toolsets=[toolset]), Agent(toolsets=[toolset])
    async with ToolsetScope(toolset) as scope:
        await output(agent, add('a'), scope=scope)
        assert await output(other, add('b'), finish('a'), scope=scope) == '[x] a, [ ] b'
        assert scope.instance_of(toolset).show() == '[x] a, [ ] b'
    async with ToolsetScope(toolset) as scope:
        assert await output(agent, add('c'), scope=scope) == '[ ] c'


async def test_chats_at_once_have_a_list_each() -> None:
    toolset = TasksToolset()
    agent = Agent(toolsets=[toolset])

    async def chat(name: str) -> str:
        async with ToolsetScope(toolset) as scope:
            await output(agent, add(name), scope=scope)
            return await output(agent, add('b'), scope=scope)

    assert await asyncio.gather(*map(chat, 'xyz')) == [f'[ ] {name}, [ ] b' for name in 'xyz']


async def test_sub_agent_works_on_the_list_of_its_parent() -> None:
    toolset = TasksToolset()
    child = Agent(script(finish('a')), toolsets=[toolset])
    agent = Agent(toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> str:
        return (await child.run('go')).output

    assert await output(agent, add('a'), call('delegate'), add('b')) == '[x] a, [ ] b'


async def test_task_that_is_not_there_is_left_to_the_model() -> None:
    agent = Agent(toolsets=[TasksToolset()])
    result = await agent.run('go', model=script(add('a'), finish('b'), finish('a')))

    # Which part it is differs between lines.
    requests = [message for message in result.all_messages() if isinstance(message, ModelRequest)]
    told = [str(getattr(part, 'content', '')) for message in requests for part in message.parts]
    assert 'There is no such task. This is the list: [ ] a' in told
    assert result.output == '[x] a'
