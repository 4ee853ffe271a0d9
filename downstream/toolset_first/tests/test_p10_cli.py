"""Point 10: the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from conftest import Write
from toolset_first.cli import app
from typer.testing import CliRunner, Result

Run = Callable[..., Result]

TOOLS = """
    from pydantic_ai import FunctionToolset
    from pydantic_ai.models.function import FunctionModel
    from support import call, echo, entry, script
    from toolset_first import AgentSpec, EntrySpec, ToolsetSpec, WorkerArgs, agent_as_toolset

    class Question(WorkerArgs):
        topic: str

    def pay(amount: int) -> str:
        return f'paid {amount}'

    bank = ToolsetSpec(toolset=FunctionToolset([pay]), approval_config={'pay': 'ask'})
    paying = script(call('pay', amount=3))
    echoing = echo()
    """
PAYING = '---\nname: clerk\nmodel: tools.py:paying\nentry: true\ntoolsets: [bank]\n---\n'
ECHOING = '---\nname: parrot\nmodel: tools.py:echoing\nentry: true\n---\n'


@pytest.fixture
def run() -> Run:
    """Run the command line."""

    def run(*arguments: str | Path, input: str = '') -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)

    return run


def test_p10_run_prints_the_result_and_shows_what_happens_beside_it(write: Write, run: Run) -> None:
    done = run('run', write(tools__py=TOOLS, a__worker=PAYING), 'Pay', '--approve-all')
    assert done.exit_code == 0
    assert done.stdout == 'paid 3\n'
    assert done.stderr == '  ▶ clerk: Pay\n  → pay {"amount":3}\n  ← pay paid 3\n'


def test_p10_input_json_is_an_object(write: Write, run: Run) -> None:
    worker = ECHOING.replace('entry', 'schema_in_ref: tools.py:Question\nentry')
    folder = write(tools__py=TOOLS, a__worker=worker)
    assert run('run', folder, '{"topic": "tea"}', '--input-json').stdout == '1: {\n  "topic": "tea"\n}\n'
    wrong = run('run', folder, '{"topic": ', '--input-json')
    assert (wrong.exit_code, wrong.stderr.count('\n')) == (1, 1)
    assert wrong.stderr.startswith('error: The input is no JSON: ')


@pytest.mark.parametrize(
    ('typed', 'said'),
    [('y\n', 'paid 3'), ('a\n', 'paid 3'), ('n\n', 'The user denied this call.'), ('', 'The user denied this call.')],
)
def test_p10_run_asks_about_calls_that_need_approval(typed: str, said: str, write: Write, run: Run) -> None:
    done = run('run', write(tools__py=TOOLS, a__worker=PAYING), 'Pay', input=typed)
    assert done.stdout == f'{said}\n'
    asked = 'clerk wants to call pay\n  amount = 3\nAllow it? [y]es, [a]lways for this very call, [N]o: '
    assert asked in done.stderr


def test_p10_line_of_a_chat_that_nobody_types_is_an_input_and_no_answer(write: Write, run: Run) -> None:
    done = run('run', write(tools__py=TOOLS, a__worker=PAYING), '--chat', input='Pay\ny\n')
    assert done.stdout == 2 * 'All calls that need approval are rejected.\n'


def test_p10_reject_all_rejects_and_excludes_approve_all(write: Write, run: Run) -> None:
    folder = write(tools__py=TOOLS, a__worker=PAYING)
    assert run('run', folder, 'Pay', '--reject-all').stdout == 'All calls that need approval are rejected.\n'
    assert run('run', folder, 'Pay', '--reject-all', '--approve-all').exit_code == 2


def test_p10_chat_goes_on_until_an_empty_line_and_remembers(write: Write, run: Run) -> None:
    folder = write(tools__py=TOOLS, a__worker=ECHOING)
    done = run('run', folder, '--chat', input='a\nb\n\nc\n')
    assert (done.exit_code, done.stdout) == (0, '1: a\n3: b\n')
    assert run('run', folder, 'first', '--chat', input='b\n').stdout == '1: first\n3: b\n'


def test_p10_chat_keeps_toolsets_from_turn_to_turn(write: Write, run: Run) -> None:
    tools = """
        from support import StatefulKeeper

        keeper = ToolsetSpec(toolset=StatefulKeeper())
        keeping = script(call('keep', what='x'))
        """
    worker = '---\nname: clerk\nmodel: tools.py:keeping\nentry: true\ntoolsets: [keeper]\n---\n'
    folder = write(tools__py=dedent(TOOLS) + dedent(tools), a__worker=worker)
    done = run('run', folder, '--chat', input='a\nb\n\n')
    assert (done.exit_code, done.stdout) == (0, '["x"]\n["x","x"]\n')
    assert run('run', folder, 'a').stdout == '["x"]\n'


def test_p10_chat_goes_on_after_an_error(write: Write, run: Run) -> None:
    worker = '---\nname: clerk\nmodel: tools.py:paying\nentry: true\ntoolsets: [bank]\nschema_in_ref: tools.py:Question\n---\n'
    folder = write(tools__py=TOOLS, a__worker=worker)
    done = run('run', folder, '--chat', '--input-json', '--approve-all', input='{}\n{"topic": "tea"}\n')
    assert (done.exit_code, done.stdout) == (0, 'paid 3\n')
    assert 'error: The input does not fit: `topic`: Field required.' in done.stderr


def test_p10_max_depth_and_model_are_passed_on(write: Write, run: Run) -> None:
    folder = write(
        tools__py=TOOLS + "\n    calling = script(call('deep', input='Go'))\n",
        a__worker='---\nname: deep\nmodel: tools.py:calling\nentry: true\ntoolsets: [deep]\n---\n',
    )
    done = run('run', folder, 'Go', '--max-depth', '2')
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("error: 'deep', at depth 2, cannot call 'deep': the limit is 2.")
    unknown = run('run', folder, 'Go', '--model', 'nowhere:x')
    assert unknown.exit_code == 1
    assert 'nowhere' in unknown.stderr


@pytest.mark.parametrize('arguments', [['run', 'nowhere', 'Go'], ['check', 'nowhere']])
def test_p10_errors_have_one_line_and_a_traceback_with_debug(arguments: list[str], run: Run) -> None:
    done = run(*arguments)
    said = 'error: There is no folder `nowhere`. Make a project there with `toolset-first new nowhere`.\n'
    assert (done.exit_code, done.stderr) == (1, said)
    assert 'Traceback' in run(*arguments, '--debug').stderr


def test_p10_error_of_a_tool_is_one_line_as_well(write: Write, run: Run) -> None:
    text = (
        TOOLS
        + "\n    def fail(input: str):\n        raise OSError('disk full')\n    start = entry(lambda input: fail(input))\n"
    )
    done = run('run', write(tools__py=text), 'Go')
    assert (done.exit_code, done.stderr) == (1, 'error: OSError: disk full\n')


def test_p10_check_shows_what_each_agent_works_with(write: Write, run: Run) -> None:
    done = run('check', write(tools__py=TOOLS, a__worker=PAYING, b__worker=ECHOING.replace('entry: true\n', '')))
    assert done.exit_code == 0
    assert "Agent 'clerk'" in done.stdout
    assert "Agent 'parrot'" in done.stdout
    assert 'Problems found: 0.' in done.stdout


LEAKY = """
    from pydantic_ai import AbstractToolset
    from support import StatefulKeeper, echo, entry
    from toolset_first import AgentSpec, ToolsetSpec

    class Hiding(StatefulKeeper):
        def copy(self):
            copy = type(self)(self.log)
            copy.kept = self.kept
            return copy

    leaky = AgentSpec('leaky', model='test', toolset_specs=[ToolsetSpec(toolset=Hiding())])
    start = entry(lambda input: input)
    """


def test_p10_check_fails_on_problems(write: Write, run: Run) -> None:
    done = run('check', write(tools__py=LEAKY))
    assert done.exit_code == 1
    assert 'Problems found: 1.' in done.stdout
    assert 'kept' in done.stdout


ECHO = """\
    from support import echo

    echoing = echo()
    """


def test_p10_session_goes_on_in_the_next_process(write: Write, run: Run) -> None:
    folder = write(tools__py=ECHO, a__worker=ECHOING)
    said = [
        run('run', folder, text, '--session', name).stdout for text, name in zip('abc', ['x', 'x', 'y'], strict=True)
    ]
    assert said == ['1: a\n', '3: b\n', '1: c\n']
    assert run('run', folder, '--chat', '--session', 'x', input='d\ne\n\n').stdout == '5: d\n7: e\n'
    assert run('run', folder, 'f').stdout == '1: f\n'


def test_p10_session_that_another_process_has_gone_on_with_is_not_overwritten(write: Write, run: Run) -> None:
    text = """
    import asyncio
    from hookable_toolset import ResumableState, SessionStore
    from pydantic_ai import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    async def respond(messages, info):
        async with SessionStore('FOLDER/.toolset-first.db') as store:
            await store.save('x', ResumableState(), 0)
        return ModelResponse([TextPart('said')])

    echoing = FunctionModel(respond)
    """
    folder = write(a__worker=ECHOING)
    write(tools__py=text.replace('FOLDER', str(folder)))
    done = run('run', folder, 'a', '--session', 'x')
    assert done.exit_code == 1
    assert 'This turn is not stored.' in done.stderr


def test_p10_session_without_its_store_says_what_to_install(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'hookable_toolset', None)
    done = run('run', write(tools__py=ECHO, a__worker=ECHOING), 'a', '--session', 'x')
    assert done.exit_code == 1
    assert 'Install `toolset-first[sessions]`' in done.stderr


def test_p10_new_makes_a_project_that_runs_at_once(tmp_path: Path) -> None:
    # In processes of their own, without a key, and in the folder that the user is in.
    program = [sys.executable, '-c', 'from toolset_first.cli import main; main()']

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, env={})

    made = run('new', 'hello')
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == [
        'hello/assistant.worker',
        'hello/scripted.py',
        'hello/tools.py',
        'Try it: toolset-first run hello "Buy milk"',
    ]
    for _ in range(2):
        done = run('run', 'hello', 'Buy milk')
        assert (done.returncode, done.stdout) == (0, 'Noted: ["Buy milk"]\n'), done.stderr
    assert run('check', 'hello').returncode == 0
    again = run('new', 'hello')
    assert (again.returncode, again.stderr) == (
        1,
        'error: `hello` is not empty. Name a folder that is not there yet.\n',
    )
