"""The base: an agent is built for each call, around toolsets that are wrapped for approval, as llm-do does it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from time import process_time
from typing import Any

from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from workload import DEPTH, FUNCTIONS, MODEL, State, count_of


@dataclass
class ApprovalToolset(WrapperToolset[Any]):
    """Asks about calls, before they are made, whose tool is in the rules."""

    rules: dict[str, str]

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool that needs no approval."""
        if self.rules.get(name, 'allow') != 'allow':
            raise PermissionError(name)
        return await super().call_tool(name, tool_args, ctx, tool)


STATIC = FunctionToolset[Any](FUNCTIONS)


async def call_agent(kind: str, prompt: str) -> str:
    """Build an agent, run it once, and forget it."""

    async def next_agent(ctx: RunContext[Any], input: str, attachments: list[str] | None = None) -> str:
        """Ask the agent."""
        return await call_agent(kind, input)

    tools = STATIC if kind == 'functions' else State()
    agent = Agent(
        MODEL,
        name='agent',
        instructions='You are an agent.',
        toolsets=[ApprovalToolset(tools, {}), ApprovalToolset(FunctionToolset[Any]([next_agent]), {})],
    )
    return (await agent.run(prompt)).output


async def main(kind: str, count: int) -> float:
    """Make calls, and return the seconds of the processor for one."""
    await call_agent(kind, str(DEPTH))  # what is loaded and cached by the first
    started = process_time()
    for _ in range(count):
        assert await call_agent(kind, str(DEPTH)) == 'done'
    return (process_time() - started) / max(count, 1)


if __name__ == '__main__':
    print(asyncio.run(main(*count_of(sys.argv[1:]))))
