"""What the tests share: models that follow a script, toolsets that tell what happens to them, and entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import (
    AbstractToolset,
    FunctionToolset,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from toolset_first import Answer, CallRuntime, EntrySpec, Question, ToolsetSpec
from typing_extensions import Self

LOADED: list[str] = []
"""What modules of a project note when they are loaded."""

Step = str | ToolCallPart | Sequence[ToolCallPart]


def call(tool: str, **arguments: Any) -> ToolCallPart:
    """Make a call of a tool, as a step of a script."""
    return ToolCallPart(tool, arguments)


def this_run(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return the messages since the last prompt."""
    starts = [
        number
        for number, message in enumerate(messages)
        if any(isinstance(one, UserPromptPart) for one in message.parts)
    ]
    return messages[starts[-1] :]


def script(*steps: Step) -> FunctionModel:
    """Make a model that responds with these steps in each run, and then with the last tool results."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return _next(steps, messages)

    return FunctionModel(respond, model_name='script')


def scripts(steps: Mapping[str, Sequence[Step]]) -> FunctionModel:
    """Make a model that has a script for each prompt, so that agents can share it."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = next(part for part in this_run(messages)[0].parts if isinstance(part, UserPromptPart))
        return _next(steps[str(prompt.content)], messages)

    return FunctionModel(respond, model_name='scripts')


def _next(steps: Sequence[Step], messages: Sequence[ModelMessage]) -> ModelResponse:
    done = sum(isinstance(message, ModelResponse) for message in this_run(messages))
    if done < len(steps):
        step = steps[done]
    else:
        results = [one.model_response_str() for one in messages[-1].parts if isinstance(one, ToolReturnPart)]
        step = ', '.join(results) or 'done'
    if isinstance(step, str):
        return ModelResponse([TextPart(step)])
    return ModelResponse([step] if isinstance(step, ToolCallPart) else list(step))


def echo() -> FunctionModel:
    """Make a model that says how many messages it got, and the last prompt."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = [one.content for message in messages for one in message.parts if isinstance(one, UserPromptPart)]
        return ModelResponse([TextPart(f'{len(messages)}: {said[-1]}')])

    return FunctionModel(respond, model_name='echo')


@dataclass
class Log:
    """What happened to toolsets, in order."""

    events: list[str] = field(default_factory=list[str])

    def __call__(self, event: str) -> None:
        self.events.append(event)


class Keeper(FunctionToolset[Any]):
    """Keeps what it is told, which shows whether two runs share it."""

    def __init__(self, log: Log | None = None) -> None:
        super().__init__([self.keep])
        self.kept: list[str] = []
        self.log = log

    async def keep(self, what: str) -> list[str]:
        """Keep something, and return all that was kept."""
        self.kept.append(what)
        return list(self.kept)

    async def __aenter__(self) -> Self:
        if self.log:
            self.log('enter')
        return self

    async def __aexit__(self, *failure: object) -> None:
        if self.log:
            kind: Any = failure[0]
            self.log(f'exit {kind and kind.__name__}')


class StatefulKeeper(Keeper):
    """Says so."""

    stateful = True
    shared_attributes = frozenset({'log'})

    def copy(self) -> Self:
        return type(self)(self.log)


class Server(AbstractToolset[Any]):
    """Has tools that show when it is open, and whose arguments are validated elsewhere, as those of an MCP server."""

    def __init__(
        self, schema: dict[str, Any] | None = None, ran: list[Any] | None = None, broken: bool = False
    ) -> None:
        self.schema = schema or {'type': 'object'}
        self.ran = ran
        self.broken = broken

    @property
    def id(self) -> str | None:
        return 'server'

    async def __aenter__(self) -> Self:
        if self.broken:
            raise ConnectionError('It is down.')
        return self

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            name: ToolsetTool[Any](
                toolset=self,
                tool_def=ToolDefinition(name=name, parameters_json_schema=self.schema),
                max_retries=1,
                args_validator=SchemaValidator(core_schema.any_schema()),
            )
            for name in ('rm', 'list')
        }

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        if self.ran is not None:
            self.ran.append(tool_args)
        return 'removed'


def entry(main: Callable[..., Any], name: str = 'start', **options: Any) -> EntrySpec:
    """Make an entry of a function, which is called `main`."""

    def build(context: object) -> FunctionToolset[Any]:
        toolset = FunctionToolset[Any]()
        toolset.add_function(main, name='main')
        return toolset

    return EntrySpec(ToolsetSpec(factory=build), name, **options)


def calling(agent: Any) -> EntrySpec:
    """Make an entry that calls an agent with its input."""

    async def main(ctx: RunContext[CallRuntime], input: str, attachments: list[str] | None = None) -> Any:
        arguments: dict[str, Any] = {'input': input}
        return await ctx.deps.call_agent(agent, {**arguments, **({'attachments': attachments} if attachments else {})})

    return entry(main)


class Asked:
    """Someone who answers, and notes what they were asked."""

    def __init__(self, answer: Callable[[Question], Answer]) -> None:
        self.answer = answer
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> Answer:
        self.questions.append(question)
        return self.answer(question)

    @property
    def tools(self) -> list[str]:
        return [question.tool for question in self.questions]


def yes(remember: bool = False) -> Asked:
    return Asked(lambda question: Answer(True, remember=remember))


def no(remember: bool = False) -> Asked:
    return Asked(lambda question: Answer(False, 'Not today.', remember))
