"""What the README shows works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from conftest import Write
from support import call, echo, script
from toolset_first import AgentSpec, Runtime, files, load_project, shell
from toolset_first.cli import app
from toolset_first.rules import frozen
from toolset_first.worker_file import Header
from typer.testing import CliRunner

README = (Path(__file__).parents[1] / 'README.md').read_text('utf-8')


def block(title: str) -> str:
    """Return the block of code with a title."""
    found = re.search(rf'```\w+ title="{re.escape(title)}"\n(.*?)```', README, re.DOTALL)
    assert found, title
    return found[1]


def test_readme_two_commands_make_a_project_and_run_it(tmp_path: Path) -> None:
    commands = re.findall(r'^uvx --from ".*?" toolset-first (.*)$', README, re.MULTILINE)
    assert len(commands) == 2
    said = ''
    for command in commands:
        arguments = [one.strip('"') for one in re.findall(r'"[^"]*"|\S+', command)]
        program = [sys.executable, '-c', 'from toolset_first.cli import main; main()']
        done = subprocess.run([*program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said = done.stdout
    assert said == 'Noted: ["Buy milk"]\n'


async def test_readme_project_runs(write: Write) -> None:
    folder = write({title: block(title) for title in ('assistant.worker', 'tools.py')})
    project = load_project(folder)
    model = script(call('note', text='milk'), call('note', text='bread'))
    runtime = Runtime(project.agents, folder=folder, model=model)
    for _ in range(2):
        assert await runtime.run_entry(project.entry, 'Buy milk and bread') == '["milk","bread"]'


def test_readme_toolsets_that_are_ready_are_found(write: Write) -> None:
    tools = 'def count_words(text: str) -> int:\n    return len(text.split())\n'
    (spec,) = load_project(write({'coder.worker': block('coder.worker'), 'tools.py': tools})).agents
    assert [sorted(one.rules) for one in spec.toolset_specs] == [['edit_file', 'write_file'], ['run'], []]


@pytest.mark.parametrize('make', [files, shell])
def test_readme_names_each_option_of_toolsets_that_are_ready(make: Callable[..., object]) -> None:
    row = next(line for line in README.splitlines() if line.startswith(f'| `{make.__name__}` |'))
    told = dict(re.findall(r'`(\w+): ([^`]*)`', row.rpartition('|')[0].rpartition('|')[2]))
    defaults = {name: one.default for name, one in signature(make).parameters.items()}
    assert list(told) == list(defaults)
    for name, value in defaults.items():
        shown = value if isinstance(value, str) else str(value).lower()
        assert told[name] == {'()': '[]', 'mappingproxy({})': '{}'}.get(shown, shown), name


def test_readme_samples_run_as_they_stand(tmp_path: Path) -> None:
    """Each by itself, in the folder that holds the project `hello`."""
    samples = re.findall(r'```python.*?\n(.*?)```', README, re.DOTALL)
    assert len(samples) == README.count('```python') == 3
    assert CliRunner().invoke(app, ['new', str(tmp_path / 'hello')]).exit_code == 0
    said: list[str] = []
    for sample in samples:
        done = subprocess.run([sys.executable, '-c', sample], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said == ['', 'Noted: ["Buy milk"]\n', '']


async def test_readme_entry_calls_agents(write: Write) -> None:
    source = next(one for one in re.findall(r'```python\n(.*?)```', README, re.DOTALL) if 'def build(' in one)
    names: dict[str, Any] = {}
    exec(compile(source, 'README.md', 'exec', dont_inherit=True), names)  # noqa: S102
    agents = [AgentSpec('researcher', model=echo()), AgentSpec('writer', model=script('written'))]
    folder = write({'style.md': 'Short.'})
    assert await Runtime(agents, folder=folder).run_entry(names['entry'], 'tea') == 'written'


def test_readme_lists_each_key_of_a_front_matter() -> None:
    table = README.partition('| in the front matter |')[2].partition('\n\n')[0]
    assert re.findall(r'^\| `(\w+)` \| ', table, re.MULTILINE) == list(Header.model_fields)


def test_readme_rules_are_rules() -> None:
    import yaml

    source = next(one for one in re.findall(r'```yaml\n(.*?)```', README, re.DOTALL) if 'approval:' in one)
    rules = yaml.safe_load(source)['toolsets']['bank']['approval']
    assert set(frozen(rules)) == set(rules)


@pytest.mark.parametrize(
    'option',
    [
        *('--chat', '--input-json', '--approve-all', '--reject-all', '--max-depth', '--model', '--debug'),
        *('--limit', '--call-limit', '--file', '--allow-hidden'),
    ],
)
def test_readme_names_each_option(option: str) -> None:
    assert option in README
    assert option in CliRunner().invoke(app, ['run', '--help'], env={'COLUMNS': '200'}).stdout
