"""An agent that calls itself, directly or through another: each of its runs has state of its own."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
class NotesToolset(FunctionToolset[Any]):
    """Holds the notes of a run."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.note])
        self.notes: list[str] = []

    def copy(self) -> Self:
        """Return a toolset without notes."""
        return type(self)()

    async def note(self, text: str) -> list[str]:
        """Write something down, and return all notes."""
        self.notes.append(text)
        return self.notes.copy()


# --8<-- [end:toolset]

# --8<-- [start:agents]
notes = NotesToolset()
# What an agent gets as `deps` is how many levels of sub-agents may follow.
planner = Agent('openai:gpt-5-mini', name='planner', deps_type=int, toolsets=[notes], defer_model_check=True)
reviewer = Agent('openai:gpt-5-mini', name='reviewer', deps_type=int, toolsets=[notes], defer_model_check=True)


@planner.tool
@reviewer.tool
async def ask_planner(ctx: RunContext[int], task: str) -> str:
    """Let a planner plan a part on its own."""
    return await delegate(ctx, planner, task)


@planner.tool
async def ask_reviewer(ctx: RunContext[int], task: str) -> str:
    """Let the reviewer go through your notes."""
    return await delegate(ctx, reviewer, task)


async def delegate(ctx: RunContext[int], agent: Agent[int, str], task: str) -> str:
    """Run an agent inside of another, or the same, unless that is deep enough already."""
    if not ctx.deps:
        return 'Nobody else is there. Do it yourself.'
    result = await agent.run(task, deps=ctx.deps - 1, usage=ctx.usage)
    print(f'{agent.name}: {result.output}')
    return result.output


# --8<-- [end:agents]

TRIP = 'Plan a trip of two days. Let a planner plan each day.'
DAY = 'Plan the first day. Let a planner plan the morning.'
MORNING = 'Plan the morning.'
REVIEWED = 'Plan a trip, and let the reviewer go through it.'
REVIEW = 'Go through the plan. Let a planner plan something for rainy days.'
RAIN = 'Plan something for rainy days.'
SCRIPT = scripts(
    {
        TRIP: [call('note', text='two days'), call('ask_planner', task=DAY), call('note', text='home again')],
        DAY: [call('note', text='a day'), call('ask_planner', task=MORNING), call('note', text='dinner')],
        MORNING: [call('note', text='breakfast')],
        REVIEWED: [call('note', text='a trip'), call('ask_reviewer', task=REVIEW), call('note', text='home again')],
        REVIEW: [call('note', text='seen'), call('ask_planner', task=RAIN), call('note', text='done')],
        RAIN: [call('note', text='a museum')],
    }
)


async def main(model: Model | str) -> None:
    """Let the planner call itself, and then the reviewer, who calls the planner."""
    with planner.override(model=model), reviewer.override(model=model):
        for task in (TRIP, REVIEWED):
            print(task)
            result = await planner.run(task, deps=2)
            print(f'planner: {result.output}')


if __name__ == '__main__':
    run_main(main, SCRIPT)
