"""The examples of the README and the docs do what they say, for two users at once, and inside `async with agent:`.

The projects in `downstream/` test those of their own pages.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from pydantic_ai import Agent

from .line import not_on_1

ROOT = Path(__file__).parents[2]
DOCS = ROOT / 'docs'
SHOWN = re.compile(r'^<!-- show: .*?^<!-- /show -->$', re.DOTALL | re.MULTILINE)
"""What a page shows of another file, which has tests of its own."""

BLOCK = re.compile(
    r'(?:^`(?P<plain>\w+)\.py`:\n\n)?^```python(?: title="(?P<title>\w+)\.py")?\n(?P<code>.*?)^```',
    re.DOTALL | re.MULTILINE,
)

NO_PROGRAM = {
    'wrapper_convention': 'two methods of a class',
    'durable_toolset': 'imports a shop that is made up',
    'durable_dbos': 'needs DBOS; `engines/test_b38_programs.py` runs it',
    'durable_prefect': 'needs Prefect; `engines/test_b38_programs.py` runs it',
    'temporal_chat': 'needs Temporal; `engines/test_b38_programs.py` runs it',
    'temporal_patched': 'imports agents that are made up',
    'notes_server': 'is an MCP server',
    'toolset_scope_mcp': 'starts MCP servers; `servers/test_b37_mcp_sessions.py` runs it',
    'notebook': 'is of one user; a test of its own runs it',
    'headers': 'asks an MCP server; `servers/test_docs_headers.py` has one',
    'chat_over_vercel': 'needs a client; `servers/test_b22_ui_adapters.py` has one',
    'server': 'needs FastAPI; `examples/test_docs_server.py` asks it',
}
"""What isn't run, and why."""


@dataclass(frozen=True)
class Example:
    """An example of a page."""

    name: str
    code: str

    @property
    def prints(self) -> list[str]:
        """What it says that it prints: comments that begin with an arrow, and texts of their own after a `print()`."""
        found = re.findall(r'^ *#(?: ->|>) ?([^\n]*)$|^"""\n(.*?)^"""$', self.code, re.DOTALL | re.MULTILINE)
        return [line for comment, text in found for line in (text.splitlines() if text else [comment])]


def find_examples() -> Iterator[Example]:
    """Yield the examples of the README and of the pages, but for those of the downstream projects."""
    pages = [ROOT / 'README.md', *sorted(page for page in DOCS.rglob('*.md') if page.parent.name != 'downstream')]
    for page in pages:
        text = SHOWN.sub('', page.read_text('utf-8'))
        for number, found in enumerate(BLOCK.finditer(text)):
            name = found['plain'] or found['title'] or f'{page.stem.lower().replace("-", "_")}_{number}'
            yield Example(name, re.sub(r"'openai:[\w.-]+'", "'test'", found['code']))


EXAMPLES = {example.name: example for example in find_examples()}

_printed: ContextVar[StringIO] = ContextVar('_printed')


def note(*values: object) -> None:
    """Stand for `print()` in an example, since two users print at once."""
    print(*values, file=_printed.get())


class AwaitRuns(ast.NodeTransformer):
    """Turns a program that runs agents into one that awaits the runs, so that one event loop can have it for two users."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        if node.func.attr == 'run_sync':
            node.func.attr = 'run'
            return ast.Await(node)
        return ast.Await(node.args[0]) if ast.unparse(node.func) == 'asyncio.run' else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node


def split(code: str) -> tuple[CodeType, CodeType, bool]:
    """Return what an example defines, the rest from the first run of an agent on, and whether there is a rest."""
    tree = ast.parse(code)
    first = next(
        (
            number
            for number, statement in enumerate(tree.body)
            if any(
                isinstance(node, ast.Await) for node in ast.walk(AwaitRuns().visit(ast.parse(ast.unparse(statement))))
            )
            and not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ),
        len(tree.body),
    )
    body = [ast.fix_missing_locations(AwaitRuns().visit(statement)) for statement in tree.body[first:]]
    rest = compile(ast.Module(body, []), '<rest>', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    defines = compile(ast.Module(tree.body[:first], []), '<example>', 'exec', dont_inherit=True)
    return defines, rest, bool(body)


class Program:
    """An example that was imported, but has run no agent yet."""

    def __init__(self, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in re.findall(r'^from (\w+) import', example.code, re.MULTILINE):
            if name in EXAMPLES and name not in sys.modules:
                Program(EXAMPLES[name], monkeypatch)
        code = example.code
        if sys.version_info < (3, 11):  # As `docs/lines.md` says
            code = re.sub(
                r'^from typing import (?=.*\bSelf\b)', 'from typing_extensions import ', code, flags=re.MULTILINE
            )
        defines, self._rest, self.runs_agents = split(code)
        module = ModuleType(example.name)
        monkeypatch.setitem(sys.modules, example.name, module)
        self.names = vars(module)
        self.names['print'] = note
        self.begins = StringIO()
        _printed.set(self.begins)
        exec(defines, self.names)  # noqa: S102 (that's what it's for)

    @property
    def agents(self) -> list[Agent[Any, Any]]:
        """The agents that it has made."""
        return [value for value in self.names.values() if isinstance(value, Agent)]

    async def run(self) -> str:
        """Do as one user does, and return what that prints. Where the example runs no agent, run its agents."""
        _printed.set(out := StringIO())
        names = self.names | {'__name__': '__main__'}
        done = eval(self._rest, names)
        if inspect.isawaitable(done):
            await done
        else:
            for agent in self.agents:
                note((await agent.run('Go on.')).output)
        return out.getvalue()


@pytest.fixture
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Program:
    """An example, which can import others."""
    return Program(EXAMPLES[request.param], monkeypatch)


# It describes a toolset that shares its state, of which its runs warn
_WARNED = pytest.mark.filterwarnings('ignore::pydantic_ai.exceptions.ToolsetStateWarning')
_NOT_ON_1 = {'stop_by_token'}
_PROGRAMS = [
    pytest.param(name, marks=_WARNED if name == 'describe_lifecycle' else not_on_1 if name in _NOT_ON_1 else ())
    for name in EXAMPLES
    if name not in NO_PROGRAM
]
each_program = pytest.mark.parametrize('program', _PROGRAMS, indirect=True)


@each_program
def test_docs_example_prints_what_it_says(program: Program, request: pytest.FixtureRequest) -> None:
    printed = asyncio.run(program.run())
    if not program.runs_agents:
        printed = ''
    assert (program.begins.getvalue() + printed).splitlines() == EXAMPLES[
        request.node.callspec.params['program']
    ].prints


@each_program
@pytest.mark.anyio
async def test_docs_example_prints_the_same_for_two_users_at_once(program: Program) -> None:
    alone = await program.run()

    assert await asyncio.gather(program.run(), program.run()) == [alone, alone]


@each_program
@pytest.mark.anyio
async def test_docs_example_prints_the_same_inside_of_its_agents(program: Program) -> None:
    alone = await program.run()

    async with AsyncExitStack() as stack:
        for agent in program.agents:
            await stack.enter_async_context(agent)
        assert await program.run() == alone


@pytest.mark.anyio
@pytest.mark.parametrize('program', ['stream'], indirect=True)
async def test_docs_example_of_a_stream_keeps_it_alive(program: Program) -> None:
    program.names['KEEP_ALIVE'] = 0

    assert {': keep-alive', 'data: "{\\"add\\":\\"Added.\\"}"'} == set((await program.run()).splitlines())


@pytest.mark.anyio
@pytest.mark.parametrize('program', ['notebook'], indirect=True)
async def test_docs_example_of_a_notebook_keeps_state_from_cell_to_cell(program: Program) -> None:
    assert (await program.run()).splitlines() == EXAMPLES['notebook'].prints


def test_docs_have_examples() -> None:
    assert {'readme_0', 'after', 'transaction_toolset', 'toolset_scope'} < EXAMPLES.keys()
    assert NO_PROGRAM.keys() <= EXAMPLES.keys()
