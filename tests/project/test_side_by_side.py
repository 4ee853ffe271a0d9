"""Parts run side by side, and what each says is read as a whole."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from series.errors import SeriesError
from series.progress import heartbeat
from tests.side_by_side import FAILED, Part, print_results, run_all, succeeded


def part(title: str, code: str, folder: Path, seconds: int = 0) -> Part:
    return Part(title, [sys.executable, '-c', code], folder, seconds=seconds)


def test_parts_run_at_once_and_the_longest_begins_first(tmp_path: Path) -> None:
    # Each waits for the other one.
    meet = 'import pathlib, time\npathlib.Path("{}").touch()\nwhile not pathlib.Path("{}").exists(): time.sleep(0.01)'
    parts = [
        part('last', 'from pathlib import Path; assert Path("a").exists()', tmp_path),
        part('first', meet.format('a', 'b'), tmp_path, seconds=20),
        part('second', meet.format('b', 'a'), tmp_path, seconds=10),
    ]

    assert run_all(parts, at_once=2) == {'last': 'passed', 'first': 'passed', 'second': 'passed'}
    assert list(run_all(parts, at_once=2)) == ['last', 'first', 'second']


def test_part_is_printed_as_a_whole_with_what_came_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    say = 'import sys, time\nfor n in range(3): print("{0}", n, flush=True); time.sleep(0.05)\nsys.exit({1})'

    results = run_all([part('good', say.format('one', 0), tmp_path), part('bad', say.format('two', 3), tmp_path)])

    assert results['good'] == 'passed'
    said = capfd.readouterr().out
    assert 's\none 0\none 1\none 2\n' in said
    assert 's\ntwo 0\ntwo 1\ntwo 2\n' in said
    assert '\n== bad: FAILED after 0 s\n' in said


@pytest.mark.parametrize('at_once', [1, 2])
def test_tests_of_each_part_have_a_folder_of_their_own_for_temporary_files(tmp_path: Path, at_once: int) -> None:
    code = 'import os; from pathlib import Path; Path("{}").write_text(os.environ["PYTEST_DEBUG_TEMPROOT"])'

    run_all([part(name, code.format(name), tmp_path) for name in ('a', 'b')], at_once)

    a, b = (Path((tmp_path / name).read_text()) for name in ('a', 'b'))
    assert a != b
    assert not a.exists() and not b.exists()


def test_part_that_can_not_be_prepared_fails_and_says_why(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def refuse() -> Sequence[str]:
        raise SeriesError('There is no wheel.', 'Build it.')

    results = run_all([Part('refused', refuse, tmp_path), part('good', '', tmp_path)])

    assert results['refused'].startswith('FAILED')
    assert results['good'] == 'passed'
    assert 'error: There is no wheel.\nBuild it.\n' in capfd.readouterr().out


def test_output_ends_with_what_failed_and_its_last_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = part('bad', 'print(*range(100), sep="\\n"); raise SystemExit(1)', tmp_path)

    results = run_all([bad, *(part(f'good {number}', '', tmp_path) for number in range(5))])
    print_results(results)

    assert not succeeded(results)
    end = capfd.readouterr().out.split('- good 4: passed\n')[1]
    assert end == '- bad: FAILED. It said last:\n' + ''.join(f'    {number}\n' for number in range(80, 100))


def test_nothing_succeeded_where_nothing_passed_or_something_that_was_asked_for_is_wrong() -> None:
    assert succeeded({'one': 'passed', 'two': 'no test was selected', 'three': 'left out'})
    assert not succeeded({'one': 'no test was selected'})
    assert not succeeded({'one': 'passed', 'two': 'left out'}, (FAILED, 'left out'))


def test_part_without_a_test_says_so(tmp_path: Path) -> None:
    assert run_all([part('empty', 'raise SystemExit(5)', tmp_path)]) == {'empty': 'no test was selected'}


def test_parts_share_the_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr('os.cpu_count', lambda: 8)
    show = 'import os; print("workers:", os.environ["PYTEST_XDIST_AUTO_NUM_WORKERS"])'

    run_all([part(str(number), show, tmp_path) for number in range(3)])
    assert capfd.readouterr().out.count('workers: 2\n') == 3

    run_all([part('alone', show, tmp_path)])
    assert 'workers: 8\n' in capfd.readouterr().out

    # pytest runs the tests itself, as with `-n 0`.
    monkeypatch.setattr('os.cpu_count', lambda: 2)
    run_all([part(str(number), show, tmp_path) for number in range(2)])
    assert capfd.readouterr().out.count('workers: 0\n') == 2


def test_parts_that_take_long_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr('tests.side_by_side.heartbeat', partial(heartbeat, seconds=0.05))
    slow = 'import time; time.sleep(1.5)'

    run_all([part('slow', slow, tmp_path), part('quick', '', tmp_path)])

    assert 'slow (1 of 2 done) …\n' in capfd.readouterr().out
