"""What both sides of the comparison do: ten agents deep, each with 15 tools, two of which are called. It knows neither side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import FunctionToolset, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

DEPTH = 10
TOOLS = 15


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Use a tool, call the next agent, and end. What an agent is asked is how many come after it."""
    prompt = str(messages[0].parts[-1].content)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportAttributeAccessIssue]
    done = sum(isinstance(message, ModelResponse) for message in messages)
    if done == 0:
        return ModelResponse([ToolCallPart('tool_7', {'text': 'a', 'count': 1})])
    if done == 1 and prompt != '1':
        return ModelResponse([ToolCallPart('next_agent', {'input': str(int(prompt) - 1)})])
    return ModelResponse([TextPart('done')])


MODEL = FunctionModel(respond, model_name='scripted')


def _function(number: int) -> Callable[..., str]:
    def tool(text: str, count: int = 1, flags: list[str] | None = None) -> str:
        """Do something.

        Args:
            text: What to do it with.
            count: How often.
            flags: How.
        """
        return text * count

    tool.__name__ = f'tool_{number}'
    return tool


FUNCTIONS = [_function(number) for number in range(TOOLS - 1)]
"""With the tool that calls the next agent, there are `TOOLS`."""


class State(FunctionToolset[Any]):
    """Counts the calls of a run: its tools are methods, so that a fresh one has fresh tools."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        for number in range(TOOLS - 1):
            self.add_function(self.repeat, name=f'tool_{number}')

    def repeat(self, text: str, count: int = 1, flags: list[str] | None = None) -> str:
        """Do something.

        Args:
            text: What to do it with.
            count: How often.
            flags: How.
        """
        self.calls += 1
        return text * count


def count_of(arguments: list[str]) -> tuple[str, int]:
    """Return the kind of toolset and the number of operations that the command line names."""
    return arguments[0], int(arguments[1])
