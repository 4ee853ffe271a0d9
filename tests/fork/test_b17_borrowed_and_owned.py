"""B17: what a sub-agent gets that is live already is borrowed, and anything else is its own."""

from __future__ import annotations

import pytest

from .delegation import (
    WAYS,
    Notes,
    called,
    calling,
    fresh,
    happened,
    parent_of,
)
from .toolsets import Boom, Journal, Server, run_as

pytestmark = pytest.mark.anyio


# Failures


# A task group makes another exception of it
@pytest.mark.parametrize('way', [way for way in WAYS if way != 'task group'])
async def test_b17_exits_get_the_exception_of_their_own_run(way: str):
    """The one of the sub-agent, that the parent doesn't survive, reaches the exits of both."""
    journal = Journal()
    error = Boom('child')
    notes = Notes('t', journal, answer=fresh)
    shared = Notes('u', journal)
    faulty = Server('faulty', Journal(), fail={'call': error})
    child = calling(['t'], ['faulty'], toolsets=[notes, shared, faulty])
    with pytest.raises(Boom) as caught:
        await run_as('parent', parent_of(child, notes, shared, way=way))
    assert caught.value is error
    (own,) = happened(journal, called(journal, 'child'), 'exit')
    assert (own.run, own.got[:2]) == ('child', (Boom, error))
    exits = journal.of('exit')
    assert [event.run for event in exits] == ['child', 'parent', 'parent']
    assert all(event.got[1] is error for event in exits)
