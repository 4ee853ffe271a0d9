"""Point 5: a chat keeps the toolsets of the agent that has its history, in a `ToolsetScope` of the fork."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.models.function import FunctionModel
from support import Keeper, Log, StatefulKeeper, call, calling, entry, script, scripts
from toolset_first import (
    AgentSpec,
    Answer,
    Approvals,
    CallRuntime,
    EntrySpec,
    Question,
    Runtime,
    ToolsetSpec,
    agent_as_toolset,
)

KEEP = script(call('keep', what='x'))


def keeping(log: Log | None = None, model: FunctionModel = KEEP, toolset: ToolsetSpec | None = None) -> AgentSpec:
    """Make an agent that keeps `x` in each run, and says what it has kept."""
    return AgentSpec('one', model=model, toolset_specs=[toolset or ToolsetSpec(toolset=StatefulKeeper(log))])


async def test_p05_chat_keeps_toolsets_from_turn_to_turn_and_exits_them_at_its_end() -> None:
    log = Log()
    async with Runtime([keeping(log)]).create_scope(calling('one'), chat=True) as scope:
        assert [await scope.run_turn(text) for text in 'abc'] == ['["x"]', '["x","x"]', '["x","x","x"]']
        assert log.events == ['enter']
    assert log.events == ['enter', 'exit None']


async def test_p05_turns_outside_of_a_chat_have_fresh_toolsets() -> None:
    log = Log()
    async with Runtime([keeping(log)]).create_scope(calling('one')) as scope:
        assert [await scope.run_turn(text) for text in 'ab'] == ['["x"]', '["x"]']
    assert log.events == ['enter', 'exit None'] * 2


async def test_p05_chat_that_is_cancelled_in_a_turn_exits_its_toolsets() -> None:
    log, called = Log(), asyncio.Event()

    class Waiting(StatefulKeeper):
        async def keep(self, what: str) -> list[str]:
            called.set()
            await asyncio.sleep(60)
            raise AssertionError('It is cancelled before.')

    agent = keeping(toolset=ToolsetSpec(toolset=Waiting(log)))

    async def chat() -> None:
        async with Runtime([agent]).create_scope(calling('one'), chat=True) as scope:
            await scope.run_turn('a')

    task = asyncio.create_task(chat())
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.events == ['enter', 'exit CancelledError']


async def test_p05_failed_turn_leaves_the_toolsets_of_a_chat_usable() -> None:
    log = Log()
    model = scripts(
        {'a': [call('keep', what='a')], 'wrong': [call('keep', what='w'), call('fail')], 'b': [call('keep', what='b')]}
    )
    agent = keeping(model=model, toolset=ToolsetSpec(toolset=Failing(log)))
    async with Runtime([agent]).create_scope(calling('one'), chat=True) as scope:
        await scope.run_turn('a')
        with pytest.raises(ConnectionError):
            await scope.run_turn('wrong')
        assert await scope.run_turn('b') == '["a","w","b"]'
        assert log.events == ['enter']


async def test_p05_approval_in_a_later_turn_finds_the_same_toolset() -> None:
    answers = iter([False, True])

    def ask(question: Question) -> Answer:
        return Answer(next(answers), 'Not yet.')

    model = scripts(
        {
            'note': [call('keep', what='note')],
            'ask': [call('keep_for_good', what='asked')],
            'yes': [call('keep_for_good', what='approved')],
        }
    )
    toolset = ToolsetSpec(toolset=Careful(), approval_config={'keep_for_good': 'ask'})
    runtime = Runtime([keeping(model=model, toolset=toolset)], approvals=Approvals(ask=ask))
    async with runtime.create_scope(calling('one'), chat=True) as scope:
        said = [await scope.run_turn(text) for text in ('note', 'ask', 'yes')]
    assert said == ['["note"]', 'Not yet.', '["note","approved"]']


async def test_p05_of_agents_that_are_called_at_once_in_a_chat_one_has_its_toolsets() -> None:
    log = Log()

    async def main(ctx: RunContext[CallRuntime], input: str) -> list[Any]:
        return list(await asyncio.gather(*(ctx.deps.call_agent('one', input) for _ in range(3))))

    async with Runtime([keeping(log)]).create_scope(entry(main), chat=True) as scope:
        assert await scope.run_turn('a') == ['["x"]'] * 3
        assert await scope.run_turn('b') == ['["x","x"]', '["x"]', '["x"]']
        assert sorted(log.events) == ['enter'] * 5 + ['exit None'] * 4


async def test_p05_agents_that_agents_call_keep_nothing_from_turn_to_turn() -> None:
    outer = AgentSpec(
        'outer', model=script(call('one', input='In')), toolset_specs=[agent_as_toolset(keeping(), tool='one')]
    )
    async with Runtime().create_scope(calling(outer), chat=True) as scope:
        assert [await scope.run_turn(text) for text in 'ab'] == ['["x"]', '["x"]']


def test_p05_chat_names_the_stateful_instances_of_the_agents_that_may_be_first() -> None:
    one, other, shared = StatefulKeeper(), StatefulKeeper(), StatefulKeeper()
    specs = [
        ToolsetSpec(toolset=one.prefixed('a').filtered(lambda ctx, tool: True)),
        ToolsetSpec(toolset=Keeper(), shared=True),
        ToolsetSpec(toolset=shared.prefixed('b'), shared=True),
        ToolsetSpec(factory=lambda context: StatefulKeeper()),
    ]
    first = AgentSpec('first', model='test', toolset_specs=specs)
    second = AgentSpec('second', model='test', toolset_specs=[ToolsetSpec(toolset=other)])

    def named(runtime: Runtime, spec: EntrySpec) -> list[Any]:
        kept = runtime.create_scope(spec, chat=True).runtime.kept
        return list(kept._named) if kept else []  # pyright: ignore[reportPrivateUsage]

    runtime = Runtime([first, second])
    assert named(runtime, EntrySpec(agent_as_toolset(first), 'start')) == [one]
    assert named(runtime, EntrySpec(agent_as_toolset('second'), 'start')) == [other]
    assert named(runtime, calling('first')) == [one, other]


class Failing(StatefulKeeper):
    """Has a tool that fails."""

    def __init__(self, log: Log | None = None) -> None:
        super().__init__(log)
        self.add_function(self.fail)

    async def fail(self) -> str:
        """Fail."""
        raise ConnectionError('It is down.')


class Careful(StatefulKeeper):
    """Has a second tool, which needs approval."""

    def __init__(self, log: Log | None = None) -> None:
        super().__init__(log)
        self.add_function(self.keep, name='keep_for_good')
