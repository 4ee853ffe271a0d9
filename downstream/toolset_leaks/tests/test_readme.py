"""What the README shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / 'README.md').read_text('utf-8')


def blocks(kind: str) -> list[str]:
    return re.findall(rf'```{kind}\n(.*?)```', README, re.DOTALL)


def test_readme_two_commands_watch_a_test_suite(pytester: pytest.Pytester):
    [install, watch] = blocks('console')[0].splitlines()
    assert install == 'pip install "toolset-leaks @ git+URL@COMMIT#subdirectory=downstream/toolset_leaks"'
    assert watch == 'pytest --toolset-leaks tests/'

    code = blocks('python')[0].replace("'openai:gpt-5-mini'", "TestModel(), name='todo'")
    pytester.mkdir('tests').joinpath('test_suite.py').write_text(
        'from pydantic_ai import Agent, FunctionToolset\n'
        'from pydantic_ai.models.test import TestModel\n'
        f'{code}\n\ndef test_add():\n    agent.run_sync("Add milk")\n'
    )
    shown = pytester.runpytest(*watch.split()[1:], '-p', 'no:cacheprovider', '-n', '0')

    assert shown.ret == pytest.ExitCode.TESTS_FAILED
    lines = [
        line for line in blocks('text')[0].splitlines() if 'closure cell' in line or line.startswith('    the next run')
    ]
    assert len(lines) == 2
    shown.stdout.fnmatch_lines([line.replace('[', '[[]') for line in lines])
