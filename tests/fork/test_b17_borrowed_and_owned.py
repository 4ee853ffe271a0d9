"""B17: what a sub-agent gets that is live already is borrowed, and anything else is its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, FunctionToolset

from .delegation import (
    WAYS,
    Notes,
    called,
    calling,
    delegating,
    fresh,
    happened,
    parent_of,
)
from .line import ALONE_OR_WRAPPED
from .toolsets import Boom, Journal, Server, run_as
from .transactions import TRANSACTIONS, committed, new_database

pytestmark = pytest.mark.anyio


def catching(child: Any, *, name: str = 'delegate') -> FunctionToolset[Any]:
    """Make a tool that runs another agent and puts up with its failure."""

    async def delegate(value: str) -> str:
        try:
            return await run_as('child', child)
        except Boom:
            return 'failed'

    toolset = FunctionToolset[Any](max_retries=0)
    toolset.add_function(delegate, name=name)
    return toolset


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


# Transactions, with a database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return new_database(tmp_path)


def failing_tool(error: BaseException) -> Server:
    return Server('fail', Journal(), fail={'call': error})


@pytest.mark.parametrize('policy', TRANSACTIONS)
@pytest.mark.parametrize('child_succeeds, survives, parent_fails', TRANSACTIONS['shared'][1])
@pytest.mark.parametrize('inside', ALONE_OR_WRAPPED.values(), ids=ALONE_OR_WRAPPED)
async def test_b17_transaction_is_committed_or_rolled_back_as_the_toolset_says(
    database: Path,
    policy: str,
    child_succeeds: bool,
    survives: bool,
    parent_fails: bool,
    inside: Callable[[Any], AbstractToolset[Any]],
):
    cls, expected = TRANSACTIONS[policy]
    error = Boom('failed')
    placed = inside(cls(database))
    child = calling(
        ['write'], *([] if child_succeeds else [['fail']]), toolsets=[placed, failing_tool(error)], name='child'
    )
    delegate = catching(child) if survives else delegating(child)
    steps = [['delegate'], ['write'], *([['fail']] if parent_fails else [])]
    parent = calling(*steps, toolsets=[placed, failing_tool(error), delegate], name='parent')
    if parent_fails or (not child_succeeds and not survives):
        with pytest.raises(Boom):
            await run_as('parent', parent)
    else:
        await run_as('parent', parent)
    assert committed(database) == expected[child_succeeds, survives, parent_fails]
