"""A list of tasks: each chat has its own, which stays from message to message, and sub-agents share it."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, FunctionToolset, ModelMessage, ModelRetry, RunContext, toolsets
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
class TasksToolset(FunctionToolset[Any]):
    """Keeps a list of tasks, which the model ticks off. A sub-agent works on its parent's list."""

    stateful = True

    def __init__(self) -> None:
        """Make a toolset without tasks."""
        super().__init__([self.add_task, self.finish_task])
        self.tasks: dict[str, bool] = {}

    def copy(self) -> Self:
        """Make a toolset without tasks."""
        return type(self)()

    async def add_task(self, task: str) -> str:
        """Add a task, and return the list."""
        self.tasks.setdefault(task, False)
        return self.show()

    async def finish_task(self, task: str) -> str:
        """Tick a task off, and return the list."""
        if task not in self.tasks:
            raise ModelRetry(f'There is no such task. This is the list: {self.show()}')
        self.tasks[task] = True
        return self.show()

    def show(self) -> str:
        """Return the list as a text."""
        return ', '.join(f'[{"x" if done else " "}] {task}' for task, done in self.tasks.items())


# --8<-- [end:toolset]

# --8<-- [start:agents]
tasks = TasksToolset()
clerk = Agent('openai:gpt-5-mini', name='clerk', toolsets=[tasks], defer_model_check=True)
agent = Agent('openai:gpt-5-mini', name='agent', toolsets=[tasks], defer_model_check=True)


@agent.tool
async def ask_clerk(ctx: RunContext[Any], order: str) -> str:
    """Have the clerk do something. It has the same list of tasks."""
    result = await clerk.run(order, usage=ctx.usage)
    return result.output


# --8<-- [end:agents]


# --8<-- [start:across]
async def chat(*prompts: str) -> None:
    """Answer the messages of a chat, all of them with one list of tasks."""
    messages: list[ModelMessage] = []
    async with toolsets.ToolsetScope(tasks) as scope:
        for prompt in prompts:
            result = await agent.run(prompt, toolsets=[scope], message_history=messages)
            messages = result.all_messages()
            print(f'{prompt}\n  {result.output}')


# --8<-- [end:across]

OURS = 'Put these on the list: book a flight, book a hotel.', 'Have the clerk book the flight.'
THEIRS = 'Put this on the list: water the plants.', 'The plants are watered.'
DELEGATED = 'Book a flight, and tick it off.'
SCRIPT = scripts(
    {
        OURS[0]: [
            call('add_task', task='book a flight'),
            call('add_task', task='book a hotel'),
            '{results}',
            call('ask_clerk', order=DELEGATED),
        ],
        THEIRS[0]: [
            call('add_task', task='water the plants'),
            '{results}',
            call('finish_task', task='water the plants'),
        ],
        DELEGATED: [call('finish_task', task='book a flight')],
    }
)


async def main(model: Model | str) -> None:
    """Have two chats, each with a list of its own."""
    with agent.override(model=model), clerk.override(model=model):
        await chat(*OURS)
        await chat(*THEIRS)


if __name__ == '__main__':
    run_main(main, SCRIPT)
