"""Point 6: a text or a dict becomes the arguments of an entry or an agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from pydantic_ai import BinaryContent, ModelMessage, ModelResponse, RunContext, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support import call, calling, echo, entry, script
from toolset_first import (
    AgentSpec,
    CallRuntime,
    InputError,
    Runtime,
    WorkerArgs,
    agent_as_toolset,
    normalize_input,
)


class Question(WorkerArgs):
    topic: str
    words: int = 10


class Letter(WorkerArgs):
    input: str
    attachments: list[str] = Field(default_factory=list[str])

    def prompt(self) -> str:
        return f'Dear agent, {self.input}'


@pytest.mark.parametrize(
    ('schema', 'given', 'arguments'),
    [
        (None, 'Hello', {'input': 'Hello'}),
        (None, {'input': 'Hello'}, {'input': 'Hello'}),
        (None, {'input': 'Hello', 'attachments': ['a']}, {'input': 'Hello', 'attachments': ['a']}),
        (Question, {'topic': 'tea'}, {'topic': 'tea', 'words': 10}),
        (Question, {'topic': 'tea', 'words': '3'}, {'topic': 'tea', 'words': 3}),
        (Question, Question(topic='tea'), {'topic': 'tea', 'words': 10}),
        (Letter, 'Hello', {'input': 'Hello', 'attachments': []}),
    ],
)
def test_p06_normalize_input(schema: type[WorkerArgs] | None, given: Any, arguments: dict[str, Any]) -> None:
    assert normalize_input(schema, given) == arguments


@pytest.mark.parametrize(
    ('schema', 'given', 'message'),
    [
        (None, 3, 'An input is a text or a dict, not 3.'),
        (None, {}, 'The input does not fit: `input`: Field required. It takes `input`, `attachments`.'),
        (None, {'input': 'a', 'b': 1}, '`b`: Extra inputs are not permitted'),
        (
            Question,
            'Hello',
            '`topic`: Field required; `input`: Extra inputs are not permitted. It takes `topic`, `words`.',
        ),
        (Question, {'topic': 'tea', 'words': 'few'}, '`words`: Input should be a valid integer'),
    ],
)
def test_p06_input_that_does_not_fit_is_refused(schema: type[WorkerArgs] | None, given: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        normalize_input(schema, given)
    assert message in str(error.value)


async def test_p06_main_gets_what_the_schema_of_its_entry_says() -> None:
    async def main(topic: str, words: int) -> str:
        return f'{topic} in {words}'

    assert await Runtime().run_entry(entry(main, schema_in=Question), {'topic': 'tea'}) == 'tea in 10'


async def test_p06_main_without_attachments_needs_none() -> None:
    async def main(input: str) -> str:
        return input

    assert await Runtime().run_entry(entry(main), 'Hello') == 'Hello'
    with pytest.raises(InputError, match='`attachments`: Extra inputs are not permitted'):
        await Runtime().run_entry(entry(main), {'input': 'Hello', 'attachments': ['a']})


async def test_p06_agent_reads_json_unless_the_input_is_a_text() -> None:
    runtime = Runtime(
        [AgentSpec('ask', model=echo(), schema_in=Question), AgentSpec('send', model=echo(), schema_in=Letter)]
    )

    async def main(ctx: RunContext[CallRuntime], input: str) -> list[str]:
        return [
            await ctx.deps.call_agent('ask', {'topic': 'tea'}),
            await ctx.deps.call_agent('ask', Question(topic='tea', words=3)),
            await ctx.deps.call_agent('send', input),
        ]

    assert await runtime.run_entry(entry(main), 'Hello') == [
        '1: {\n  "topic": "tea",\n  "words": 10\n}',
        '1: {\n  "topic": "tea",\n  "words": 3\n}',
        '1: Dear agent, Hello',
    ]


def _seeing(seen: list[Any]) -> FunctionModel:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(one.content for one in messages[0].parts if isinstance(one, UserPromptPart))
        return ModelResponse([TextPart('seen')])

    return FunctionModel(respond)


async def test_p06_attachments_are_relative_to_the_project(tmp_path: Path) -> None:
    (tmp_path / 'docs').mkdir()
    (tmp_path / 'docs' / 'a.txt').write_text('Hello')
    (tmp_path / 'b.png').write_bytes(b'png')
    seen: list[Any] = []
    runtime = Runtime([AgentSpec('one', model=_seeing(seen))], folder=tmp_path)

    await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': ['docs/a.txt', 'b.png']})

    assert seen == [['Look', 'docs/a.txt:\nHello', BinaryContent(b'png', media_type='image/png')]]


async def test_p06_missing_attachments_are_all_named(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('Hello')
    runtime = Runtime([AgentSpec('one', model=echo())], folder=tmp_path)
    with pytest.raises(InputError) as error:
        await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': ['a.txt', 'b.txt', 'c']})
    assert str(error.value) == f'The file "b.txt" is not in `{tmp_path}`.\nThe file "c" is not in `{tmp_path}`.'


@pytest.mark.parametrize('name', ['../secret', '/etc/hostname', 'inside/../../secret', 'link'])
async def test_p06_attachments_outside_of_the_project_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / 'secret').write_text('secret')
    (folder := tmp_path / 'project').mkdir()
    (folder / 'link').symlink_to(tmp_path / 'secret')
    runtime = Runtime([AgentSpec('one', model=echo())], folder=folder)
    with pytest.raises(InputError, match='outside of the project'):
        await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': [name]})


async def test_p06_model_that_sends_another_agent_a_wrong_input_is_told() -> None:
    inner = AgentSpec('inner', model=echo(), schema_in=Question)
    model = script(call('inner', input='Tea?'), call('inner', topic='tea'))
    outer = AgentSpec('outer', model=model, toolset_specs=[agent_as_toolset(inner, tool='inner')])
    said: list[str] = []
    runtime = Runtime(on_event=lambda event: said.append(event.text) if event.kind == 'result' else None)

    assert await runtime.run_entry(calling(outer), 'Go') == '1: {\n  "topic": "tea",\n  "words": 10\n}'
    assert 'topic' in said[0]
    assert 'Field required' in said[0]


async def test_p06_schema_of_an_agent_is_that_of_its_tool() -> None:
    toolset: Any = agent_as_toolset(AgentSpec('ask', schema_in=Question)).toolset
    assert set(toolset.tools['main'].function_schema.json_schema['properties']) == {'topic', 'words'}


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('a\0b', r'"a\x00b" is no name of a file'),
        ('x' * 5000, 'more characters …⟫'),
        ('x/' * 2500, 'more characters …⟫'),
        ('.env', 'The file ".env" is hidden'),
        ('.git/config', 'The file ".git/config" is hidden'),
        ('sub/../.env', 'is hidden'),
        ('link', 'The file "link" is hidden'),
        ('.visible', 'is hidden'),
        ('pipe', '"pipe" is no regular file'),
        ('sub', '"sub" is no regular file'),
        ('circle', '"circle" is'),
        ('latin.txt', 'The file "latin.txt" is not in UTF-8 (byte 3). Save it as UTF-8.'),
        ('wide.txt', 'The file "wide.txt" is in UTF-16. Save it as UTF-8.'),
        ('narrow.txt', 'The file "narrow.txt" is no text in UTF-8, since there are NUL characters in it (byte 2).'),
        ('\u202egpj.sh', r'"\u202egpj.sh" is not in'),
    ],
)
async def test_p06_attachment_that_can_not_be_read_is_an_input_error(name: str, message: str, tmp_path: Path) -> None:
    for folder in ('.git', 'sub'):
        (tmp_path / folder).mkdir()
    for hidden in ('.env', '.git/config'):
        (tmp_path / hidden).write_text('secret')
    (tmp_path / 'link').symlink_to(tmp_path / '.env')
    (tmp_path / 'plain').write_text('plain')
    (tmp_path / '.visible').symlink_to(tmp_path / 'plain')
    (tmp_path / 'circle').symlink_to(tmp_path / 'circle')
    (tmp_path / 'latin.txt').write_bytes('Grüße'.encode('latin-1'))
    (tmp_path / 'wide.txt').write_bytes('Grüße'.encode('utf-16'))
    (tmp_path / 'narrow.txt').write_bytes('Hi'.encode('utf-16-le'))
    os.mkfifo(tmp_path / 'pipe')
    runtime = Runtime([AgentSpec('one', model=echo())], folder=tmp_path)
    with pytest.raises(InputError) as error:
        await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': [name]})
    assert message in str(error.value)
    assert len(str(error.value)) < 700

    # A model that names it is told.
    inner = AgentSpec('inner', model=script('never'))
    model = script(call('inner', input='Look', attachments=[name]), 'said')
    outer = AgentSpec('outer', model=model, toolset_specs=[agent_as_toolset(inner, tool='inner')])
    assert await Runtime(folder=tmp_path).run_entry(calling(outer), 'Go') == 'said'


async def test_p06_hidden_attachments_can_be_allowed(tmp_path: Path) -> None:
    (tmp_path / '.hidden.txt').write_text('Hello')
    seen: list[Any] = []
    runtime = Runtime([AgentSpec('one', model=_seeing(seen))], folder=tmp_path, allow_hidden=True)
    await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': ['.hidden.txt']})
    assert seen == [['Look', '.hidden.txt:\nHello']]


async def test_p06_project_in_a_hidden_folder_has_attachments(tmp_path: Path) -> None:
    (folder := tmp_path / '.projects').mkdir()
    (folder / 'a.txt').write_bytes('\ufeffHello'.encode())
    seen: list[Any] = []
    runtime = Runtime([AgentSpec('one', model=_seeing(seen))], folder=folder)
    await runtime.run_entry(calling('one'), {'input': 'Look', 'attachments': ['a.txt']})
    assert seen == [['Look', 'a.txt:\nHello']]


@pytest.mark.parametrize('text', ['', ' \n'])
async def test_p06_empty_input_is_refused(text: str) -> None:
    with pytest.raises(InputError, match='The input is empty'):
        await Runtime([AgentSpec('one', model=echo())]).run_entry(calling('one'), text)
