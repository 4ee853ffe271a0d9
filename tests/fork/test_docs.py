"""The examples of the docs do what they say. Those of the pages that the patches add are tested in the tree, the README's beside this."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / 'docs'
LINES = {path.parent.name for path in DOCS.parent.glob('patches/*/line.toml')}
SHOWN = re.compile(r'^<!-- show: .*?^<!-- /show -->$', re.DOTALL | re.MULTILINE)
"""What a page shows of another file, which has tests of its own."""

EXAMPLES = [
    pytest.param(example, id=f'{page.stem}-{number}')
    for page in sorted(DOCS.glob('**/*.md'))
    if page.parent.name not in ('downstream', *LINES)  # tested by the projects, and in the trees
    for number, example in enumerate(
        re.findall(r'^```python.*?\n(.*?)^```', SHOWN.sub('', page.read_text('utf-8')), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize('example', EXAMPLES)
def test_docs_example_prints_what_it_says(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / 'example.py'
    script.write_text(re.sub(r"'openai:[\w.-]+'", "'test'", example), 'utf-8')

    runpy.run_path(str(script), run_name='__main__')

    assert capsys.readouterr().out.splitlines() == re.findall(r'^ *# -> (.*)$', example, re.MULTILINE)


def test_docs_have_examples() -> None:
    assert EXAMPLES
