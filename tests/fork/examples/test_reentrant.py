from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import UsageLimitExceeded, UsageLimits
from pydantic_ai.models import Model

from examples import reentrant
from examples.support import call, scripts

pytestmark = pytest.mark.anyio


async def run(model: Model, *, deps: int = 2, limit: int = 50) -> str:
    """Run the planner, and return its last notes."""
    with reentrant.planner.override(model=model), reentrant.reviewer.override(model=model):
        result = await reentrant.planner.run('go', deps=deps, usage_limits=UsageLimits(request_limit=limit))
    return result.output


async def test_main_shows_that_the_planner_has_notes_of_its_own_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    await reentrant.main(reentrant.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        reentrant.TRIP,
        'planner: ["breakfast"]',
        'planner: ["a day","dinner"]',
        'planner: ["two days","home again"]',
        reentrant.REVIEWED,
        'planner: ["a museum"]',
        'reviewer: ["a trip","seen","done"]',
        'planner: ["a trip","seen","done","home again"]',
    ]
    assert reentrant.notes.notes == []


async def test_planners_that_run_at_once_inside_of_one_see_nothing_of_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps = [
        call('note', text='first'),
        [call('ask_planner', task=f'part {n}') for n in range(5)],
        call('note', text='last'),
    ]
    parts = {f'part {n}': [call('note', text=f'note {n}')] for n in range(5)}
    outputs = await asyncio.gather(*(run(scripts({'go': steps, **parts})) for _ in range(3)))

    assert outputs == ['["first","last"]'] * 3
    assert sorted(capsys.readouterr().out.splitlines()) == sorted([f'planner: ["note {n}"]' for n in range(5)] * 3)


async def test_planner_that_always_asks_another_comes_to_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    model = scripts({'go': [call('note', text='mine'), call('ask_planner', task='go')]})

    assert await run(model, deps=3) == 'Nobody else is there. Do it yourself.'
    assert capsys.readouterr().out.splitlines() == ['planner: Nobody else is there. Do it yourself.'] * 3


async def test_usage_limit_of_the_outermost_run_sees_what_the_inner_ones_used() -> None:
    model = scripts({'go': [call('note', text='mine'), call('ask_planner', task='go')]})

    with pytest.raises(UsageLimitExceeded):
        await run(model, deps=3, limit=8)
    assert await run(model, deps=3, limit=12)
