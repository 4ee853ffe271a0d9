"""The workloads of the benchmarks do what they say, so that what is measured is that."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks import workloads

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('name', sorted(workloads.WORKLOADS.keys() - {'build', 'concurrent', 'history'}))
async def test_workload_is_a_run_with_one_tool_call(name: str) -> None:
    call = workloads.WORKLOADS[name](2)

    for _ in range(2):
        result = await call()

        assert result.output == 'done'
        assert [part.part_kind for message in result.all_messages() for part in message.parts] == [
            'user-prompt',
            'tool-call',
            'tool-return',
            'text',
        ]


async def test_workload_history_goes_on_after_that_many_turns() -> None:
    result = await workloads.history(3)()

    assert len(result.all_messages()) == 3 * 2 + 4


async def test_workload_concurrent_is_that_many_runs() -> None:
    results: Any = await workloads.concurrent(3)()

    assert [result.output for result in results] == ['done'] * 3


async def test_workload_build_makes_no_run() -> None:
    assert await workloads.build(2)() is None


async def test_workload_memory_is_more_than_a_message_and_less_than_a_megabyte() -> None:
    assert 1_000 < await workloads.memory(20) < 1_000_000


async def test_measure_calls_at_least_once_and_until_the_time_is_over() -> None:
    called: list[int] = []

    async def call() -> None:
        called.append(1)

    assert len(await workloads.measure(call, 0, perf_counter)) == len(called) == 1
    assert len(await workloads.measure(call, 0.01, perf_counter)) > 1
