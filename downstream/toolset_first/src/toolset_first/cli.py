"""The command line: `toolset-first run`, `check` and `new`."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic_ai.toolsets import ToolsetScope
from rich.console import Console
from rich.text import Text

from toolset_first.approvals import Answer, Approvals, Question
from toolset_first.contracts import ToolsetFirstError
from toolset_first.project import Project, load_project
from toolset_first.runtime import CallEvent, Runtime

app = typer.Typer(add_completion=False, no_args_is_help=True, help='Run projects of agents and toolsets.')
messages = Console(stderr=True, highlight=False)

Folder = Annotated[Path, typer.Argument(metavar='DIR', help='The folder of the project.')]
Debug = Annotated[bool, typer.Option('--debug', help='Show the traceback of an error.')]
Model = Annotated[str | None, typer.Option(metavar='NAME', help='A model, in place of what the agents name.')]
MaxDepth = Annotated[int, typer.Option(min=1, help='How deep agents may call agents.')]


@app.command()
def run(
    folder: Folder,
    prompt: Annotated[str | None, typer.Argument(help='The input; read from stdin if left out.')] = None,
    input_json: Annotated[bool, typer.Option('--input-json', help='The input is a JSON object.')] = False,
    chat: Annotated[
        bool, typer.Option('--chat', help='Go on with one input after another, until an empty one.')
    ] = False,
    approve_all: Annotated[bool, typer.Option('--approve-all', help='Approve all calls that need approval.')] = False,
    reject_all: Annotated[bool, typer.Option('--reject-all', help='Reject all calls that need approval.')] = False,
    max_depth: MaxDepth = 5,
    model: Model = None,
    debug: Debug = False,
) -> None:
    """Run the entry of a project, and print what it returns."""
    if approve_all and reject_all:
        raise typer.BadParameter('`--approve-all` and `--reject-all` exclude each other.')
    with _errors(debug):
        project = load_project(folder)
        mode = 'approve-all' if approve_all else 'reject-all' if reject_all else 'prompt'
        runtime = Runtime(
            project.agents,
            folder=folder,
            max_depth=max_depth,
            model=model,
            approvals=Approvals(mode, ask=ask),
            on_event=show,
        )
        if prompt is None and not chat:
            prompt = sys.stdin.read().strip()
        asyncio.run(_run(project, runtime, prompt, input_json, chat, debug))


async def _run(project: Project, runtime: Runtime, text: str | None, as_json: bool, chat: bool, debug: bool) -> None:
    if not chat:
        _print(await runtime.run_entry(project.entry, _input(text or '', as_json)))
        return
    # A chat keeps the toolsets of the agent that has its history, too.
    async with ToolsetScope(name='chat'), runtime.create_scope(project.entry) as scope:
        while text := read('> ') if text is None else text:
            try:
                _print(await scope.run_turn(_input(text, as_json)))
            except Exception as error:  # noqa: BLE001 - a chat goes on
                _say(error, debug)
            text = None


def _input(text: str, as_json: bool) -> Any:
    if not as_json:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ToolsetFirstError(f'The input is no JSON: {error}.') from None


@app.command()
def check(folder: Folder, model: Model = None, debug: Debug = False) -> None:
    """Show what each agent's runs work with, and fail if one run could see what belongs to another."""
    with _errors(debug):
        described = Runtime(load_project(folder).agents, folder=folder, model=model).describe_lifecycle()
    console = Console(highlight=False)
    for one in described.values():
        console.print(one)
    raise typer.Exit(int(any(one.problems for one in described.values())))


@app.command()
def new(folder: Folder, debug: Debug = False) -> None:
    """Make a project that runs at once, on a model that follows a script."""
    with _errors(debug):
        if folder.exists() and any(folder.iterdir()):
            raise ToolsetFirstError(f'`{folder}` is not empty. Name a folder that is not there yet.')
        shutil.copytree(Path(__file__).parent / 'template', folder, dirs_exist_ok=True)
    for path in sorted(folder.iterdir()):
        print(path)
    print(f'Try it: toolset-first run {folder} "Buy milk"')


@contextmanager
def _errors(debug: bool) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        messages.print('interrupted')
        raise typer.Exit(130) from None
    except Exception as error:  # noqa: BLE001 - all become one line
        _say(error, debug)
        raise typer.Exit(1) from None


def _say(error: Exception, debug: bool) -> None:
    if debug:
        messages.print_exception()
    kind = '' if isinstance(error, ToolsetFirstError) else f'{type(error).__name__}: '
    messages.print(Text(f'error: {kind}{error}', 'red'), soft_wrap=True)


def _print(result: Any) -> None:
    text = result.model_dump_json(indent=2) if isinstance(result, BaseModel) else str(result)
    print(text, flush=True)


def show(event: CallEvent) -> None:
    """Show what happens in a call, on one line, further to the right the deeper the call is."""
    before = {'start': f'▶ {event.agent}: ', 'tool': f'→ {event.tool} ', 'result': f'← {event.tool} '}.get(event.kind)
    if before:
        style = {'start': 'bold', 'tool': 'cyan', 'result': 'dim'}[event.kind]
        messages.print(Text('  ' * event.depth + before + _one_line(event.text, 200), style), soft_wrap=True)


def ask(question: Question) -> Answer:
    """Ask the user about a call. Everything else waits for the answer."""
    arguments = _one_line(json.dumps(question.arguments, ensure_ascii=False), 2000)
    messages.print(Text(f'{question.agent} wants to call {question.tool} {arguments}', 'yellow'), soft_wrap=True)
    said = read('Allow it? [y]es, [a]lways for this very call, [N]o: ').lower()
    return Answer(said in ('y', 'yes', 'a', 'always'), remember=said in ('a', 'always'))


def read(prompt: str) -> str:
    """Read a line, or an empty one at the end of the input. Ctrl-C interrupts it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        messages.print(prompt, end='', markup=False)
        return input().strip()
    except EOFError:
        return ''
    finally:
        signal.signal(signal.SIGINT, before)


def _one_line(text: str, length: int) -> str:
    """Return a text without what could move the cursor, and cut."""
    text = ''.join(character if character.isprintable() else ' ' for character in text)
    return text if len(text) <= length else f'{text[: length - 1]}…'


def main() -> None:
    """Run the command line."""
    app()
