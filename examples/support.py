"""What the examples share: a model that follows a script, their command line, and a database to try them on."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import gaierror
from typing import Any, cast

import httpx
from pydantic_ai import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    toolsets,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from typing_extensions import Self

# The examples run without this repository being installed.
sys.path.append(str(Path(__file__).parents[1]))
from examples.postgres import NoPostgresError, postgres_server


class NoScopes(toolsets.CombinedToolset[Any]):
    """Stands in for a toolset scope, or a pool of them, on the base, which has none. It keeps nothing, and adds no tools to a run."""

    def __init__(self, *kept: Any, **options: Any) -> None:
        """Take what a scope and a pool take."""
        super().__init__([])

    def __call__(self, key: Hashable) -> NoScopes:
        """Go on as one scope of a pool."""
        return self

    async def __aenter__(self) -> Self:
        """Enter nothing."""
        return self

    async def __aexit__(self, *args: object) -> None:
        """End nothing."""

    async def aclose(self) -> None:
        """End nothing."""

    async def export(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


if not hasattr(toolsets, 'ToolsetScope'):
    # Here and not in the command, since examples start processes too
    for _name in ('ToolsetScope', 'ToolsetScopePool'):
        setattr(toolsets, _name, NoScopes)


Step = str | ToolCallPart | Sequence[ToolCallPart]
"""What a scripted model responds with: a text, a tool call, or several at once.

In a text, `{results}` stands for the last tool results.
"""


def call(tool: str, **arguments: Any) -> ToolCallPart:
    """Make a call of a tool, as a step of a script."""
    return ToolCallPart(tool, arguments)


def script(*steps: Step) -> FunctionModel:
    """Make a model that responds with these steps, one after another, and ends each run with its last tool results.

    It keeps nothing between requests, so any number of runs can use it at once: the step is told from the messages.
    """

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return _next_response(steps, messages)

    return FunctionModel(respond)


def scripts(steps: Mapping[str, Sequence[Step]]) -> FunctionModel:
    """Make a model that follows a script for each prompt, so that an agent and its sub-agents can share it.

    Args:
        steps: The steps that `script()` takes, by the prompt of the run.
    """

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
        return _next_response(steps[str(prompt.content)], messages)

    return streaming(respond)


def streaming(respond: Callable[[list[ModelMessage], AgentInfo], Awaitable[ModelResponse]]) -> FunctionModel:
    """Make a model of a function, whose responses can be streamed as well: a text comes word by word."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate((await respond(messages, info)).parts):
            if isinstance(part, ToolCallPart):
                args = part.args_as_json_str()
                yield {index: DeltaToolCall(name=part.tool_name, json_args=args, tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                for word in part.content.split(' '):
                    yield f'{word} '

    return FunctionModel(respond, stream_function=stream)


def _next_response(steps: Sequence[Step], messages: Sequence[ModelMessage]) -> ModelResponse:
    done = sum(isinstance(message, ModelResponse) for message in messages)
    step = steps[done] if done < len(steps) else _last_results(messages)
    if isinstance(step, str):
        return ModelResponse([TextPart(step.replace('{results}', _last_results(messages)))])
    return ModelResponse([step] if isinstance(step, ToolCallPart) else list(step))


def _last_results(messages: Sequence[ModelMessage]) -> str:
    last = messages[-1]
    results = [part.model_response_str() for part in last.parts if isinstance(part, ToolReturnPart)]
    return ', '.join(results) or 'done'


def run_main(main: Callable[[Model | str], Awaitable[None]], scripted: Model) -> None:
    """Run an example from the command line: on the scripted model, or on a real one with `--model`.

    Args:
        main: The example, which gets the model.
        scripted: The model without `--model`. It needs no network.
    """
    parser = ArgumentParser(description=cast(Any, sys.modules['__main__']).__doc__)
    parser.add_argument(
        '--model', metavar='NAME', default=scripted, help='a real model, such as openai:gpt-5-mini (default: scripted)'
    )
    options = parser.parse_args()
    if isinstance(options.model, str):
        try:
            infer_model(options.model)
        except Exception as error:  # noqa: BLE001 (whatever the client of the provider raises)
            sys.exit(f'error: The model `{options.model}` cannot be used: {error}')

    async def run() -> None:
        await main(options.model)

    try:
        asyncio.run(run())
    except Exception as error:
        if missing := _what_is_missing(error):
            sys.exit(f'error: {missing}')
        raise


def _what_is_missing(error: Exception) -> str | None:
    """Say in a sentence what the machine lacks, if that is why an example failed."""
    if isinstance(error, NoPostgresError):
        return f'{error} Or name a database with `DATABASE_URL=postgresql://…`.'
    # Not by their addresses, which may hold a password
    named = ' and '.join(f'`{name}`' for name in ('DATABASE_URL', 'WEBHOOK_URL') if name in os.environ)
    if isinstance(error, (ConnectionError, gaierror, httpx.TransportError)):
        return f"The server{named and f' that {named} names'} can't be reached: {error}."
    # By its name, since only some of the examples need a database
    if type(error).__name__ == 'ClientConfigurationError':
        return f'The address in `DATABASE_URL` is wrong: {error}.'
    return str(error) if str(error).startswith('Chromium does not start') else None


@contextmanager
def database() -> Generator[str]:
    """Give the URL of a PostgreSQL database: that of `DATABASE_URL`, or one that is started now and gone afterwards.

    Raises:
        NoPostgresError: There is no `DATABASE_URL`, and PostgreSQL isn't installed or doesn't start.
    """
    if url := os.environ.get('DATABASE_URL'):
        yield url
    else:
        with postgres_server() as server:
            yield f'{server}/postgres'
