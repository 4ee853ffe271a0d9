"""A small set of tools for a folder, and a model that needs no key."""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai import messages as m
from pydantic_ai.models.function import AgentInfo, DeltaToolCall

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
        names = sorted(item.relative_to(self.folder).as_posix() for item in found)[:1000]
        return [os.fsencode(name).decode(errors='replace') for name in names]  # A session holds Unicode only.


class ReadFileTool(FolderTool):
    """Reads a file, in parts if it is long."""

    name = 'read_file'
    description = 'Read a text file. Of a long one, a part is returned, which says how to go on.'
    limit = 50_000
    """How many bytes are read at once."""

    def call(self, ctx: RunContext[Any], path: str, offset: int = 0) -> str:
        """Read.

        Args:
            ctx: The context.
            path: The file.
            offset: The byte to begin at.
        """
        target = self.inside(path)
        if target.exists() and not target.is_file():
            raise ModelRetry(f'{path!r} is no regular file. Give the path of one.')
        with target.open('rb') as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(min(max(offset, 0), size))
            data = file.read(self.limit)
            end = file.tell()
        # What the limit cuts off of a character is left to the next part.
        text = getincrementaldecoder('utf-8')().decode(data, final=end == size)
        end -= len(data) - len(text.encode())
        return text if end >= size else f'{text}\n[{size - end} bytes of {size} are left: go on with offset={end}]'


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
                    schema = tool.parameters_json_schema
                    parameters = schema.get('required') or list(schema.get('properties', ()))
                    # A word for each of them, and all that is left for the last.
                    arguments = dict(zip(parameters, rest.split(maxsplit=len(parameters) - 1), strict=False))
                    return m.ModelResponse([m.ToolCallPart(name, arguments)])
            names = ', '.join(tool.name for tool in info.function_tools)
            answers.append(f'I am a script. Begin with the name of a tool, and its arguments: {names}.')
    return m.ModelResponse([m.TextPart('\n'.join(answers))])


async def scripted_stream(
    messages: list[m.ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Answer as `scripted_model()` does, line by line."""
    for index, part in enumerate(scripted_model(messages, info).parts):
        if isinstance(part, m.ToolCallPart):
            yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        elif isinstance(part, m.TextPart):
            for line in part.content.splitlines(keepends=True):
                yield line
