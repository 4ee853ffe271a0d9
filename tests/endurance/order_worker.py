"""A process that hangs in the middle of a run whose toolset holds a transaction, until it's killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, FunctionToolset, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

sys.path.append(str(Path(__file__).parents[2]))
from tests.endurance.orders import Orders


async def main(url: str, name: str, where: str) -> None:
    """Do a run that hangs in a tool, in the model or in the toolset's exit, after it has written into the database."""

    async def hang_in(place: str) -> None:
        if place == where:
            print(where, flush=True)
            await asyncio.Event().wait()

    class HangingOrders(Orders):
        async def __aexit__(self, *args: object) -> None:
            await hang_in('exit')
            await super().__aexit__(*args)

    async def tool() -> None:
        await hang_in('tool')

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart('order', {'value': f'tea, lost in {where}'})])
        if len(messages) == 3:
            await hang_in('model')
            return ModelResponse(parts=[ToolCallPart('tool', {})])
        return ModelResponse(parts=[TextPart('done')])

    agent = Agent(FunctionModel(respond), toolsets=[HangingOrders(url, name), FunctionToolset([tool])])
    await agent.run('go')


if __name__ == '__main__':
    asyncio.run(main(*sys.argv[1:]))
