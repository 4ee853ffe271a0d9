"""What is said of the user's own runs: which run left something, and which could read it."""

from __future__ import annotations

import asyncio
import functools
import gc
import time
import weakref
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.test import TestModel

from toolset_leaks import Watch, rules

from .conftest import MakeAgent, Notes

pytestmark = pytest.mark.anyio


class Leaf:
    """Is looked into by itself, since it holds a function."""

    def __init__(self) -> None:
        self.act = lambda: self


MODULE_NOTES: list[str] = []


def keep_in_module(text: str) -> None:
    MODULE_NOTES.insert(len(MODULE_NOTES), text)


async def test_watch_names_the_run_that_leaves_and_the_one_that_could_read(make_agent: MakeAgent):
    agent = make_agent(Notes())
    with Watch() as watch:
        await agent.run('milk')
        await agent.run('bread')

    [leak] = watch.report.leaks
    assert leak.left_by == "run 1 of agent 'support' ('milk'), which called `keep`"
    assert leak.read_by == "run 2 of agent 'support' ('bread')"
    assert leak.what == "had 0 entries, has 1: 1 added, first 'milk'"
    assert leak.times == 2


async def test_watch_reports_at_once_and_stops_with_the_block(make_agent: MakeAgent):
    agent = make_agent(Notes())
    original = Agent.iter
    with Watch() as watch:
        assert watch.report.leaks == []
        await agent.run('milk')
        assert len(watch.report.leaks) == 1
    await agent.run('bread')

    assert watch.report.runs == 1
    assert Agent.iter is original


async def test_watch_sees_another_agent_with_the_same_toolset(make_agent: MakeAgent):
    notes = Notes()
    with Watch() as watch:
        await make_agent(notes, name='first').run('milk')
        await make_agent(notes, name='second').run('bread')

    [leak] = watch.report.leaks
    assert leak.left_by.startswith("run 1 of agent 'first'")
    assert leak.read_by == "run 2 of agent 'second' ('bread')"


async def test_watch_names_both_runs_when_they_go_on_at_the_same_time(make_agent: MakeAgent):
    async def wait() -> None:
        await asyncio.sleep(0.05)

    agent = make_agent(Notes(), FunctionToolset([wait]))
    with Watch() as watch:
        await asyncio.gather(agent.run('milk'), agent.run('bread'))

    [leak] = watch.report.leaks
    first, other = leak.left_by.split(', which called `keep`, `wait`, or ')
    runs = ["run 1 of agent 'support' ('milk')", "run 2 of agent 'support' ('bread')"]
    assert sorted([first, other]) in (
        [runs[0], f'{runs[1]}, which went on at the same time'],
        sorted([f'{runs[0]}, which went on at the same time', runs[1]]),
    )
    assert leak.read_by.endswith(', at the same time,')


async def test_watch_reports_a_toolset_that_is_given_to_a_second_run(make_agent: MakeAgent):
    agent, notes = make_agent(), Notes()
    with Watch() as watch:
        await agent.run('milk', toolsets=[notes])
        assert watch.report.leaks == []
        await agent.run('bread', toolsets=[notes])

    [leak] = watch.report.leaks
    assert leak.left_by.startswith('run 1 ')
    assert leak.read_by.startswith('run 2 ')


async def test_watch_reports_what_a_given_toolset_keeps_in_a_module(make_agent: MakeAgent):
    with Watch() as watch:
        await make_agent().run('milk', toolsets=[FunctionToolset([keep_in_module])])

    assert [leak.where for leak in watch.report.leaks] == [f'global `MODULE_NOTES[0]` of `{__name__}`']


@pytest.mark.parametrize('how', ['run', 'run_sync', 'run_stream', 'run_stream_events', 'iter', 'override'])
async def test_watch_sees_every_way_to_run(how: str):
    agent = Agent(TestModel(), toolsets=[Notes()])
    with Watch() as watch:
        if how == 'run':
            await agent.run('milk')
        elif how == 'run_sync':
            await asyncio.to_thread(agent.run_sync, 'milk')
        elif how == 'run_stream':
            async with agent.run_stream('milk') as streamed:
                await streamed.get_output()
        elif how == 'run_stream_events':
            events: Any = agent.run_stream_events('milk')
            if hasattr(events, '__aenter__'):
                async with events as stream:
                    assert [event async for event in stream]
            else:
                assert [event async for event in events]
        elif how == 'iter':
            async with agent.iter('milk') as run:
                async for _ in run:
                    pass
        else:
            with Agent(TestModel()).override(toolsets=[]) as _, agent.override(toolsets=[Notes()]):
                await agent.run('milk')
                await agent.run('bread')  # the double of one run is no leak

    assert [leak.name for leak in watch.report.leaks] == ['Notes.kept']


async def test_watch_reports_what_a_failed_run_has_left_behind():
    class Failing(Notes):
        def keep(self, text: str) -> list[str]:
            super().keep(text)
            raise OSError('no disk')

    agent = Agent(TestModel(), name='support', toolsets=[Failing()])
    with Watch() as watch, pytest.raises(OSError, match='no disk'):
        await agent.run('milk')

    assert [leak.name for leak in watch.report.leaks] == ['Failing.kept']
    assert watch.report.failed == ["run 1 of agent 'support' ('milk'): OSError: no disk"]


async def test_watch_attributes_what_a_sub_agent_leaves_to_its_own_run(make_agent: MakeAgent):
    child = make_agent(Notes(), name='child')

    async def delegate(text: str) -> str:
        return (await child.run(text)).output

    with Watch() as watch:
        await make_agent(FunctionToolset([delegate]), name='parent').run('milk')

    [leak] = watch.report.leaks
    assert leak.left_by == "run 2 of agent 'child' ('milk'), which called `keep`"
    assert watch.report.runs == 2


async def test_watch_says_when_there_was_too_much_to_look_at(make_agent: MakeAgent):
    class Tree(Notes):
        def __init__(self) -> None:
            super().__init__()
            self.tree = [Leaf() for _ in range(5000)]

    with Watch(max_objects=1000) as watch:
        await make_agent(Tree()).run('milk')

    assert watch.report.incomplete
    assert 'There was too much to look at all of it' in str(watch.report)
    # What is near is looked at first.
    assert [leak.name for leak in watch.report.leaks] == ['Tree.kept']
    with Watch(max_seconds=0) as watch:
        await make_agent(Notes()).run('milk')
    assert watch.report.incomplete and watch.report.leaks == []


async def test_watch_looks_packages_up_before_the_time_of_a_run(make_agent: MakeAgent, monkeypatch: Any):
    monkeypatch.setattr(rules, 'packages_on_pydantic_ai', functools.cache(lambda: time.sleep(0.5) or ()))
    rules.origin.cache_clear()
    rules.kind.cache_clear()
    with Watch(max_seconds=0.4) as watch:
        await make_agent(FunctionToolset([anyio.sleep, keep_in_module])).run('milk')
    assert not watch.report.too_much


async def test_watch_keeps_no_agent_alive(make_agent: MakeAgent):
    with Watch():
        agent = make_agent(FunctionToolset([keep_in_module]))
        await agent.run('milk')
        gone = weakref.ref(agent)
        del agent
        gc.collect()
        assert gone() is None


async def test_watches_can_be_nested(make_agent: MakeAgent):
    agent = make_agent(Notes())
    with Watch() as outer:
        await agent.run('milk')
        with Watch() as inner:
            await agent.run('bread')

    assert (outer.report.runs, inner.report.runs) == (2, 1)
    assert inner.report.leaks[0].what == "had 1 entry, has 2: 1 added, first 'bread'"


async def test_watch_survives_objects_that_can_not_be_compared_or_shown(make_agent: MakeAgent):
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError('not comparable')

        def __repr__(self) -> str:
            raise RuntimeError('not showable')

        __hash__ = object.__hash__

    class Keeper(Notes):
        def keep(self, text: str) -> list[str]:
            self.odd: Any = Odd()
            self.odds = [*getattr(self, 'odds', ()), self.odd, text]
            return []

    agent = make_agent(Keeper())
    with Watch() as watch:
        await agent.run('milk')
        await agent.run('bread')

    assert [leak.name for leak in watch.report.leaks] == ['Keeper.odds']
