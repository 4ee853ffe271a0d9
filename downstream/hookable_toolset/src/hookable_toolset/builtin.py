"""A small set of tools for a folder, and a model that needs no key."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai import messages as m
from pydantic_ai.models.function import AgentInfo

from .tools import BaseTool


class FolderTool(BaseTool):
    """A tool that works below a folder, and nowhere else."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()

    def inside(self, path: str) -> Path:
        """Return where a path leads to.

        Raises:
            ModelRetry: It leads out of the folder, by `..` or by a link.
        """
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder):
            raise ModelRetry(f'{path!r} is outside of the folder. Give a path below it.')
        return found


class ListFilesTool(FolderTool):
    """Lists files."""

    name = 'list_files'
    description = 'List the files below a folder.'

    def call(self, ctx: RunContext[Any], path: str = '.') -> list[str]:
        """List."""
        found = (item for item in self.inside(path).rglob('*') if item.is_file())
        return sorted(item.relative_to(self.folder).as_posix() for item in found)[:1000]


class ReadFileTool(FolderTool):
    """Reads a file."""

    name = 'read_file'
    description = 'Read a text file.'

    def call(self, ctx: RunContext[Any], path: str) -> str:
        """Read."""
        return self.inside(path).read_text('utf-8')


class WriteFileTool(FolderTool):
    """Writes a file."""

    name = 'write_file'
    description = 'Write a text file, in place of one that is there.'

    def get_approval_metadata(self) -> dict[str, Any]:
        """Say what happens."""
        return {'warning': 'This writes a file.', 'folder': str(self.folder)}

    def call(self, ctx: RunContext[Any], path: str, content: str) -> str:
        """Write."""
        target = self.inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, 'utf-8')
        return f'Wrote {len(content)} characters to {path}.'


class ShellTool(FolderTool):
    """Runs a command, and ends it and what it has started when its time is over."""

    name = 'shell'
    description = 'Run a shell command in the folder.'
    timeout = 30.0

    def is_available(self) -> bool:
        """Only where processes have groups that can be ended together."""
        return hasattr(os, 'killpg')

    def get_instruction(self, ctx: RunContext[Any]) -> str:
        """Tell the limit."""
        return f'A command of `shell` is ended after {self.timeout:g} seconds.'

    def get_approval_metadata(self) -> dict[str, Any]:
        """Say what happens."""
        return {'warning': 'This runs a command on your machine.', 'folder': str(self.folder)}

    async def call(self, ctx: RunContext[Any], command: str) -> str:
        """Run."""
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = await process.communicate()
        finally:
            with suppress(ProcessLookupError):  # All of it may have ended.
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):  # When its time is over, all else in here is cancelled.
                await process.wait()
        return f'{output.decode(errors="replace")[-20_000:]}[exit code {process.returncode}]'


def scripted_model(messages: list[m.ModelMessage], info: AgentInfo) -> m.ModelResponse:
    """Answer without a model: a prompt that begins with the name of a tool calls it with the words that follow."""
    answers: list[str] = []
    for part in messages[-1].parts:
        if isinstance(part, m.ToolReturnPart | m.RetryPromptPart):
            answers.append(f'{part.tool_name}: {part.content}')
        elif isinstance(part, m.UserPromptPart) and isinstance(part.content, str):
            name, _, rest = part.content.strip().partition(' ')
            for tool in info.function_tools:
                if tool.name == name:
                    parameters = list(tool.parameters_json_schema.get('properties', ()))
                    # A word for each of them, and all that is left for the last.
                    arguments = dict(zip(parameters, rest.split(maxsplit=len(parameters) - 1), strict=False))
                    return m.ModelResponse([m.ToolCallPart(name, arguments)])
            names = ', '.join(tool.name for tool in info.function_tools)
            answers.append(f'I am a script. Begin with the name of a tool, and its arguments: {names}.')
    return m.ModelResponse([m.TextPart('\n'.join(answers))])
