"""What ends the program, such as `sys.exit()`: it ends the call that it is in, with file and line, and nothing else."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any, NoReturn

import pytest
from conftest import Write
from pydantic import AfterValidator, BaseModel
from pydantic_ai import FunctionToolset, ModelMessage, ModelResponse, RunContext, Tool, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support import Keeper, Log, StatefulKeeper, call, entry, script
from toolset_first import AgentSpec, CallRuntime, EntrySpec, ExitError, Runtime, ToolsetSpec, WorkerArgs
from toolset_first.cli import app
from typer.testing import CliRunner
from typing_extensions import Self


def leave(*args: Any) -> NoReturn:
    sys.exit(3)


def _leave_with(value: object) -> NoReturn:
    leave()


async def leave_later(*args: Any) -> NoReturn:
    leave()


async def keep(what: str) -> str:
    return what


async def keep_valid(what: Annotated[str, AfterValidator(_leave_with)]) -> str:
    return what


async def keep_async(what: str) -> str:
    leave()


def keep_in_thread(what: str) -> str:
    leave()


class Entering(Keeper):
    async def __aenter__(self) -> Self:
        leave()


class Exiting(Keeper):
    async def __aexit__(self, *failure: object) -> None:
        leave()


class Listing(Keeper):
    async def get_tools(self, ctx: RunContext[Any]) -> Any:
        leave()


class Copying(Keeper):
    stateful = True

    def copy(self) -> Self:
        leave()


class Instructing(Keeper):
    async def get_instructions(self, ctx: RunContext[Any]) -> Any:
        leave()


class Arguments(WorkerArgs):
    input: str

    def prompt(self) -> str:
        leave()


class Valid(BaseModel):
    what: Annotated[str, AfterValidator(_leave_with)]


def finish(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'what': 'x'})])


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    leave()


def tool(function: Any, **options: Any) -> dict[str, Any]:
    return {'toolset_specs': [ToolsetSpec(functions=[Tool(function, name='keep', **options)])]}


def toolset(made: Any) -> dict[str, Any]:
    return {'toolset_specs': [ToolsetSpec(toolset=made, shared=not made.stateful)]}


EXITS: dict[str, dict[str, Any]] = {
    'tool': tool(keep_async),
    'tool in a thread': tool(keep_in_thread),
    'validator': tool(keep_valid),
    'prepare': tool(keep, prepare=leave_later),
    'filter': toolset(FunctionToolset[Any]([keep]).filtered(leave)),
    'rule': {'toolset_specs': [ToolsetSpec(functions=[keep], approval_config={'keep': leave})]},
    'factory': {'toolset_specs': [ToolsetSpec(factory=leave)]},
    'async factory': {'toolset_specs': [ToolsetSpec(factory=leave_later)]},
    'enter': toolset(Entering()),
    'exit': toolset(Exiting()),
    'list': toolset(Listing()),
    'copy': toolset(Copying()),
    'model': {'model': FunctionModel(respond)},
    'output': {'model': FunctionModel(finish), 'schema_out': Valid},
    'prompt': {'schema_in': Arguments},
    'instructions': toolset(Instructing()),
}


@pytest.mark.parametrize('options', EXITS.values(), ids=EXITS)
async def test_exit_of_what_a_call_runs_ends_that_call_only(options: dict[str, Any]) -> None:
    log = Log()
    given: dict[str, Any] = {'model': script([call('keep', what='x'), call('keep', what='y')]), **options}
    beside = ToolsetSpec(toolset=StatefulKeeper(log).prefixed('other'))
    given['toolset_specs'] = [beside, *given.get('toolset_specs', [])]
    spec = AgentSpec('one', **given)

    async def main(ctx: RunContext[CallRuntime], input: str) -> str:
        with pytest.raises(ExitError, match=r'test_exits\.py:\d+: SystemExit: 3$'):
            await ctx.deps.call_agent(spec, input)
        return await ctx.deps.call_agent('two', input)

    runtime = Runtime([AgentSpec('two', model=script('done'))], on_event=lambda event: None)
    assert await runtime.run_entry(entry(main), 'Go') == 'done'
    assert [one.partition(' ')[0] for one in log.events] in ([], ['enter', 'exit'])


@pytest.mark.parametrize('made', [Entering, Exiting, Listing, leave, leave_later])
async def test_exit_of_an_entry_is_an_error_with_file_and_line(made: Any) -> None:
    def build(context: object) -> Any:
        toolset = made(context) if made in (leave, leave_later) else made()
        if isinstance(toolset, Keeper):
            toolset.tools['main'] = Tool[Any](main, name='main')
            del toolset.tools['keep']
        return toolset

    async def main(input: str) -> str:
        return input

    with pytest.raises(ExitError, match=r'test_exits\.py:\d+: SystemExit: 3$'):
        await Runtime().run_entry(EntrySpec(ToolsetSpec(factory=build), 'start'), 'Go')


PROJECT = """\
    import asyncio, sys
    from pydantic_ai import FunctionToolset, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    class OddError(BaseException): pass

    def respond(messages, info):
        if len(messages) == 1: return ModelResponse(parts=[ToolCallPart('note', {'text': 'x'})])
        return ModelResponse(parts=[TextPart('done')])

    model = FunctionModel(respond)

    async def later(): sys.exit(3)

    class Notes(FunctionToolset):
        stateful = True
        def __init__(self): super().__init__([note])
        def copy(self): sys.exit(3)

"""
WORKER = '---\nname: a\nentry: true\nmodel: tools.py:model\ntoolsets: [notes]\n---\nx\n'


@pytest.mark.parametrize(
    ('rest', 'command', 'said'),
    [
        ('async def note(text): raise OddError("x")\n    notes = FunctionToolset([note])', 'run', '20: OddError: x'),
        (
            'async def note(text): await asyncio.create_task(later())\n    notes = FunctionToolset([note])',
            'run',
            '13: SystemExit: 3',
        ),
        ('def note(text): pass\n    notes = Notes()', 'check', '18: SystemExit: 3'),
    ],
)
def test_what_ends_the_program_is_one_line_on_the_command_line(
    write: Write, rest: str, command: str, said: str
) -> None:
    folder = write({'tools.py': PROJECT + '    ' + rest, 'a.worker': WORKER})
    done = CliRunner().invoke(app, [command, str(folder), *(['Go'] if command == 'run' else [])])
    assert done.exit_code == 1
    assert [line for line in done.stderr.splitlines() if line.startswith('error')] == [
        f'error: {folder}/tools.py:{said}'
    ]
    assert 'Traceback' not in done.stderr


def test_cancellation_is_none_of_these() -> None:
    async def main(input: str) -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Runtime().run_entry(entry(main), 'Go'))
