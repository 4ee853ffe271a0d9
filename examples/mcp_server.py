"""An MCP server with notes, which it keeps as long as its process lives. It speaks over its standard input and output."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def make_server(name: str) -> Any:
    """Make a server of the `mcp` package. Releases from 2.0 on have another name for its class."""
    try:
        return import_module('mcp.server.mcpserver').MCPServer(name, log_level='WARNING')
    except ModuleNotFoundError:
        return import_module('mcp.server.fastmcp').FastMCP(name, log_level='WARNING')


server = make_server('notes')
notes: list[str] = []


@server.tool()
def remember(note: str) -> str:
    """Remember a note, and return all notes."""
    notes.append(note)
    return ', '.join(notes)


@server.tool()
def process_id() -> int:
    """Return the ID of the server's process."""
    return os.getpid()


if __name__ == '__main__':
    server.run()
