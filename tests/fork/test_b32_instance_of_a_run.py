"""B32: what a run works with in place of a toolset can be had in the run, by whoever drives it, and after it."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
import copy
import dataclasses
from typing import Any

import pytest
from pydantic_ai import FunctionToolset, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset, WrapperToolset

from .delegation import Ledger, Notes, calling, delegating, fresh
from .toolsets import Journal, Server, Session, once_per_run, run_as, scripted

pytestmark = pytest.mark.anyio


async def test_b32_tool_driver_and_result_have_the_instance_of_their_run():
    journal = Journal()
    session, server = Session('t', journal), Server('s', journal)
    found: list[Any] = []

    async def look(ctx: RunContext[Any], value: str) -> None:
        found.append(ctx.instance_of(session))
        assert ctx.instance_of(server) is server

    agent = calling(['t'], ['look'], toolsets=[CombinedToolset([session, server])], tools=[look])
    async with agent.iter('go') as agent_run:
        during = agent_run.instance_of(session)
        async for _ in agent_run:
            pass
    assert agent_run.result is not None
    assert found == [during]
    assert agent_run.result.instance_of(session) is during
    assert isinstance(during, Session)
    assert during is not session
    assert (during.values, session.values) == ([''], [])
    assert journal.lifecycle == ['+t', '+s', '-s', '-t']


async def test_b32_instance_stays_when_a_factory_returns_the_original():
    """It's used as it is in the factory's place, beside the run's own."""
    session = Session('t', Journal())
    found: list[Any] = []

    def factory(ctx: RunContext[Any]) -> CombinedToolset[Any]:
        found.append(ctx.instance_of(session))
        return CombinedToolset([session.prefixed('x'), DynamicToolset(lambda ctx: session.prefixed('y'))])

    async def look(ctx: RunContext[Any], value: str) -> None:
        found.append(ctx.instance_of(session))

    agent = calling(['t', 'look'], ['x_t', 'y_t', 'look'], toolsets=[session, factory], tools=[look])
    result = await agent.run('go')
    instance = result.instance_of(session)
    assert instance is not session
    assert all(each is instance for each in found)
    assert (instance.values, session.values) == ([''], ['', ''])


async def test_b32_runs_at_once_have_their_own():
    session = Session('t', Journal())
    agent = calling(['t'], toolsets=[session])
    results = await asyncio.gather(*(agent.run('go') for _ in range(20)))
    assert len({id(result.instance_of(session)) for result in results}) == 20


async def test_b32_sub_agent_has_what_it_works_with():
    """Its own, or what it has borrowed from the parent."""
    for answer in (None, fresh):
        journal = Journal()
        notes = Notes('t', journal, answer=answer)
        found: dict[str, Any] = {}

        def look(ctx: RunContext[Any], value: str) -> None:
            found[value] = ctx.instance_of(notes)  # noqa: B023

        child = calling(['look'], toolsets=[notes], tools=[look])
        parent = calling(['look'], ['delegate'], toolsets=[notes, delegating(child)], tools=[look])
        await run_as('parent', parent)
        assert (found['child'] is found['parent']) is (answer is None)


@pytest.mark.parametrize('kind', [Notes, Ledger])
@pytest.mark.parametrize('per_run_step', [True, False])
async def test_b32_factory_can_return_what_the_run_has_borrowed(kind: type[Notes], per_run_step: bool):
    """It neither enters nor exits that."""
    journal = Journal()
    notes = kind('t', journal, answer=lambda live, ctx: live)
    factory = DynamicToolset[Any](lambda ctx: ctx.instance_of(notes).prefixed('y'), per_run_step=per_run_step)
    child = calling(['y_t'], ['t'], toolsets=[notes, factory])
    result = await calling(['delegate'], ['t'], toolsets=[notes, delegating(child)]).run('go')
    assert journal.lifecycle == ['+t', '-t']
    assert len(result.instance_of(notes).values) == 3


@pytest.mark.parametrize('kind', [Notes, Ledger])
@pytest.mark.parametrize('per_run_step', [True, False])
@pytest.mark.parametrize('of_parent', [True, False])
async def test_b32_factory_can_return_what_the_run_shares(kind: type[Notes], per_run_step: bool, of_parent: bool):
    """It's entered and exited once, by the parent or by the run itself."""
    journal = Journal()
    notes = kind('t', journal)
    factory = DynamicToolset[Any](lambda ctx: ctx.instance_of(notes).prefixed('y'), per_run_step=per_run_step)
    child = calling(['y_t'], ['t'], toolsets=[notes.shared(), factory])
    await calling(['delegate'], toolsets=[*([notes] if of_parent else []), delegating(child)]).run('go')
    assert journal.lifecycle == ['+t', '-t']
    (used,) = {event.toolset for event in journal.of('call')}
    assert len(used.values) == 2


async def test_b32_what_the_run_was_not_given_is_refused_with_the_name_of_the_agent():
    other, made = Session('other', Journal()), once_per_run(lambda: FunctionToolset[Any]())
    result = await calling(toolsets=[made], name='boss').run('go')
    assert type(result.instance_of(made)) is type(made)
    for toolset in (other, Server('server', Journal())):
        with pytest.raises(UserError) as caught:
            result.instance_of(toolset)
        assert "'boss'" in str(caught.value)
        assert toolset.label in str(caught.value)


async def test_b32_original_that_a_wrapper_answers_around_is_not_handed_out():
    class Replacing(WrapperToolset[Any]):
        def for_sub_agent(self, ctx: RunContext[Any]) -> Any:
            return Server('instead', journal)

    journal = Journal()
    session = Session('t', journal)
    replacing = Replacing(session)

    def look(ctx: RunContext[Any], value: str) -> None:
        with pytest.raises(UserError, match="'child'"):
            ctx.instance_of(session)

    child = calling(['look'], toolsets=[replacing], tools=[look], name='child')
    result = await calling(['delegate'], toolsets=[replacing, delegating(child)]).run('go')
    assert result.instance_of(session) is not session


async def test_b32_original_of_an_override_is_known_too():
    session = Session('t', Journal())
    agent = calling(['t'])
    with agent.override(toolsets=[session], model=scripted(['t'])):
        result = await agent.run('go')
    assert result.instance_of(session).values == ['']


async def test_b32_copied_result_knows_the_run():
    """As an application makes it that puts another output into it, or keeps it."""
    session = Session('t', Journal())
    result = await calling(['t'], toolsets=[session]).run('go')
    for copied in (copy.copy(result), dataclasses.replace(result), dataclasses.replace(result, output='other')):
        assert copied.instance_of(session) is result.instance_of(session) is not session


async def test_b32_instructions_have_the_instance_of_their_run():
    journal = Journal()
    session = Session('t', journal)
    seen: list[list[str]] = []
    agent = calling(['t'], ['t'], toolsets=[session])

    @agent.instructions
    def instructions(ctx: RunContext[Any]) -> str:
        seen.append(list(ctx.instance_of(session).values))
        return 'Be brief.'

    await run_as('run', agent)
    assert seen == [[], ['run'], ['run', 'run']]


@pytest.mark.parametrize(
    'wrong',
    [Session, calling(), None, 'session', [Session('t', Journal())]],
    ids=['class', 'agent', 'None', 'text', 'list'],
)
async def test_b32_what_is_no_toolset_is_refused_with_what_was_passed(wrong: Any):
    session = Session('t', Journal())
    result = await calling(['t'], toolsets=[session], name='boss').run('go')
    with pytest.raises(UserError) as caught:
        result.instance_of(wrong)
    assert (wrong.__name__ if isinstance(wrong, type) else type(wrong).__name__) in str(caught.value)
