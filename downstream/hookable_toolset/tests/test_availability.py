"""Point 5: tools that are there for some runs only, and their instructions."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from hookable_toolset import AgentContext, BaseTool, BaseToolset, Toolset

from .conftest import Log, script


class Flag(BaseTool):
    name = 'flag'
    up = False

    def is_available(self) -> bool:
        return self.up

    def get_instruction(self, ctx: RunContext[Any]) -> str:
        return f'Use `{self.name}` for {ctx.deps}.'

    def call(self, ctx: RunContext[Any]) -> str:
        return self.name


class First(Flag):
    name = 'first'
    up = True


class Second(Flag):
    name = 'second'
    up = True

    async def is_available(self) -> bool:  # type: ignore[override]
        return self.up

    async def get_instruction(self, ctx: RunContext[Any]) -> str:  # type: ignore[override]
        return f'`second` goes second, {ctx.deps}.'


class Silent(First):
    name = 'silent'

    def get_instruction(self, ctx: RunContext[Any]) -> None:  # type: ignore[override]
        return None


def told(*steps: Any) -> tuple[FunctionModel, Log]:
    """A script, and what it was told before each of its answers: instructions and names of tools."""
    seen: Log = []
    model = script(*steps)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert isinstance(messages[-1], ModelRequest)
        seen.append((messages[-1].instructions, [tool.name for tool in info.function_tools]))
        assert model.function
        response = model.function(messages, info)
        assert isinstance(response, ModelResponse)
        return response

    return FunctionModel(answer), seen


def test_availability_is_asked_per_run() -> None:
    model, seen = told('hi')
    flag = Flag()
    agent = Agent(model, toolsets=[Toolset(AgentContext(), tools=[flag, Silent])])
    for flag.up in False, True, False:
        agent.run_sync('Hi')
    assert [tools for _, tools in seen] == [['silent'], ['flag', 'silent'], ['silent']]


def test_unavailable_tool_stays_if_it_is_not_to_be_skipped() -> None:
    model, seen = told(('flag', {}))
    agent = Agent(model, deps_type=str, toolsets=[Toolset(AgentContext(), tools=[Flag], skip_unavailable=False)])
    assert agent.run_sync('Hi', deps='Ada').output == 'flag'
    assert seen[0] == ('Use `flag` for Ada.', ['flag'])


def test_instructions_of_available_tools_reach_the_model_in_order_in_each_step() -> None:
    model, seen = told(('first', {}), ('second', {}))
    toolset: Toolset[str] = Toolset(AgentContext(), tools=[Second, Flag, Silent, First])
    agent = Agent(model, deps_type=str, instructions='Be brief.', toolsets=[toolset])
    result = agent.run_sync('Hi', deps='Ada')
    expected = 'Be brief.\n\n`second` goes second, Ada.\n\nUse `first` for Ada.'
    assert [instructions for instructions, _ in seen] == [expected] * 3
    assert [m.instructions for m in result.all_messages() if isinstance(m, ModelRequest)] == [expected] * 3


def test_instructions_pass_through_wrappers_and_come_once_per_toolset() -> None:
    model, seen = told('hi')
    toolset: Toolset[str] = Toolset(AgentContext(), tools=[First])
    other: Toolset[str] = Toolset(AgentContext(), tools=[Second])
    Agent(model, deps_type=str, toolsets=[toolset.prefixed('a'), other.filtered(lambda ctx, tool: True)]).run_sync(
        'Hi', deps='Ada'
    )
    assert seen == [('Use `first` for Ada.\n\n`second` goes second, Ada.', ['a_first', 'second'])]


def test_own_toolset_instructs() -> None:
    class Clock(BaseToolset[Any]):
        id = 'clock'  # type: ignore[assignment]

        async def get_instructions(self, ctx: RunContext[Any]) -> list[str] | None:
            return ['It is noon.']

        async def get_tools(self, ctx: RunContext[Any]) -> dict[str, Any]:
            return {}

        async def call_tool(self, *args: Any) -> None: ...  # type: ignore

    def silent() -> None: ...

    model, seen = told('hi')
    Agent(model, toolsets=[Clock(), FunctionToolset([silent])]).run_sync('Hi')
    assert seen == [('It is noon.', ['silent'])]
