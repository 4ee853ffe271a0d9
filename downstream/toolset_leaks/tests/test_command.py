"""`toolset-leaks MODULE:AGENT`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest

from toolset_leaks.__main__ import main
from toolset_leaks.report import Report

AGENTS = """
import multiprocessing, os, socket, sqlite3, subprocess
from pathlib import Path
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.models.test import TestModel

storage = []

def add_todo(text: str) -> None:
    storage.insert(len(storage), text)

def pure(text: str) -> str:
    return text.upper()

def delete_everything() -> None:
    raise SystemExit('called')

leaky = Agent(TestModel(), name='leaky', toolsets=[FunctionToolset([add_todo])])

def make_pure():
    return Agent(TestModel(), tools=[pure])

dangerous = Agent(TestModel(), tools=[pure, delete_everything])
number = 3

def write(name: str) -> None:
    Path(TARGET).write_text(name)

def remove(name: str) -> None:
    os.remove(TARGET)

def unlink(name: str) -> None:
    os.unlink('target.txt', dir_fd=os.open(TARGET.parent, os.O_RDONLY))

def insert(name: str) -> None:
    sqlite3.connect(f'file:{TARGET.parent}/new.db?mode=rwc', uri=True).execute('create table new (name)')

def spawn(name: str) -> None:
    multiprocessing.get_context('spawn').Process(target=TARGET.write_text, args=(name,)).start()

def connect(host: str) -> None:
    socket.socket().connect(('127.0.0.1', 9))

def start(program: str) -> None:
    subprocess.run(['true'])

def leave(text: str) -> None:
    Path('left.txt').write_text(text)

TARGET = Path(__file__).parent / 'target.txt'
writing, removing, unlinking, inserting, spawning, connecting, starting, leaving = (
    Agent(TestModel(), tools=[tool]) for tool in (write, remove, unlink, insert, spawn, connect, start, leave)
)

def spy(text: str) -> None:
    if 'SECRET_KEY' in os.environ:
        storage.insert(len(storage), text)

spying = Agent(TestModel(), tools=[spy])

def hang() -> None:
    import time
    time.sleep(100)

hanging = Agent(TestModel(), tools=[hang])

def greet(ctx: RunContext[dict], text: str) -> None:
    if ctx.deps['greeting'] == 'hello':
        storage.insert(len(storage), text)

def make_deps():
    return {'greeting': 'hello'}

with_deps = Agent(TestModel(), deps_type=dict, tools=[greet])

def query(ctx: RunContext[dict], column: str, limit: int = 10) -> str:
    if column not in ctx.deps['columns']:
        raise ModelRetry(f'There is no column {column}.')
    storage.insert(len(storage), column)
    return column

querying = Agent(TestModel(), deps_type=dict, tools=[query])
columns = {'columns': ['city', 'sum']}

def search(text: str) -> str:
    return 'Error: no index'

def look(text: str) -> dict:
    return {'success': False, 'reason': 'no index'}

def seek(text: str) -> dict:
    return {'status': 'error', 'reason': 'no index'}

searching = Agent(TestModel(), tools=[search, look, seek])
partly = Agent(TestModel(), tools=[search, pure])
without = Agent(TestModel())

def instruct(ctx: RunContext[dict]) -> str:
    return ctx.deps['name']

instructed = Agent(TestModel(), deps_type=dict, tools=[pure], instructions=instruct)
"""


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / 'agents.py').write_text(AGENTS)
    (tmp_path / 'target.txt').write_text('kept')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in the folder with the agents, in this process; the tools run in another one."""

    def run(*arguments: str) -> Done:
        returncode = main(arguments)
        said = capsys.readouterr()
        return Done(returncode, said.out, said.err)

    return run


def test_command_finds_what_the_docs_convert(command: Command, folder: Path):
    page = (Path(__file__).parents[3] / 'docs' / 'convert.md').read_text('utf-8')
    (code,) = re.findall(r'^`before\.py`:\n\n```python\n(.*?)^```', page, re.DOTALL | re.MULTILINE)
    (arguments,) = re.findall(r'^toolset-leaks (.+?) *#', page, re.MULTILINE)
    (folder / 'before.py').write_text(code)

    done = command(*arguments.split())

    assert done.returncode == 1, done.stderr
    assert "`Accounts.cache['balance']`" in done.stdout


def test_command_leaves_out_what_it_must_not_call(command: Command):
    done = command('agents:dangerous', '--skip', 'delete_*')

    assert (done.returncode, done.stdout) == (0, 'No leak found in 5 runs.\n\nNot called: delete_everything.\n'), (
        done.stderr
    )


def test_command_hands_deps_on(command: Command):
    assert command('agents:with_deps', '--deps', 'agents:make_deps').returncode == 1


@pytest.mark.parametrize(
    ('agent', 'what', 'permission'),
    [
        ('writing', 'open', 'files'),
        ('removing', 'os.remove', 'files'),
        ('unlinking', 'open', 'files'),
        ('inserting', 'sqlite3.connect', 'files'),
        ('spawning', 'import', 'programs'),
        ('connecting', 'socket.connect', 'network'),
        ('starting', 'subprocess.Popen', 'programs'),
    ],
)
def test_command_refuses_what_could_do_harm(command: Command, folder: Path, agent: str, what: str, permission: str):
    done = command(f'agents:{agent}')

    text = ' '.join(done.stdout.split())
    assert f'NotPermittedError: {what} ' in text
    assert f'--permit {permission}' in text
    assert (folder / 'target.txt').read_text() == 'kept'


def test_command_permits_what_it_is_told_to(command: Command, folder: Path):
    done = command('agents:writing', '--permit', 'files')

    assert 'NotPermitted' not in done.stdout
    assert (folder / 'target.txt').read_text() != 'kept'


def test_command_runs_tools_in_a_folder_that_is_thrown_away(command: Command, folder: Path):
    done = command('agents:leaving')

    assert (done.returncode, done.stdout) == (0, 'No leak found in 5 runs.\n'), done.stderr
    assert not (folder / 'left.txt').exists()


def test_command_hands_no_keys_on(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv('SECRET_KEY', 'secret')

    assert command('agents:spying').returncode == 0


NOTHING = 'Nothing is known: '
FIRST = f'{NOTHING}no call of a tool succeeded. The first error, of'


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        (['agents:querying'], f"{FIRST} `query`: TypeError: 'NoneType' object is not subscriptable. Give the tools"),
        (['agents:querying', '--deps', 'agents:columns'], f'{FIRST} `query`: There is no column'),
        (['agents:searching'], f'{FIRST} `search`: Error: no index.'),
        (['agents:writing'], f'{FIRST} `write`: NotPermittedError: open of'),
        (['agents:without'], f'{NOTHING}the agent offered no tool.'),
        (['agents:make_pure', '--skip', '*'], f'{NOTHING}no tool was called.'),
        (['agents:instructed'], f"{NOTHING}no run got as far as a tool: TypeError: 'NoneType' object is not"),
    ],
)
def test_command_says_when_no_call_succeeded_and_what_helps(command: Command, arguments: list[str], said: str):
    done = command(*arguments, '--json')

    assert done.returncode == 2
    assert json.loads(done.stdout)['incomplete'] is True
    assert done.stderr.startswith(f'error: {said}')
    if said.startswith(FIRST):
        assert '`--deps MODULE:NAME`' in done.stderr
        assert '`--arguments FILE`' in done.stderr


def test_command_names_tools_that_never_succeeded_beside_others(command: Command):
    done = command('agents:partly')

    assert done.returncode == 2
    assert 'No call of these succeeded, so what they keep is not known: `search` (Error: no index).' in done.stdout
    assert json.loads(command('agents:make_pure', '--json').stdout)['incomplete'] is False


def test_command_ends_with_2_if_something_was_left_out(command: Command, monkeypatch: pytest.MonkeyPatch):
    found = Mock(return_value=Report(runs=5, too_much=True))
    monkeypatch.setattr('toolset_leaks.__main__.run_sandboxed', found)

    assert command('agents:leaky').returncode == 2


@pytest.mark.parametrize(
    'calls', ['{"column": "city"}', '[{"column": "city"}, {"column": "sum", "limit": 3}]', '[{"column": "city"}, {}]']
)
def test_command_calls_tools_with_the_arguments_of_a_file(command: Command, folder: Path, calls: str):
    (folder / 'calls.json').write_text(f'{{"query": {calls}}}')
    done = command('agents:querying', '--deps', 'agents:columns', '--arguments', 'calls.json', '--json')

    assert done.returncode == 1, done.stdout
    report = json.loads(done.stdout)
    assert [leak['name'] for leak in report['leaks']] == ['agents.storage']
    assert "first 'city'" in report['leaks'][0]['what']


@pytest.mark.parametrize(
    ('text', 'said'),
    [
        (None, '`--arguments calls.json` cannot be read: No such file or directory.'),
        ('{', '`--arguments calls.json` is no JSON: '),
        ('[]', '`--arguments calls.json` holds no object. Write {"TOOL": {"name": "value"}}.'),
        ('{"pure": "text"}', "The arguments of `pure` are 'text'. Write an object"),
        ('{"poor": {}}', 'There are arguments for `poor`, and the agent has no such tool. It has `pure`.'),
    ],
)
def test_command_says_what_is_wrong_with_a_file_of_arguments(
    command: Command, folder: Path, text: str | None, said: str
):
    if text is not None:
        (folder / 'calls.json').write_text(text)
    done = command('agents:make_pure', '--arguments', 'calls.json')

    assert (done.returncode, done.stdout) == (2, '')
    assert said in done.stderr
    assert 'Traceback' not in done.stderr


def test_command_is_there_under_its_name(folder: Path):
    name = Path(sys.executable).with_name('toolset-leaks')
    done = subprocess.run([name, 'agents:leaky'], capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith('1 leak found in 5 runs:')
    assert 'global `storage[0]` of `agents`, reached from FunctionToolset' in done.stdout


def test_command_ends_what_takes_too_long(command: Command):
    done = command('agents:hanging', '--seconds', '3')

    assert done.returncode == 2
    assert done.stderr.startswith('error: The tools of `agents:hanging` took longer than 3 seconds.')


@pytest.mark.parametrize(
    ('target', 'message'),
    [
        ('agents:missing', '`agents:missing` cannot be found'),
        ('nowhere:agent', '`nowhere:agent` cannot be found'),
        ('agents:number', '`agents:number` is no agent, nor a function that returns one, but a int.'),
        (
            'broken:agent',
            '`broken:agent` cannot be imported: {folder}/broken.py:2: ZeroDivisionError: division by zero',
        ),
        ('leaving:agent', '`leaving:agent` cannot be imported: {folder}/leaving.py:2: SystemExit: 3'),
        ('makers:fail', '`makers:fail` makes no agent: {folder}/makers.py:2: ValueError: no'),
    ],
)
def test_command_says_what_is_wrong_with_the_target(command: Command, folder: Path, target: str, message: str):
    (folder / 'broken.py').write_text('\n1 / 0\n')
    (folder / 'leaving.py').write_text('\nraise SystemExit(3)\n')
    (folder / 'makers.py').write_text('def fail():\n    raise ValueError("no")\n')
    done = command(target)

    assert done.returncode == 2
    assert message.format(folder=folder) in done.stderr
    assert 'Traceback' not in done.stderr


def test_command_needs_no_key_of_a_provider(command: Command, folder: Path):
    code = (Path(__file__).parents[1] / 'README.md').read_text('utf-8').partition('```python\n')[2].partition('```')[0]
    (folder / 'readme.py').write_text(code)
    done = command('readme:agent')

    assert done.returncode == 1
    assert 'closure cell `storage[0]` of `add_todo`' in done.stdout
