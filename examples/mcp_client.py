"""An MCP server in a process: one that all runs share, and one for each run."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
from pydantic_ai import AbstractToolset, Agent, WrapperToolset
from pydantic_ai.models import Model
from pydantic_ai.toolsets import DynamicToolset

from examples.support import call, run_main, scripts

# --8<-- [start:toolset]
SERVER = Path(__file__).with_name('mcp_server.py')


def notes_toolset() -> AbstractToolset[Any]:
    """Make a toolset whose server is started when it's first entered, and ended when it's last exited."""
    mcp: Any = import_module('pydantic_ai.mcp')
    arguments = [str(SERVER)]
    transports: Any = import_module('fastmcp.client.transports')
    # Without `keep_alive=False`, the process lives on for the next connection.
    transport = transports.StdioTransport(sys.executable, arguments, keep_alive=False)
    return ShieldedToolset(mcp.MCPToolset(transport, init_timeout=30))


class ShieldedToolset(WrapperToolset[Any]):
    """Lets a toolset close what it has opened, even if the run is in an `anyio` scope that is cancelled.

    There, each `await` is cancelled. The one that `MCPToolset` begins its exit with would leave the process behind.
    """

    async def __aexit__(self, *args: object) -> bool | None:
        """Exit the wrapped toolset."""
        with anyio.CancelScope(shield=True):
            return await super().__aexit__(*args)


# --8<-- [end:toolset]

# --8<-- [start:agents]
team = Agent(name='team', toolsets=[notes_toolset()])
diary = Agent(name='diary', toolsets=[DynamicToolset(lambda ctx: notes_toolset(), per_run_step=False)])
# --8<-- [end:agents]

PROMPTS = 'Remember to buy milk.', 'Remember to buy tea.'
SCRIPT = scripts(
    {
        PROMPTS[0]: [call('remember', note='milk')],
        PROMPTS[1]: [call('remember', note='tea')],
    }
)


# --8<-- [start:runs]
async def main(model: Model | str) -> None:
    """Take two notes in two runs of each agent."""
    for agent in team, diary:
        async with agent:
            for prompt in PROMPTS:
                result = await agent.run(prompt, model=model)
                print(f'{agent.name}: {result.output}')


# --8<-- [end:runs]


if __name__ == '__main__':
    run_main(main, SCRIPT)
