"""A run under watch takes at most three times as long as a run, which `cost.py` measures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.anyio


def load_cost() -> ModuleType:
    spec = importlib.util.spec_from_file_location('cost', Path(__file__).parents[1] / 'cost.py')
    assert spec and spec.loader
    module = sys.modules['cost'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cost = load_cost()


@pytest.mark.parametrize(
    'agent',
    [
        '50 tools in 5 toolsets',
        *(f'one tool, {size} {shape}' for size in ('300', '1,000', '10,000') for shape in cost.SHAPES),
    ],
)
async def test_run_under_watch_costs_at_most_three_times_a_run(agent: str):
    # Other programs on the machine make a single measurement uncertain: the limit is met once in three.
    times: list[float] = []
    while len(times) < 3 and min(times, default=4) > 3:
        times.append((await cost.measure(cost.AGENTS[agent], 15)).times)

    assert min(times) <= 3, times


async def test_cost_says_which_agents_it_measured(capsys: pytest.CaptureFixture[str]):
    await cost.main(['--runs', '5', '--only', 'one tool, 100 dicts'])

    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith('| one tool')]
    assert row.startswith('| one tool, 100 dicts in one dict, with a list each |')
