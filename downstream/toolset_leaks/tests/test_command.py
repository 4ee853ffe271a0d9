"""`toolset-leaks MODULE:AGENT`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolset_leaks.__main__ import main

AGENTS = """
import os, socket, subprocess
from pathlib import Path
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel

storage = []

def add_todo(text: str) -> None:
    storage.append(text)

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

def connect(host: str) -> None:
    socket.socket().connect(('127.0.0.1', 9))

def start(program: str) -> None:
    subprocess.run(['true'])

def leave(text: str) -> None:
    Path('left.txt').write_text(text)

TARGET = Path(__file__).parent / 'target.txt'
writing, removing, connecting, starting, leaving = (Agent(TestModel(), tools=[tool]) for tool in (write, remove, connect, start, leave))

def spy(text: str) -> None:
    if 'SECRET_KEY' in os.environ:
        storage.append(text)

spying = Agent(TestModel(), tools=[spy])

def hang() -> None:
    import time
    time.sleep(100)

hanging = Agent(TestModel(), tools=[hang])

def greet(ctx: RunContext[dict], text: str) -> None:
    if ctx.deps['greeting'] == 'hello':
        storage.append(text)

def make_deps():
    return {'greeting': 'hello'}

with_deps = Agent(TestModel(), deps_type=dict, tools=[greet])
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


def test_command_finds_a_leak(command: Command):
    done = command('agents:leaky')

    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[0] == '1 leak found in 5 runs:'
    assert 'global `storage[0]` of `agents`, reached from FunctionToolset' in done.stdout


def test_command_takes_a_function_that_returns_the_agent(command: Command):
    done = command('agents:make_pure')

    assert (done.returncode, done.stdout) == (0, 'No leak found in 5 runs.\n'), done.stderr


def test_command_writes_json(command: Command):
    report = json.loads(command('agents:leaky', '--json').stdout)

    assert [leak['name'] for leak in report['leaks']] == ['agents.storage']


def test_command_leaves_out_what_it_must_not_call(command: Command):
    done = command('agents:dangerous', '--skip', 'delete_*')

    assert (done.returncode, done.stdout) == (0, 'No leak found in 5 runs.\n\nNot called: delete_everything.\n'), (
        done.stderr
    )


def test_command_declares_what_is_shared(command: Command):
    assert command('agents:leaky', '--shared', 'agents.storage').returncode == 0


def test_command_hands_deps_on(command: Command):
    assert command('agents:with_deps', '--deps', 'agents:make_deps').returncode == 1


@pytest.mark.parametrize(
    ('agent', 'what', 'permission'),
    [
        ('writing', 'open', 'files'),
        ('removing', 'os.remove', 'files'),
        ('connecting', 'socket.connect', 'network'),
        ('starting', 'subprocess.Popen', 'programs'),
    ],
)
def test_command_refuses_what_could_do_harm(command: Command, folder: Path, agent: str, what: str, permission: str):
    done = command(f'agents:{agent}')

    assert 'NotPermittedError' in done.stdout
    assert what in done.stdout
    assert f'--permit {permission}' in done.stdout
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


def test_command_is_there_under_its_name(folder: Path):
    name = Path(sys.executable).with_name('toolset-leaks')
    done = subprocess.run([name, 'agents:leaky'], capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith('1 leak found in 5 runs:')


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
    ],
)
def test_command_says_what_is_wrong_with_the_target(command: Command, target: str, message: str):
    done = command(target)

    assert done.returncode == 2
    assert message in done.stderr
