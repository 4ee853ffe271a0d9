"""Rules judge what a tool gets, hold where they are written, and are refused where they name nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import pytest
from conftest import Write
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    PlainValidator,
    Secret,
    SecretStr,
    StringConstraints,
    Tag,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.tools import ToolDefinition
from support import Server, StatefulKeeper, call, calling, entry, script, scripts
from toolset_first import (
    AgentSpec,
    Answer,
    ApprovalDenied,
    ApprovalError,
    Approvals,
    CallRuntime,
    EntrySpec,
    ProjectError,
    Question,
    Runtime,
    ToolsetSpec,
    WorkerArgs,
    agent_as_toolset,
    load_project,
)
from toolset_first.approvals import shown
from toolset_first.cli import app
from typer.testing import CliRunner

RAN: list[Any] = []
DENIED = 'The rules of this project do not allow this call.'


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


class Mode(str, Enum):
    SAFE = 'safe'
    FORCE = 'force'


class Target(BaseModel):
    path: str
    mode: str = 'force'


@dataclass
class DataTarget:
    path: str
    mode: str = 'force'


class AliasedTarget(BaseModel):
    path: str
    own: str = Field('safe', alias='mode')


class ChosenTarget(BaseModel):
    path: str
    own: str = Field('safe', validation_alias=AliasChoices('mode', 'how'))


@pydantic_dataclass
class AliasedDataTarget:
    path: str
    own: str = Field('safe', alias='mode')


class ModeTarget(BaseModel):
    target: str


Stripped = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]


def rm(path: Stripped, mode: str = 'force') -> str:
    """Remove."""
    RAN.append((path, mode))
    return 'removed'


def removing(**kinds: Any) -> Callable[..., str]:
    """Return a tool whose parameters are of these types."""

    def rm(path: Any, mode: Any = 'force') -> str:
        """Remove."""
        RAN.append((path, mode))
        return 'removed'

    def rm_target(target: Any) -> str:
        """Remove."""
        RAN.append(target)
        return 'removed'

    made = rm_target if 'target' in kinds else rm
    made.__annotations__ |= kinds
    return made


rm_enum = removing(path=str, mode=Mode)
rm_literal = removing(path=str, mode=Literal['safe', 'force'] | None)
rm_file = removing(path=Path, mode=str)
rm_model, rm_data = removing(target=Target), removing(target=DataTarget)
rm_aliased_model, rm_chosen_model = removing(target=AliasedTarget), removing(target=ChosenTarget)
rm_aliased_data = removing(target=AliasedDataTarget)


def rm_aliased(path: str, own: Annotated[str, Field(alias='mode')] = 'safe') -> str:
    """Remove."""
    RAN.append(path)
    return 'removed'


def rules(function: Callable[..., Any], **patterns: Any) -> ToolsetSpec:
    return ToolsetSpec(toolset=FunctionToolset[Any]([function]), approval_config={function.__name__: patterns})


async def run(spec: ToolsetSpec, *steps: Any, approvals: Approvals | None = None) -> str:
    agent = AgentSpec('one', model=script(*steps), toolset_specs=[spec])
    return await Runtime([agent], approvals=approvals or Approvals('reject-all')).run_entry(calling('one'), 'Go')


def asking(seen: list[Any], answer: Callable[[], Answer | bool] = lambda: True) -> Approvals:
    """Return approvals by someone who notes the arguments that they are shown."""
    return Approvals(ask=lambda question: seen.append(question.arguments) or answer())


FORCE_IS_DENIED: Any = {'mode': {'force': 'deny', '*': 'allow'}}


@pytest.mark.parametrize('function', [rm, rm_enum, rm_literal, rm_file, rm_model, rm_data])
async def test_rule_judges_the_value_of_a_parameter_that_the_model_leaves_out(function: Callable[..., Any]) -> None:
    spec = rules(function, **FORCE_IS_DENIED)
    assert await run(spec, call(function.__name__, path='a')) == DENIED
    assert RAN == []
    assert await run(spec, call(function.__name__, path='a', mode='safe')) == 'removed'
    assert len(RAN) == 1


@pytest.mark.parametrize('function', [rm_aliased_model, rm_chosen_model, rm_aliased_data])
async def test_rule_judges_a_field_by_the_name_that_the_model_calls_it_by(function: Callable[..., Any]) -> None:
    spec = rules(function, mode={'safe': 'allow', '*': 'deny'})
    assert await run(spec, call(function.__name__, path='a', mode='force')) == DENIED
    assert RAN == []
    assert await run(spec, call(function.__name__, path='a', mode='safe')) == 'removed'
    assert await run(spec, call(function.__name__, path='a')) == 'removed'


async def test_parameter_that_is_validated_under_another_name_is_judged_at_its_strictest() -> None:
    spec = rules(rm_aliased, mode={'safe': 'allow', '*': 'deny'})
    for mode in ('force', 'safe'):
        assert await run(spec, call('rm_aliased', path='a', mode=mode)) == DENIED
    assert RAN == []


async def test_rule_for_a_field_that_is_called_as_the_parameter_is() -> None:
    def rm(target: ModeTarget) -> str:
        """Remove."""
        return 'removed'

    spec = rules(rm, target={'safe': 'allow', '*': 'deny'})
    assert await run(spec, call('rm', target='force')) == DENIED
    assert await run(spec, call('rm', target='safe')) == 'removed'


async def test_rule_that_is_a_function_gets_the_fields_of_a_model_that_is_the_only_parameter() -> None:
    seen: list[Any] = []

    def judge(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return 'allow'

    for function in (rm_model, rm_aliased_model):
        spec = ToolsetSpec(toolset=FunctionToolset[Any]([function]), approval_config={function.__name__: judge})  # pyright: ignore[reportArgumentType]
        await run(spec, call(function.__name__, path='a'))
    assert seen == [{'path': 'a', 'mode': 'force'}, {'path': 'a', 'mode': 'safe'}]


async def test_rule_judges_what_a_validator_makes_of_a_text() -> None:
    spec = rules(rm, path={'secret*': 'deny', '*': 'allow'})
    for path in (' secret', 'SECRET.txt', '\tSecret'):
        assert await run(spec, call('rm', path=path)) == DENIED
    assert await run(spec, call('rm', path='public')) == 'removed'
    assert RAN == [('public', 'force')]


async def test_rule_that_is_a_function_judges_validated_arguments_too() -> None:
    seen: list[Any] = []

    def pay(amount: int, now: bool = True) -> str:
        """Pay."""
        return f'paid {amount}'

    def judge(arguments: dict[str, Any]) -> str:
        seen.append(dict(arguments))
        verdict = 'deny' if arguments['amount'] >= 1000 else 'allow'
        arguments['amount'] = 0  # which the tool doesn't get
        return verdict

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([pay]), approval_config={'pay': judge})  # pyright: ignore[reportArgumentType]
    for amount in (1000.0, '1_000', '1000'):
        assert await run(spec, call('pay', amount=amount, now='yes')) == DENIED
    assert await run(spec, call('pay', amount='9')) == 'paid 9'
    assert seen == [{'amount': 1000, 'now': True}] * 3 + [{'amount': 9, 'now': True}]


@pytest.mark.parametrize('said', [True, 'yes', None])
async def test_rule_that_says_something_else_is_an_error(said: Any) -> None:
    spec = ToolsetSpec(toolset=FunctionToolset[Any]([rm]), approval_config={'rm': lambda arguments: said})
    with pytest.raises(ApprovalError, match='It returns `allow`, `ask` or `deny`'):
        await run(spec, call('rm', path='a'))
    assert RAN == []


class Order(WorkerArgs):
    topic: str
    mode: str = 'force'


async def test_rule_for_an_agent_judges_the_fields_that_the_model_leaves_out() -> None:
    inner = AgentSpec('inner', model=script('done'), schema_in=Order)
    spec = agent_as_toolset(inner, tool='inner')
    spec = ToolsetSpec(toolset=spec.toolset, shared=True, approval_config={'inner': FORCE_IS_DENIED})
    assert await run(spec, call('inner', topic='tea')) == DENIED
    assert await run(spec, call('inner', topic='tea', mode='safe')) == 'done'


async def test_argument_that_a_server_chooses_is_judged_at_its_strictest() -> None:
    properties: dict[str, Any] = {'path': {'type': 'string'}, 'mode': {'type': 'string'}}
    for default, ok in ((None, False), ('force', False), ('safe', True)):
        RAN.clear()
        mode = {'mode': {'type': 'string', 'default': default}} if default else {}
        server = Server({'type': 'object', 'properties': {**properties, **mode}}, RAN)
        spec = ToolsetSpec(toolset=server, shared=True, approval_config={'rm': FORCE_IS_DENIED})
        said = await run(spec, call('rm', path='a'))
        assert (said, len(RAN)) == (('removed', 1) if ok else (DENIED, 0))


async def test_what_was_shown_is_what_runs() -> None:
    given = iter(range(10))

    def rm(path: Any, more: str = '') -> str:
        RAN.append(path)
        return 'removed'

    rm.__annotations__['path'] = Annotated[str, AfterValidator(lambda path: f'{path} {next(given)}')]
    shown: list[str] = []

    def ask(question: Question) -> Answer:
        shown.append(question.arguments['path'])
        question.arguments['path'] = 'all'  # which changes nothing
        return Answer(True)

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([rm]), shared=True, approval_config={'rm': 'ask'})
    assert await run(spec, call('rm', path='a'), approvals=Approvals(ask=ask)) == 'removed'
    assert shown == RAN


class Command(BaseModel):
    model_config = ConfigDict(extra='allow')

    name: str
    then: str = Field('', exclude=True)

    @field_serializer('name')
    def shorten(self, name: str) -> str:
        return name[:2]


async def test_someone_who_is_asked_sees_what_its_type_would_not_write() -> None:
    def run_command(command: Command, key: SecretStr) -> str:
        """Run."""
        RAN.append((command.then, key.get_secret_value()))
        return 'ran'

    seen: list[Any] = []

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([run_command]), approval_config={'run_command': 'ask'})
    steps = [
        call('run_command', command={'name': 'list', 'then': then, 'more': 1}, key=key)
        for then, key in (('look', 'a'), ('rm', 'a'), ('rm', 'b'), ('rm', 'b'))
    ]
    approvals = asking(seen, lambda: Answer(True, remember=True))
    assert await run(spec, *steps, approvals=approvals) == 'ran'
    assert seen == [
        {'command': {'name': 'list', 'then': then, 'more': 1}, 'key': key}
        for then, key in (('look', 'a'), ('rm', 'a'), ('rm', 'b'))
    ]
    assert len(RAN) == 4


class Masked:
    """A value that never shows itself."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return 'Masked(***)'


class Tagged(list[int]):
    def __init__(self, value: int) -> None:
        super().__init__([0])
        self.value = value


class Slotted(str):
    __slots__ = ('value',)

    def __new__(cls, value: int) -> Self:
        made = super().__new__(cls, 'some')
        made.value = value
        return made


def made_of_number(kind: type[Any]) -> Any:
    return Annotated[kind, PlainValidator(kind, json_schema_input_type=int)]


class Boxed(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    value: Annotated[Masked, PlainValidator(Masked, json_schema_input_type=int)]


KINDS: list[tuple[Any, Callable[[Any], Any], Callable[[Any], int], bool]] = [
    (Secret[int], lambda number: number, lambda amount: amount.get_secret_value(), True),
    (deque[Secret[int]], lambda number: [number], lambda amount: amount[0].get_secret_value(), True),
    (made_of_number(Masked), lambda number: number, lambda amount: amount.value, False),
    (made_of_number(Tagged), lambda number: number, lambda amount: amount.value, False),
    (made_of_number(Slotted), lambda number: number, lambda amount: amount.value, False),
    (list[Boxed], lambda number: [{'value': number}], lambda amount: amount[0].value.value, False),
]


@pytest.mark.parametrize(('kind', 'sent', 'value', 'is_shown'), KINDS)
async def test_answer_counts_for_what_runs_whatever_its_type_shows(
    kind: Any, sent: Callable[[int], Any], value: Callable[[Any], int], is_shown: bool
) -> None:
    def pay(amount: Any, more: int = 1) -> None:
        RAN.append(value(amount))

    pay.__annotations__['amount'] = kind
    seen: list[Any] = []
    approvals = asking(seen, lambda: Answer('99999' not in str(seen[-1]), remember=True))
    spec = ToolsetSpec(toolset=FunctionToolset[Any]([pay]), approval_config={'pay': 'ask'})
    await run(spec, *(call('pay', amount=sent(number)) for number in (1, 1, 99999)), 'done', approvals=approvals)
    assert RAN == [1, 1]
    # What can't be shown isn't remembered, either
    assert seen == [{'amount': sent(number), 'more': 1} for number in ((1, 99999) if is_shown else (1, 1, 99999))]


class Pay(BaseModel):
    account: str


class Close(Pay):
    pass


DEEDS: Any = Annotated[
    Annotated[Pay, Tag('pay')] | Annotated[Close, Tag('close')], Discriminator(lambda sent: sent['deed'])
]


async def test_answer_counts_for_what_the_model_wrote_where_two_types_look_the_same() -> None:
    def do(deed: Any, more: int = 1) -> None:
        RAN.append(type(deed))

    do.__annotations__['deed'] = DEEDS
    seen: list[Any] = []
    spec = ToolsetSpec(toolset=FunctionToolset[Any]([do]), approval_config={'do': 'ask'})
    steps = [call('do', deed={'deed': deed, 'account': 'a'}) for deed in ('pay', 'pay', 'close')]
    await run(spec, *steps, 'done', approvals=asking(seen, lambda: Answer(True, remember=True)))
    assert (RAN, len(seen)) == ([Pay, Pay, Close], 2)


def test_address_is_shown_in_full() -> None:
    assert shown({'to': HttpUrl('http://a')}, {}) == ({'to': 'http://a/'}, True)


def greet(names: Iterable[str]) -> str:
    RAN.append(list(names))
    return 'greeted'


def if_named(arguments: dict[str, Any]) -> str:
    return 'allow' if list(arguments['names']) else 'deny'


@pytest.mark.parametrize('rule', ['ask', {}, if_named])
async def test_iterable_is_not_used_up_by_being_judged_or_shown(rule: Any) -> None:
    seen: list[Any] = []

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([greet]), approval_config={'greet': rule} if rule else {})
    assert await run(spec, call('greet', names=['a', 'b']), 'done', approvals=asking(seen)) == 'done'
    assert RAN == [['a', 'b']]
    assert seen == ([{'names': ['a', 'b']}] if rule == 'ask' else [])


async def test_tool_that_asks_twice_is_refused_and_never_gets_what_was_not_validated() -> None:
    def pay(ctx: RunContext[Any], amount: int) -> str:
        RAN.append(amount)
        raise ApprovalRequired(metadata={'step': len(RAN)})

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([pay]))
    asked: list[Any] = []
    with pytest.raises(ApprovalError, match='was approved, and asks again'):
        await run(spec, call('pay', amount='3'), approvals=asking(asked))
    assert RAN == [3, 3]
    assert asked == [{'amount': 3}]


ALLOWED: dict[str, Any] = {'account': {'*': 'allow'}}


def allow_all(arguments: dict[str, Any]) -> str:
    return 'allow'


@pytest.mark.parametrize(
    ('rule', 'asked'), [(ALLOWED, 1), (allow_all, 1), ('ask', 1), (None, 1), ('allow', 0), ('deny', 0)]
)
@pytest.mark.parametrize('requires', [False, True])
async def test_only_the_word_allow_overrules_a_tool_that_asks_itself(rule: Any, asked: int, requires: bool) -> None:
    def pay(ctx: RunContext[Any], account: str) -> str:
        if not requires and not ctx.tool_call_approved:
            raise ApprovalRequired
        RAN.append(account)
        return 'paid'

    questions: list[Any] = []
    toolset = FunctionToolset[Any]([Tool(pay, requires_approval=requires)])
    spec = ToolsetSpec(toolset=toolset, shared=True, approval_config={'pay': rule} if rule else None)
    await run(spec, call('pay', account='travel'), 'done', approvals=asking(questions, lambda: False))
    assert (len(questions), RAN) == (asked, ['travel'] if rule == 'allow' else [])


async def test_rule_of_each_agent_holds_where_they_share_a_toolset() -> None:
    model = scripts({'Go': [call('keep', what='outer'), call('two', input='On')], 'On': [call('keep', what='inner')]})
    keeper = StatefulKeeper()
    two = AgentSpec('two', model=model, toolset_specs=[ToolsetSpec(toolset=keeper, approval_config={'keep': 'deny'})])
    one = AgentSpec(
        'one',
        model=model,
        toolset_specs=[
            ToolsetSpec(toolset=keeper, approval_config={'keep': 'allow'}),
            agent_as_toolset('two', tool='two'),
        ],
    )
    runtime = Runtime([one, two], approvals=Approvals('approve-all'))
    assert await runtime.run_entry(calling('one'), 'Go') == DENIED


def as_it_is(toolset: Any) -> Any:
    return toolset


def asked_about(toolset: Any) -> Any:
    return toolset.approval_required()


@pytest.mark.parametrize('by_hand', [False, True])
@pytest.mark.parametrize('wrap', [as_it_is, asked_about])
async def test_rule_holds_within_whatever_is_put_around_a_toolset_that_is_handed_on(
    wrap: Callable[[Any], Any], by_hand: bool
) -> None:
    async def delegate(ctx: RunContext[CallRuntime]) -> str:
        toolset, _ = map(wrap, ctx.for_sub_agent())
        model = script(call('rm', path='a'))
        if not by_hand:
            specs = [ToolsetSpec(toolset=toolset, shared=True)]
            return await ctx.deps.call_agent(AgentSpec('child', model=model, toolset_specs=specs), 'Go')
        child = Agent[Any, Any](model, toolsets=[toolset], output_type=[str, DeferredToolRequests])
        return str(await child.run('Go', deferred_tool_handler=ctx.deferred_tool_handler))

    disk = ToolsetSpec(toolset=FunctionToolset[Any]([rm]), approval_config={'rm': 'deny'})
    boss = AgentSpec('boss', model=script(call('delegate')), toolset_specs=[disk, ToolsetSpec(functions=[delegate])])
    with suppress(ApprovalError):  # what was approved asks again
        await Runtime(approvals=Approvals('approve-all')).run_entry(calling(boss), 'Go')
    assert RAN == []


async def test_approvals_that_are_changed_halfway_count_from_the_next_call_on() -> None:
    def lock(ctx: RunContext[CallRuntime]) -> None:
        ctx.deps.runtime.approvals = Approvals('reject-all')

    spec = ToolsetSpec(functions=[lock, rm], approval_config={'rm': 'ask'})
    said = await run(spec, call('lock'), call('rm', path='a'), approvals=Approvals('approve-all'))
    assert said == 'All calls that need approval are rejected.'


async def test_default_that_is_changed_afterwards_counts_at_once() -> None:
    spec = ToolsetSpec(toolset=FunctionToolset[Any]([rm]))
    runtime = Runtime([AgentSpec('one', model=script(call('rm', path='a')), toolset_specs=[spec])])
    assert await runtime.run_entry(calling('one'), 'Go') == 'removed'
    runtime.approvals = Approvals('reject-all', default='ask')
    assert await runtime.run_entry(calling('one'), 'Go') == 'All calls that need approval are rejected.'
    runtime.approvals = Approvals('reject-all', default='deny')
    assert await runtime.run_entry(calling('one'), 'Go') == DENIED
    runtime.approvals = None
    assert await runtime.run_entry(calling('one'), 'Go') == 'removed'
    with pytest.raises(TypeError, match='`approvals` are `Approvals` or `None`'):
        runtime.approvals = 'allow'  # pyright: ignore[reportAttributeAccessIssue]


def test_approvals_and_rules_can_not_be_changed_halfway() -> None:
    with pytest.raises(AttributeError):
        Approvals('approve-all').default = 'deny'  # pyright: ignore[reportAttributeAccessIssue]
    given: dict[str, Any] = {'rm': {'path': {'*': 'deny'}}}
    spec = ToolsetSpec(toolset=FunctionToolset[Any]([rm]), approval_config=given)
    given['rm']['path']['*'] = 'allow'
    config: Any = spec.approval_config
    assert config == {'rm': {'path': {'*': 'deny'}}}
    with pytest.raises(TypeError):
        config['rm']['path']['*'] = 'allow'


@pytest.mark.parametrize('options', [{'mode': 'yes'}, {'default': 'perhaps'}, {'on_denial': 'shout'}])
def test_unknown_words_of_approvals_are_refused(options: Any) -> None:
    with pytest.raises(ApprovalError, match='It is one of'):
        Approvals(**cast('dict[str, Any]', {'mode': 'approve-all', **options}))


def typed(name: str, amount: int, flag: bool, when: Annotated[str, 'x'], items: list[str], any: Any) -> None:
    """Take things of all types."""


PREFIXED = FunctionToolset[Any]([rm]).prefixed('disk')
WRONG: list[tuple[ToolsetSpec, str]] = [
    (
        ToolsetSpec(toolset=FunctionToolset[Any]([rm]), approval_config={'rn': 'deny'}),
        'The rule for `rn` names no tool',
    ),
    (ToolsetSpec(toolset=PREFIXED, approval_config={'rm': 'deny'}), 'The tools are called: `disk_rm`'),
    (ToolsetSpec(toolset=PREFIXED.renamed({'x': 'disk_rm'}), approval_config={'rm': 'deny'}), 'are called: `x`'),
    (rules(rm, pth={'*': 'deny'}), 'names no parameter of it with `pth`. Its parameters are: `path`, `mode`.'),
    (rules(typed, amount={'3': 'deny'}), 'has patterns for `amount`, which is no text'),
    (rules(typed, flag={'yes': 'deny'}), 'has patterns for `flag`, which is no text'),
    (rules(typed, items={'*': 'deny'}), 'has patterns for `items`, which is no text'),
    (rules(typed, any={'*': 'deny'}), 'has patterns for `any`, which is no text'),
]


@pytest.mark.parametrize(('spec', 'message'), WRONG)
def test_rule_that_names_nothing_is_refused_when_the_agent_is_built(spec: ToolsetSpec, message: str) -> None:
    with pytest.raises(ApprovalError) as error:
        Runtime([AgentSpec('one', model='test', toolset_specs=[spec])])
    assert message in str(error.value)
    assert "The agent 'one'" in str(error.value)


async def test_rule_for_a_tool_that_shows_when_the_toolset_is_open_is_refused_before_the_first_request() -> None:
    server = Server({'type': 'object', 'properties': {'path': {'type': 'string'}, 'size': {'type': 'integer'}}})
    wrong: list[tuple[Any, str]] = [
        ({'rn': 'deny'}, 'The rule for `rn` names no tool'),
        ({'rm': {'pth': {'*': 'deny'}}}, 'no parameter of it with `pth`'),
        ({'rm': {'size': {'1': 'deny'}}}, 'has patterns for `size`, which is no text'),
    ]
    for config, message in wrong:
        spec = ToolsetSpec(toolset=server, shared=True, approval_config=config)
        agent = AgentSpec('one', model=script('never'), toolset_specs=[spec])
        runtime = Runtime([agent])
        with pytest.raises(ApprovalError) as error:
            await runtime.run_entry(calling('one'), 'Go')
        assert message in str(error.value)
        assert runtime.usage.requests == 0


async def test_rule_for_a_tool_that_is_hidden_now_is_none_that_names_nothing() -> None:
    hidden = FunctionToolset[Any]([rm]).filtered(lambda ctx, tool: False)
    for toolset in (hidden, Server({'type': 'object'}).filtered(lambda ctx, tool: False)):
        spec = ToolsetSpec(toolset=toolset, shared=True, approval_config={'rm': 'deny'})
        assert await run(spec, 'done') == 'done'


TOOLS = """
    from pydantic_ai import FunctionToolset
    from support import StatefulKeeper, calling, echo
    from toolset_first import AgentSpec, EntrySpec, ToolsetSpec

    def rm(path: str, count: int = 1) -> str:
        return path

    disk = FunctionToolset([rm])
    """


def test_rule_of_a_python_file_that_names_nothing_is_refused_when_the_project_is_loaded(write: Write) -> None:
    text = """
    one = AgentSpec('one', model='test', toolset_specs=[ToolsetSpec(toolset=disk, approval_config={'rn': 'deny'})])
    start = EntrySpec(ToolsetSpec(factory=calling('one').toolset_spec.factory, approval_config={'mian': 'deny'}), 'start')
    """
    folder = write(tools__py=TOOLS + text)
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    assert [fault.removeprefix(f'{folder}/tools.py, ') for fault in error.value.faults] == [
        '`one`: The rule for `rn` names no tool. The tools are called: `rm`.',
        '`start`: The rule for `mian` names no tool. The tools are called: `main`.',
    ]


def ruled(rule: Any) -> EntrySpec:
    async def main(input: str, mode: str = 'force') -> str:
        RAN.append(input)
        return f'did {input}'

    factory = entry(main).toolset_spec.factory
    return EntrySpec(ToolsetSpec(factory=factory, approval_config={'main': rule}), 'start')


MADE = """\
    from pydantic_ai import FunctionToolset
    from toolset_first import ToolsetSpec

    def pay(account: str) -> str:
        return 'paid'

    def build(context):
        return FunctionToolset([pay])

    bank = ToolsetSpec(factory=build, options={'limit': 3})
    plain = ToolsetSpec(functions=[pay])
    """


@pytest.mark.parametrize('toolset', ['bank', 'plain', 'files', 'other'])
@pytest.mark.parametrize(
    ('key', 'nearest'),
    [
        ('aproval: {pay: deny}', 'aproval'),
        ('approvals: {pay: deny}', 'approvals'),
        ('Approval: {pay: deny}', 'Approval'),
        ('rules: {pay: deny}', 'rules'),
        ('pay: deny', 'pay'),
    ],
)
def test_unknown_key_of_an_entry_is_an_error_whatever_makes_the_toolset(
    toolset: str, key: str, nearest: str, write: Write
) -> None:
    folder = write(
        tools__py=MADE,
        a__worker=f'---\nname: a\nmodel: test\nentry: true\ntoolsets: {{{toolset}: {{{key}}}}}\n---\n',
        other__worker='---\nname: other\nmodel: test\n---\n',
    )
    with pytest.raises(ProjectError) as error:
        load_project(folder)
    (fault,) = error.value.faults
    assert fault.startswith(f"{folder}/a.worker:5: '{toolset}': `{nearest}` is not known.")
    assert ('Did you mean `approval`?' in fault) == ('pprov' in key.casefold() or 'aproval' in key)


def test_options_of_a_factory_are_those_that_its_spec_names(write: Write) -> None:
    worker = '---\nname: a\nmodel: test\nentry: true\ntoolsets: {bank: {limit: 5, approval: {pay: ask}}}\n---\n'
    (spec,) = load_project(write(tools__py=MADE, a__worker=worker)).agents[0].toolset_specs
    assert (spec.options, dict(spec.rules)) == ({'limit': 5}, {'pay': 'ask'})
    folder = write(a__worker=worker.replace('limit', 'limt'))
    with pytest.raises(ProjectError, match=r'`limt` is not known\. Did you mean `limit`'):
        load_project(folder)


async def test_rules_of_an_entry_are_applied() -> None:
    asked: list[Question] = []

    def ask(question: Question) -> Answer:
        asked.append(question)
        return Answer(len(asked) == 1, 'Not now.')

    runtime = Runtime(approvals=Approvals(ask=ask))
    assert await runtime.run_entry(ruled('allow'), 'it') == 'did it'
    assert await runtime.run_entry(ruled('ask'), 'this') == 'did this'
    with pytest.raises(ApprovalDenied, match=r"`main` of 'start' was denied: Not now."):
        await runtime.run_entry(ruled('ask'), 'that')
    with pytest.raises(ApprovalError, match="`main` of the entry 'start' is denied by its rule"):
        await runtime.run_entry(ruled({'mode': {'force': 'deny'}}), 'this')
    with pytest.raises(ApprovalError, match='needs approval, and nobody is there to give it'):
        await Runtime().run_entry(ruled('ask'), 'this')
    assert RAN == ['it', 'this']
    assert [one.arguments['input'] for one in asked] == ['this', 'that']


async def test_result_of_a_guarded_tool_arrives_as_it_is() -> None:
    def tell() -> ToolReturn:
        """Tell."""
        return ToolReturn('told', metadata={'a': 1})

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([tell]), approval_config={'tell': 'ask'})
    assert await run(spec, call('tell'), approvals=Approvals('approve-all')) == 'told'


def test_check_prints_the_rules_that_hold(write: Write) -> None:
    text = """
    from support import Server
    server = ToolsetSpec(toolset=Server(), shared=True, approval_config={'rm': 'deny'})
    broken = ToolsetSpec(toolset=Server(broken=True), shared=True, approval_config={'rm': 'deny'})
    """
    worker = """\
        ---
        name: a
        model: test
        entry: true
        toolsets:
          disk: {approval: {rm: {path: {"secret*": deny}}}}
          b: {}
        ---
        """
    folder = write(
        tools__py=TOOLS + text,
        a__worker=worker,
        b__worker='---\nname: b\nmodel: test\ntoolsets: [server]\n---\n',
        c__worker='---\nname: c\nmodel: test\ntoolsets: [broken]\n---\n',
    )
    done = CliRunner().invoke(app, ['check', str(folder)])
    assert done.exit_code == 0
    assert done.stdout.partition('Rules of')[2] == (
        """ 'a':
- rm: {"path": {"secret*": "deny"}}
- b: allow (no rule)
Rules of 'b':
- rm: deny
- list: allow (no rule)
Rules of 'c':
- rm: deny (not checked, since it could not be opened: ConnectionError: It is down.)
"""
    )


def test_check_refuses_a_rule_that_names_nothing_in_a_toolset_that_has_to_be_opened(write: Write) -> None:
    text = """
    from support import Server
    server = ToolsetSpec(toolset=Server(), shared=True, approval_config={'rn': 'deny'})
    """
    worker = '---\nname: a\nmodel: test\nentry: true\ntoolsets: [server]\n---\n'
    done = CliRunner().invoke(app, ['check', str(write(tools__py=TOOLS + text, a__worker=worker))])
    assert (done.exit_code, done.stdout) == (1, '')
    assert done.stderr == "error: 'a': The rule for `rn` names no tool. The tools are called: `rm`, `list`.\n"


async def test_rule_for_a_tool_that_was_renamed_when_it_was_prepared_is_refused() -> None:
    def rm(path: str) -> None:
        RAN.append(path)

    async def renamed(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition:
        return replace(definition, name='remove')

    spec = ToolsetSpec(toolset=FunctionToolset[Any]([Tool(rm, prepare=renamed)]), approval_config={'rm': 'deny'})
    agent = AgentSpec('cleaner', model=script(call('remove', path='a.txt')), toolset_specs=[spec])
    with pytest.raises(ApprovalError, match='`rm` names no tool'):
        await Runtime([agent]).run_entry(EntrySpec(agent_as_toolset(agent), 'entry'), 'go')
    assert not RAN
