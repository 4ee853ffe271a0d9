"""B13: what a factory returns is used as it is: freshness is the factory's promise."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

from .factories import FUNCTIONS
from .toolsets import PLACES, Journal, Server, Session, WithoutCopy, run_as, scripted

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Session, WithoutCopy, Server])


@kinds
@pytest.mark.parametrize('inside', PLACES)
@pytest.mark.parametrize('factory', FUNCTIONS)
async def test_b13_what_is_returned_is_used_as_it_is_wherever_it_stands(factory: str, inside: str, kind: type[Server]):
    journal = Journal()
    toolset = PLACES[inside](kind('t', journal))
    agent = Agent(scripted(['t'], ['t']), toolsets=[FUNCTIONS[factory](lambda: toolset)])
    for run in 'ab':
        await run_as(run, agent)
    (used,) = {event.toolset for event in journal.of('call')}
    assert used.values == ['a', 'a', 'b', 'b']
    assert (journal.lifecycle, journal.of('copy')) == (['+t', '-t'] * 2, [])
