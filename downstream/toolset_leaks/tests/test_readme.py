"""What the README shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

README = (Path(__file__).parents[1] / 'README.md').read_text('utf-8')


def blocks(kind: str) -> list[str]:
    return re.findall(rf'```{kind}\n(.*?)```', README, re.DOTALL)


def test_readme_two_commands_watch_a_test_suite(pytester: pytest.Pytester):
    [install, watch] = blocks('console')[0].splitlines()
    assert install == 'pip install "toolset-leaks @ git+URL@COMMIT#subdirectory=downstream/toolset_leaks"'
    assert watch == 'pytest --toolset-leaks tests/'

    code = blocks('python')[0].replace("'openai:gpt-5-mini'", "TestModel(), name='todo'")
    pytester.mkdir('tests').joinpath('test_suite.py').write_text(
        f'from pydantic_ai.models.test import TestModel\n{code}\n\ndef test_add():\n    agent.run_sync("Add milk")\n'
    )
    shown = pytester.runpytest(*watch.split()[1:], '-p', 'no:cacheprovider', '-n', '0')

    assert shown.ret == pytest.ExitCode.TESTS_FAILED
    lines = [
        line for line in blocks('text')[0].splitlines() if 'closure cell' in line or line.startswith('    the next run')
    ]
    assert len(lines) == 2
    shown.stdout.fnmatch_lines([line.replace('[', '[[]') for line in lines])


def test_readme_samples_run_as_they_stand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """In one file, one after another, but for the model."""
    monkeypatch.setenv('OPENAI_API_KEY', 'none')
    monkeypatch.setattr('pydantic_ai.agent.models.infer_model', lambda *args, **options: TestModel())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    samples = blocks('python')
    assert len(samples) == README.count('```python') == 3
    names: dict[str, Any] = {'__name__': 'readme'}
    for sample in samples:
        exec(compile(sample, 'README.md', 'exec', dont_inherit=True), names)  # noqa: S102
    assert 'closure cell `storage[0]` of `add_todo`' in capsys.readouterr().out
    with pytest.raises(AssertionError, match='closure cell'):
        names['test_no_leak']()
    assert names['TodoToolset'].shared_attributes == {'cache'}
