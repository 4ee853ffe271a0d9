"""Chat with an agent in a terminal, in a session that survives it: `hookable-toolset chat`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sqlite3
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterable, Sequence
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import Agent, DeferredToolRequests, RunContext, ToolApproved, ToolDenied, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models.function import FunctionModel
from rich.console import Console

from .builtin import ListFilesTool, ReadFileTool, WriteFileTool, scripted_model, scripted_stream
from .context import AgentContext
from .hooks import GlobalHooks, exit_as_error, placed, resolve
from .store import Session, SessionStore, StaleSessionError
from .terminal import indented, printable
from .tools import BaseTool
from .toolset import Toolset

console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
HELP = """\
/tools           lists the tools
/approve         lists the tools that need an approval
/approve NAME    changes whether a tool needs one
/resume          goes on with what waits for an approval
/quit            ends; the session stays"""
ANSWERS = 'y, n, always or edit'
ARGUMENTS = TypeAdapter(dict[str, Any])
SHOWN = 500
"""How many characters of a result are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say, and return the exit code."""
    parser = ArgumentParser(prog='hookable-toolset', description='Agents with tools that ask before they act.')
    chat = parser.add_subparsers(required=True, metavar='COMMAND').add_parser('chat', help='chat in a session')
    chat.add_argument('--session', required=True, metavar='NAME', help='begun if there is none of that name')
    chat.add_argument('--db', required=True, type=Path, metavar='FILE', help='where sessions are stored')
    chat.add_argument('--model', help='such as `openai:gpt-5-mini`; a script that needs no key if left out')
    chat.add_argument('--tools', metavar='MODULE', help='a module with tools, in place of the built-in ones')
    chat.add_argument('--folder', type=Path, default=Path(), help='what the built-in tools work in; here if left out')
    options = parser.parse_args(arguments)
    os.environ.setdefault('PYDANTIC_AI_NO_BANNER', '1')  # It would come in the middle of the chat.
    try:
        tools = load_tools(options.tools) if options.tools else builtin_tools(options.folder)
        asyncio.run(chat_in(options.db, options.session, Chat(tools, options.model)))
    except sqlite3.Error as error:
        return _fail(f'`{options.db}`: {error}')
    except (UserError, ModuleNotFoundError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # noqa: BLE001 (what was stored is as it was)
        return _fail(placed(error))
    return 0


async def chat_in(db: Path, name: str, chat: Chat) -> None:
    """Chat in a session of a file until the input ends."""
    async with SessionStore(db) as store:
        await chat.run(store, name)


def _fail(text: str) -> int:
    console.print(printable(f'error: {text}'))
    return 1


def builtin_tools(folder: Path) -> list[BaseTool]:
    """Return the tools for a folder.

    Raises:
        UserError: There is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f'There is no folder `{folder}`. Make it, or name another one with `--folder`.')
    return [ListFilesTool(folder), ReadFileTool(folder), WriteFileTool(folder)]


def load_tools(source: str) -> list[type[BaseTool] | BaseTool]:
    """Return what a module has in `TOOLS`, or else the classes of tools that it defines.

    Raises:
        UserError: It has no tools, or they don't fit.
    """
    sys.path.insert(0, '')
    module = importlib.import_module(source)
    items = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == source]
    found = [item for item in items if issubclass(item, BaseTool) and not inspect.isabstract(item)]
    tools = list(getattr(module, 'TOOLS', found))
    if not tools:
        raise UserError(f'`{source}` has no tools. Define subclasses of `BaseTool` there, or a list `TOOLS`.')
    Toolset(tools=tools)  # which refuses what doesn't fit
    return tools


class Chat:
    """An agent, a session and the terminal."""

    session: Session

    def __init__(self, tools: Sequence[type[BaseTool] | BaseTool], model: str | None):
        hooks = GlobalHooks(pre=self._show_call, post=self._show_result)
        self.toolset: Toolset[AgentContext] = Toolset(tools=tools, global_hooks=hooks)
        self.agent: Agent[AgentContext, Any] = Agent(
            model or FunctionModel(scripted_model, stream_function=scripted_stream),
            deps_type=AgentContext,
            output_type=[str, DeferredToolRequests],
            toolsets=[self.toolset],
        )
        words = [*(tool.name for tool in self.toolset.tools), '/tools', '/approve', '/resume', '/help', '/quit']
        completer = WordCompleter(words, sentence=True)
        self.terminal = PromptSession[str](completer=completer) if sys.stdin.isatty() else None
        self._within_line = False  # Whether what the model says has not yet come to the end of a line.

    async def run(self, store: SessionStore, name: str) -> None:
        """Chat in a session until the input ends."""
        await self._open(store, name)
        turns = sum(message.kind == 'response' for message in self.session.context.message_history)
        self._say(f'Session {name!r}, {turns} responses so far. /help says what you can do.')
        self._say_what_waits()
        while (line := await self._read('> ')) is not None and (line := line.strip()) != '/quit':
            try:
                if line.startswith('/'):
                    await self._command(*line[1:].split())
                elif line:
                    await self._turn(line)
            except StaleSessionError as error:
                self._say(f'error: {error}')
                await self._open(store, name)
            except Exception as error:  # noqa: BLE001 (what was stored is as it was, and the chat goes on)
                self._say(f'error: {type(error).__name__}: {error}')

    async def _open(self, store: SessionStore, name: str) -> None:
        # A tool that has something to say to the one who approves is to be asked about.
        silent = BaseTool.get_approval_metadata
        asking = [tool.name for tool in self.toolset.tools if type(tool).get_approval_metadata is not silent]
        self.session = await Session.open(store, name, AgentContext(need_user_approve_tools=asking))
        self.waited = {call.tool_call_id for call in self.session.context.unanswered().approvals}

    async def _command(self, name: str = '', *names: str) -> None:
        context = self.session.context
        needing, allowed = context.need_user_approve_tools, context.user_allowed_tools
        if name == 'tools':
            for tool in self.toolset.tools:
                notes = ['needs an approval'] * (tool.name in needing and tool.name not in allowed)
                with exit_as_error():
                    notes += [] if await resolve(tool.is_available()) else ['not available']
                self._say(f'{tool.name:16}{tool.description} {", ".join(notes)}')
        elif name == 'approve':
            for tool in self.toolset.subset(names).names:
                if tool in allowed:
                    allowed.remove(tool)
                else:
                    (allowed if tool in needing else needing).append(tool)
            if names:
                await self.session.save()
            asking = [tool for tool in needing if tool not in allowed]
            self._say(f'An approval is needed for: {", ".join(asking) or "nothing"}.')
        elif name == 'resume':
            await self._turn(None) if context.pending else self._say('Nothing waits for an approval.')
        else:
            self._say(HELP)

    async def _turn(self, prompt: str | None) -> None:
        await self.session.run(self.agent, prompt, self._ask, event_stream_handler=self._show_events)
        self._end_line()
        self._say_what_waits()

    async def _ask(self, call: ToolCallPart, metadata: dict[str, Any]) -> bool | ToolApproved | ToolDenied | None:
        # Not as the model wrote them, with line breaks that move the arguments out of sight or names twice.
        arguments = ARGUMENTS.dump_json(call.args_as_dict()).decode()
        self._say(f'{call.tool_name} {arguments} needs your approval.')
        tools = [tool for tool in self.toolset.tools if tool.name == call.tool_name]
        if tools and call.tool_call_id in self.waited:
            # What the tool said then isn't true of another one, like one for another folder
            with exit_as_error():
                metadata = await resolve(tools[0].get_approval_metadata()) or {}
        for key, value in metadata.items():
            console.print(indented(f'  {key}: {value}'))
        always = f'always ({printable(call.tool_name)} with any arguments and in any folder, in this session for good)'
        while (line := await self._read(f'y, n, {always} or edit? ')) is not None:
            answer = line.strip()
            if answer == 'y':
                return True
            if answer == 'n' or answer.startswith('n '):
                return ToolDenied(answer[2:]) if answer[2:] else ToolDenied()
            if answer == 'always':
                self.session.context.user_allowed_tools.append(call.tool_name)
                return True
            if answer == 'edit' and (text := await self._read('arguments: ', printable(arguments))) is not None:
                try:
                    return ToolApproved(override_args=ARGUMENTS.validate_json(text))
                except ValidationError as error:
                    self._say(f'Write the arguments as a JSON object. {error.errors()[0]["msg"]}.')
            else:
                self._say(f'Answer with {ANSWERS}.')
        return None

    async def _read(self, prompt: str, default: str = '') -> str | None:
        """Read a line; `None` when the input ends."""
        try:
            if self.terminal:
                return await self.terminal.prompt_async(prompt, default=default)
            console.print(prompt, end='')
            return sys.stdin.readline() or None
        except EOFError:
            return None

    def _show_call(self, ctx: RunContext[AgentContext], name: str, args: dict[str, Any]) -> dict[str, Any]:
        self._end_line()
        console.print(indented(f'-> {name} {args}'))
        return args

    def _show_result(self, ctx: RunContext[AgentContext], name: str, result: Any) -> Any:
        """Show what came out, and tell the model of errors in place of ending the run."""
        told = f'{type(result).__name__}: {result}' if isinstance(result, Exception) else result
        text = str(told)
        left = f' [... {len(text)} characters in all]' if len(text) > SHOWN else ''
        self._end_line()
        console.print(indented(f'<- {name} {text[:SHOWN]}{left}'))
        return told

    def _say_what_waits(self) -> None:
        waiting = [call.tool_name for call in self.session.context.unanswered().approvals]
        if self.session.context.pending:
            self._say(f'Waiting for an approval: {", ".join(waiting) or "none any more"}. /resume goes on.')

    async def _show_events(self, ctx: RunContext[AgentContext], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                self._show(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                self._show(event.delta.content_delta)

    def _show(self, text: str) -> None:
        """Show a piece of what the model says."""
        console.print(printable(text), end='')
        self._within_line = not text.endswith('\n') if text else self._within_line

    def _end_line(self) -> None:
        if self._within_line:
            console.print()
            self._within_line = False

    def _say(self, text: str) -> None:
        self._end_line()
        console.print(printable(text))


if __name__ == '__main__':
    sys.exit(main())
