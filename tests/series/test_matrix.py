"""`matrix` runs upstream's tests on base and fork and says what differs.

Here the tool's own interpreter runs the tests, which takes `pydantic_ai` from the tree of each side.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from series.cli import main
from series.comparison import Comparison
from series.errors import SeriesError
from series.git import Git
from series.line import Line, find_line
from series.progress import Report
from series.verbs.matrix import (
    Cell,
    Matrix,
    Prepare,
    Prepared,
    Tests,
    choose_cells,
    matrix,
    rename,
    summary,
    write_report,
)
from tests.series.upstream import PACKAGE, User, quiet, refusal, write_series

pytestmark = pytest.mark.slow

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
RENAMED = PACKAGE['pydantic_ai/tools.py'].replace('return "tools"', 'return "fork"')
NAME = 'from pydantic_ai.tools import name\n\ndef test_name():\n    assert name() == "tools"\n'
EACH = """\
import pytest
from pydantic_ai import add, tools

@pytest.mark.parametrize('name', [name for name in vars(tools) if name[0] != '_'])
def test_it(name):
    assert name != 'broken'

def test_network():
    assert False
"""
"""Has a test for each function of the module."""

CELL = Cell('3.12', 'all', 'highest')

Upstream = Callable[..., Path]


def prepare(cell: Cell, side: str, tree: Git) -> Prepared:
    variables = {'PYTHONPATH': str(tree.folder / 'pydantic_ai_slim')}
    return Prepared(Path(sys.executable), 'nothing', [], [], variables)


def prepare_for_two(cell: Cell, side: str, tree: Git) -> Prepared:
    return replace(prepare(cell, side, tree), options=['-n', '2', '--dist=loadgroup'])


def run(line: Line, tests: Tests, prepare: Prepare = prepare) -> Matrix:
    return matrix(line, [CELL], tests, quiet, prepare)


def compared(found: Matrix) -> Comparison:
    (result,) = found.cells
    assert result.comparison is not None
    return result.comparison


def outcomes(found: Matrix) -> dict[str, tuple[str, str]]:
    return {test.test: (test.outcome('base'), test.outcome('fork')) for test in compared(found).tests}


def write(line: Line, user: User, files: Mapping[str, str], subject: str = 'Change it') -> None:
    """Have a patch write these files."""
    write_series(line, (subject, dict(files)))


@pytest.fixture
def renamed(line: Line, user: User) -> Line:
    """A line on whose fork `name()` returns something else."""
    write(line, user, {TOOLS: RENAMED})
    return line


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """Makes a clone of upstream with these tests."""

    def make(text: str = NAME, **files: str) -> Path:
        folder = tmp_path / 'upstream'
        contents = {'tests/__init__.py': '', 'tests/test_it.py': text, 'pyproject.toml': '[tool.pytest]\n'} | files
        for name, content in contents.items():
            (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        git = Git(folder)
        git.run('init', '--quiet')
        git.run('add', '--all')
        git.run('commit', '--quiet', '--message', 'Tests')
        return folder

    return make


def test_matrix_of_a_fork_that_behaves_as_the_base_finds_no_difference(
    line: Line, user: User, upstream: Upstream
) -> None:
    write(line, user, {TOOLS: f'{PACKAGE["pydantic_ai/tools.py"]}\n\ndef new() -> None: ...\n'})
    found = run(line, Tests(upstream(EACH)))
    assert found.differences == 0
    assert [test.test for test in compared(found).added] == ['tests.test_it::test_it[new]']
    assert [test.test for test in compared(found).failing] == ['tests.test_it::test_network']


def test_matrix_where_an_outcome_changed_says_which_after_it_ran_alone(renamed: Line, upstream: Upstream) -> None:
    found = run(renamed, Tests(upstream(NAME + '\ndef test_other():\n    assert name() == "other"\n')))
    assert outcomes(found) == {
        'tests.test_it::test_name': ('passed', 'failed'),
        'tests.test_it::test_other': ('failed', 'failed'),
    }
    (test,) = compared(found).differences
    assert test.test == 'tests.test_it::test_name'
    assert test.again == {'base': ['passed'] * 3, 'fork': ['failed'] * 3}
    assert test.fork is not None
    assert test.fork.words.startswith("AssertionError: assert 'fork' == 'tools'\n")
    assert 'tests/test_it.py:4' in test.fork.words


def test_matrix_where_a_test_is_gone_from_the_fork_is_a_difference(line: Line, user: User, upstream: Upstream) -> None:
    write(line, user, {TOOLS: 'def add(a: int, b: int) -> int: ...\n'})
    (test,) = compared(run(line, Tests(upstream(EACH)))).differences
    assert (test.test, test.outcome('fork'), test.again) == ('tests.test_it::test_it[name]', 'missing', {})


def test_matrix_where_a_file_of_tests_is_not_imported_any_more_is_a_difference(
    line: Line, user: User, upstream: Upstream
) -> None:
    write(line, user, {'pydantic_ai_slim/pydantic_ai/__init__.py': ''})
    found = run(line, Tests(upstream('from pydantic_ai import add\n\ndef test_add(): ...\n')))
    assert outcomes(found) == {
        'tests.test_it': ('missing', 'error'),
        'tests.test_it::test_add': ('passed', 'missing'),
    }
    assert found.differences == 1


def test_matrix_where_a_test_differs_only_beside_others_calls_it_flaky(
    line: Line, upstream: Upstream, tmp_path: Path
) -> None:
    text = f"""\
from pathlib import Path

def test_first():
    times = Path({str(tmp_path / 'times')!r})
    times.write_text((times.read_text() if times.exists() else '') + 'x')
    assert times.read_text() != 'xx'
"""
    found = run(line, Tests(upstream(text)))
    assert outcomes(found) == {'tests.test_it::test_first': ('passed', 'failed')}
    (test,) = compared(found).flaky
    assert test.again == {'base': ['passed'] * 3, 'fork': ['passed'] * 3}
    assert found.differences == 0


def test_matrix_where_a_test_fails_now_and_then_on_the_fork_only_is_a_difference(
    renamed: Line, upstream: Upstream, tmp_path: Path
) -> None:
    text = f"""\
from pathlib import Path
from pydantic_ai.tools import name

def test_now_and_then():
    times = Path({str(tmp_path / 'times')!r})
    if name() == 'fork':
        times.write_text((times.read_text() if times.exists() else '') + 'x')
        assert len(times.read_text()) % 2 == 0
"""
    (test,) = compared(run(renamed, Tests(upstream(text)))).differences
    assert test.again == {'base': ['passed'] * 3, 'fork': ['passed', 'failed', 'passed']}


def test_matrix_after_the_fork_changed_keeps_the_outcomes_of_the_base_only(
    line: Line, user: User, upstream: Upstream, tmp_path: Path
) -> None:
    text = f"""\
from pathlib import Path
from pydantic_ai.tools import name

def test_name():
    with Path({str(tmp_path / 'times')!r}).open('a') as times:
        times.write(name() + ' ')
"""
    tests = Tests(upstream(text))
    run(line, tests)
    write(line, user, {TOOLS: RENAMED})
    run(line, tests)
    assert (tmp_path / 'times').read_text() == 'tools tools fork '
    # Other tests are something else as well.
    upstream(text + '\n')
    run(line, tests)
    assert (tmp_path / 'times').read_text() == 'tools tools fork tools fork '


def test_matrix_where_a_test_ends_its_process_goes_on_with_the_others(line: Line, upstream: Upstream) -> None:
    text = 'import os\n\ndef test_a():\n    pass\n\ndef test_b():\n    os._exit(3)\n\ndef test_c():\n    pass\n'
    assert outcomes(run(line, Tests(upstream(text)), prepare_for_two)) == {
        'tests.test_it::test_a': ('passed', 'passed'),
        'tests.test_it::test_b': ('crashed', 'crashed'),
        'tests.test_it::test_c': ('passed', 'passed'),
    }


def test_matrix_where_the_last_tests_end_their_processes_comes_to_its_end(line: Line, upstream: Upstream) -> None:
    text = 'import os, pytest\n@pytest.mark.parametrize("number", range(20))\ndef test_a(number):\n    number > 17 and os._exit(3)\n'
    found = outcomes(run(line, Tests(upstream(text)), prepare_for_two))
    assert len(found) == 20
    assert [found[f'tests.test_it::test_a[{number}]'] for number in (18, 19)] == [('crashed', 'crashed')] * 2


def test_matrix_where_processes_end_before_others_in_their_places_are_ready_goes_on(
    line: Line, upstream: Upstream
) -> None:
    text = """\
import os, time, pytest
worker = os.environ['PYTEST_XDIST_WORKER']
time.sleep(worker == 'gw2')

@pytest.mark.parametrize('number', range(6))
def test_a(number):
    worker in ('gw0', 'gw1') and os._exit(3)
"""
    found = run(line, Tests(upstream(text)), prepare_for_two)
    assert sorted(outcomes(found).values()) == [('crashed', 'crashed')] * 2 + [('passed', 'passed')] * 4


def test_matrix_tells_all_outcomes_apart(line: Line, upstream: Upstream) -> None:
    text = """\
import pytest

@pytest.fixture
def broken():
    raise ValueError

@pytest.fixture
def broken_after():
    yield
    raise ValueError

def test_setup(broken):
    pass

def test_teardown(broken_after):
    pass

def test_both(broken_after):
    assert False

@pytest.mark.skip(reason='why not')
def test_skipped():
    pass

@pytest.mark.xfail(reason='known')
def test_xfailed():
    assert False

@pytest.mark.xfail(strict=False)
def test_xpassed():
    pass
"""
    module = 'import pytest\n\npytest.skip("no network", allow_module_level=True)\n'
    found = run(line, Tests(upstream(text, **{'tests/test_module.py': module})))
    assert {test: outcome for test, (outcome, _) in outcomes(found).items()} == {
        'tests.test_it::test_both': 'failed, then error',
        'tests.test_it::test_setup': 'error',
        'tests.test_it::test_skipped': 'skipped',
        'tests.test_it::test_teardown': 'error',
        'tests.test_it::test_xfailed': 'xfailed',
        'tests.test_it::test_xpassed': 'passed',
        'tests.test_module': 'skipped',
    }
    said = {test.test: test.base.words.partition('\n')[0] for test in compared(found).tests if test.base}
    assert said['tests.test_it::test_skipped'] == 'why not'
    assert said['tests.test_it::test_xfailed'] == 'known'
    assert said['tests.test_module'] == 'collection skipped'


def test_matrix_knows_an_example_by_what_it_says_not_by_its_line(renamed: Line, upstream: Upstream) -> None:
    text = """\
import pytest
from pydantic_ai.tools import name

class Example:
    def __init__(self, source, line):
        self.source = source
        # On the fork as if something were written above.
        self.start_line = line + (10 if name() == 'fork' else 0)

FOUND = [Example('a', 3), Example('b', 5), Example('a', 13)]

@pytest.mark.xdist_group('docs')
@pytest.mark.parametrize('example', [pytest.param(it, id=f'docs/it.md:{it.start_line}:it.py') for it in FOUND])
def test_example(example):
    assert name() == 'tools' or example.source == 'a'
"""
    found = run(renamed, Tests(upstream(text)))
    # The same example twice is told apart by its number.
    assert sorted(outcomes(found).values()) == [('passed', 'failed'), ('passed', 'passed'), ('passed', 'passed')]
    (test,) = compared(found).differences
    assert test.again == {'base': ['passed'] * 3, 'fork': ['failed'] * 3}


def test_matrix_runs_only_what_is_chosen(line: Line, upstream: Upstream) -> None:
    clone = upstream(
        'def test_a():\n    pass\n\ndef test_b():\n    pass\n', **{'tests/test_other.py': 'def test_a(): pass\n'}
    )
    assert set(outcomes(run(line, Tests(clone, ('tests/test_i*.py', 'tests/gone.py'), 'test_a')))) == {
        'tests.test_it::test_a'
    }
    assert refusal(run, line, Tests(clone, ('tests/gone.py',))) == (
        "Upstream's tests have none that were asked for (Python 3.12, all, highest).\nName others with `--only` and `-k`, in `ARGS` of make."
    )


def test_matrix_that_pytest_refuses_to_run_shows_its_words(line: Line, upstream: Upstream) -> None:
    with pytest.raises(SeriesError) as error:
        run(line, Tests(upstream(), expression='not'))
    assert "Wrong expression passed to '-k'" in error.value.words


def test_matrix_leaves_a_clone_of_upstream_as_it_is(line: Line, upstream: Upstream) -> None:
    """The clone's own package isn't what is tested, and what isn't committed there runs as well."""
    text = 'from pathlib import Path\nfrom pydantic_ai.tools import name\n\ndef test_it():\n    Path("made").touch()\n    assert name() == "tools"\n'
    clone = upstream(
        text, **{TOOLS: 'broken', 'pydantic_ai_slim/pydantic_ai/__init__.py': 'broken', '.gitignore': 'no\n'}
    )
    (clone / 'tests' / 'test_more.py').write_text('def test_more(): pass\n')
    (clone / 'no').mkdir()
    before = sorted(clone.rglob('*'))
    assert outcomes(run(line, Tests(clone))) == {
        'tests.test_it::test_it': ('passed', 'passed'),
        'tests.test_more::test_more': ('passed', 'passed'),
    }
    assert sorted(clone.rglob('*')) == before


def test_matrix_on_what_is_no_clone_of_upstream_is_refused(line: Line, tmp_path: Path) -> None:
    (folder := tmp_path / 'other').mkdir()
    assert refusal(run, line, Tests(folder)) == (
        f'`{folder}` is not a clone of upstream: it has no folder `tests`, or is no git repository.\n'
        'Name the root of a clone with `--tests DIR` (`CLONE=DIR`).'
    )


def test_matrix_renames_what_has_another_name_in_older_tests() -> None:
    text = 'from pydantic_ai.builtin_tools import x\nmessages.BuiltinToolCallPart, MyBuiltinToolCallPart\n'
    renamed = rename(text, '2.68.0')
    assert renamed == 'from pydantic_ai.native_tools import x\nmessages.NativeToolCallPart, MyBuiltinToolCallPart\n'
    assert rename(text, '1.107.10') == text


def test_matrix_beside_another_one_is_refused(line: Line, upstream: Upstream) -> None:
    tests = Tests(upstream())

    def prepare_while_it_runs(*_: object) -> Prepared:
        with pytest.raises(SeriesError) as error:
            run(line, tests)
        raise error.value

    with pytest.raises(SeriesError, match=r'is at work on `matrix-1\.0\.0`'):
        matrix(line, [CELL], tests, quiet, prepare_while_it_runs)


def test_matrix_without_an_interpreter_skips_the_cell(line: Line, upstream: Upstream) -> None:
    tests = Tests(upstream())
    cells = [CELL, Cell('3.99', 'all', 'highest')]

    def prepare_one(cell: Cell, side: str, tree: Git) -> Prepared | None:
        return prepare(cell, side, tree) if cell == CELL else None

    found = matrix(line, cells, tests, quiet, prepare_one)
    assert [result.skipped for result in found.cells] == ['', 'this machine has no Python 3.99']
    assert 'skipped, since this machine has no Python 3.99' in summary(found)
    assert refusal(matrix, line, cells[1:], tests, quiet, prepare_one) == (
        'No cell was run: this machine has no Python 3.99.\n'
        'Install one of Python 3.12, or name one that is here with `--python VERSION` (`PYTHON=VERSION`).'
    )


def test_matrix_without_a_lock_says_how_to_write_it(
    line: Line, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wheel(*_: object, **__: object) -> Path:
        return Path(__file__)

    monkeypatch.setattr('series.verbs.matrix.base_wheel', wheel)
    monkeypatch.setattr('series.verbs.matrix.build', wheel)
    assert refusal(matrix, line, [CELL], Tests(upstream()), quiet) == (
        'There is no lock for all, highest: `patches/1.0.0/locks/all-highest.txt` does not exist.\n'
        'Write it with `make locks LINE=1.0.0`.'
    )


def test_choose_cells_multiplies_all_axes_or_those_that_are_named(line: Line) -> None:
    assert len(choose_cells(replace(line, python=('3.12', '3.13')), ['3.12', '3.13'], None, None)) == 12
    with pytest.raises(SeriesError, match=r'^The line 1\.0\.0 does not support Python 2\.7\.\nName one of 3\.12 with'):
        choose_cells(line, ['2.7'], None, None)
    assert choose_cells(line, None, ['slim'], ['highest']) == [Cell('3.12', 'slim', 'highest')]
    assert find_line(line.root) == line


def test_main_matrix_prints_a_line_for_each_cell_and_fails_for_a_difference(
    renamed: Line, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_here(line: Line, cells: Sequence[Cell], tests: Tests, report: Report) -> Matrix:
        assert cells == choose_cells(line, ['3.12'], ['all'], ['highest'])
        return matrix(line, cells, tests, report, prepare)

    monkeypatch.setattr('series.cli.matrix', run_here)
    monkeypatch.chdir(renamed.root)
    chosen = ['matrix', '--python=3.12', '--install=all', '--resolution=highest', '--tests', str(upstream())]
    assert main(chosen) == 1
    said = capsys.readouterr()
    assert said.out == ''
    assert re.match(
        r"error: Upstream's tests differ between base and fork of 1\.0\.0, or tests that its patches add fail\.\n"
        r'\n'
        r'Python 3\.12, all, highest: 1 tests in common, of which 1 differ, 0 are flaky and 0 fail on both; 0 new, of which 0 fail\n',
        said.err,
    )
    assert '- tests.test_it::test_name (Python 3.12, all, highest): passed on the base, failed on the fork' in said.err
    assert (renamed.root / 'build/matrix/1.0.0/report.txt').exists()
    upstream('def test_name():\n    pass\n')
    assert main(chosen) == 0
    assert capsys.readouterr().out.endswith("Upstream's tests say the same of 1.0.0+lifecycle.1 as of the base.\n")


def test_matrix_where_a_test_of_the_patches_fails_says_so(line: Line, user: User, upstream: Upstream) -> None:
    write(line, user, {TOOLS: f'{PACKAGE["pydantic_ai/tools.py"]}\n\ndef broken() -> None: ...\n'})
    found = run(line, Tests(upstream(EACH)))
    assert (found.differences, found.broken) == (0, 1)
    assert (
        '- tests.test_it::test_it[broken] (Python 3.12, all, highest): failed, a test that the patches add'
        in summary(found)
    )


def test_matrix_where_a_test_fails_on_both_for_another_reason_shows_what_differs(
    renamed: Line, upstream: Upstream, tmp_path: Path
) -> None:
    text = """\
import os
import uuid
from datetime import datetime, timezone
from pydantic_ai.tools import name

def test_name():
    now = datetime.now(timezone.utc)
    ids = (now, now.isoformat(), uuid.uuid4(), f'pyd_ai_{uuid.uuid4().hex}', hex(id(now)), f'/tmp/{uuid.uuid4()}/it')
    assert [name(), *ids] == ['other']

def test_same():
    assert [datetime.now(), object(), os.getpid() + 1_000_000, uuid.uuid4().hex, set('abcdefgh')] == [1]

def test_behind_other_code():
    def tools(): raise ValueError('x')
    def fork(): tools()
    {'tools': tools, 'fork': fork}[name()]()
"""
    found = run(renamed, Tests(upstream(text)))
    assert found.differences == 0
    assert len(compared(found).failing) == 3
    assert [test.test for test in compared(found).tests if test.changed_words] == ['tests.test_it::test_name']
    said = compared(found).listed('')
    assert len(said) == 1
    assert said[0].startswith('- tests.test_it::test_name: failed on both, but says something else:\n      --- base\n')
    assert "-AssertionError: assert ['tools', " in said[0] and "+AssertionError: assert ['fork', " in said[0]
    report = write_report(found, tmp_path / 'report.txt').read_text()
    assert (
        'Fail on both (Python 3.12, all, highest):\n- tests.test_it::test_behind_other_code\n- tests.test_it::test_name\n- tests.test_it::test_same\n'
        in report
    )
