"""What llm-do's own tests ask for and no other test here does; `llm_do.md` lists all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Write
from pydantic_ai import Agent, BinaryContent, FunctionToolset, ModelMessage, ModelResponse, RunContext, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from support import calling, entry
from toolset_first import (
    AgentSpec,
    ApprovalError,
    CallRuntime,
    EntrySpec,
    InputError,
    ProjectError,
    Runtime,
    ToolsetFirstError,
    ToolsetSpec,
    agent_as_toolset,
    load_project,
)

HERE = Path(__file__).parent


def numbers(text: str) -> list[int]:
    """Return what `1, 3 to 5` stands for."""
    ends = [[int(end) for end in part.split(' to ')] for part in text.split(', ')]
    return [number for first, *last in ends for number in range(first, (last or [first])[0] + 1)]


def test_list_names_140_tests_of_which_111_have_one_here() -> None:
    text = (HERE / 'llm_do.md').read_text('utf-8')
    found = re.findall(r'^\| `(\w+)` ([^|]+) \| [^|]+ \| ([^|]+) \|$', text, re.MULTILINE)
    rows = {(file, number): held_by for file, those, held_by in found for number in numbers(those)}
    assert len(rows) == sum(len(numbers(those)) for _, those, _ in found) == 140
    here = {name for file in HERE.glob('test_*.py') for name in re.findall(r'def (test_\w+)', file.read_text('utf-8'))}
    assert set(re.findall(r'`(test_\w+)`', text)) <= here
    held = [held_by for held_by in rows.values() if not held_by.startswith(('otherwise', 'no:'))]
    assert f'{len(held)} of them have a test here' in text


async def seen_of(folder: Path | str, *attachments: str) -> list[Any]:
    """Return what an agent reads that is called with attachments."""
    seen: list[Any] = []

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(getattr(messages[0].parts[0], 'content', [])[1:])
        return ModelResponse([TextPart('seen')])

    runtime = Runtime([AgentSpec('one', model=FunctionModel(respond))], folder=folder)
    await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': list(attachments)})
    return seen


@pytest.mark.parametrize(
    ('name', 'kind'),
    [
        ('a.pdf', 'application/pdf'),
        ('a.png', 'image/png'),
        ('a.jpg', 'image/jpeg'),
        ('a.xyz123', 'application/octet-stream'),
    ],
)
async def test_attachment_is_of_the_kind_that_its_name_says(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b'content')
    assert await seen_of(tmp_path, name) == [BinaryContent(b'content', media_type=kind)]


async def test_attachment_may_have_an_absolute_path_within_the_project(tmp_path: Path) -> None:
    (tmp_path / 'a.pdf').write_bytes(b'content')
    assert await seen_of(tmp_path, f'{tmp_path}/a.pdf') == [BinaryContent(b'content', media_type='application/pdf')]


async def test_attachment_is_looked_for_in_the_current_folder_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r'The file "a\.pdf" is not in'):
        await Runtime([AgentSpec('one', model='test')]).run_entry(
            calling('one'), {'input': 'Look', 'attachments': ['a.pdf']}
        )
    (tmp_path / 'a.pdf').write_bytes(b'content')
    assert len(await seen_of('.', 'a.pdf')) == 1


async def test_tool_of_an_agent_finds_the_model_that_a_name_stands_for() -> None:
    def look(ctx: RunContext[Any]) -> str:
        return type(ctx.model).__name__

    agent = AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(functions=[look])])
    assert TestModel.__name__ in await Runtime([agent]).run_entry(calling('one'), 'Go')


async def test_entry_has_no_model_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TOOLSET_FIRST_MODEL', 'test')

    async def main(ctx: RunContext[CallRuntime], input: str) -> str:
        model: Any = ctx.model
        return (await Agent(model).run(input)).output if input == 'Ask' else 'done'

    assert await Runtime().run_entry(entry(main), 'Go') == 'done'
    with pytest.raises(ToolsetFirstError, match='An entry has no model'):
        await Runtime().run_entry(entry(main), 'Ask')


@pytest.mark.parametrize('rules', ['allow', ['keep'], 3])
def test_rules_that_are_no_mapping_are_refused(rules: Any) -> None:
    with pytest.raises(ApprovalError, match='Rules are a mapping with a rule for each tool, not '):
        ToolsetSpec(functions=[print], approval_config=rules)


def test_files_of_other_kinds_are_left_alone(write: Write) -> None:
    agent = '---\nname: a\nmodel: test\nentry: true\n---\n'
    assert len(load_project(write(a__worker=agent, notes__txt='1 / 0', tools__pyc='1 / 0')).agents) == 1


def test_agents_of_one_name_in_one_file_are_refused(write: Write) -> None:
    text = "from toolset_first import AgentSpec\none = AgentSpec('same')\ntwo = AgentSpec('same')\n"
    with pytest.raises(ProjectError, match="The name 'same' is taken by"):
        load_project(write(a__py=text))


def test_agent_as_a_toolset_has_one_tool_and_no_rules() -> None:
    agent = AgentSpec('analyst', description='Analyses data.', model='test')
    spec = agent_as_toolset(agent)
    toolset: Any = spec.toolset
    assert (toolset.agent, list(toolset.tools)) == (agent, ['main'])
    assert toolset.tools['main'].description == 'Analyses data.'
    assert spec.approval_config == {}
    assert isinstance(EntrySpec(spec, 'start').toolset_spec, ToolsetSpec)


async def test_agent_below_an_agent_has_the_toolsets_of_its_file(write: Write) -> None:
    folder = write(
        tools__py='from pydantic_ai import FunctionToolset\ndef fetch() -> str: return "page"\nweb = FunctionToolset([fetch])',
        a__worker='---\nname: a\nmodel: test\nentry: true\ntoolsets: [b]\n---\n',
        b__worker='---\nname: b\nmodel: test\ntoolsets: [web]\n---\n',
    )
    project = load_project(folder)
    runtime = Runtime(project.agents)
    await runtime.run_entry(project.entry, 'Go')
    (below,) = [agent for agent in project.agents if agent.name == 'b']
    assert isinstance(below.toolset_specs[0].toolset, FunctionToolset)
    assert [one.agent for one in runtime.message_log if 'page' in str(one.message)] == ['b', 'b', 'a', 'a']


@pytest.mark.parametrize(
    ('said', 'read'),
    [
        ('server_side_tools: {web_search: {max_uses: 3}}', [('web_search', 3, None)]),
        (
            'server_side_tools: {web_search: {allowed_domains: [a.org, b.org]}}',
            [('web_search', None, ['a.org', 'b.org'])],
        ),
        (
            'server_side_tools: [web_search, code_execution, image_generation]',
            [('web_search', None, None), ('code_execution', None, None), ('image_generation', None, None)],
        ),
        ('', []),
    ],
)
def test_server_side_tools_of_a_worker_file_have_their_options(said: str, read: list[Any], write: Write) -> None:
    (spec,) = load_project(write(a__worker=f'---\nname: a\nmodel: test\nentry: true\n{said}\n---\n')).agents
    tools: list[Any] = list(spec.builtin_tools)
    assert [(one.kind, getattr(one, 'max_uses', None), getattr(one, 'allowed_domains', None)) for one in tools] == read


def test_worker_file_with_a_name_only_is_read(write: Write) -> None:
    (spec,) = load_project(write(a__worker='---\nname: a\nentry: true\n---\nOne.\n\nTwo.\n')).agents
    assert (spec.name, spec.model, spec.description, spec.instructions) == ('a', None, None, 'One.\n\nTwo.')
    assert (list(spec.toolset_specs), list(spec.compatible_models), spec.schema_in) == ([], [], None)
