from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from hookable_toolset import AgentContext, Session, SessionStore

Call = tuple[str, 'dict[str, Any]']


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'


@pytest.fixture(autouse=True)
def _loop() -> Iterator[None]:
    """The loop of `run_sync()`, which leaves it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
    with suppress(RuntimeError):  # There is another one where a test has used `asyncio.run()` in between.
        asyncio.get_event_loop().close()
    asyncio.set_event_loop(None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption('--kills', type=int, default=12, help='how many processes the tests of the session store kill')


def script(*steps: Call | list[Call] | str, seen: list[AgentInfo] | None = None) -> FunctionModel:
    """A model that answers a prompt with the steps, in order: calls of tools, or a text; and then with what tools returned."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        since = 0
        for message in messages:
            if isinstance(message, ModelResponse):
                since += 1
            elif is_prompt(message):
                since = 0
        if since >= len(steps):
            return ModelResponse([TextPart(' | '.join(map(str, returns(messages))) or 'done')])
        step = steps[since]
        if isinstance(step, str):
            return ModelResponse([TextPart(step)])
        calls = step if isinstance(step, list) else [step]
        return ModelResponse(
            [ToolCallPart(name, dict(args), f'{name}-{since}-{n}') for n, (name, args) in enumerate(calls)]
        )

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        for index, part in enumerate(answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                arguments = part.args_as_json_str()
                yield {index: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                for piece in re.findall(r'\S*\s*', part.content):
                    yield piece

    return FunctionModel(answer, stream_function=stream)


def asking(model: FunctionModel, *toolsets: Any) -> Agent[AgentContext, Any]:
    """An agent whose output may be a question."""
    output: Any = [str, DeferredToolRequests]
    return Agent(model, deps_type=AgentContext, toolsets=toolsets, output_type=output)


def stored(path: Path, name: str = 'ada') -> Session:
    """Read a session from a file."""

    async def read() -> Session:
        async with SessionStore(path) as store:
            return await Session.open(store, name)

    return asyncio.run(read())


def is_prompt(message: ModelRequest) -> bool:
    """Whether it is what the user says. What a tool returns can have a part like that of a user beside it."""
    kinds = [type(part) for part in message.parts]
    return UserPromptPart in kinds and ToolReturnPart not in kinds


def returns(messages: list[ModelMessage]) -> list[Any]:
    """What tools returned since the last prompt."""
    found: list[Any] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            if is_prompt(message):
                found = []
            found += [part.content for part in message.parts if isinstance(part, ToolReturnPart)]
    return found


Log = list[Any]
Hook = Callable[..., Any]
