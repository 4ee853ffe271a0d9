"""`pytest --toolset-leaks` over somebody's test suite."""

from __future__ import annotations

import pytest

SUITE = """
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.test import TestModel

def make_agent():
    storage = []
    def add_todo(text: str) -> None:
        storage.insert(len(storage), text)
    return Agent(TestModel(), name='todo', toolsets=[FunctionToolset([add_todo])])

def pure(text: str) -> str:
    return text

def test_leaky():
    make_agent().run_sync('Add milk')

def test_leaky_too():
    make_agent().run_sync('Add bread')

def test_pure():
    Agent(TestModel(), tools=[pure]).run_sync('Hello')
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE)
    pytester.makeini('[pytest]\nfilterwarnings =\n    ignore\n')
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_subprocess('-p', 'no:cacheprovider', *arguments)


def test_plugin_fails_and_says_at_the_end_what_leaks(suite: pytest.Pytester):
    result = run(suite, '--toolset-leaks')

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            '*= toolset leaks =*',
            '1 leak found in 3 runs:',
            'closure cell `storage[[]0[]]` of `add_todo`, reached from FunctionToolset',
            "    left by run 1 of agent 'todo' ('Add milk') in test_suite.py::test_leaky, which called `add_todo`",
            '    (and 1 more)',
            '    Write instead: make the function `add_todo` and what it keeps again for each run*',
            '',
            'All tests passed, and pytest fails for this. `--toolset-leaks-warn` only shows it.',
            '*= 3 passed in *',
        ]
    )


@pytest.mark.parametrize(('options', 'said'), [(['--toolset-leaks-warn'], True), ([], False)])
def test_plugin_warns_without_failing_and_says_nothing_without_an_option(
    suite: pytest.Pytester, options: list[str], said: bool
):
    result = run(suite, *options)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([*['1 leak found in 3 runs:'] * said, '*= 3 passed in *'])
    assert ('toolset leaks' in result.stdout.str()) == said
    assert 'pytest fails' not in result.stdout.str()


def test_plugin_summary_comes_last_fits_100_columns_and_names_each_leak_once(suite: pytest.Pytester):
    suite.makepyfile(
        test_with_a_name_that_is_long_enough_to_need_more_than_one_line=SUITE.replace(
            'test_leaky', f'test_{"leaky_" * 9}'
        )
        + '\ndef test_failing():\n    assert False\n'
    )
    result = run(suite, '--toolset-leaks')

    lines = result.outlines
    begin = next(number for number, line in enumerate(lines) if ' toolset leaks ' in line)
    assert any('short test summary info' in line for line in lines[:begin])
    assert [line for line in lines[begin + 1 :] if line.startswith('==')] == lines[-1:]
    assert max(map(len, lines[begin + 1 : -1])) <= 100
    assert '\n'.join(lines[begin:]).count('closure cell `storage[0]` of `add_todo`') == 1


def test_plugin_passes_when_nothing_leaks(suite: pytest.Pytester):
    result = run(suite, '--toolset-leaks', '-k', 'pure')

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(['No leak found in 1 run*'])


def test_plugin_reads_what_is_shared_from_the_settings(suite: pytest.Pytester):
    suite.makeini('[pytest]\nfilterwarnings =\n    ignore\ntoolset_leaks_shared =\n    add_todo.storage\n')

    assert run(suite, '--toolset-leaks').ret == pytest.ExitCode.OK


def test_plugin_brings_together_what_the_workers_of_xdist_found(suite: pytest.Pytester):
    result = run(suite, '--toolset-leaks', '-n', '2')

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ['1 leak found in 3 runs:', 'closure cell `storage[[]0[]]` of `add_todo`, *', '*(and 1 more)']
    )
