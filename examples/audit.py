"""An audit log: a wrapper that writes down what the tools of a stateful toolset did, and whether the run failed."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, ToolsetTool, WrapperToolset
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
@dataclass
class Call:
    """A tool call."""

    id: str
    """The ids of its run and of itself."""
    tool: str
    arguments: dict[str, Any]
    outcome: str = 'unfinished'
    """What was returned or raised."""


@dataclass
class AuditLog:
    """What happened in a run."""

    parent: str | None = None
    """The id of the call that started the run, if that is a sub-agent's."""
    calls: list[Call] = field(default_factory=list[Call])
    error: str | None = None
    """What ended the run, or `None` if it succeeded."""


@dataclass
class AuditToolset(WrapperToolset[Any]):
    """Writes down what happens in a run, and hands it on when the run ends. A sub-agent has a log of its own."""

    sink: Callable[[AuditLog], None]
    stateful: bool = True
    log: AuditLog = field(default_factory=AuditLog)

    def copy(self) -> Self:
        """Pass the sink on, and begin a log."""
        return replace(self, wrapped=self.wrapped.copy(), log=AuditLog())

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Begin a log that names its parent, around what the inside gives to the sub-agent."""
        return replace(self, wrapped=self.wrapped.for_sub_agent(ctx), log=AuditLog(parent=call_id(ctx)))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, and write down what comes of it."""
        entry = Call(call_id(ctx), name, tool_args)
        self.log.calls.append(entry)
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except BaseException as error:
            entry.outcome = repr(error)
            raise
        entry.outcome = str(result)[:200]
        return result

    async def __aexit__(
        self, exc_type: type[BaseException] | None = None, exc: BaseException | None = None, *args: object
    ) -> None:
        """Exit what is inside, and hand the log to the sink."""
        try:
            await super().__aexit__(exc_type, exc, *args)
        except BaseException as error:
            # A run whose transaction can't be committed has failed, too.
            exc = error
            raise
        finally:
            self.log.error = repr(exc) if exc else None
            self.sink(self.log)


def call_id(ctx: RunContext[Any]) -> str:
    """Return the ids of the run and of the tool call."""
    return f'{ctx.run_id}/{ctx.tool_call_id}'


# --8<-- [end:toolset]


# --8<-- [start:sinks]
def to_logger(log: AuditLog) -> None:
    """Log a run as JSON, and one that failed as an error."""
    level = logging.ERROR if log.error else logging.INFO
    logging.getLogger('audit').log(level, '%s', to_json(log))


def to_file(path: Path) -> Callable[[AuditLog], None]:
    """Return a sink that appends each run to a file, as a line of JSON."""

    def append(log: AuditLog) -> None:
        with path.open('a', encoding='utf-8') as file:
            file.write(to_json(log) + '\n')

    return append


def to_json(log: AuditLog) -> str:
    """Return a log as JSON. What JSON doesn't know is written as text."""
    return json.dumps(asdict(log), default=str)


# --8<-- [end:sinks]


# --8<-- [start:agents]
class BasketToolset(FunctionToolset[Any]):
    """Holds what a run has put into the basket. Sub-agents put into the same."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.put, self.pay])
        self.items: list[str] = []

    def copy(self) -> Self:
        """Return an empty basket."""
        return type(self)()

    async def put(self, item: str) -> list[str]:
        """Put an item into the basket, and return what is in it."""
        self.items.append(item)
        return self.items.copy()

    async def pay(self, amount: float) -> str:
        """Pay for what is in the basket."""
        if amount > 100:
            raise PermissionError(f'{amount} is more than may be paid.')
        return 'paid'


basket = AuditToolset(BasketToolset(), sink=to_logger)
agent = Agent('openai:gpt-5-mini', name='agent', toolsets=[basket], defer_model_check=True)
assistant = Agent('openai:gpt-5-mini', name='assistant', toolsets=[basket], defer_model_check=True)


@agent.tool
async def ask_assistant(ctx: RunContext[Any], task: str) -> str:
    """Let the assistant do something."""
    result = await assistant.run(task, usage=ctx.usage)
    return result.output


# --8<-- [end:agents]

TASK = 'Buy coffee for 5 euros, and let the assistant add some milk.'
DELEGATED = 'Add milk.'
TOO_MUCH = 'Buy a machine for 500 euros.'
SCRIPT = scripts(
    {
        TASK: [call('put', item='coffee'), call('ask_assistant', task=DELEGATED), call('pay', amount=5)],
        DELEGATED: [call('put', item='milk')],
        TOO_MUCH: [call('put', item='machine'), call('pay', amount=500)],
    }
)


async def main(model: Model | str) -> None:
    """Run twice, and show what is logged. The second run fails."""
    logger = logging.getLogger('audit')
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter('%(levelname)s %(message)s'))
    logger.addHandler(handler)
    try:
        with agent.override(model=model), assistant.override(model=model):
            for task in (TASK, TOO_MUCH):
                print(task)
                try:
                    await agent.run(task)
                except PermissionError as error:
                    print(f'The run failed: {error}')
    finally:
        logger.removeHandler(handler)


if __name__ == '__main__':
    run_main(main, SCRIPT)
