"""Point 8: what is in a folder is found by type."""

from __future__ import annotations

import os
from typing import Any

import pytest
from conftest import Write
from pydantic_ai import ModelMessage, ModelResponse, UserError
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support import LOADED, Keeper, StatefulKeeper, calling
from toolset_first import AgentSpec, ProjectError, Runtime, ToolsetFirstError, ToolsetSpec, load_project

ENTRY = """
    from support import echo, entry
    from toolset_first import AgentSpec

    async def main(input: str) -> str:
        return input

    start = entry(main)
    """


async def test_p08_agents_toolsets_and_the_entry_are_found_by_type(write: Write) -> None:
    folder = write(
        a__py=ENTRY,
        b__py="""
            from pydantic_ai import FunctionToolset
            from toolset_first import AgentSpec
            tools = FunctionToolset()
            one = AgentSpec('one', model='test')
            others = [AgentSpec('hidden', model='test')]
            """,
        c__worker='---\nname: two\nmodel: test\ntoolsets: [tools, one]\n---\n',
    )
    project = load_project(folder)
    assert project.entry.name == 'start'
    assert [spec.name for spec in project.agents] == ['one', 'two']
    assert await Runtime(project.agents).run_entry(project.entry, 'Hello') == 'Hello'


async def test_p08_each_module_is_imported_once_whoever_imports_it(write: Write) -> None:
    folder = write(
        {
            'pkg/__init__.py': 'import counter; counter.loaded.append("pkg")',
            'pkg/c.py': """
                import counter; counter.loaded.append("c")
                from b import keeper as again
                from toolset_first import AgentSpec, ToolsetSpec
                one = AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=again)])
                """,
        },
        counter__py='from support import LOADED\nloaded = LOADED',
        a__py=ENTRY
        + '\n    from b import keeper\n    from pkg.c import one\n    import counter; counter.loaded.append("a")\n',
        b__py='from support import Keeper\nimport counter; counter.loaded.append("b")\nkeeper = Keeper()',
    )
    LOADED.clear()
    project = load_project(folder)
    assert sorted(LOADED) == ['a', 'b', 'c', 'pkg']
    assert [spec.name for spec in project.agents] == ['one']


@pytest.mark.parametrize('skipped', ['.hidden', 'tests', '__pycache__', 'node_modules', 'venv'])
def test_p08_what_is_no_part_of_the_project_is_left_alone(skipped: str, write: Write) -> None:
    folder = write({f'{skipped}/x.py': '1 / 0', 'venv/pyvenv.cfg': ''}, a__py=ENTRY, test_a__py='1 / 0')
    assert load_project(folder).entry.name == 'start'


def test_p08_several_entries_are_all_listed_with_their_files(write: Write) -> None:
    folder = write(
        b__py=ENTRY.replace('start =', 'begin ='),
        a__py=ENTRY,
        c__worker='---\nname: worker\nmodel: test\nentry: true\n---\n',
    )
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert str(error.value) == (
        'A project has exactly one entry: an `EntrySpec` in a Python file, or a `.worker` file with `entry: true`. '
        f'In `{folder}` there are:\n'
        f"- 'start' in {folder}/a.py, `start`\n- 'start' in {folder}/b.py, `begin`\n- 'worker' in {folder}/c.worker"
    )


def test_p08_no_entry_is_refused(write: Write) -> None:
    folder = write(a__py='x = 1')
    with pytest.raises(ProjectError, match='there is none'):
        load_project(folder)


@pytest.mark.parametrize(
    'files',
    [
        {'a__py': ENTRY + "\n    one = AgentSpec('one')\n", 'b__worker': '---\nname: one\nmodel: test\n---\n'},
        {'a__worker': '---\nname: one\nmodel: test\n---\n', 'b__worker': '---\nname: one\nmodel: test\n---\n'},
        {'a__py': 'from support import Keeper\none = Keeper()', 'b__py': 'from support import Keeper\none = Keeper()'},
        {'a__py': 'from support import Keeper\none = Keeper()', 'b__worker': '---\nname: one\nmodel: test\n---\n'},
    ],
)
def test_p08_two_things_of_one_name_are_refused_with_both_files(files: dict[str, str], write: Write) -> None:
    folder = write(**files)
    with pytest.raises(ProjectError, match="The name 'one' is taken by") as error:
        load_project(folder)
    first, second = (f'{folder}/{name.replace("__", ".")}' for name in files)
    assert first in str(error.value)
    assert second in str(error.value)


def test_p08_file_that_has_the_name_of_a_module_that_is_there_is_refused(write: Write) -> None:
    folder = write(json__py='x = 1')
    with pytest.raises(
        ProjectError, match=r'json\.py:1: A module `json` is there already, in Python itself\. Rename this file'
    ):
        load_project(folder)


def _never(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise AssertionError('The model was asked.')


def test_p08_tools_that_clash_are_found_when_the_agent_is_built() -> None:
    specs = [ToolsetSpec(toolset=Keeper()), ToolsetSpec(toolset=StatefulKeeper())]
    agent = AgentSpec('one', model=FunctionModel(_never), toolset_specs=specs)
    with pytest.raises(
        ToolsetFirstError, match="The agent 'one' has two tools `keep`: that of Keeper and that of Stateful"
    ):
        Runtime([agent])


async def test_p08_tools_that_clash_in_a_run_are_found_before_the_first_request() -> None:
    specs = [ToolsetSpec(factory=lambda context: Keeper()), ToolsetSpec(toolset=StatefulKeeper())]
    runtime = Runtime([AgentSpec('one', model=FunctionModel(_never), toolset_specs=specs)])
    with pytest.raises(UserError, match=r"conflicts with existing tool from .*: 'keep'"):
        await runtime.run_entry(calling('one'), 'Go')


def test_p08_names_with_an_underscore_are_a_file_s_own(write: Write) -> None:
    text = """
        from pydantic_ai import FunctionToolset
        from support import calling
        from toolset_first import AgentSpec, EntrySpec, ToolsetSpec

        _kept = FunctionToolset()
        _draft = AgentSpec('draft')
        _other = calling('b')

        def _count() -> int:
            return 1
        """
    worker = '---\nname: b\nmodel: test\nentry: true\n{}\n---\n'
    project = load_project(write(a__py=text, c__py=text, b__worker=worker.format('')))
    assert (project.entry.name, [agent.name for agent in project.agents]) == ('b', ['b'])
    with pytest.raises(ProjectError, match=r'There is no toolset or agent of this name. There are: b, files, shell.'):
        load_project(write(b__worker=worker.format('toolsets: [_kept]')))
    with pytest.raises(ProjectError, match=r"There is no function '_count'. There are: none."):
        load_project(write(b__worker=worker.format('tools: [_count]')))


def test_p08_agent_without_a_description_is_described_by_how_its_instructions_begin(write: Write) -> None:
    worker = '---\nname: {}\nmodel: test\n{}---\n{}'
    folder = write(
        a__worker=worker.format('a', 'entry: true\ntoolsets: [b, c, d]\n', ''),
        b__worker=worker.format('b', 'description: Counts.\n', 'You count.'),
        c__worker=worker.format('c', '', 'You write.\n\n' + 'Much. ' * 100),
        d__worker=worker.format('d', '', ''),
    )
    (spec,) = [agent for agent in load_project(folder).agents if agent.name == 'a']
    toolsets: list[Any] = [one.toolset for one in spec.toolset_specs]
    said = {name: tool.description for toolset in toolsets for name, tool in toolset.tools.items()}
    assert said['b'] == 'Counts.'
    assert said['c'].startswith('You write. Much. Much.')
    assert said['c'].endswith(' …')
    assert len(said['c']) <= 200
    assert said['d'] == 'Ask the agent `d`.'


def test_p08_named_files_are_in_the_project(write: Write, tmp_path_factory: pytest.TempPathFactory) -> None:
    agent = '---\nname: a\nmodel: test\nentry: true\ntools: [double]\n---\n'
    folder = write({'sub/more.py': 'def double(number: int) -> int:\n    return 2 * number\n', 'a.worker': agent})
    for file in ('sub/more.py', folder / 'sub' / 'more.py', './sub/../sub/more.py'):
        assert len(load_project(folder, file).agents[0].toolset_specs) == 1
    outside = tmp_path_factory.mktemp('outside') / 'other.py'
    outside.write_text('')
    for file in (outside, os.path.relpath(outside, folder)):
        with pytest.raises(ProjectError, match=r'other\.py:1: This file is outside of the project\.'):
            load_project(folder, file)
