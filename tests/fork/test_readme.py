"""The example of the README does what it says."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

README = Path(__file__).parents[2] / 'README.md'


def test_readme_example_has_the_types_that_mypy_asks_for_when_it_is_strict() -> None:
    (example,) = re.findall(r'^```python\n(.*?)^```', README.read_text('utf-8'), re.DOTALL | re.MULTILINE)
    functions = [node for node in ast.walk(ast.parse(example)) if isinstance(node, ast.FunctionDef)]

    assert 'FunctionToolset[None]' in example
    assert [each.name for each in functions if each.returns is None] == []
    assert [arg.arg for each in functions for arg in each.args.args[1:] if arg.annotation is None] == []


@pytest.mark.anyio
async def test_readme_example_runs_see_nothing_of_each_other(tmp_path: Path) -> None:
    (example,) = re.findall(r'^```python\n(.*?)^```', README.read_text('utf-8'), re.DOTALL | re.MULTILINE)
    assert "'openai:gpt-5-mini'" in example
    script = tmp_path / 'example.py'
    script.write_text(example.replace("'openai:gpt-5-mini'", "'test'"), 'utf-8')
    agent: Agent = runpy.run_path(str(script))['agent']
    assert isinstance(agent.model, TestModel)

    outputs = [(await agent.run('Note that.')).output for _ in range(2)]

    assert outputs == ['{"keep":["a"]}'] * 2
