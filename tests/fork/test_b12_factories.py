"""B12: `toolsets=` takes instances and factories, mixed, in the constructor, in every run method and in `override`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import (
    AbstractToolset,
    Agent,
    UsageLimits,
)
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.toolsets import CombinedToolset

from . import toolsets
from .factories import (
    AT_EACH_STEP,
    FACTORIES,
    FACTORIES_BY_METHOD,
    FUNCTIONS,
    ONCE_PER_RUN,
    PER_RUN,
    PLACES,
    WAYS,
    Made,
    as_toolset,
    check_one_per_run,
    given_to,
)
from .toolsets import SUCCESS, Boom, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

places = pytest.mark.parametrize('place', PLACES)
ways = pytest.mark.parametrize(('place', 'method'), WAYS)


# Once per run


@ways
@pytest.mark.parametrize('factory', ONCE_PER_RUN)
async def test_b12_factory_makes_one_toolset_for_each_run(factory: str, place: str, method: str):
    journal = Journal()
    toolsets = [ONCE_PER_RUN[factory](Made(journal, Session))]
    with given_to(place, toolsets, scripted(['t', 't'], ['t'])) as run:
        for name in 'ab':
            assert await run(name, method) == 'done'
        await asyncio.gather(*(run(name, method) for name in 'cde'))
    check_one_per_run(journal, 'abcde')
    assert len(journal.of('call')) == 15
    assert all(event.got == SUCCESS for event in journal.of('exit'))


# The run context


@ways
@pytest.mark.parametrize('factory', AT_EACH_STEP)
async def test_b12_function_of_the_context_is_called_at_each_step(factory: str, place: str, method: str):
    journal = Journal()
    toolsets = [AT_EACH_STEP[factory](Made(journal, Session))]
    with given_to(place, toolsets, scripted(['t'], ['t', 't'])) as run:
        await asyncio.gather(*(run(name, method) for name in 'abc'))
    assert len({id(event.toolset) for event in journal.of('make')}) == 9
    for name in 'abc':
        events = [event for event in journal.events if event.run == name]
        made = [event.toolset for event in events if event.kind == 'make']
        assert [toolset.values for toolset in made] == [[name], [name, name], []]
        changes = [(event.kind, made.index(event.toolset)) for event in events if event.kind in ('enter', 'exit')]
        assert changes == [('enter', 0), ('exit', 0), ('enter', 1), ('exit', 1), ('enter', 2), ('exit', 2)]


# Dynamic toolsets in wrappers and combinations


@pytest.mark.parametrize('inside', toolsets.PLACES)
@pytest.mark.parametrize('factory', PER_RUN)
@places
async def test_b12_dynamic_toolset_works_in_wrappers_and_combinations(place: str, factory: str, inside: str):
    journal = Journal()
    toolset = toolsets.PLACES[inside](PER_RUN[factory](Made(journal, Session)))
    with given_to(place, [toolset], scripted(['t', 't'], ['t'])) as run:
        await run('a')
        await asyncio.gather(*(run(name) for name in 'bcd'))
    check_one_per_run(journal, 'abcd')


@pytest.mark.parametrize('outer', FUNCTIONS)
@pytest.mark.parametrize('inner', ['lambda', 'class', *PER_RUN, 'async function of the context'])
async def test_b12_factory_can_return_what_contains_a_factory(inner: str, outer: str):
    def make() -> AbstractToolset[Any]:
        return CombinedToolset([as_toolset(FACTORIES[inner](Made(journal, Session))).prefixed('x')])

    journal = Journal()
    agent = Agent(scripted(['x_t']), toolsets=[FUNCTIONS[outer](make)])
    await asyncio.gather(*(run_as(name, agent) for name in 'ab'))
    times = 4 if outer in AT_EACH_STEP else 2
    kinds = [event.kind for event in journal.of('make', 'enter', 'exit')]
    assert [kinds.count(kind) for kind in ('make', 'enter', 'exit')] == [times] * 3
    assert len({id(event.toolset) for event in journal.of('exit')}) == times
    assert len(journal.of('call')) == 2


# Failures


@pytest.mark.parametrize(('factory', 'method'), FACTORIES_BY_METHOD)
@pytest.mark.parametrize('cause', ['model', 'tool', 'limit'])
async def test_b12_what_was_made_is_exited_with_what_ended_the_run(cause: str, factory: str, method: str):
    class FailsLater(Server):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            await super().call_tool(*args, **kwargs)
            if cause == 'tool' and len(self.values) == 2:
                raise error

    journal = Journal()
    error = Boom(cause)
    model = scripted(['s'], *([error] if cause == 'model' else [['s'], ['s']]))
    agent = Agent(model, toolsets=[FACTORIES[factory](Made(journal, Session)), FailsLater('s', Journal())])
    options: dict[str, Any] = {'usage_limits': UsageLimits(request_limit=2)} if cause == 'limit' else {}
    with pytest.raises(UsageLimitExceeded if cause == 'limit' else Boom) as caught:
        await run_as('a', agent, method, **options)
    *before, last = exits = journal.of('exit')
    assert last.got[:2] == (type(caught.value), caught.value)
    assert all(event.got == SUCCESS for event in before)
    assert bool(before) == (factory in AT_EACH_STEP)
    assert [event.toolset for event in exits] == [event.toolset for event in journal.of('enter')]
    assert [event.toolset for event in exits] == [event.toolset for event in journal.of('make')]


# `async with agent`
