"""What ends the program, such as `sys.exit()`, in tools, hooks and what toolsets ask of tools: an error with file and line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pytest
from pydantic import AfterValidator
from pydantic_ai import Agent, RunContext, __version__
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from hookable_toolset import AgentContext, BaseTool, ExitError, GlobalHooks, Session, SessionStore, Toolset

from .conftest import script

PLACED = r'test_exits\.py:\d+: SystemExit: 3$'


def leave(*args: Any) -> NoReturn:
    sys.exit(3)


async def leave_later(*args: Any) -> NoReturn:
    leave()


def leave_with(value: object) -> NoReturn:
    leave()


class Note(BaseTool):
    name = 'note'
    description = 'Note something.'
    stateful = True

    def call(self, ctx: RunContext[AgentContext], what: str) -> str:
        return what

    def export_state(self) -> Any:
        return 1

    def restore_state(self, state: Any) -> None: ...


class Calling(Note):
    async def call(self, ctx: RunContext[AgentContext], what: str) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        leave()


class CallingInThread(Note):
    def call(self, ctx: RunContext[AgentContext], what: str) -> str:
        leave()


class Validating(Note):
    def call(self, ctx: RunContext[AgentContext], what: Annotated[str, AfterValidator(leave_with)]) -> str:
        return what


ASKED = ('is_available', 'get_instruction', 'get_approval_metadata', 'export_state', 'restore_state', 'copy')
LEAVING = {'arguments': Validating} | {method: type('Leaving', (Note,), {method: leave}) for method in ASKED}
AGAIN = script(('note', {'what': 'x'}))


@pytest.mark.parametrize('what', LEAVING)
def test_exit_of_what_a_toolset_asks_of_a_tool_is_an_error_of_the_run(what: str) -> None:
    async def run() -> str:
        toolset: Toolset[AgentContext] = Toolset(tools=[LEAVING[what]], toolset_id='mine')
        agent = Agent(AGAIN, deps_type=AgentContext, toolsets=[toolset])
        needing = ['note'] if what == 'get_approval_metadata' else []
        with pytest.raises(ExitError, match=PLACED):
            await agent.run('Go', deps=AgentContext(needing, toolset_states={'mine': {'note': 1}}))
        return 'the loop goes on'

    assert asyncio.run(run()) == 'the loop goes on'


@pytest.mark.parametrize('tool', [Calling, CallingInThread])
def test_exit_of_a_tool_is_a_value_for_the_hooks(tool: type[BaseTool]) -> None:
    def explain(ctx: RunContext[Any], name: str, result: Any) -> Any:
        return f'It ended: {result}' if isinstance(result, ExitError) else result

    toolset: Toolset[AgentContext] = Toolset(tools=[tool], global_hooks=GlobalHooks(post=explain))
    said = Agent(AGAIN, deps_type=AgentContext, toolsets=[toolset]).run_sync('Go', deps=AgentContext()).all_messages()
    assert any('It ended: ' in str(part) and 'SystemExit: 3' in str(part) for part in said[2].parts)


@pytest.mark.parametrize('hooks', [GlobalHooks[Any](pre=leave), GlobalHooks[Any](post=leave_later)])
def test_exit_of_a_hook_is_an_error_of_the_run(hooks: GlobalHooks[Any]) -> None:
    agent = Agent(AGAIN, deps_type=AgentContext, toolsets=[Toolset[AgentContext](tools=[Note], global_hooks=hooks)])
    with pytest.raises(ExitError, match=PLACED):
        agent.run_sync('Go', deps=AgentContext())


@pytest.mark.skipif(__version__ < '2', reason='1.x asks a model in a task, whose exit ends the event loop')
def test_exit_of_a_model_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        leave()

    async def run() -> int:
        async with SessionStore(tmp_path / 's.db') as store:
            session = await Session.open(store, 'ada')
            with pytest.raises(ExitError, match=PLACED):
                await session.run(Agent(FunctionModel(respond), deps_type=AgentContext), 'Go', leave)
            await session.run(Agent(script('fine'), deps_type=AgentContext), 'Go', leave)
            return session.revision

    assert asyncio.run(run()) == 1
