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
from pydantic_ai import AbstractToolset, Agent, RunContext
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset

from .delegation import Notes, called, calling, calls, event_loop, happened, parent_of
from .toolsets import METHODS, RUN, Journal, Server, Session, once_per_run, run_as, scripted

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
kinds = pytest.mark.parametrize('kind', [Session, Server], ids=['stateful', 'stateless'])


def check_own(journal: Journal, runs: list[str]) -> None:
    """Check that each run had a toolset of its own, which it entered as often as it exited it."""
    found = [called(journal, run) for run in runs]
    assert len({id(toolset) for toolset in found}) == len(runs)
    for run, toolset in zip(runs, found, strict=True):
        assert toolset.values == [run]
        entries = [event.kind for event in happened(journal, toolset, 'enter', 'exit')]
        assert entries
        assert entries == ['enter', 'exit'] * (len(entries) // 2)
    assert journal.of('copy') == []


@factories
@places
@kinds
async def test_b18_shared_factory_has_its_tools_in_each_run(factory: Any, place: Any, kind: Any):
    journal = Journal()
    agent = calling(['t'], toolsets=[place(factory(lambda: kind('t', journal)))])
    for method in METHODS:
        await run_as(method, agent, method)
    check_own(journal, list(METHODS))


@factories
async def test_b18_prefixed_shared_factory_has_its_tools(factory: Any):
    journal = Journal()
    made = factory(lambda: Session('t', journal))
    for toolset in (made.shared().prefixed('x'), made.prefixed('x').shared()):
        await run_as('run', calling(['x_t'], toolsets=[toolset]))
    assert [event.toolset.values for event in journal.of('call')] == [['run'], ['run']]


@factories
@places
@kinds
async def test_b18_shared_factory_makes_one_for_each_of_the_runs_at_once(factory: Any, place: Any, kind: Any):
    journal = Journal()
    agent = calling(['t'], ['t'], toolsets=[place(factory(lambda: kind('t', journal)))])
    runs = [f'run{number}' for number in range(5)]
    await asyncio.gather(*(run_as(run, agent) for run in runs))
    for run in runs:
        assert sum(len(toolset.values) for toolset in calls(journal, run)) == 2
        assert all(set(toolset.values) == {run} for toolset in calls(journal, run))
    used: dict[int, list[str]] = {}
    for event in journal.of('enter', 'call', 'get_tools', 'exit'):
        used.setdefault(id(event.toolset), []).append(event.kind)
    for kinds_of_events in used.values():
        assert kinds_of_events[0] == 'enter'
        assert kinds_of_events[-1] == 'exit'
        assert kinds_of_events.count('enter') == kinds_of_events.count('exit')


@factories
async def test_b18_shared_factory_is_evaluated_as_often_as_the_factory_itself(factory: Any):
    counts: list[int] = []
    for shared in (False, True):
        journal = Journal()
        made: list[Any] = []

        def make(journal: Journal = journal, made: list[Any] = made) -> AbstractToolset[Any]:
            made.append(Session('t', journal))
            return made[-1]

        toolset = factory(make)
        await run_as('run', calling(['t'], ['t'], toolsets=[toolset.shared() if shared else toolset]))
        counts.append(len(made))
    assert counts[0] == counts[1]


@factories
async def test_b18_shared_factory_of_a_parent_and_its_sub_agent(factory: Any):
    """The enclosing run has one live, and that's what is shared."""
    journal = Journal()
    made = factory(lambda: Notes('t', journal))
    child = calling(['t'], toolsets=[made.shared()], name='child')
    await run_as('parent', parent_of(child, made))
    assert {event.run for event in happened(journal, called(journal, 'child'), 'enter', 'exit')} == {'parent'}


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


@factories
def test_b18_shared_factory_works_in_event_loops_one_after_another(factory: Any):
    journal = Journal()
    agent = calling(['t'], toolsets=[factory(lambda: Session('t', journal)).shared()])
    runs = [f'run{number}' for number in range(3)]
    for run in runs:
        asyncio.run(run_as(run, agent))
    check_own(journal, runs)


async def test_b18_shared_factory_without_a_toolset_has_no_tools():
    for factory in (once_per_run(lambda: None), DynamicToolset(lambda ctx: None)):
        assert (await Agent(scripted(), toolsets=[factory.shared()]).run('go')).output == 'done'


@places
@pytest.mark.parametrize('at_once', [False, True])
async def test_b18_for_run_of_what_is_shared_is_called_in_each_run(place: Any, at_once: bool):
    class Connected(Server):
        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            await asyncio.sleep(0)
            made.append(Server(self.name, self.journal))
            return made[-1]

    journal = Journal()
    made: list[Server] = []
    agent = calling(['t'], toolsets=[place(Connected('t', journal))])
    runs = [f'run{number}' for number in range(3)]
    if at_once:
        await asyncio.gather(*(run_as(run, agent) for run in runs))
    else:
        for run in runs:
            await run_as(run, agent)
    check_own(journal, runs)
    assert {id(called(journal, run)) for run in runs} == {id(toolset) for toolset in made}
