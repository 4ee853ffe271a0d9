"""Point 4: a scope holds the toolset of an entry, open, and calls its tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, FunctionToolset, ModelRetry, RunContext, Tool
from support import Keeper, Log, calling, echo, entry
from toolset_first import (
    AgentSpec,
    Answer,
    ApprovalDenied,
    ApprovalError,
    Approvals,
    CallRuntime,
    EntryError,
    EntrySpec,
    InputError,
    Question,
    Runtime,
    ScopeBusyError,
    ScopeClosedError,
    ToolsetSpec,
)
from typing_extensions import Self


def _tools(*names: str) -> FunctionToolset[Any]:
    toolset = FunctionToolset[Any]()
    for name in names:
        toolset.add_function(lambda input: input, name=name)
    return toolset


@pytest.mark.parametrize('names', [(), ('other',), ('main', 'other')])
async def test_p04_create_scope_refuses_a_toolset_whose_tools_are_not_exactly_main(names: tuple[str, ...]) -> None:
    spec = EntrySpec(ToolsetSpec(factory=lambda context: _tools(*names)), 'start')
    with pytest.raises(EntryError) as error:
        Runtime().create_scope(spec)
    assert str(error.value) == (
        f"The toolset of the entry 'start' must have exactly one tool, `main`, and has: "
        f'{", ".join(f"`{name}`" for name in names) or "none"}. Give the other tools to an agent, and call that from `main`.'
    )


async def test_p04_tools_that_show_when_the_toolset_is_open_are_refused_then_and_it_is_exited() -> None:
    log = Log()
    spec = EntrySpec(ToolsetSpec(factory=lambda context: Keeper(log).prefixed('a')), 'start')
    with pytest.raises(EntryError, match='exactly one tool, `main`, and has: `a_keep`'):
        async with Runtime().create_scope(spec):
            raise AssertionError('This is never reached.')
    assert log.events == ['enter', 'exit EntryError']


async def test_p04_factory_that_makes_no_toolset_is_refused() -> None:
    async def build(context: object) -> Any:
        return 'tools'

    with pytest.raises(EntryError, match="made 'tools', which is no toolset"):
        await Runtime().run_entry(EntrySpec(ToolsetSpec(factory=build), 'start'), 'Go')


@pytest.mark.parametrize('declared', [True, False])
async def test_p04_main_that_requires_approval_is_asked_about(declared: bool) -> None:
    def build(context: object) -> AbstractToolset[Any]:
        if declared:
            return FunctionToolset[Any]([Tool[Any](_echo, name='main', requires_approval=True)])
        return _tools('main').approval_required()

    spec = EntrySpec(ToolsetSpec(factory=build), 'start')
    questions: list[Question] = []

    def ask(question: Question) -> Answer:
        questions.append(question)
        return Answer(len(questions) == 1)

    runtime = Runtime(approvals=Approvals(ask=ask))
    assert await runtime.run_entry(spec, 'Go') == 'Go'
    with pytest.raises(ApprovalDenied, match="`main` of 'start' was denied"):
        await runtime.run_entry(spec, 'Go')
    with pytest.raises(ApprovalError, match='needs approval, and nobody is there to give it'):
        await Runtime().run_entry(spec, 'Go')
    assert questions == [Question('start', 'main', {'input': 'Go'})] * 2


def _echo(input: str) -> str:
    return input


async def test_p04_main_is_called_with_arguments_as_an_agent_would_validate_them() -> None:
    async def main(ctx: RunContext[CallRuntime], input: str, count: int = 1) -> str:
        return input * count

    async with Runtime().create_scope(entry(main)) as scope:
        assert await scope.call_tool('main', {'input': 'ab', 'count': '2'}) == 'abab'
        with pytest.raises(InputError) as error:
            await scope.call_tool('main', {'count': 'many', 'more': 1})
        said = str(error.value)
        assert '`input`: Field required' in said
        assert '`count`: Input should be a valid integer' in said
        assert '`more`: Extra inputs are not permitted' in said
        with pytest.raises(InputError, match='has no tool `other`'):
            await scope.call_tool('other', {})


async def test_p04_tool_that_asks_a_model_to_retry_tells_the_caller() -> None:
    async def main(input: str) -> str:
        raise ModelRetry('Say please.')

    with pytest.raises(InputError, match='Say please'):
        await Runtime().run_entry(entry(main), 'Go')


async def test_p04_call_tool_without_async_with_opens_and_close_closes() -> None:
    scope = Runtime([AgentSpec('one', model=echo())]).create_scope(calling('one'))
    try:
        assert await scope.call_tool('main', {'input': 'Go'}) == '1: Go'
    finally:
        await scope.close()
    await scope.close()  # does nothing
    with pytest.raises(ScopeClosedError, match="The scope of 'start' is closed"):
        await scope.call_tool('main', {'input': 'Go'})
    with pytest.raises(ScopeClosedError):
        async with scope:
            pass


class Main(FunctionToolset[Any]):
    """An entry that tells what happens to it."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log
        self.add_function(self.main)

    async def main(self, input: str) -> str:
        if input == 'fail':
            raise ValueError('It failed.')
        if input == 'wait':
            await asyncio.sleep(60)
        return input

    async def __aenter__(self) -> Self:
        self.log('enter')
        return self

    async def __aexit__(self, *failure: object) -> None:
        kind: Any
        kind, error, trace = failure
        assert (kind is None) == (error is None) == (trace is None)
        self.log(f'exit {kind and kind.__name__}')


def _logged(log: Log) -> EntrySpec:
    return EntrySpec(ToolsetSpec(factory=lambda context: Main(log)), 'start')


async def test_p04_exit_sees_the_failure_of_run_entry() -> None:
    log = Log()
    with pytest.raises(ValueError, match='It failed'):
        await Runtime().run_entry(_logged(log), 'fail')
    assert await Runtime().run_entry(_logged(log), 'ok') == 'ok'
    assert log.events == ['enter', 'exit ValueError', 'enter', 'exit None']


@pytest.mark.parametrize(('inputs', 'seen'), [(['ok', 'fail'], 'ValueError'), (['fail', 'ok'], 'None')])
async def test_p04_close_passes_on_the_failure_of_the_last_call(inputs: list[str], seen: str) -> None:
    log = Log()
    scope = Runtime().create_scope(_logged(log))
    for text in inputs:
        try:
            await scope.call_tool('main', {'input': text})
        except ValueError:
            assert text == 'fail'
    await scope.close()
    assert log.events == ['enter', f'exit {seen}']


async def test_p04_cancelled_call_is_seen_by_the_exit() -> None:
    log = Log()
    task = asyncio.create_task(Runtime().run_entry(_logged(log), 'wait'))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.events == ['enter', 'exit CancelledError']


async def test_p04_closing_ends_calls_that_go_on_before_it_exits() -> None:
    log = Log()
    scope = Runtime().create_scope(_logged(log))
    waiting = asyncio.create_task(scope.call_tool('main', {'input': 'wait'}))
    await asyncio.sleep(0.01)
    await scope.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert log.events == ['enter', 'exit None']


async def test_p04_turn_that_begins_while_another_goes_on_is_refused() -> None:
    log = Log()
    async with Runtime().create_scope(_logged(log)) as scope:
        found = await asyncio.gather(*(scope.run_turn(text) for text in 'abc'), return_exceptions=True)
        assert await scope.run_turn('d') == 'd'
    assert found[0] == 'a'
    assert [type(one) for one in found[1:]] == [ScopeBusyError] * 2
    assert 'a conversation has one after another' in str(found[1])
    assert log.events == ['enter', 'exit None']


async def test_p04_refused_turn_loses_nothing_of_the_history() -> None:
    async with Runtime([AgentSpec('one', model=echo())]).create_scope(calling('one')) as scope:
        await asyncio.gather(scope.run_turn('a'), scope.run_turn('b'), return_exceptions=True)
        assert await scope.run_turn('c') == '3: c'


async def test_p04_scopes_at_once_have_a_call_runtime_each() -> None:
    async def main(ctx: RunContext[CallRuntime], input: str) -> tuple[Any, int]:
        await asyncio.sleep(0)
        await ctx.deps.call_agent('one', input)
        return ctx.deps.frame.prompt['input'], ctx.deps.usage.requests

    runtime = Runtime([AgentSpec('one', model=echo())])
    found = await asyncio.gather(*(runtime.run_entry(entry(main), text) for text in 'abc'))
    assert found == [('a', 1), ('b', 1), ('c', 1)]


async def test_p04_closing_while_it_opens_leaves_nothing_open() -> None:
    log = Log()

    class Slow(Main):
        async def __aenter__(self) -> Self:
            await asyncio.sleep(0.01)
            return await super().__aenter__()

    scope = Runtime().create_scope(EntrySpec(ToolsetSpec(factory=lambda context: Slow(log)), 'start'))
    opening = asyncio.create_task(scope.call_tool('main', {'input': 'wait'}))
    await asyncio.sleep(0)
    await scope.close()
    with pytest.raises((asyncio.CancelledError, ScopeClosedError)):
        await opening
    assert log.events == ['enter', 'exit None']


async def test_p04_each_scope_of_an_entry_that_is_an_instance_has_a_fresh_one() -> None:
    class Counting(Keeper):
        stateful = True

        def __init__(self) -> None:
            FunctionToolset.__init__(self)
            self.kept: list[str] = []
            self.add_function(self.main)

        def copy(self) -> Self:
            return type(self)()

        async def main(self, input: str) -> int:
            self.kept.append(input)
            return len(self.kept)

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *args: object) -> None:
            return None

    spec = EntrySpec(ToolsetSpec(toolset=Counting()), 'start')
    runtime = Runtime()
    async with runtime.create_scope(spec) as scope:
        assert [await scope.run_turn('a'), await scope.run_turn('b')] == [1, 2]
    assert await runtime.run_entry(spec, 'c') == 1
