"""Point 7: `.worker` files."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Write
from support import LOADED
from toolset_first import AgentSpec, ProjectError, Runtime, load_project

TOOLS = """
    from support import Keeper, StatefulKeeper, call, echo, script, scripts
    from toolset_first import ToolsetSpec, WorkerArgs

    class Question(WorkerArgs):
        topic: str

    echoing = echo()
    keeper = StatefulKeeper()
    def double(number: int) -> int: return 2 * number
    made = ToolsetSpec(factory=lambda context: Keeper(), options={'size': 1})
    keeping = script(call('keep', what='x'))
    recursive = scripts({'1': [call('self', input='2')], '2': ['deep']})
    mutual = scripts({'1': [call('other', input='2')], '2': [call('start', input='3')], '3': ['back']})
    """


def agents(project: Any) -> dict[str, AgentSpec]:
    return {spec.name: spec for spec in project.agents}


async def test_p07_all_that_a_front_matter_says_is_in_the_agent(write: Write) -> None:
    folder = write(
        tools__py=TOOLS,
        a__worker="""\
            ---
            name: asker
            description: Asks.
            model: test
            compatible_models: [test, "anthropic:*"]
            schema_in_ref: tools.py:Question
            entry: true
            toolsets:
              keeper:
                approval: {keep: ask}
              made: {size: 3}
            server_side_tools: [web_search]
            ---
            You ask.

            ---
            Yes.
            """,
    )
    project = load_project(folder)
    (spec,) = project.agents
    assert (spec.name, spec.description, spec.model) == ('asker', 'Asks.', 'test')
    assert spec.instructions == 'You ask.\n\n---\nYes.'
    assert list(spec.compatible_models) == ['test', 'anthropic:*']
    assert spec.schema_in is not None
    assert list(spec.schema_in.model_fields) == ['topic']
    assert [one.approval_config for one in spec.toolset_specs] == [{'keep': 'ask'}, {}]
    assert [one.options for one in spec.toolset_specs] == [{}, {'size': 3}]
    assert [one.kind for one in spec.builtin_tools] == ['web_search']
    assert project.entry.name == 'asker'
    assert project.entry.schema_in is spec.schema_in
    Runtime(project.agents)


async def test_p07_worker_file_with_windows_line_ends_and_without_a_prompt_runs(write: Write) -> None:
    folder = write(tools__py=TOOLS)
    (folder / 'a.worker').write_bytes(b'---\r\nname: a\r\nmodel: tools.py:echoing\r\nentry: true\r\n---\r\n')
    project = load_project(folder)
    assert await Runtime(project.agents).run_entry(project.entry, 'Hello') == '1: Hello'


async def test_p07_worker_uses_toolsets_of_python_files(write: Write) -> None:
    folder = write(
        tools__py=TOOLS,
        a__worker='---\nname: a\nmodel: tools.py:keeping\nentry: true\ntoolsets: [keeper]\n---\n',
    )
    project = load_project(folder)
    runtime = Runtime(project.agents)
    assert [await runtime.run_entry(project.entry, 'Hello') for _ in range(2)] == ['["x"]', '["x"]']


async def test_p07_agent_refers_to_itself(write: Write) -> None:
    folder = write(
        tools__py=TOOLS,
        a__worker='---\nname: self\nmodel: tools.py:recursive\nentry: true\ntoolsets: [self]\n---\n',
    )
    project = load_project(folder)
    assert await Runtime(project.agents).run_entry(project.entry, '1') == 'deep'


async def test_p07_agents_refer_to_each_other(write: Write) -> None:
    folder = write(
        tools__py=TOOLS,
        a__worker='---\nname: start\nmodel: tools.py:mutual\nentry: true\ntoolsets: [other]\n---\n',
        b__worker='---\nname: other\nmodel: tools.py:mutual\ntoolsets: [start]\n---\n',
    )
    project = load_project(folder)
    assert await Runtime(project.agents).run_entry(project.entry, '1') == 'back'


async def test_p07_agent_of_a_python_file_is_a_toolset_too(write: Write) -> None:
    folder = write(
        tools__py=TOOLS + "\n    from toolset_first import AgentSpec\n    one = AgentSpec('other', model=echoing)\n",
        a__worker='---\nname: start\nmodel: tools.py:mutual\nentry: true\ntoolsets: [other]\n---\n',
    )
    project = load_project(folder)
    assert set(agents(project)) == {'other', 'start'}
    assert await Runtime(project.agents).run_entry(project.entry, '1') == '1: 2'


async def test_p07_reference_is_relative_to_its_file_and_imports_nothing_twice(write: Write) -> None:
    folder = write(
        {'agents/a.worker': '---\nname: a\nmodel: ../tools.py:echoing\nentry: true\n---\n'},
        tools__py=TOOLS + "\n    from support import LOADED; LOADED.append('tools')\n",
    )
    LOADED.clear()
    project = load_project(folder)
    assert await Runtime(project.agents).run_entry(project.entry, 'Hello') == '1: Hello'
    assert LOADED == ['tools']


@pytest.mark.parametrize(
    ('text', 'faults'),
    [
        ('You are.', ['1: A `.worker` file begins with a line `---`, a front matter, and another `---`.']),
        ('---\n---\n', ['2: The front matter holds no keys. Write `name: …` at least.']),
        ('---\nname: [a\n---\n', ["3: expected ',' or ']', but got '<stream end>'."]),
        ('---\nentry: true\n---\n', ['2: `name` is missing.']),
        (
            '---\nname: a\ntoolbox: [b]\nentry: maybe\n---\n',
            [
                '4: `entry`: Input should be a valid boolean.',
                '3: `toolbox` is not known. Did you mean `tools`? Known are `name`, `description`, `model`, ',
            ],
        ),
        ('---\nname: a\n\ndescription: 2024-13-45\n---\n', ['4: month must be in 1..12.']),
        (f'---\nname: a\ntools: {"[" * 3000}\n---\n', ['1: The front matter is nested too deeply.']),
        (
            '---\nname: a\ntoolsets: [keeper, b, c]\n---\n',
            [
                "3: 'b': There is no toolset or agent of this name. There are: a, files, keeper, made, shell.",
                "3: 'c': There is no toolset or agent of this name. There are: a, files, keeper, made, shell.",
            ],
        ),
    ],
)
def test_p07_faults_have_file_and_line(text: str, faults: list[str], write: Write) -> None:
    folder = write(tools__py=TOOLS, bad__worker=text)
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert len(error.value.faults) == len(faults)
    for found, expected in zip(error.value.faults, faults, strict=True):
        assert found.startswith(f'{folder}/bad.worker:{expected}')


WRONG_VALUES = [
    ('description: !!int "abc"', "invalid literal for int() with base 10: 'abc'."),
    ('usage_limits: {total_tokens_limit: .nan}', '`total_tokens_limit` is a number, not nan.'),
    ('usage_limits: {requests: 3}', "There is no limit 'requests'. There are: "),
    ('usage_limits: {request_limit: -3}', '`request_limit` is a number, not -3.'),
    ('usage_limits: {request_limit: true}', '`request_limit` is a number, not True.'),
    ('usage_limits: {request_limit: 3.5}', '`request_limit` is a whole number, not 3.5.'),
    ('compatible_models: not-a-list', '`compatible_models`'),
    ('schema_in_ref: [not-a-text]', '`schema_in_ref`'),
    ('schema_in_ref: tools.py:keeper', '`tools.py` has no type `keeper`, but'),
    ('schema_in_ref: tools.py:ToolsetSpec', '`tools.py:ToolsetSpec` is no subclass'),
    ('schema_in_ref: Question', '`Question` refers to no file of this project.'),
    ('model: ../x.py:y', '`../x.py:y` refers to no file of this project.'),
    ('model: tools.py:keeper', '`tools.py` has no Model `keeper`, but'),
    ('server_side_tools: web_search', '`server_side_tools`'),
    ('server_side_tools: [telepathy]', "There is no server-side tool 'telepathy'. There are:"),
    ('server_side_tools: {web_search: {wrong: 1}}', "'web_search': "),
    ('tools: [triple]', "There is no function 'triple'. There are: double."),
    ('tools: [double, double]', "'double' is there twice. Leave one of the two out."),
    ('tools: {double: maybe}', "The rule 'maybe' for `double` is none."),
    ('tools: {double: {number: {"3": deny}}}', 'The rule for `double` has patterns for `number`, which is no text.'),
    ('tools: ["tools.py:keeper"]', '`tools.py` has no function `keeper`'),
    ('toolsets: keeper', '`toolsets`'),
    ('toolsets: [123]', '`toolsets`'),
    ('toolsets: {keeper: {}, keeper: {}}', "The key 'keeper' is there twice."),
    ('toolsets: {keeper: {approval: {kep: deny}}}', "'keeper': The rule for `kep` names no tool"),
    ('toolsets: {made: {approval: {kep: deny}}}', "'made': The rule for `kep` names no tool"),
    ('toolsets: {a: {approval: {b: deny}}}', "'a': The rule for `b` names no tool. The tools are called: `a`."),
    ('toolsets: {keeper: {approval: {keep: {wat: {"*": deny}}}}}', "'keeper': The rule for `keep` names no parameter"),
    ('toolsets: {keeper: {approval: {keep: {what: {3: deny}}}}}', "'keeper': The rule {'what': {3:"),
    ('toolsets: {keeper: {approval: {keep: no}}}', "'keeper': The rule False for `keep` is none."),
    ('toolsets: {keeper: {approval: }}', "'keeper': `approval` has a rule for each tool, not None."),
    ('toolsets: {keeper: {approval: []}}', "'keeper': `approval` has a rule for each tool, not []."),
    ('toolsets: {keeper: {approval: {keep: deny, keep: allow}}}', "The key 'keep' is there twice."),
    ('toolsets: {files: {rot: x}}', "'files': `rot` is not known. Did you mean `root`?"),
    ('toolsets: {files: {write: 1}}', "'files': `write` of `files` cannot be 1."),
    ('toolsets: {files: {max_bytes: many}}', "'files': `max_bytes` of `files` cannot be 'many'."),
    ('toolsets: {files: {max_bytes: 0}}', "'files': `max_bytes` of `files` cannot be 0."),
    ('toolsets: {files: {approval: {read_file: {path: {"x*": deny}}}}}', "'files': The rule for `read_file`"),
    ('toolsets: {shell: {timeout: -1}}', "'shell': `timeout` of `shell` cannot be -1."),
    ('toolsets: {shell: {environment: [5]}}', "'shell': `environment` of `shell` cannot be [5]."),
    ("toolsets: {shell: {commands: {'ls | wc': deny}}}", "'shell': 'ls | wc' in `commands` of `shell` names"),
    ('toolsets: {shell: {commands: {"rm *": deny}}}', "'shell': 'rm *' in `commands` of `shell` has a `*`"),
    ('toolsets: {shell: {commands: {ls: yes}}}', "'shell': 'ls': True is no rule for a command."),
    ('toolsets: {shell: {commands: {}, approval: {run: allow}}}', "'shell': `approval` has rules for run"),
    ('toolsets: {shell: {approval: {rn: deny}}}', "'shell': The rule for `rn` names no tool."),
]


@pytest.mark.parametrize(('front', 'fault'), WRONG_VALUES)
def test_p07_wrong_value_has_file_and_line(front: str, fault: str, write: Write) -> None:
    folder = write(tools__py=TOOLS, bad__worker=f'---\nname: a\n{front}\n---\n')
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert error.value.faults[0].startswith(f'{folder}/bad.worker:3: {fault}')


def test_p07_faults_of_all_files_are_told_at_once(write: Write) -> None:
    folder = write(a__worker='---\nnme: a\n---\n', b__worker='', c__py='1 / 0')
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert [fault.partition(': ')[0] for fault in error.value.faults] == [
        f'{folder}/a.worker:2',
        f'{folder}/a.worker:2',
        f'{folder}/b.worker:1',
        f'{folder}/c.py:1',
    ]
