"""A model that follows a script, so that this project runs without a key. `assistant.worker` names it."""

from __future__ import annotations

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Note what the user said, then say what was noted."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(f'Noted: {last.model_response_str()}')])
    said = next(str(part.content) for part in messages[-1].parts if isinstance(part, UserPromptPart))
    return ModelResponse([ToolCallPart('note', {'text': said})])


model = FunctionModel(respond, model_name='scripted')
