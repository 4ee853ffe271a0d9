"""B18: the wiring decides last: a factory makes a fresh one, `.shared()` shares, `ctx.for_sub_agent()` hands over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext
from pydantic_ai.toolsets import CombinedToolset

from .delegation import (
    Ledger,
    Notes,
    Passing,
    called,
    calling,
    entries_and_exits,
    event_loop,
    fresh,
    never,
)
from .toolsets import METHODS, RUN, Journal, run_as

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


# Factories


# `.shared()`


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'renamed': lambda toolset: toolset.renamed({}),
    'combined': lambda toolset: CombinedToolset([toolset]),
    'passed on': Passing,
    'many': lambda toolset: CombinedToolset([Passing(CombinedToolset([toolset.filtered(lambda ctx, tool: True)]))]),
}
LOOKED_INTO: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'renamed': PLACES['renamed'],
    'combined': PLACES['combined'],
    'both': lambda toolset: CombinedToolset([CombinedToolset([toolset.filtered(lambda ctx, tool: True)]).renamed({})]),
}
looked_into = pytest.mark.parametrize('place', LOOKED_INTO.values(), ids=LOOKED_INTO)
"""Without wrappers that are written straight on `AbstractToolset`, which are used as they answer."""


@pytest.mark.parametrize('method', METHODS)
async def test_b18_shared_outside_of_a_run_is_the_original(method: str):
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    agent = calling(['t'], toolsets=[notes.shared()])
    for number in range(3):
        await run_as(f'run{number}', agent, method)
    assert notes.values == ['run0', 'run1', 'run2']
    assert journal.of('copy') == []
    assert journal.lifecycle == ['+t', '-t'] * 3


# `ctx.for_sub_agent()`


@looked_into
@kinds
@pytest.mark.parametrize('answer', [None, fresh])
async def test_b18_handing_over_works_without_the_context_of_the_tool_call(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], answer: Any
):
    """In a thread that has none, as that of a pool."""

    def delegate(ctx: RunContext[Any], value: str) -> None:
        def work() -> None:
            RUN.set('child')
            with event_loop():
                calling(['t']).run_sync('go', toolsets=toolsets)

        toolsets = ctx.for_sub_agent(placed)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    journal = Journal()
    notes = kind('t', journal, answer=answer)
    placed = place(notes)
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[placed], tools=[delegate]))
    live = called(journal, 'parent')
    assert (called(journal, 'child') is live) is (answer is None)
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    assert len(journal.of('ask')) == 1
