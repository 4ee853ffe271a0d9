"""B9: `async with agent:` enters what runs share, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import HandWritten, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

wrappers = pytest.mark.parametrize('wrap', WRAPPERS.values(), ids=WRAPPERS.keys())


@dataclass
class Audit(WrapperToolset[Any]):
    """A user's wrapper with state of its own."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, wrapped=self.wrapped.copy(), log=[])

    async def __aenter__(self) -> Self:
        raise AssertionError('The wrapper with state was entered')


async def check(agent: Agent[Any, Any], journal: Journal, *names: str) -> None:
    """Check that these toolsets are entered in this order, and exited in reverse."""
    async with agent:
        assert journal.lifecycle == [f'+{name}' for name in names]
        async with agent:
            assert journal.lifecycle == [f'+{name}' for name in names]
        assert journal.lifecycle == [f'+{name}' for name in names]
    assert journal.lifecycle == [*(f'+{name}' for name in names), *(f'-{name}' for name in reversed(names))]
    assert all(event.toolset.original is event.toolset for event in journal.of('enter', 'exit'))


async def test_b09_agent_with_stateless_toolsets_enters_them():
    journal = Journal()
    toolsets = [Server('a', journal), CombinedToolset([Server('b', journal), Server('c', journal).prefixed('x')])]
    await check(Agent(scripted(), toolsets=toolsets), journal, 'a', 'b', 'c')


async def test_b09_agent_with_stateful_toolset_does_not_enter_it():
    journal = Journal()
    await check(Agent(scripted(), toolsets=[Session('session', journal)]), journal)


async def test_b09_agent_with_a_combination_in_two_places_exits_it_as_often_as_it_enters_it():
    journal = Journal()
    both = CombinedToolset([Server('a', journal)])
    async with Agent(scripted(), toolsets=[both, Server('b', journal), both.prefixed('x')]):
        entered = journal.names('enter')
    assert sorted(journal.names('exit')) == sorted(entered)
    assert {*entered} == {'a', 'b'}


@wrappers
async def test_b09_agent_with_wrapped_stateful_toolset_does_not_enter_it(
    wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    await check(Agent(scripted(), toolsets=[wrap(Session('session', journal))]), journal)


async def test_b09_agent_with_hand_written_wrapper_of_stateful_toolset_does_not_enter_it():
    journal = Journal()
    await check(Agent(scripted(), toolsets=[HandWritten(Session('session', journal))]), journal)


async def test_b09_agent_with_wrapper_with_state_does_not_enter_the_wrapper():
    journal = Journal()
    agent = Agent(scripted(), toolsets=[Audit(Session('session', journal)), Server('server', journal)])
    await check(agent, journal, 'server')


async def test_b09_agent_with_both_beside_each_other_enters_the_stateless():
    journal = Journal()
    toolsets = [Server('a', journal), Session('b', journal), Server('c', journal)]
    await check(Agent(scripted(), toolsets=toolsets), journal, 'a', 'c')


async def test_b09_agent_with_both_in_a_combination_enters_the_stateless():
    journal = Journal()
    toolsets = [CombinedToolset([Session('a', journal), Server('b', journal)])]
    await check(Agent(scripted(), toolsets=toolsets), journal, 'b')


@wrappers
async def test_b09_agent_with_both_in_a_wrapped_combination_enters_the_stateless(
    wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    combined = CombinedToolset([Session('a', journal), wrap(Server('b', journal)), HandWritten(Session('c', journal))])
    deep = CombinedToolset([Server('d', journal), CombinedToolset([combined, DynamicToolset(lambda ctx: None)])])
    await check(Agent(scripted(), toolsets=[wrap(deep)]), journal, 'd', 'b')


@pytest.mark.parametrize('per_run_step', [True, False])
async def test_b09_agent_with_dynamic_toolset_does_not_evaluate_it(per_run_step: bool):
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        raise AssertionError('The factory was called')

    journal = Journal()
    dynamic = DynamicToolset(factory, per_run_step=per_run_step)
    agent = Agent(scripted(), toolsets=[factory, dynamic, CombinedToolset([dynamic, Server('server', journal)])])
    agent.toolset(per_run_step=per_run_step)(factory)
    await check(agent, journal, 'server')


async def test_b09_agent_inside_an_override_enters_what_runs_share_then():
    journal = Journal()
    agent = Agent(scripted(), toolsets=[Server('a', journal)])
    with agent.override(toolsets=[CombinedToolset([Server('b', journal), Session('c', journal)])]):
        await check(agent, journal, 'b')


async def test_b09_run_inside_enters_its_copies_and_the_shared_as_on_the_base():
    journal = Journal()
    toolsets = [CombinedToolset([Session('session', journal), Server('server', journal)])]
    agent = Agent(scripted(['session', 'server']), toolsets=toolsets)
    async with agent:
        for run in 'ab':
            await run_as(run, agent)
    of_run = ['+session', '+server', '-server', '-session']
    assert journal.lifecycle == ['+server', *of_run, *of_run, '-server']


async def test_b09_entry_that_fails_exits_those_entered_with_its_exception():
    journal = Journal()
    error = RuntimeError('enter')
    toolsets = [
        Server('a', journal),
        CombinedToolset([Session('b', journal), Server('c', journal)]),
        Server('d', journal, fail={'enter': error}),
    ]
    with pytest.raises(RuntimeError) as caught:
        async with Agent(scripted(), toolsets=toolsets):
            pytest.fail('The body was entered')
    assert caught.value is error
    assert journal.lifecycle == ['+a', '+c', '-c', '-a']
    assert all(event.got[1] is error for event in journal.of('exit'))


async def test_b09_agent_entered_without_runs_makes_no_copy():
    journal = Journal()
    agent = Agent(scripted(), toolsets=[CombinedToolset([Session('session', journal), Server('server', journal)])])
    async with agent:
        pass
    assert journal.of('copy') == []


class OfUser(WrapperToolset[Any]):
    """A wrapper that opens something of its own, whatever is inside."""

    async def __aenter__(self) -> Self:
        opened.append('wrapper')
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        opened.append('exit of wrapper')
        return await super().__aexit__(*args)


class CombinationOfUser(CombinedToolset[Any]):
    async def __aenter__(self) -> Self:
        opened.append('combination')
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        opened.append('exit of combination')
        return await super().__aexit__(*args)


opened: list[str] = []


@pytest.mark.parametrize('per_run_step', [True, False])
@pytest.mark.parametrize('kind', ['wrapper', 'combination'])
@pytest.mark.parametrize('deep', [False, True])
async def test_b09_wrapper_around_a_dynamic_toolset_is_entered_as_on_the_base(
    kind: str, per_run_step: bool, deep: bool
):
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        raise AssertionError('The factory was called')

    opened.clear()
    dynamic = DynamicToolset[Any](factory, per_run_step=per_run_step)
    toolset: AbstractToolset[Any] = OfUser(dynamic) if kind == 'wrapper' else CombinationOfUser([dynamic])
    if deep:
        toolset = CombinedToolset([Server('s', Journal()), toolset]).filtered(lambda ctx, tool_def: True)
    async with Agent(scripted(), toolsets=[toolset]):
        assert opened == [kind]
    assert opened == [kind, f'exit of {kind}']
