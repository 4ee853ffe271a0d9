"""B11: a run with no stateful toolset makes no copy."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import METHODS, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio


class CountsCopies(Server):
    """A toolset that isn't stateful, and could be copied."""

    copies = 0

    def copy(self) -> Self:
        type(self).copies += 1
        return type(self)(self.name, self.journal)

    def __copy__(self) -> Self:
        type(self).copies += 1
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        type(self).copies += 1
        return self


@pytest.mark.parametrize('method', METHODS)
async def test_b11_run_without_stateful_toolset_calls_no_copy(method: str):
    CountsCopies.copies = 0
    toolsets = [
        CountsCopies('a', Journal()),
        *(wrap(CountsCopies(name, Journal())) for name, wrap in WRAPPERS.items()),
        CombinedToolset([CountsCopies('b', Journal()), CombinedToolset([CountsCopies('c', Journal()).prefixed('y')])]),
    ]
    agent = Agent(scripted(['a', 'b']), toolsets=toolsets)
    async with agent:
        assert await METHODS[method](agent, toolsets=[CountsCopies('d', Journal())]) == 'done'
    assert CountsCopies.copies == 0


@pytest.mark.parametrize('runs', [1, 5])
async def test_b11_stateful_toolset_is_copied_once_per_run(runs: int):
    session = Session('session', Journal())
    agent = Agent(
        scripted(['session'], ['session'], ['session']), toolsets=[HandlesMany([session]), session.prefixed('x')]
    )
    for run in range(runs):
        await run_as(str(run), agent)
    assert len(session.journal.of('copy')) == runs


class HandlesMany(CombinedToolset[Any]):
    """A user's combination."""
