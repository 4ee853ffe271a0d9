"""The model of the bookkeepers, which follows a script for each prompt, so that no key is needed."""

from __future__ import annotations

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

SCRIPTS: dict[str, list[tuple[str, dict[str, object]]]] = {
    'Close March.': [
        ('run', {'code': 'invoices = [10, 20, 12]'}),
        ('analyst', {'input': 'Sum `invoices`.'}),
        ('clerk', {'input': 'Post 42 to revenue.'}),
        ('balance', {'account': 'revenue'}),
    ],
    'Sum `invoices`.': [
        ('run', {'code': 'total = sum(invoices[:2]); total'}),
        ('analyst', {'input': 'Sum 12.'}),
        ('run', {'code': 'total + 12'}),
    ],
    'Sum 12.': [('run', {'code': 'total = 12; total'})],
    'Post 42 to revenue.': [('post', {'account': 'revenue', 'amount': 42})],
}


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Make the next call of the script, and end with what the last one returned."""
    prompt = next(str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))
    done = sum(isinstance(message, ModelResponse) for message in messages)
    steps = SCRIPTS.get(prompt, [])
    if done < len(steps):
        return ModelResponse([ToolCallPart(*steps[done])])
    results = [part.model_response_str() for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(', '.join(results) or 'I follow a script, and have none for this.')])


model = FunctionModel(respond, model_name='scripted')
