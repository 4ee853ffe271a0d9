"""The fork: an agent is built once, and the toolsets that hold state are copied for each run."""

from __future__ import annotations

import asyncio
import sys
from time import process_time

from pydantic_ai import FunctionToolset
from pydantic_ai.usage import UsageLimits
from toolset_first import AgentSpec, EntrySpec, Runtime, ToolsetSpec, agent_as_toolset
from typing_extensions import Self
from workload import DEPTH, FUNCTIONS, MODEL, State, count_of


class CopiedState(State):
    """Says that it is stateful."""

    stateful = True

    def copy(self) -> Self:
        """Return one that has counted nothing."""
        return type(self)()


KINDS = {
    'functions': ToolsetSpec(toolset=FunctionToolset(FUNCTIONS), shared=True),
    'state': ToolsetSpec(toolset=CopiedState()),
    'factory': ToolsetSpec(factory=lambda context: State()),
}


async def main(kind: str, count: int) -> float:
    """Make calls, and return the seconds of the processor for one."""
    spec = AgentSpec(
        'agent',
        instructions='You are an agent.',
        model=MODEL,
        toolset_specs=[KINDS[kind], agent_as_toolset('agent', tool='next_agent')],
    )
    runtime = Runtime([spec], max_depth=DEPTH, usage_limits=UsageLimits(request_limit=None))
    entry = EntrySpec(agent_as_toolset(spec), 'start')
    await runtime.run_entry(entry, str(DEPTH))
    started = process_time()
    for _ in range(count):
        assert await runtime.run_entry(entry, str(DEPTH)) == 'done'
    return (process_time() - started) / max(count, 1)


if __name__ == '__main__':
    print(asyncio.run(main(*count_of(sys.argv[1:]))))
