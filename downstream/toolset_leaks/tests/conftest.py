from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

# `make downstream NAME=toolset_leaks ARGS=--hypothesis-profile=long` tries more.
settings.register_profile('short', max_examples=25, deadline=None)
settings.register_profile('long', max_examples=1000, deadline=None)
settings.load_profile('short')

pytest_plugins = ['pytester']


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'


class Notes(FunctionToolset[Any]):
    """A toolset that leaks."""

    def __init__(self) -> None:
        super().__init__([self.keep])
        self.kept: list[str] = []

    def keep(self, text: str) -> list[str]:
        self.kept.append(text)
        return self.kept


MakeAgent = Callable[..., Agent[Any, str]]


def call_all(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call each tool once, with the prompt as all of its arguments, then end."""
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart('done')])
    prompt = next(part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
    calls = [
        ToolCallPart(tool.name, dict.fromkeys(tool.parameters_json_schema.get('properties', ()), prompt))
        for tool in info.function_tools
    ]
    return ModelResponse(parts=[*calls, TextPart('done')] if calls else [TextPart('done')])


@pytest.fixture
def make_agent() -> MakeAgent:
    """Makes an agent that calls each of its tools once per run, with the prompt as its arguments."""

    def make(*given: Any, name: str = 'support', toolsets: Any = (), **options: Any) -> Agent[Any, str]:
        return Agent(FunctionModel(call_all), name=name, toolsets=[*given, *toolsets], **options)

    return make
