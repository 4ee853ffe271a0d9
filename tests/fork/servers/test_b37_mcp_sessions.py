"""B37: each chat has an MCP session of its own; one whose server has died is started again by the end of its key."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic_ai import AbstractToolset, Agent, RunContext, ToolsetTool
from pydantic_ai.toolsets import ToolsetScopePool
from typing_extensions import Self

from ..test_docs import EXAMPLES
from ..toolsets import scripted, tool_of

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore::DeprecationWarning')]

IMPORT = """
try:
    from mcp.server.mcpserver import MCPServer as FastMCP
except ModuleNotFoundError:  # before 2.0
    from mcp.server.fastmcp import FastMCP
"""

SERVER = f"""
import os
{IMPORT}
server = FastMCP('notes')
notes = []

@server.tool()
def remember(value: str) -> str:
    notes.append(value)
    return f'{{os.getpid()}} {{len(notes)}}'

server.run()
"""


class Remote(AbstractToolset[Any]):
    """A client as people write it with the `mcp` package: its task groups end in the task that they began in."""

    stateful = True

    def __init__(self, script: Path):
        self.script = script
        self.answers: list[str] = []

    @property
    def id(self) -> str:
        return 'remote'

    def copy(self) -> Self:
        return type(self)(self.script)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            server = StdioServerParameters(command=sys.executable, args=['-I', str(self.script)])
            read, write = await stack.enter_async_context(stdio_client(server))
            self.session = await stack.enter_async_context(ClientSession(read, write))
            await self.session.initialize()
            self.stack = stack.pop_all()
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        return await self.stack.__aexit__(*args)  # pyright: ignore[reportArgumentType]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {'remember': tool_of(self, 'remember')}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        result: Any = await asyncio.wait_for(self.session.call_tool(name, tool_args), 10)
        self.answers.append(result.content[0].text)
        return self.answers[-1]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / 'server.py'
    path.write_text(SERVER)
    return path


async def test_b37_mcp_session_of_a_chat_whose_server_dies_is_started_anew_by_the_end_of_its_key(script: Path):
    remote = Remote(script)
    agent = Agent(scripted(['remember']), toolsets=[remote])

    async def request(user: str) -> tuple[int, int]:
        """Ask in a task of its own, as servers do, and return the server's process and how much it remembers."""

        async def ask() -> str:
            async with chats(user) as chat:
                await agent.run('go', toolsets=[chat])
                return chat.instance_of(remote).answers[-1]

        process, number = (await asyncio.ensure_future(ask())).split()
        return int(process), int(number)

    async with ToolsetScopePool(remote) as chats:
        ada, bob = await request('Ada'), await request('Bob')
        assert ada[0] != bob[0]
        assert await request('Ada') == (ada[0], 2)
        os.kill(ada[0], signal.SIGKILL)
        with pytest.raises(Exception):  # noqa: B017 (what a client says of a dead server is up to it)
            await request('Ada')
        # Another user's goes on
        assert await request('Bob') == (bob[0], 2)
        with suppress(Exception):  # and so is what it says at its end
            await chats.end('Ada')
        again = await request('Ada')
        assert again[0] not in (ada[0], bob[0])
        assert again[1] == 1
        assert await request('Bob') == (bob[0], 3)


async def test_b37_example_of_an_mcp_server_for_each_chat_prints_what_the_page_says(tmp_path: Path):
    (tmp_path / 'toolset_scope_mcp.py').write_text(EXAMPLES['toolset_scope_mcp'].code, 'utf-8')
    # The same server without `fastmcp`, of which only the client is installed here
    server = EXAMPLES['notes_server'].code.replace('from fastmcp import FastMCP', IMPORT)
    server = server.replace('@server.tool', '@server.tool()').replace('show_banner=False', '')
    (tmp_path / 'notes_server.py').write_text(server, 'utf-8')
    command = [sys.executable, str(tmp_path / 'toolset_scope_mcp.py')]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed.decode().splitlines() == EXAMPLES['toolset_scope_mcp'].prints
