"""Stands for a language model, so that the tutorial needs no key, and says where the steps keep their files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic_ai import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

DATA = Path('build') / 'tutorial'
"""Where the databases of steps 5 and 6 are. Delete the folder to start over."""


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Take the first word of a message for a tool, and the rest for its argument: `keep buy tea`.

    Commands with a `;` in between are done one after another.
    """
    start = max(
        index for index, message in enumerate(messages) if any(isinstance(p, UserPromptPart) for p in message.parts)
    )
    prompt = next(part for part in messages[start].parts if isinstance(part, UserPromptPart))
    commands = [command.strip() for command in str(prompt.content).split(';')]
    done = sum(isinstance(message, ModelResponse) for message in messages[start:])
    if done == len(commands):
        parts = [part for message in messages[start:] for part in message.parts]
        results = [
            part.model_response_str() if isinstance(part, ToolReturnPart) else part.model_response()
            for part in parts
            if isinstance(part, (ToolReturnPart, RetryPromptPart))
        ]
        return ModelResponse([TextPart('\n'.join(results))])
    tool, _, argument = commands[done].partition(' ')
    parameters = {each.name: each.parameters_json_schema.get('properties', {}) for each in info.function_tools}
    if tool not in parameters:
        return ModelResponse([TextPart(f'I know these words: {", ".join(parameters)}.')])
    return ModelResponse([ToolCallPart(tool, dict.fromkeys(parameters[tool], argument))])


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Respond word by word."""
    for part in (await respond(messages, info)).parts:
        if isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            for word in part.content.split(' '):
                yield f'{word} '
                await asyncio.sleep(0.05)  # so that a person sees it


MODEL: Model | str = os.environ.get('MODEL') or FunctionModel(respond, stream_function=stream)
"""The stand-in, or the model that `MODEL` names, such as `openai:gpt-5-mini`."""
