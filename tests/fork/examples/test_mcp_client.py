from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, ModelRequest, ToolReturnPart
from pydantic_ai.exceptions import UnexpectedModelBehavior

from examples import mcp_client
from examples.mcp_client import notes_toolset
from examples.support import Step, call, script

from ..toolsets import once_per_run
from .processes import Processes

pytestmark = pytest.mark.anyio

PID = call('process_id')


async def outputs(agent: Agent[Any, str], *steps: Step) -> list[str]:
    """Run an agent on a script, and return what its tool calls returned."""
    result = await agent.run('go', model=script(*steps))
    parts = [part for message in result.all_messages() if isinstance(message, ModelRequest) for part in message.parts]
    return [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]


def remember(note: str) -> Any:
    """Make a call that takes a note."""
    return call('remember', note=note)


def delegating(toolset: Any) -> Agent[None, str]:
    """Make an agent whose sub-agent has the same toolset, and answers with the ID of its process."""
    child = Agent(script(PID), toolsets=[toolset])
    agent = Agent(toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> str:
        return (await child.run('go')).output

    return agent


async def test_main_prints_the_notes_of_all_runs_and_of_each_run(capfd: pytest.CaptureFixture[str]) -> None:
    await mcp_client.main(mcp_client.SCRIPT)

    assert capfd.readouterr().out.splitlines() == ['team: milk', 'team: milk, tea', 'diary: milk', 'diary: tea']


async def test_shared_server_is_one_process_for_all_runs_and_ends_with_the_agent(processes: Processes) -> None:
    agent = Agent(toolsets=[notes_toolset()])

    async with agent:
        first = await outputs(agent, PID, remember('a'))
        at_once = await asyncio.gather(*(outputs(agent, PID, remember('b')) for _ in range(3)))
        [pid] = map(str, processes.running())

    assert first == [pid, 'a']
    assert sorted(at_once) == [[pid, 'a' + ', b' * n] for n in (1, 2, 3)]
    assert processes.running() == {}


async def test_server_of_each_run_is_a_process_of_its_own_and_ends_with_it(processes: Processes) -> None:
    agent = Agent(toolsets=[once_per_run(notes_toolset)])

    async with agent:
        runs = await asyncio.gather(*(outputs(agent, PID, remember('a'), remember('b')) for _ in range(2)))

    pids = {pid for pid, *_ in runs}
    assert [notes for _, *notes in runs] == [['a', 'a, b']] * 2
    assert len(pids) == 2
    assert processes.running() == {}


async def test_sub_agent_shares_the_server_that_runs_share() -> None:
    agent = delegating(notes_toolset())

    async with agent:
        own, of_child = await outputs(agent, PID, call('delegate'))
    assert own == of_child


async def test_sub_agent_has_a_server_of_its_own_if_each_run_has(processes: Processes) -> None:
    own, of_child = await outputs(delegating(once_per_run(notes_toolset)), PID, call('delegate'))

    assert own != of_child
    assert processes.running() == {}


async def fail(agent: Agent[None, str], reached: asyncio.Event) -> None:
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run('go', model=script(PID, call('no such tool'), call('no such tool')))


async def be_cancelled(agent: Agent[None, str], reached: asyncio.Event) -> None:
    run = asyncio.ensure_future(agent.run('go', model=script(PID, call('wait'))))
    await reached.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def be_in_a_cancelled_scope(agent: Agent[None, str], reached: asyncio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await agent.run('go', model=script(PID, call('wait')))

        group.start_soon(run)
        await reached.wait()
        group.cancel_scope.cancel()


@pytest.mark.parametrize('end', [fail, be_cancelled, be_in_a_cancelled_scope])
async def test_run_ends_and_no_server_is_left(
    end: Callable[[Agent[None, str], asyncio.Event], Awaitable[None]], processes: Processes
) -> None:
    agent, reached = Agent(toolsets=[once_per_run(notes_toolset)]), asyncio.Event()

    @agent.tool_plain
    async def wait() -> None:
        assert processes.running()
        reached.set()
        await asyncio.sleep(60)

    await end(agent, reached)

    await processes.are_gone()
