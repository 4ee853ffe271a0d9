"""The tables of the benchmarks."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.instructions import SCRIPT, Count, can_count, count, read_totals
from benchmarks.plan import PLANS, Point
from benchmarks.report import Measured, write, write_patches
from benchmarks.sides import Place


def measured(workload: str, size: int, **sides: list[float]) -> Measured:
    return Measured(Point(workload, size, tuple(sides)), {side: [[value] for value in sides[side]] for side in sides})


def test_report_ratio_is_of_rounds_in_turn() -> None:
    # The machine became slower by the round, which the ratio must not see.
    of_run = measured('run', 15, base=[0.010, 0.020, 0.040], fork=[0.005, 0.010, 0.020])

    report = write('2.68.0', '3.12', {'tools': [of_run]})

    assert '| run | 15 | 20 ms | 10 ms | 0.50 [0.50–0.50] |' in report
    assert '| a run, 15 tools / base | 0.50 [0.50–0.50] | 0.42 | time | not met: what is left' in report


def test_report_judges_by_instructions_where_they_were_counted() -> None:
    of_run = measured('run', 15, base=[0.010], fork=[0.001])
    counted = {('run', 15): {'base': 20e6, 'heart': 20.2e6, 'fork': 10e6}}

    report = write('2.68.0', '3.12', {'tools': [of_run]}, counted)

    assert '| run | 15 | 20.00 M | 20.20 M | 10.00 M | 0.500 |' in report
    assert '| a run, 15 tools / base | 0.500 | 0.42 | instructions | not met: what is left' in report
    assert '| a run, heart alone, 15 tools / base | 1.010 | 1.01 | instructions | met |' in report


def test_report_begins_with_what_to_take_away() -> None:
    sizes = {15: [0.006], 150: [0.003]}
    of_runs = [measured('run', size, base=[0.010], fork=fork) for size, fork in sizes.items()]
    counted = {('run', size): {'base': 20e6, 'fork': fork} for size, fork in [(15, 10e6), (150, 5e6)]}

    by_time = write('2.68.0', '3.12', {'tools': of_runs})
    by_instructions = write('2.68.0', '3.12', {'tools': of_runs}, counted)

    assert by_time.startswith("**A run takes 60% of the base's time with 15 tools, and 30% with 150.**")
    assert by_instructions.startswith("**A run takes 50% of the base's instructions with 15 tools, and 25% with 150.**")


def test_report_folds_its_tables_behind_what_they_come_to() -> None:
    counted = {('run', 15): {'base': 20e6, 'fork': 10e6}, ('run', 150): {'base': 20e6, 'fork': 5e6}}

    before, _, folded = write('2.68.0', '3.12', {}, counted).partition('<details markdown="1">\n<summary>')

    assert before.endswith('1 of 2 goals are met.\n\n')
    assert '|' not in before
    assert folded.endswith('\n\n</details>\n')


def test_report_compares_workloads_by_instructions() -> None:
    report = write('2.68.0', '3.12', {}, {('scope', 15): {'fork': 12.3e6}, ('copy', 15): {'fork': 12e6}})

    assert '| a run in a scope / with a copy, 15 tools | 1.025 | 1.02 | instructions | not met: the run asks' in report


def test_report_compares_workloads_by_time() -> None:
    alone, among = measured('concurrent', 1, fork=[0.002, 0.004]), measured('concurrent', 5_000, fork=[0.004, 0.008])

    report = write('2.68.0', '3.12', {'growth': [alone, among]})

    assert '| a run among 5,000 / a run alone | 2.00 [2.00–2.00] | 1.3 | time | not met: Python' in report


def test_each_patch_saves_of_what_the_one_before_it_has_left() -> None:
    counted = {
        ('run', 15): {'before': 20.0, 'One': 10.0, 'Two': 9.0},
        ('history', 100): {'before': 9.0, 'One': 9.0, 'Two': 3.0},
    }

    assert write_patches(counted).splitlines() == [
        '| patch | run, 15 | history, 100 |',
        '| --- | ---: | ---: |',
        '| One | 50.0% | 0.0% |',
        '| Two | 10.0% | 66.7% |',
    ]


def test_totals_are_read_in_the_order_of_the_marks(tmp_path: Path) -> None:
    for number, total in [(10, 5), (2, 7), (1, 300)]:
        (tmp_path / f'base.{number}').write_text(f'version: 1\nsummary: {total}\nfn=(1)\ntotals: {total}\n')
    (tmp_path / 'fork.1').write_text('summary: 1\n')

    assert read_totals(tmp_path, 'base') == [300, 7, 5]


@pytest.mark.slow
@pytest.mark.skipif(not can_count(), reason='valgrind is not installed')
def test_instructions_of_twice_the_work_are_twice_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'workloads.py').write_text(
        'async def work(size): sum(range(size))\nWORKLOADS = {"sum": lambda size: lambda: work(size)}\n'
    )
    monkeypatch.setattr('benchmarks.instructions.SCRIPT', shutil.copy(SCRIPT, tmp_path))

    counts = [Count('sum', size, 5, ('fork',)) for size in (100_000, 200_000)]
    counted = count(counts, {'fork': Place(Path(sys.executable))})

    assert counted['sum', 200_000]['fork'] / counted['sum', 100_000]['fork'] == pytest.approx(2, rel=0.05)


def test_report_memory_is_in_kilobytes() -> None:
    report = write('2.68.0', '3.12', {'memory': [measured('memory', 1_000, base=[100_000.0], fork=[50_000.0])]})

    assert '| memory | 1,000 | 100.0 kB | 50.0 kB | 0.50 [0.50–0.50] |' in report


@pytest.mark.parametrize('part', PLANS)
def test_plan_has_each_point_once(part: str) -> None:
    points = [(point.workload, point.size) for group in PLANS[part] for point in group]

    assert len(points) == len(set(points))
