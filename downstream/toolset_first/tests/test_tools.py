"""Toolsets that are ready to use, plain functions as tools, and a default model."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Write
from pydantic_ai import FunctionToolset, RunContext, Tool
from support import Asked, call, calling, echo, script, yes
from toolset_first import (
    AgentSpec,
    Approvals,
    CallEvent,
    CallRuntime,
    Runtime,
    ToolsetFirstError,
    ToolsetSpec,
    files,
    load_project,
    shell,
)
from toolset_first.cli import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
DENIED = 'The rules of this project do not allow this call.'


async def use(spec: ToolsetSpec, folder: Path, *steps: Any, ask: Asked | None = None) -> list[str]:
    """Return what each call of a tool returned, or said that was wrong."""
    said: list[str] = []

    def tell(event: CallEvent) -> None:
        if event.kind == 'result':
            said.append(event.text)

    agent = AgentSpec('one', model=script(*steps, 'done'), toolset_specs=[spec])
    runtime = Runtime([agent], folder=folder, approvals=Approvals(ask=ask or yes()), on_event=tell)
    await runtime.run_entry(calling('one'), 'Go')
    return said


async def test_files_are_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / 'docs').mkdir()
    (tmp_path / 'docs' / 'a.md').write_text('Grüße', 'utf-8')
    (tmp_path / 'b.txt').write_text('0123456789')
    (tmp_path / '.env').write_text('secret')
    ask = yes()
    assert await use(
        files(),
        tmp_path,
        call('list_files'),
        call('list_files', pattern='*.txt'),
        call('read_file', path='docs/a.md'),
        call('read_file', path='b.txt', offset=2, max_chars=3),
        ask=ask,
    ) == [
        'b.txt\ndocs/a.md',
        'b.txt',
        'Grüße',
        '234\n… 5 more characters: go on with offset=5.',
    ]
    assert ask.tools == []


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'path': '../outside'}, 'is outside of the project'),
        ({'path': '/etc/hostname'}, 'is outside of the project'),
        ({'path': 'link'}, 'is outside of the project'),
        ({'path': '.env'}, 'is hidden'),
        ({'path': 'missing'}, 'is not in'),
        ({'path': 'folder'}, 'is no regular file'),
        ({'path': 'large'}, 'has 101 bytes, and 100 is the limit'),
        ({'path': 'binary'}, 'is not in UTF-8'),
        ({'path': 'a\0'}, 'is no name of a file'),
    ],
)
async def test_files_are_read_within_limits(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / 'outside').write_text('outside')
    (root := tmp_path / 'root').mkdir()
    (root / 'folder').mkdir()
    (root / 'link').symlink_to(tmp_path / 'outside')
    for name, content in (('.env', b'x'), ('large', b'x' * 101), ('small', b'x'), ('binary', b'a\xfd')):
        (root / name).write_bytes(content)
    (said,) = await use(files(root='root', max_bytes=100), tmp_path, call('read_file', **arguments))
    assert message in said


async def test_files_list_nothing_from_outside_and_no_more_than_asked_for(tmp_path: Path) -> None:
    (tmp_path / 'outside').mkdir()
    (tmp_path / 'outside' / 'x').write_text('x')
    (root := tmp_path / 'root').mkdir()
    for number in range(5):
        (root / f'{number}').write_text('x')
    (root / 'link').symlink_to(tmp_path / 'outside')
    said = await use(
        files(root='root', max_files=3),
        tmp_path,
        call('list_files'),
        call('list_files', pattern='../*/*'),
        call('list_files', pattern='link/*'),
        call('list_files', pattern='/etc/*'),
    )
    assert said[0] == '0\n1\n2\n… and 2 more: name a narrower pattern.'
    assert 'outside' not in said[1]
    assert said[2] == 'no files'
    assert 'is no pattern' in said[3]


async def test_files_are_written_after_someone_was_asked(tmp_path: Path) -> None:
    ask = yes()
    said = await use(
        files(write=True),
        tmp_path,
        call('write_file', path='new/a.txt', content='one two'),
        call('edit_file', path='new/a.txt', old='two', new='three'),
        call('edit_file', path='new/a.txt', old='four', new='five'),
        call('write_file', path='../b.txt', content='x'),
        call('write_file', path='.env', content='x'),
        ask=ask,
    )
    assert (tmp_path / 'new' / 'a.txt').read_text() == 'one three'
    assert said[:2] == ['Wrote 7 characters to "new/a.txt".', 'Wrote 9 characters to "new/a.txt".']
    assert ['0 times' in said[2], 'outside' in said[3], 'hidden' in said[4]] == [True] * 3
    assert not (tmp_path.parent / 'b.txt').exists()
    assert ask.tools == ['write_file', 'edit_file', 'edit_file', 'write_file', 'write_file']


async def test_files_can_not_be_written_unless_that_is_allowed(tmp_path: Path) -> None:
    (said,) = await use(files(), tmp_path, call('write_file', path='a', content='x'))
    assert 'write_file' in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(('rule', 'said'), [('deny', DENIED), ('allow', 'Wrote 1 characters to "a".')])
async def test_rule_comes_before_what_files_says_of_itself(rule: Any, said: str, tmp_path: Path) -> None:
    spec = replace(files(write=True), approval_config={'write_file': rule})
    ask = yes()
    assert await use(spec, tmp_path, call('write_file', path='a', content='x'), ask=ask) == [said]
    assert ask.tools == []


async def test_shell_runs_a_command_in_the_folder_after_someone_was_asked(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('x')
    ask = yes()
    assert await use(shell(), tmp_path, call('run', command='ls -1'), ask=ask) == ['a.txt\n(exit status 0)']
    assert ask.tools == ['run']


@pytest.mark.parametrize(
    ('command', 'said'),
    [
        ('false', '(exit status 1)'),
        ('ls missing', 'missing'),
        ('echo ${HOME}', 'There is no shell, and the command has "$".'),
        ('cat < a', 'There is no shell, and the command has "<".'),
        ('sleep 1 & id', 'There is no shell, and the command has "&".'),
        ('no-such-command', 'There is no command "no-such-command".'),
        ('', 'The command is empty.'),
        ("echo 'unclosed", 'The command cannot be read: No closing quotation.'),
        ('echo a | cat', 'There is no shell, and the command has "|".'),
        ('echo a > b', 'There is no shell, and the command has ">".'),
        ('echo $HOME', 'There is no shell, and the command has "$".'),
        ('echo a; rm b', 'There is no shell, and the command has ";".'),
        ('echo `id`', 'There is no shell, and the command has "`".'),
        ('echo a\nrm b', 'There is no shell, and the command has "\\n".'),
        ('echo "a b"  c', 'a b c\n(exit status 0)'),
    ],
)
async def test_shell_says_what_is_wrong_with_a_command(command: str, said: str, tmp_path: Path) -> None:
    (found,) = await use(shell(), tmp_path, call('run', command=command))
    assert said in found


async def test_shell_ends_what_takes_too_long_with_all_that_it_has_started(tmp_path: Path) -> None:
    code = 'import subprocess, sys, time; subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]); print("on", flush=True); time.sleep(600)'
    (tmp_path / 'slow.py').write_text(code)
    (said,) = await use(shell(timeout=5), tmp_path, call('run', command=f'{sys.executable} slow.py'))
    assert said == 'on\n(exit status none: ended after 5 seconds)'


async def test_shell_does_not_wait_for_a_daemon_that_holds_its_output(tmp_path: Path) -> None:
    code = """
import subprocess, sys
print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True).pid)
"""
    (tmp_path / 'start.py').write_text(code)
    (said,) = await use(shell(timeout=600), tmp_path, call('run', command=f'{sys.executable} start.py'))
    process, _, rest = said.partition('\n')
    os.kill(int(process), signal.SIGKILL)  # it is there
    assert rest == '(exit status 0)'


async def test_shell_ends_what_prints_without_end(tmp_path: Path) -> None:
    (said,) = await use(shell(timeout=600, max_chars=2), tmp_path, call('run', command='yes'))
    assert said.startswith('y\n… cut: the command printed ')
    assert said.endswith('\n(exit status none: ended since it printed more than 50,000,000 bytes)')


async def test_shell_is_cancelled_with_the_run(tmp_path: Path) -> None:
    (tmp_path / 'slow.py').write_text('import os, time\nopen("pid", "w").write(f"{os.getpid()}\\n"); time.sleep(30)')
    run = asyncio.ensure_future(use(shell(), tmp_path, call('run', command=f'{sys.executable} slow.py')))
    while not (tmp_path / 'pid').exists() or '\n' not in (tmp_path / 'pid').read_text():
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / 'pid').read_text()), 0)


async def test_shell_without_its_folder_says_so(tmp_path: Path) -> None:
    (said,) = await use(shell(folder='away'), tmp_path, call('run', command='ls'))
    assert said == f'error: There is no folder "{tmp_path}/away".'


async def test_shell_passes_no_keys_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('OPENAI_API_KEY', 'secret')
    monkeypatch.setenv('WANTED', 'yes')
    (said,) = await use(shell(environment=['WANTED']), tmp_path, call('run', command='env'))
    assert 'secret' not in said
    assert 'WANTED=yes' in said


@pytest.mark.parametrize(
    ('command', 'asked', 'ran'),
    [
        ('git --version', 0, True),
        ('git  "--version"', 0, True),
        ('git --version --build-options', 1, True),  # what a rule doesn't say asks
        ('git status', 1, True),
        ('gitk --version', 1, False),
        ('find', 0, True),
        ('find . -delete', 1, True),
        ('find . -exec rm {} +', 1, True),
        ('rm -rf x', 0, False),
        ('echo sent', 0, True),
        ('echo --force', 0, False),
        ('echo --force now', 0, False),
        ('echo --force sent', 1, True),
    ],
)
async def test_shell_allows_a_command_with_the_arguments_that_are_named(
    command: str, asked: int, ran: bool, tmp_path: Path
) -> None:
    ask = yes()
    # The one with the most words counts, wherever it stands
    commands: Any = {
        'git --version': 'allow',
        'find': 'allow',
        'rm': 'deny',
        'echo sent': 'allow',
        'echo --force sent': 'ask',
        'echo --force': 'deny',
    }
    (folder := tmp_path / 'folder').mkdir()
    (said,) = await use(shell(commands=commands), folder, call('run', command=command), ask=ask)
    assert len(ask.tools) == asked
    assert ('exit status' in said) == ran


ATTACKS = [
    'ls -l docs /etc',
    'ls -l docs --hyperlink=./ran',
    'wc -w docs/index.md --files0-from=/etc/passwd',
    'wc --files0-from=/etc/passwd',
    'git log --output=.git/config --format=[core]%n%x09fsmonitor=./ran',
    'git -c core.fsmonitor=./ran status',
    'find . -exec ./ran {} +',
    './ls -l docs',
    'env ls -l docs',
    '/bin/rm -rf docs',
]


def examples() -> list[tuple[str, dict[str, Any]]]:
    """Return what the examples of `shell` say, in whatever file one stands: its name, and the options."""
    found: list[tuple[str, dict[str, Any]]] = []
    for path in ROOT.rglob('*'):
        if path.suffix in ('.md', '.worker', '.py') and 'tests' not in path.relative_to(ROOT).parts:
            text = path.read_text('utf-8')
            found += [
                (path.name, yaml.safe_load(one)) for one in re.findall(r'commands: (\{.+?\})$', text, re.MULTILINE)
            ]
            found += [(path.name, ast.literal_eval(one)) for one in re.findall(r'`(\{.+?: .allow.\})`', text)]
    return found


def test_examples_allow_nothing_that_can_run_or_write_something_else() -> None:
    """Each allowed command of an example is listed here, with the arguments that it has."""
    named = examples()
    assert {name for name, _ in named} == {'README.md', 'tools.py'}
    allowed = {words for _, commands in named for words, verdict in commands.items() if verdict == 'allow'}
    assert allowed == {'ls -l docs', 'wc -w docs/index.md'}


@pytest.mark.parametrize('command', ATTACKS)
async def test_examples_run_no_attack_unapproved(command: str, tmp_path: Path) -> None:
    for _, commands in examples():
        agent = AgentSpec('one', model=script(call('run', command=command)), toolset_specs=[shell(commands=commands)])
        runtime = Runtime([agent], folder=tmp_path, approvals=Approvals('reject-all'))
        assert await runtime.run_entry(calling('one'), 'Go') == 'All calls that need approval are rejected.'


@pytest.mark.parametrize('path', [f'.{os.pathsep}{os.pathsep}{os.environ["PATH"]}', '.', ''])
async def test_shell_runs_no_program_of_the_folder_by_its_name(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PATH', path)
    (tmp_path / 'ls').write_text('#!/bin/sh\necho mine')
    (tmp_path / 'ls').chmod(0o755)
    assert await use(shell(), tmp_path, call('run', command='ls')) == ['ls\n(exit status 0)']


@pytest.mark.parametrize('default', ['allow', True, 'maybe'])
def test_shell_has_no_default_that_allows(default: Any) -> None:
    with pytest.raises(ToolsetFirstError, match='Write `ask` or `deny`, and name in `commands` what is allowed'):
        shell(default=default)


def test_toolsets_that_are_ready_are_named_in_worker_files(write: Write) -> None:
    worker = """\
        ---
        name: a
        model: test
        entry: true
        toolsets:
          files: {root: docs, write: true, approval: {write_file: allow}}
          shell: {commands: {git status: allow}, default: deny}
        ---
        """
    (spec,) = load_project(write(a__worker=worker)).agents
    assert [sorted(one.rules) for one in spec.toolset_specs] == [['edit_file', 'write_file'], ['run']]
    done = CliRunner().invoke(app, ['check', str(write())])
    assert done.exit_code == 0
    for line in ('list_files: allow (no rule)', 'write_file: allow', 'edit_file: ask', 'run: what `shell'):
        assert f'- {line}' in done.stdout


async def test_toolset_of_the_project_takes_the_place_of_one_that_is_ready(write: Write) -> None:
    folder = write(
        tools__py='from support import Keeper\nfiles = Keeper()',
        a__worker='---\nname: a\nmodel: test\nentry: true\ntoolsets: [files]\n---\n',
    )
    (spec,) = load_project(folder).agents
    assert type(spec.toolset_specs[0].toolset).__name__ == 'Keeper'


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def depth(ctx: RunContext[CallRuntime]) -> int:
    """Tell how deep this is."""
    return ctx.deps.frame.depth


async def test_plain_functions_are_tools() -> None:
    spec = ToolsetSpec(functions=[double, Tool(depth, name='deep')], approval_config={'double': 'ask'})
    agent = AgentSpec('one', model=script([call('double', number=4), call('deep')]), toolset_specs=[spec])
    ask = yes()
    said = await Runtime([agent], approvals=Approvals(ask=ask)).run_entry(calling('one'), 'Go')
    assert sorted(said.split(', ')) == ['1', '8']
    assert ask.tools == ['double']


def test_functions_and_a_toolset_exclude_each_other() -> None:
    with pytest.raises(TypeError, match='either a `toolset` or `functions`'):
        ToolsetSpec(toolset=FunctionToolset[Any](), functions=[double])
    with pytest.raises(TypeError, match='either a `factory` or a `toolset`'):
        ToolsetSpec(factory=lambda context: None, functions=[double])


FUNCTIONS = """
    from support import call, script

    def double(number: int) -> int:
        return 2 * number

    def half(number: int) -> int:
        return number // 2

    model = script(call('double', number=4), call('half', number=4))
    """


async def test_functions_of_a_project_are_tools_with_rules(write: Write) -> None:
    folder = write(
        {'sub/more.py': 'def half(number: int) -> int:\n    return number // 2\n'},
        tools__py=FUNCTIONS,
        a__worker='---\nname: a\nmodel: tools.py:model\nentry: true\ntools:\n  double: ask\n  sub/more.py:half:\n---\n',
    )
    project = load_project(folder)
    ask = yes()
    assert await Runtime(project.agents, approvals=Approvals(ask=ask)).run_entry(project.entry, 'Go') == '2'
    assert ask.tools == ['double']


def test_model_of_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TOOLSET_FIRST_MODEL', 'test')
    assert getattr(Runtime([AgentSpec('one')]).built('one')[1].model, 'model_name', 'test') == 'test'
    named = Runtime([AgentSpec('one', model=echo())]).built('one')[1].model
    assert getattr(named, 'model_name', None) == 'echo'
    monkeypatch.delenv('TOOLSET_FIRST_MODEL')
    with pytest.raises(ToolsetFirstError, match='as with `TOOLSET_FIRST_MODEL`'):
        Runtime([AgentSpec('one')])
