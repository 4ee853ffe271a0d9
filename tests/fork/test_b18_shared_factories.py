"""B18: `.shared()` of what makes its toolset for each run has that toolset's tools in each run, in threads and event loops too."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai import AbstractToolset
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .delegation import calling, event_loop
from .toolsets import RUN, Journal, Session

pytestmark = pytest.mark.anyio

Make = Callable[[], AbstractToolset[Any]]

FACTORIES: dict[str, Callable[[Make], AbstractToolset[Any]]] = {
    'DynamicToolset': lambda make: DynamicToolset(lambda ctx: make()),
    'DynamicToolset per run': lambda make: DynamicToolset(lambda ctx: make(), per_run_step=False),
}
PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'itself': lambda toolset: toolset.shared(),
    'renamed outside': lambda toolset: toolset.shared().renamed({}),
    'renamed inside': lambda toolset: toolset.renamed({}).shared(),
    'combined outside': lambda toolset: CombinedToolset([toolset.shared()]),
    'combined inside': lambda toolset: CombinedToolset([toolset]).shared(),
    'twice': lambda toolset: toolset.shared().shared(),
}
factories = pytest.mark.parametrize('factory', FACTORIES.values(), ids=FACTORIES)
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES)


@factories
@places
async def test_b18_shared_factory_works_in_threads(factory: Any, place: Any):
    """Each thread has an event loop of its own."""
    journal = Journal()
    agent = calling(['t'], ['t'], toolsets=[place(factory(lambda: Session('t', journal)))])

    def work(run: str) -> Any:
        RUN.set(run)
        with event_loop():
            return [agent.run_sync('go').output for _ in range(3)]

    runs = [f'run{number}' for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(contextvars.Context().run, work, run) for run in runs]
        outputs = await asyncio.wait_for(asyncio.gather(*map(asyncio.wrap_future, futures)), 300)
    assert outputs == [['done'] * 3] * 8
    assert len(journal.of('enter')) == len(journal.of('exit'))
    for event in journal.of('call'):
        assert set(event.toolset.values) == {event.run}
