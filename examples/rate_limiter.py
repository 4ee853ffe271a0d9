"""A rate limiter: a wrapper that counts the calls of a run, and of its sub-agents if they share the quota."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, ToolsetTool, WrapperToolset
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts


# --8<-- [start:toolset]
@dataclass
class Quota:
    """How many calls are allowed, and how many were made."""

    limit: int
    used: int = 0


@dataclass
class RateLimitedToolset(WrapperToolset[Any]):
    """Limits how many tools a run calls. A sub-agent has a quota of its own, as a wrapper's state is by default."""

    quota: Quota
    stateful: bool = True

    def copy(self) -> Self:
        """Pass the limit on, and begin to count."""
        return replace(self, wrapped=self.wrapped.copy(), quota=Quota(self.quota.limit))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, or tell the model that it can't."""
        # Nothing is awaited between the check and the count, so calls in parallel can't pass both.
        if self.quota.used >= self.quota.limit:
            return f'The limit of {self.quota.limit} calls is reached. Answer with what you have.'
        self.quota.used += 1
        return await super().call_tool(name, tool_args, ctx, tool)


# --8<-- [end:toolset]


# --8<-- [start:shared]
class SharedRateLimitedToolset(RateLimitedToolset):
    """Limits how many tools a run and its sub-agents call altogether."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Share the quota, and let what is inside say what the sub-agent gets in its place."""
        return replace(self, wrapped=self.wrapped.for_sub_agent(ctx))


# --8<-- [end:shared]

CHAPTERS = Path(__file__).parents[1] / 'docs' / 'cookbook'


# --8<-- [start:agents]
async def read_title(chapter: str) -> str:
    """Return the title of a chapter of this cookbook, such as `cache`."""
    print(f'Reading {chapter}')
    text = await asyncio.to_thread((CHAPTERS / f'{chapter}.md').read_text, 'utf-8')
    return text.partition('\n')[0].lstrip('# ')


def make_agent(model: Model | str, titles: AbstractToolset[Any]) -> Agent[object, str]:
    """Make an agent that has a sub-agent, and give both the same toolset."""
    agent = Agent(model, name='agent', deps_type=object, toolsets=[titles])
    reader = Agent(model, name='reader', deps_type=object, toolsets=[titles])

    @agent.tool
    async def ask_reader(ctx: RunContext[Any], question: str) -> str:
        """Let the reader answer a question."""
        result = await reader.run(question, usage=ctx.usage)
        return result.output

    return agent


titles = FunctionToolset([read_title])
own = RateLimitedToolset(titles, Quota(3))
shared = SharedRateLimitedToolset(titles, Quota(3))
# --8<-- [end:agents]

QUESTION = 'What are the titles of the chapters?'
DELEGATED = 'What are the titles of the chapters on wrappers?'
SCRIPT = scripts(
    {
        QUESTION: [
            [call('read_title', chapter='pure-functions'), call('read_title', chapter='webhook')],
            call('ask_reader', question=DELEGATED),
            call('read_title', chapter='cache'),
        ],
        DELEGATED: [[call('read_title', chapter='rate-limiter'), call('read_title', chapter='audit')]],
    }
)


async def main(model: Model | str) -> None:
    """Allow three calls, first to each run, and then to a run with its sub-agent."""
    for what, toolset in {'A quota each': own, 'A shared quota': shared}.items():
        print(what)
        result = await make_agent(model, toolset).run(QUESTION)
        print(result.output)


if __name__ == '__main__':
    run_main(main, SCRIPT)
