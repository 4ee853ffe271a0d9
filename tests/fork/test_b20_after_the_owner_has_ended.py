"""B20: a borrowed toolset that is used after its owner's run has ended raises an error that names the owner's agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, FunctionToolset, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset

from .delegation import Ledger, Notes, Passing, calling, calls, entries_and_exits
from .toolsets import METHODS, Journal, run_as

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])


class Background:
    """Starts agents in the background of a tool call, which wait in their tool `wait` until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting = asyncio.Event()
        self.tasks: list[asyncio.Future[Any]] = []

    async def wait(self, value: str) -> None:
        self.waiting.set()
        await self.go.wait()

    def starting(self, child: Any, method: str = 'run', options: Callable[[Any], dict[str, Any]] | None = None) -> Any:
        async def start(ctx: RunContext[Any], value: str) -> None:
            chosen = options(ctx) if options else {}
            self.tasks.append(asyncio.ensure_future(run_as('child', child, method, **chosen)))
            waiting = asyncio.ensure_future(self.waiting.wait())
            await asyncio.wait([self.tasks[-1], waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

        toolset = FunctionToolset[Any]()
        toolset.add_function(start)
        return toolset

    async def outcome(self) -> Any:
        self.go.set()
        (outcome,) = await asyncio.gather(*self.tasks, return_exceptions=True)
        return outcome


def check_refused(outcome: Any, toolset: Any, owner: str) -> None:
    assert isinstance(outcome, UserError)
    assert repr(owner) in str(outcome)
    assert toolset.label in str(outcome)


PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    'renamed': lambda toolset: toolset.renamed({}),
    'combined': lambda toolset: CombinedToolset([toolset]),
    'passed on': Passing,
    'shared': lambda toolset: toolset.shared(),
}
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())


@places
@kinds
@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b20_background_child_cannot_use_what_its_parent_has_exited(
    kind: type[Notes], place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], method: str
):
    journal = Journal()
    background = Background()
    notes = kind('t', journal)
    child = calling(['t'], ['wait'], ['t'], toolsets=[place(notes)], tools=[background.wait])
    await run_as('parent', calling(['t'], ['start'], toolsets=[notes, background.starting(child, method)], name='boss'))
    before = list(journal.events)
    outcome = await background.outcome()
    check_refused(outcome, notes, 'boss')
    assert journal.events == before
    (live,) = calls(journal, 'child')
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
