"""The examples of the docs do what they say. Those of the pages that the patches add are tested in the tree, the README's beside this."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / 'docs'
EXAMPLES = [
    pytest.param(example, id=f'{page.stem}-{number}')
    for page in sorted(DOCS.glob('**/*.md'))
    if page.parent.name != 'downstream'  # what these show needs the projects, which test it
    for number, example in enumerate(
        re.findall(r'^```python.*?\n(.*?)^```', page.read_text('utf-8'), re.DOTALL | re.MULTILINE)
    )
    if not example.lstrip().startswith('--8<--')  # a part of `examples/`, which has tests of its own
]


@pytest.mark.parametrize('example', EXAMPLES)
def test_docs_example_prints_what_it_says(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / 'example.py'
    script.write_text(re.sub(r"'openai:[\w.-]+'", "'test'", example), 'utf-8')

    runpy.run_path(str(script), run_name='__main__')

    assert capsys.readouterr().out.splitlines() == re.findall(r'^ *# -> (.*)$', example, re.MULTILINE)


def test_docs_have_examples() -> None:
    assert EXAMPLES
