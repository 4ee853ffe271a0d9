"""The command line: `toolset-first run`, `check` and `new`."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic_ai.usage import UsageLimits
from rich.console import Console
from rich.text import Text

from toolset_first.agents import CallEvent
from toolset_first.approvals import Answer, Approvals, Question
from toolset_first.errors import ToolsetFirstError, placed
from toolset_first.inputs import decoded
from toolset_first.project import Project, load_project, usage_limits
from toolset_first.report import describe_rules
from toolset_first.runtime import Runtime
from toolset_first.sessions import stored_chat
from toolset_first.texts import columns_of, folded, visible, wrapped

app = typer.Typer(add_completion=False, no_args_is_help=True, help='Run projects of agents and toolsets.')
messages = Console(stderr=True, highlight=False)

Folder = Annotated[Path, typer.Argument(metavar='DIR', help='The folder of the project.')]
Debug = Annotated[bool, typer.Option('--debug', help='Show the traceback of an error.')]
Model = Annotated[str | None, typer.Option(metavar='NAME', help='A model, in place of what the agents name.')]
MaxDepth = Annotated[int, typer.Option(min=1, help='How deep agents may call agents.')]
Files = Annotated[
    list[Path] | None,
    typer.Option('--file', metavar='FILE', help='A Python file to look into as well, in a folder of the project.'),
]
Limits = Annotated[
    list[str] | None,
    typer.Option('--limit', metavar='NAME=N', help='A limit for all agents together, such as `request_limit=100`.'),
]
CallLimits = Annotated[
    list[str] | None,
    typer.Option('--call-limit', metavar='NAME=N', help='A limit for each call of an agent that names none.'),
]


@app.command()
def run(
    folder: Folder,
    prompt: Annotated[str | None, typer.Argument(help='The input; read from stdin if left out.')] = None,
    input_json: Annotated[bool, typer.Option('--input-json', help='The input is a JSON object.')] = False,
    chat: Annotated[
        bool, typer.Option('--chat', help='Go on with one input after another, until an empty one.')
    ] = False,
    session: Annotated[
        str | None, typer.Option(metavar='NAME', help='Go on with the chat of that name, or begin it; it is stored.')
    ] = None,
    approve_all: Annotated[bool, typer.Option('--approve-all', help='Approve all calls that need approval.')] = False,
    reject_all: Annotated[bool, typer.Option('--reject-all', help='Reject all calls that need approval.')] = False,
    limit: Limits = None,
    call_limit: CallLimits = None,
    max_depth: MaxDepth = 5,
    model: Model = None,
    file: Files = None,
    allow_hidden: Annotated[
        bool, typer.Option('--allow-hidden', help='Allow attachments that begin with a dot.')
    ] = False,
    debug: Debug = False,
) -> None:
    """Run the entry of a project, and print what it returns."""
    if approve_all and reject_all:
        raise typer.BadParameter('`--approve-all` and `--reject-all` exclude each other.')
    with _errors(debug):
        project = load_project(folder, *(file or ()))
        # Each line of a chat is an input, unless somebody types it who sees the question
        reject_all = reject_all or (chat and not (sys.stdin.isatty() and sys.stderr.isatty()))
        mode = 'approve-all' if approve_all else 'reject-all' if reject_all else 'prompt'
        display = Display()
        runtime = Runtime(
            project.agents,
            folder=folder,
            max_depth=max_depth,
            model=model,
            approvals=Approvals(mode, ask=ask),
            usage_limits=_limits('--limit', limit),
            call_limits=_limits('--call-limit', call_limit),
            allow_hidden=allow_hidden,
            on_event=display,
        )
        if prompt is None and not chat:
            prompt = decoded(sys.stdin.buffer.read(), 'The input on stdin').strip()
        with _interruptible():
            asyncio.run(_run(project, runtime, display, prompt, input_json, chat, session, debug))


async def _run(
    project: Project,
    runtime: Runtime,
    display: Display,
    text: str | None,
    as_json: bool,
    chat: bool,
    session: str | None,
    debug: bool,
) -> None:
    _ctrl_c.task = asyncio.current_task()
    async with AsyncExitStack() as exits:
        stored = await exits.enter_async_context(stored_chat(project.folder, session)) if session else None
        # A chat keeps the toolsets of the agent that has its history, too.
        made = runtime.create_scope(project.entry, stored.history if stored else (), chat=chat)
        scope = await exits.enter_async_context(made)

        async def turn(text: str) -> None:
            result = await scope.run_turn(_input(text, as_json))
            if stored:
                await stored.save(scope.runtime.frame.messages)
            display.result(result)

        if not chat:
            await turn(text or '')
            return
        while text := await read('> ') if text is None else text:
            try:
                await turn(text)
            except Exception as error:  # noqa: BLE001 - a chat goes on
                _say(error, debug)
            text = None


def _limits(option: str, given: Sequence[str] | None) -> UsageLimits | None:
    limits: dict[str, Any] = {}
    for one in given or ():
        name, _, value = one.partition('=')
        try:
            limits[name] = None if value == 'none' else float(value) if '.' in value else int(value)
        except ValueError:
            raise ToolsetFirstError(f'`{option} {one}` is no limit. Write one as `request_limit=100`.') from None
    # Those that aren't named are none: the 50 requests that `UsageLimits` has by default are for a call.
    return usage_limits({'request_limit': None, **limits} if option == '--limit' else limits) if limits else None


def _input(text: str, as_json: bool) -> Any:
    if not as_json:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ToolsetFirstError(f'The input is no JSON: {error}.') from None


@app.command()
def check(folder: Folder, model: Model = None, file: Files = None, debug: Debug = False) -> None:
    """Show what each agent's runs work with and which rules hold, and fail if one run could see what belongs to another."""
    with _errors(debug):
        project = load_project(folder, *(file or ()))
        runtime = Runtime(project.agents, folder=folder, model=model)
        rules = asyncio.run(describe_rules(runtime, project.entry))
        described = runtime.describe_lifecycle()
        for one in described.values():
            print(visible(str(one), keep='\n'))
        for name, lines in rules.items():
            print(visible(f'Rules of {name!r}{":" if lines else ": none, since it has no tools"}'))
            for line in lines:
                print(visible(f'- {line}'))
    raise typer.Exit(int(any(one.problems for one in described.values())))


@app.command()
def new(folder: Folder, debug: Debug = False) -> None:
    """Make a project that runs at once, on a model that follows a script."""
    with _errors(debug):
        if folder.exists() and any(folder.iterdir()):
            raise ToolsetFirstError(f'`{folder}` is not empty. Name a folder that is not there yet.')
        # pip compiles what it installs, the template's files too
        ignored = shutil.ignore_patterns('__pycache__')
        shutil.copytree(Path(__file__).parent / 'template', folder, dirs_exist_ok=True, ignore=ignored)
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
    except BaseException as error:  # noqa: BLE001 - all become one line
        _say(error, debug)
        raise typer.Exit(1) from None


def _say(error: BaseException, debug: bool) -> None:
    if debug:
        _print_escaped(''.join(traceback.format_exception(error)), 'dim')
    text = f'{type(error).__name__}: {error}' if isinstance(error, Exception) else placed(error)
    _print_escaped(f'error: {error if isinstance(error, ToolsetFirstError) else text}', 'red')


def _print_escaped(text: str, style: str) -> None:
    messages.print(Text(visible(text, keep='\n'), style), soft_wrap=True)


class Display:
    """Shows what happens in calls, on one line each, further to the right the deeper the call is; and the result."""

    def __call__(self, event: CallEvent) -> None:
        """Show an event."""
        if before := {'start': f'▶ {event.agent}: ', 'tool': f'→ {event.tool} ', 'result': f'← {event.tool} '}.get(
            event.kind
        ):
            style = {'start': 'bold', 'tool': 'cyan', 'result': 'dim'}[event.kind]
            text = ' '.join(folded(event.text, 200).split('\n'))
            shown_text = visible(before + text, strict=event.kind == 'tool')
            messages.print(Text('  ' * event.depth + shown_text, style), soft_wrap=True)

    def result(self, result: Any) -> None:
        """Print a result."""
        text = result.model_dump_json(indent=2) if isinstance(result, BaseModel) else str(result)
        if sys.stdout.isatty():
            text = visible(text, keep='\n\t')
        encoding = sys.stdout.encoding or 'utf-8'
        print(text.encode(encoding, 'backslashreplace').decode(encoding), flush=True)


show = Display()
"""Shows what happens in calls, for programs that have no other display."""


async def ask(question: Question) -> Answer:
    """Show the user a call, with all that it would run with, and ask about it. Everything else waits for the answer."""
    columns = min(_COLUMNS, max(messages.width, 40)) if messages.is_terminal else _COLUMNS
    _print_lines(wrapped(visible(f'{question.agent} wants to call {question.tool}', strict=True), columns))
    long = 0
    for name, value in question.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        is_long, lines = _argument(name, json.dumps(value, ensure_ascii=False), len(text), columns)
        long += len(text) if is_long else 0
        _print_lines(lines)
    if long:
        _print_escaped(f'  ⚠ {long:,} characters are above: read them all', 'bold yellow')
    if sys.stdin.isatty():
        with suppress(ImportError):
            import termios

            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is no answer to it
    said = (await read('Allow it? [y]es, [a]lways for this very call, [N]o: ')).lower()
    return Answer(said in ('y', 'yes', 'a', 'always'), remember=said in ('a', 'always'))


_COLUMNS = 100
"""How many columns a question takes, if the terminal isn't narrower."""


def _argument(name: str, value: str, length: int, columns: int) -> tuple[bool, list[str]]:
    """Return whether an argument takes several lines, and these."""
    name, value = visible(name, strict=True), visible(value, strict=True)
    if columns_of(line := f'  {name} = {value}') <= columns:
        return False, [line]
    if columns_of(name) > columns // 2:
        name, value = 'an argument with a long name', f'{name} = {value}'
    lines = [f'  │ {line}' for line in wrapped(value, columns - 4)]
    return True, [f'  {name} = ⟪ {length:,} characters, folded to {len(lines):,} lines', *lines, '  ⟫ the end of these']


def _print_lines(lines: Sequence[str]) -> None:
    messages.print(Text('\n'.join(lines), 'yellow'), soft_wrap=True)


class _CtrlC:
    """Ctrl-C cancels the task that all is done in, so that toolsets are exited. A second one ends the program."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.cancelled = False

    def __call__(self, number: int, frame: object) -> None:
        if self.task is None or self.cancelled:
            raise KeyboardInterrupt
        self.cancel()

    def cancel(self) -> None:
        """Cancel the task, from wherever the program is."""
        if self.task is None:
            raise KeyboardInterrupt
        self.cancelled = True
        self.task.get_loop().call_soon_threadsafe(self.task.cancel)


_ctrl_c = _CtrlC()


@contextmanager
def _interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, _ctrl_c)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _ctrl_c.task, _ctrl_c.cancelled = None, False


async def read(prompt: str) -> str:
    """Read a line, or an empty one at the end of the input. Ctrl-C cancels what is going on."""
    messages.print(prompt, end='', markup=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if not _ctrl_c.cancelled:
            return input().strip()
    except EOFError:
        return ''
    except KeyboardInterrupt:
        _ctrl_c.cancel()
    finally:
        signal.signal(signal.SIGINT, before)
    messages.print()
    await asyncio.Event().wait()  # until the cancellation arrives here
    raise AssertionError


def main() -> None:
    """Run the command line."""
    app()
