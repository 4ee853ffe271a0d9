"""The tables of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.plan import PLANS, Point
from benchmarks.report import Measured, write


def measured(workload: str, size: int, **sides: list[float]) -> Measured:
    return Measured(Point(workload, size, tuple(sides)), {side: [[value] for value in sides[side]] for side in sides})


def test_report_ratio_is_of_rounds_in_turn() -> None:
    # The machine became slower by the round, which the ratio must not see.
    of_run = measured('run', 15, base=[0.010, 0.020, 0.040], fork=[0.005, 0.010, 0.020])

    report = write('2.68.0', '3.12', {'tools': [of_run]})

    assert '| run | 15 | 20 ms | 10 ms | 0.50 [0.50–0.50] |' in report
    assert '| a run, fork / base, 15 tools | 0.50 [0.50–0.50] | ≤ 0.6 | met |' in report


def test_report_goal_that_is_not_reached_is_not_met() -> None:
    of_run = measured('run', 15, base=[0.010], fork=[0.010], lifecycle=[0.011])

    report = write('1.26.0', '3.12', {'tools': [of_run]})

    assert '| a run, lifecycle patches only / base, 15 tools | 1.10 [1.10–1.10] | ≤ 1.02 | not met |' in report
    assert '| a run, fork / base, 15 tools | 1.00 [1.00–1.00] | ≤ 0.5 | not met |' in report


def test_report_compares_with_the_run_of_the_same_group() -> None:
    tools = [measured('run', 15, fork=[0.010]), measured('factory', 15, fork=[0.012])]
    growth = [measured('run', 15, fork=[1.0])]

    report = write('2.68.0', '3.12', {'tools': tools, 'growth': growth})

    assert "| a run with a factory / the fork's run, 15 tools | 1.20 [1.20–1.20] | ≤ 1.3 | met |" in report


def test_report_memory_is_in_kilobytes() -> None:
    report = write('2.68.0', '3.12', {'memory': [measured('memory', 1_000, base=[100_000.0], fork=[50_000.0])]})

    assert '| memory | 1,000 | 100.0 kB | 50.0 kB | 0.50 [0.50–0.50] |' in report


@pytest.mark.parametrize('part', PLANS)
def test_plan_has_each_point_once(part: str) -> None:
    points = [(point.workload, point.size) for group in PLANS[part] for point in group]

    assert len(points) == len(set(points))
