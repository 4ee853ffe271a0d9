"""The code examples of the note that this project implements, each run as it stands there.

They import from `pai_agent_sdk`, which here are names for this package. Where the note has an ellipsis for what
a reader would write (`tools=[...]`, `AgentContext(...)`), that is filled in. All else is run unchanged.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.messages import ModelRequest
from pydantic_ai.tools import AgentDepsT

import hookable_toolset
from hookable_toolset import AgentContext, BaseTool, GlobalHooks, HookableToolsetTool, ResumableState, Toolset

from .conftest import Log, asking, script

EXAMPLES: dict[str, str] = dict(
    re.findall(
        r'^## (.*?)\n\n```python\n(.*?)^```$', Path(__file__).with_name('note.md').read_text(), re.MULTILINE | re.DOTALL
    )
)


@pytest.fixture(autouse=True)
def _pai_agent_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in 'pai_agent_sdk', 'pai_agent_sdk.toolsets', 'pai_agent_sdk.toolsets.core':
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name in 'pai_agent_sdk.toolsets.core.base', 'pai_agent_sdk.context':
        monkeypatch.setitem(sys.modules, name, hookable_toolset)


class FillIn(ast.NodeTransformer):
    """Puts in what the note leaves to the reader."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.args = [arg for arg in node.args if not is_ellipsis(arg)]
        for keyword in node.keywords:
            if isinstance(keyword.value, ast.List) and any(map(is_ellipsis, keyword.value.elts)):
                keyword.value = ast.Name('TOOLS', ast.Load(), lineno=node.lineno, col_offset=0)
        return node


def is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def run_example(heading: str, **names: Any) -> SimpleNamespace:
    """Run the example under a heading with these names, and return all names that there are then."""
    scope: dict[str, Any] = {
        'Any': Any,
        'AgentContext': AgentContext,
        'AgentDepsT': AgentDepsT,
        'Awaitable': Awaitable,
        'BaseTool': BaseTool,
        'Callable': Callable,
        'GlobalHooks': GlobalHooks,
        'HookableToolsetTool': HookableToolsetTool,
        'Path': Path,
        'RunContext': RunContext,
        'Toolset': Toolset,
        'asyncio': asyncio,
        'logger': logging.getLogger('note'),
        '__name__': 'note',
    } | names
    code = FillIn().visit(ast.parse(EXAMPLES[heading]))
    is_async = any(isinstance(node, ast.AsyncWith) for node in code.body)
    made = eval(
        compile(code, f'<{heading}>', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if is_async else 0, dont_inherit=True),
        scope,
    )
    if is_async:
        asyncio.run(made)
    return SimpleNamespace(**scope)


def run(toolset: Any, *steps: Any, **options: Any) -> str:
    return Agent(script(*steps), toolsets=[toolset], **options).run_sync('Go').output


@pytest.fixture
def read_file() -> Any:
    return run_example('Creating Tools').ReadFileTool


def test_all_examples_of_the_note_are_run_here() -> None:
    source = Path(__file__).read_text()
    assert len(EXAMPLES) == 13
    assert [heading for heading in EXAMPLES if f"'{heading}'" not in source] == []


def test_creating_tools(read_file: Any, tmp_path: Path) -> None:
    (tmp_path / 'notes.txt').write_text('hello')
    assert run(Toolset(tools=[read_file]), ('read_file', {'path': str(tmp_path / 'notes.txt')})) == 'hello'


@pytest.mark.parametrize('available', [True, False])
def test_optional_methods(available: bool) -> None:
    example = run_example('Optional Methods', some_dependency_available=lambda: available)

    class Callable(example.MyTool):  # The note's has no `call()`.
        def call(self, ctx: RunContext[AgentContext]) -> str:
            return 'called'

    agent = asking(script(('my_tool', {}), 'none'), Toolset[AgentContext](tools=[Callable]))
    result = agent.run_sync('Go', deps=AgentContext(need_user_approve_tools=['my_tool']))
    request = result.all_messages()[0]
    assert isinstance(request, ModelRequest)
    if available:
        assert request.instructions == 'Use this tool when...'
        assert isinstance(result.output, DeferredToolRequests)
        assert list(result.output.metadata.values()) == [{'reason': 'This tool modifies files'}]
    else:
        assert request.instructions is None
        assert result.output == 'none'


def test_using_toolset(read_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('OPENAI_API_KEY', 'none')
    log: Log = []

    class WriteFileTool(BaseTool):
        name = 'write_file'

        def call(self, ctx: RunContext[Any], path: str, content: str) -> int:
            return Path(path).write_text(content)

    def noting(what: str) -> Callable[..., Any]:
        return lambda *args: log.append(what.format(*args)) or args[-1]

    agent = run_example(
        'Using Toolset',
        ReadFileTool=read_file,
        WriteFileTool=WriteFileTool,
        my_pre_hook=noting('tool_pre'),
        my_post_hook=noting('tool_post'),
        global_pre=noting('global_pre {1}'),
        global_post=noting('global_post {1}'),
        Agent=Agent,
    ).agent
    path = str(tmp_path / 'x')
    with agent.override(model=script(('write_file', {'path': path, 'content': 'abc'}), ('read_file', {'path': path}))):
        assert agent.run_sync('Go').output == '3 | abc'
    assert log == [
        *('global_pre write_file', 'tool_post', 'global_post write_file'),
        *('global_pre read_file', 'tool_pre', 'global_post read_file'),
    ]


def test_hook_signatures() -> None:
    """The note's types are the async half of ours, which have the same names and parameters."""
    example = run_example('Hook Signatures')
    for name in 'PreHookFunc', 'PostHookFunc', 'GlobalPreHookFunc', 'GlobalPostHookFunc':
        note, ours = getattr(example, name), getattr(hookable_toolset, name)
        assert len(note.__args__) == len(ours.__args__)
        assert [arg for arg in note.__args__ if arg in (str, dict[str, Any])] == [
            arg for arg in ours.__args__ if arg in (str, dict[str, Any])
        ]


def test_logging_hook(read_file: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / 'notes.txt').write_text('hello')
    toolset = run_example('Example: Logging Hook', ctx=AgentContext(), TOOLS=[read_file]).toolset
    assert run(toolset, ('read_file', {'path': str(tmp_path / 'notes.txt')})) == 'hello'
    assert caplog.messages == ['Tool read_file returned: hello']


def test_error_recovery(read_file: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    toolset = run_example('Example: Error Recovery', ctx=AgentContext(), ReadFileTool=read_file).toolset
    missing = ('read_file', {'path': str(tmp_path / 'missing')})
    assert run(toolset, missing) == 'File not found. Please check the path.'
    with pytest.raises(IsADirectoryError):
        run(toolset, ('read_file', {'path': str(tmp_path)}))
    assert caplog.messages[0].startswith('Tool failed: [Errno 21]')


def test_error_monitoring(read_file: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counted: Log = []
    metrics = SimpleNamespace(increment=counted.append)
    toolset = run_example('Example: Error Monitoring', ctx=AgentContext(), metrics=metrics, TOOLS=[read_file]).toolset
    (tmp_path / 'notes.txt').write_text('hello')
    run(toolset, ('read_file', {'path': str(tmp_path / 'notes.txt')}))
    with pytest.raises(FileNotFoundError):
        run(toolset, ('read_file', {'path': str(tmp_path / 'missing')}))
    assert counted == ['tool.read_file.success', 'tool.read_file.error']
    assert caplog.records[0].exc_info and caplog.records[0].exc_info[0] is FileNotFoundError


class Slow(BaseTool):
    name = 'slow'
    timeout = 0.01
    calls = 0

    async def call(self, ctx: RunContext[Any], errors: int = 0, kind: str = 'ConnectionError') -> str:
        type(self).calls += 1
        if errors >= self.calls:
            raise {'ConnectionError': ConnectionError, 'ValueError': ValueError}[kind](f'call {self.calls}')
        await asyncio.sleep(60 if not errors else 0)
        return f'call {self.calls}'


def test_custom_tool_execution() -> None:
    seen: Log = []
    example = run_example('Custom Tool Execution')

    def post(ctx: Any, name: str, result: Any) -> Any:
        seen.append(result)
        return 'too slow' if isinstance(result, asyncio.TimeoutError) else result

    toolset = example.TimeoutToolset(tools=[Slow], global_hooks=GlobalHooks(post=post))
    assert run(toolset, ('slow', {})) == 'too slow'
    with pytest.raises(ValueError, match='call 1'):
        Slow.calls = 0
        run(toolset, ('slow', {'errors': 1, 'kind': 'ValueError'}))
    with pytest.raises(asyncio.TimeoutError):
        run(example.TimeoutToolset(tools=[Slow]), ('slow', {}))
    assert len(seen) == 2


def test_retry_logic(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: Log = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await real(0)

    toolset = run_example('Retry Logic', asyncio=SimpleNamespace(sleep=sleep)).RetryToolset(tools=[Slow])
    Slow.calls = 0
    assert run(toolset, ('slow', {'errors': 2})) == 'call 3'
    assert waited == [1, 2]
    Slow.calls = 0
    with pytest.raises(ConnectionError, match='call 3'):
        run(toolset, ('slow', {'errors': 9}))
    Slow.calls = 0
    with pytest.raises(ValueError, match='call 1'):
        run(toolset, ('slow', {'errors': 9, 'kind': 'ValueError'}))


def test_custom_error_wrapping() -> None:
    class ToolExecutionError(Exception):
        def __init__(self, message: str, *, original_error: Exception, tool_args: dict[str, Any]):
            super().__init__(message)
            self.original_error, self.tool_args = original_error, tool_args

    example = run_example('Custom Error Wrapping', ToolExecutionError=ToolExecutionError)
    Slow.calls = 0
    with pytest.raises(ToolExecutionError, match="Tool 'slow' failed: call 1") as caught:
        run(example.WrappingToolset(tools=[Slow]), ('slow', {'errors': 1}))
    assert isinstance(caught.value.original_error, ConnectionError)
    assert caught.value.tool_args['errors'] == 1


def test_configuring_approval_required_tools() -> None:
    ctx = run_example('Configuring Approval-Required Tools').ctx
    shell = run_example('Custom Approval Metadata').ShellTool
    others = [type(name, (shell,), {'name': name}) for name in ('edit', 'replace')]
    agent = asking(script(('shell', {'command': 'ls'})), Toolset[AgentContext](ctx, tools=[shell, *others]))
    output = agent.run_sync('Go', deps=AgentContext()).output
    assert isinstance(output, DeferredToolRequests)
    assert list(output.metadata.values()) == [{'warning': 'This will execute a shell command', 'risk_level': 'high'}]


def test_custom_approval_metadata() -> None:
    shell = run_example('Custom Approval Metadata').ShellTool
    assert shell().get_approval_metadata() == {'warning': 'This will execute a shell command', 'risk_level': 'high'}
    # An approved call runs: the note's `call()` returns nothing.
    assert run(Toolset(AgentContext(), tools=[shell]), ('shell', {'command': 'ls'})) == 'None'


def test_session_persistence() -> None:
    ctx = run_example('Configuring Approval-Required Tools').ctx
    example = run_example('Session Persistence', ctx=ctx)
    assert isinstance(example.state, ResumableState)
    assert example.new_ctx is not ctx
