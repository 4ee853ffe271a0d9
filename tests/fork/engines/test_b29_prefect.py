"""B29 on Prefect and its own server: a stateful toolset is copied for each run, inside the flow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from prefect import flow
from pydantic_ai import FunctionToolset, RunContext, ToolsetTool, UserError
from typing_extensions import Self

from ..line import GIVEN_TOOLSETS, WAYS_TO_MAKE_DURABLE, not_on_1
from ..toolsets import Journal, Server, Session, scripted
from .agents import INSIDE, call_given, for_prefect, run_as

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures('prefect'),
    pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE),
]


class Notes(FunctionToolset[Any]):
    """A stateful toolset of the kind whose tools Prefect calls in tasks. It can fail on its first calls."""

    stateful = True
    shared_attributes = frozenset({'failures'})

    def __init__(self, name: str, journal: Journal, failures: Sequence[BaseException] = ()):
        super().__init__(id=name)
        self.name = name
        self.journal = journal
        self.failures = failures
        self.values: list[str] = []
        self.add_function(self.keep, name=name)

    def copy(self) -> Self:
        return type(self)(self.name, self.journal, self.failures)

    async def __aenter__(self) -> Self:
        self.journal.note('enter', self)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.journal.note('exit', self, *args)
        return None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.journal.note('call', self)
        return await super().call_tool(name, tool_args, ctx, tool)

    async def keep(self, value: str) -> list[str]:
        """Keep a value."""
        if isinstance(self.failures, list) and self.failures:
            raise self.failures.pop(0)
        self.values.append(value)
        return list(self.values)


@pytest.mark.parametrize('kind', [Session, Notes])
@pytest.mark.parametrize('method', ['run', 'run_sync', 'iter'])
async def test_b29_each_flow_has_its_own_copy(way: str, kind: type[Any], method: str):
    journal = Journal()
    stateful, server = kind('stateful', journal), Server('server', journal)
    agent = for_prefect(way, scripted(['stateful', 'server'], ['stateful']), [stateful, server])

    for name in ('first', 'second'):
        await run_as(name, agent, method)

    (one, one_again, two, two_again) = [event.toolset for event in journal.of('call') if event.toolset is not server]
    assert one is one_again is not two is two_again
    assert (one.values, two.values, stateful.values) == (['first'] * 2, ['second'] * 2, [])
    assert server.values == ['first', 'second']
    assert journal.lifecycle == ['+stateful', '+server', '-server', '-stateful'] * 2


async def test_b29_overlapping_flows_do_not_share(way: str):
    journal = Journal()
    notes = Notes('notes', journal)
    agent = for_prefect(way, scripted(['notes'], ['notes']), [notes])

    names = [f'run {number}' for number in range(4)]
    await asyncio.gather(*(run_as(name, agent) for name in names))

    copies = {id(event.toolset): event.toolset for event in journal.of('call')}.values()
    assert sorted(copy.values for copy in copies) == sorted([name, name] for name in names)
    assert notes.values == []


@pytest.mark.parametrize('wrapper', INSIDE)
async def test_b29_state_inside_other_toolsets_is_copied(way: str, wrapper: str):
    journal = Journal()
    notes = Notes('notes', journal)

    tool = 'x_notes' if wrapper == 'PrefixedToolset' else 'notes'
    agent = for_prefect(way, scripted([tool]), [INSIDE[wrapper](notes)])

    for name in ('first', 'second'):
        await run_as(name, agent)

    (one, two) = [event.toolset for event in journal.of('call')]
    assert (one.values, two.values, notes.values) == (['first'], ['second'], [])


async def test_b29_exits_see_the_exception_of_the_flow(way: str):
    journal = Journal()
    notes = Notes('notes', journal, [ConnectionError('no connection')])
    agent = for_prefect(way, scripted(['notes']), [notes])

    with pytest.raises(ConnectionError, match='no connection'):
        await run_as('failing', agent)

    exc_type, exc, traceback = journal.exit_of('notes')
    assert exc_type is ConnectionError
    assert str(exc) == 'no connection'
    assert traceback is not None


@not_on_1
async def test_b29_retried_flow_has_a_fresh_copy_and_the_recorded_results(way: str):
    journal = Journal()
    first, second = Notes('first', journal), Notes('second', journal, [ConnectionError('no connection')])
    agent = for_prefect(way, scripted(['first'], ['second'], ['first']), [first, second])

    @flow(retries=1)
    async def retried() -> str:
        return await run_as('run', agent, 'iter')

    assert await retried() == 'done'

    # The first call had finished, so it isn't repeated, and the fresh copy doesn't know of it.
    assert journal.names('enter') == ['first', 'second', 'first', 'second']
    assert journal.names('call') == ['first', 'second', 'second', 'first']
    (one, *_, another) = [event.toolset for event in journal.of('call') if event.toolset.name == 'first']
    assert one is not another
    assert (one.values, another.values) == (['run'], ['run'])


@not_on_1
async def test_b29_retried_flow_has_the_recorded_results_with_deps_that_can_only_be_pickled(way: str):
    class Account:
        def __init__(self, user: str):
            self.user = user

    journal = Journal()
    first, second = Notes('first', journal), Notes('second', journal, [ConnectionError('no connection')])
    agent = for_prefect(way, scripted(['first'], ['second']), [first, second])

    @flow(retries=1)
    async def retried() -> str:
        async with agent.iter('alice', deps=Account('alice')) as run:
            async for _ in run:
                pass
        return run.result.output

    assert await retried() == 'done'
    assert journal.names('call') == ['first', 'second', 'second']


async def test_b29_runs_in_one_flow_do_not_get_the_results_of_each_other(way: str):
    journal = Journal()
    agent = for_prefect(way, scripted(['notes']), [Notes('notes', journal)])

    @flow
    async def both() -> None:
        for name in ('first', 'second'):
            await run_as(name, agent, 'iter')

    await both()

    assert [event.toolset.values for event in journal.of('call')] == [['first'], ['second']]


async def test_b29_toolsets_of_a_run_are_used_or_refused(way: str):
    agent = for_prefect(way, scripted(['given']), [Server('own', Journal())])

    @flow
    async def run() -> list[str]:
        return await call_given(agent)

    try:
        assert await run() == ['given']
    except UserError as error:
        assert GIVEN_TOOLSETS in str(error)
