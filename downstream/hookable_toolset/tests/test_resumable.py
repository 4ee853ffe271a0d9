"""Point 8: what of a conversation goes out as JSON and comes back equal."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
    ToolReturn,
    UserError,
)
from pydantic_ai.messages import ImageUrl

from hookable_toolset import AgentContext, BaseTool, ResumableState, Session, SessionStore, Toolset

from .conftest import asking, script

PNG = bytes(range(256))


class Picture(BaseTool):
    name = 'picture'

    def call(self, ctx: RunContext[AgentContext]) -> Any:
        return ToolReturn('a picture', content=['Look:', BinaryContent(PNG, media_type='image/png')])


class Raw(BaseTool):
    name = 'raw'

    def call(self, ctx: RunContext[AgentContext]) -> BinaryContent:
        return BinaryContent(PNG, media_type='image/png')


class Danger(BaseTool):
    name = 'danger'

    def get_approval_metadata(self) -> dict[str, Any]:
        return {'risk': ['high', 1, None]}

    def call(self, ctx: RunContext[AgentContext], what: dict[str, list[int]]) -> str:
        return f'did {what}'


class Todo(BaseTool):
    name = 'todo'
    stateful = True

    def __init__(self) -> None:
        self.items: list[str] = []

    def call(self, ctx: RunContext[AgentContext], item: str) -> str:
        self.items.append(item)
        return ','.join(self.items)

    def export_state(self) -> Any:
        return {'items': list(self.items)}

    def restore_state(self, state: Any) -> None:
        self.items = list(state['items'])


toolset: Toolset[AgentContext] = Toolset(tools=[Picture, Raw, Danger, Todo], toolset_id='mine')
agent = asking(
    script(
        [('picture', {}), ('raw', {}), ('todo', {'item': 'milk'})],
        [('danger', {'what': {'x': [1]}}), ('todo', {'item': 'eggs'})],
        ('todo', {'item': 'tea'}),
    ),
    toolset,
)


def waiting() -> AgentContext:
    """A conversation with binary content in a prompt and in results, with a pending request and a sub-agent's history."""
    context = AgentContext(need_user_approve_tools=['danger'])
    prompt = ['Look', BinaryContent(PNG, media_type='image/png'), ImageUrl('https://example.com/x.png')]
    context.record(agent.run_sync(prompt, deps=context))
    context.subagent_history['reviewer'] = Agent(script('fine')).run_sync(prompt).all_messages()
    return context


def test_all_of_a_conversation_comes_back_equal() -> None:
    context = waiting()
    assert context.pending and context.pending.metadata == {'danger-1-0': {'risk': ['high', 1, None]}}
    context.answers.approvals['danger-1-0'] = ToolApproved(override_args={'what': {'y': [2]}})
    state = context.export_state()
    assert state.toolset_states == {'mine': {'todo': {'items': ['milk', 'eggs']}}}

    back = ResumableState.from_json(state.to_json())
    assert back == state
    assert back.to_json() == state.to_json()
    new = AgentContext().with_state(back)
    assert new.export_state() == state
    assert AgentContext().with_state(state) == new
    binary = [
        item
        for message in new.message_history
        for part in message.parts
        if isinstance(content := getattr(part, 'content', None), list)
        for item in content  # type: ignore
        if isinstance(item, BinaryContent)
    ]
    assert binary and all(item.data == PNG and item.media_type == 'image/png' for item in binary)


@pytest.mark.parametrize(
    'answers',
    [
        DeferredToolResults(approvals={'a': True, 'b': False}),
        DeferredToolResults(approvals={'a': ToolDenied('Not that.'), 'b': ToolApproved(override_args={'x': [1]})}),
        DeferredToolResults(calls={'a': 'text', 'b': {'x': [1]}, 'c': None, 'd': ModelRetry('again'), 'e': 3}),
        DeferredToolResults(calls={'a': ToolReturn('x', content='y', metadata={'z': 1})}),
        DeferredToolResults(approvals={'a': True}, metadata={'a': {'by': 'Ada'}}),
    ],
)
def test_answers_come_back_equal(answers: DeferredToolResults) -> None:
    context = AgentContext(answers=answers)
    assert AgentContext().with_state(ResumableState.from_json(context.export_state().to_json())) == context


def test_state_is_taken_over_as_a_copy() -> None:
    state = waiting().export_state()
    first, second = AgentContext().with_state(state), AgentContext().with_state(state)
    first.need_user_approve_tools.clear()
    first.message_history.clear()
    first.toolset_states['mine']['todo'] = None
    assert second == AgentContext().with_state(state) != first


def test_state_that_json_cannot_express_is_refused_where_it_is_exported() -> None:
    class Odd(Todo):
        def export_state(self) -> Any:
            return {'items': {1, 2}}

    context = AgentContext()
    odd = Agent(script(('todo', {'item': 'x'})), deps_type=AgentContext, toolsets=[Toolset(tools=[Odd])])
    odd.run_sync('Go', deps=context)
    with pytest.raises(
        UserError, match=r'The context is no `ResumableState`\. `toolset_states\.\.todo.*`: .* JSON value\.$'
    ):
        context.export_state()


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            {'version': 2, 'message_history': [{'kind': 'of another kind'}]},
            'The state is of version 2, and this is `hookable_toolset` for version 1.',
        ),
        (
            {'written_by': '99.1.0', 'message_history': [{'kind': 'of another kind'}]},
            'The state was written with pydantic-ai 99.1.0, and .* Install 99.1.0 or a newer one.',
        ),
    ],
)
def test_state_of_a_newer_version_is_refused(changes: dict[str, Any], message: str) -> None:
    state = ResumableState()
    with pytest.raises(UserError, match=message):
        ResumableState.from_json(json.dumps(json.loads(state.to_json()) | changes))
    del changes['message_history']
    with pytest.raises(UserError, match=message):
        AgentContext().with_state(state.model_copy(update=changes))


def test_state_of_an_older_release_is_read() -> None:
    state = waiting().export_state()
    assert re.fullmatch(r'\d+\.\d+\.\d+', state.written_by)
    data = json.loads(state.to_json()) | {'written_by': '1.0.0'}
    assert ResumableState.from_json(json.dumps(data)).message_history == state.message_history


# Fields of one's own.


@dataclass
class ShopContext(AgentContext):
    customer: str = ''
    basket: list[str] = field(default_factory=list[str])
    connection: Any = None  # not kept: the state has no such field


class ShopState(ResumableState):
    customer: str = ''
    basket: list[str] = Field(default_factory=list[str])


def test_fields_of_a_context_of_ones_own_come_back_by_a_state_of_ones_own() -> None:
    context = ShopContext(customer='Ada', basket=['tea'], connection=object())
    state = context.export_state(ShopState)
    assert (state.customer, state.basket) == ('Ada', ['tea'])
    back = ShopState.from_json(state.to_json())
    assert back == state
    new = ShopContext().with_state(back)
    assert (new.customer, new.basket, new.connection) == ('Ada', ['tea'], None)
    new.basket.append('coffee')
    assert back.basket == ['tea'] == context.basket
    assert context.export_state() == ResumableState()


class Item(BaseModel):
    name: str = ''


class Special(Item):
    price: int = 0


class Hidden(BaseModel):
    note: str = Field('', exclude=True)


def own(annotation: Any, value: Any, default: Any = None, **options: Any) -> tuple[type[ResumableState], AgentContext]:
    """Return a state with an own field, and a context that has a value for it."""
    State: Any = type(
        'State', (ResumableState,), {'__annotations__': {'own': annotation}, 'own': Field(default, **options)}
    )
    context: Any = ShopContext()
    context.own = value
    return State, context


@pytest.mark.anyio
@pytest.mark.parametrize(
    ('annotation', 'value', 'options'),
    [
        (str, 'ada', {'alias': 'Own'}),
        (str, 'ada', {'validation_alias': 'Own'}),
        (str, 'ada', {'serialization_alias': 'Own'}),
        (float, math.inf, {}),
        (bytes, b'\xff', {}),
        (set[str], {'a'}, {}),
        (tuple[int, ...], (1, 2), {}),
        (dict[int, date], {1: date(2026, 1, 1)}, {}),
        (list[Special], [Special(price=3)], {}),
    ],
)
async def test_own_field_comes_back_as_it_was(
    tmp_path: Path, annotation: Any, value: Any, options: dict[str, Any]
) -> None:
    state, context = own(annotation, value, **options)
    async with SessionStore(tmp_path / 'sessions.db', state) as store:
        await (await Session.open(store, 'ada', context)).save()
        back: Any = (await Session.open(store, 'ada', own(annotation, None)[1])).context
        assert repr(back.own) == repr(value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ('annotation', 'value', 'options', 'message'),
    [
        (str, 'ada', {'exclude': True}, "`State` excludes 'own' from what is written"),
        (SecretStr, SecretStr('hush'), {}, '`own` of `State` can not be stored. It comes back as something else'),
        (list[Item], [Special(price=3)], {}, '`own` of `State` can not be stored. It comes back as something else'),
        (list[Hidden], [Hidden(note='x')], {}, '`own` of `State` can not be stored. It comes back as something else'),
        (Any, (1, 2), {}, '`own` of `State` can not be stored. It comes back as something else'),
        (Any, {1: 2}, {}, '`own` of `State` can not be stored. It comes back as something else'),
        (float, math.nan, {}, '`own` of `State` can not be stored. It comes back as something else'),
        (Any, object(), {}, '`own` of `State` can not be stored. Unable to serialize unknown type'),
        (str, '\ud800', {}, '`own` of `State` can not be stored. Error serializing to JSON'),
        (int, 'x', {}, 'The context is no `State`. `own`: Input should be a valid integer'),
    ],
)
async def test_own_field_that_would_not_come_back_is_refused_when_it_is_stored(
    tmp_path: Path, annotation: Any, value: Any, options: dict[str, Any], message: str
) -> None:
    state, context = own(annotation, value, **options)
    async with SessionStore(tmp_path / 'sessions.db', state) as store:
        with pytest.raises(UserError) as caught:
            await (await Session.open(store, 'ada', context)).save()
        assert str(caught.value).startswith(message)
        assert (await store.load('ada'))[0] == 0


@pytest.mark.anyio
async def test_state_whose_fields_would_be_lost_is_refused(tmp_path: Path) -> None:
    """A store that isn't told of the type, or a context without the fields, would store the session without them."""
    async with SessionStore(tmp_path / 'sessions.db', ShopState) as store:
        for name in 'new', 'ada':
            with pytest.raises(
                UserError, match="`ShopState` keeps 'basket', 'customer', which `AgentContext` does not"
            ):
                await Session.open(store, name)
            await (await Session.open(store, 'ada', ShopContext(customer='Ada'))).save()
    async with SessionStore(tmp_path / 'sessions.db') as store:
        with pytest.raises(UserError) as caught:
            await Session.open(store, 'ada', ShopContext())
    assert str(caught.value) == (
        f"Session 'ada' in `{tmp_path / 'sessions.db'}` is not opened. The state has 'basket', 'customer', which "
        '`ResumableState` does not keep. Read it by the type that wrote it: `SessionStore(..., state_type=...)`.'
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ('data', 'message'),
    [
        ('{"version": 1, "mess', r'Invalid JSON: EOF while parsing a string at .*\.'),
        ('[]', r'Input should be an object\.'),
        ('{"written_by": 5}', r'`written_by`: Input should be a valid string\.'),
        ('{"message_history": [{"kind": "of another kind"}]}', r'`message_history.0`: .*'),
    ],
)
async def test_state_that_was_damaged_is_refused_in_a_line_that_names_the_session(
    tmp_path: Path, data: str, message: str
) -> None:
    path = tmp_path / 'sessions.db'
    async with SessionStore(path) as store:
        await (await Session.open(store, 'ada')).save()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute('UPDATE sessions SET state = ?', [data])
        with pytest.raises(UserError) as caught:
            await Session.open(store, 'ada')
    pattern = (
        rf"Session 'ada' in `{path}` is not opened\. The state is no `ResumableState`\. {message} It was damaged, .*"
    )
    assert re.fullmatch(pattern, str(caught.value))  # A dot is no end of a line.
