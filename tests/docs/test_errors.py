"""The page of errors and warnings has each message of the fork."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from series.line import line_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / 'docs' / 'errors.md').read_text('utf-8')
RAISED = re.compile(r'(?<!Cancelled)Error$|UnexpectedModelBehavior$|warnings\.warn$')


def added(tree: Path) -> dict[str, set[int]]:
    """Return the lines that the patches add to modules of the package."""
    diff = subprocess.run(
        ['git', 'diff', '-U0', 'refs/series/base', 'HEAD', '--', 'pydantic_ai_slim/**.py'],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, set[int]] = {}
    path = ''
    for line in diff.splitlines():
        if line.startswith('+++ b/'):
            path = line.removeprefix('+++ b/')
        elif place := re.match(r'@@ -\S+ \+(\d+)(?:,(\d+))? @@', line):
            first = int(place[1])
            found.setdefault(path, set()).update(range(first, first + int(place[2] or 1)))
    return found


def messages(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield the place of each message that is raised or warned of, and its first fixed words."""
    for path, lines in added(tree).items():
        for node in ast.walk(ast.parse((tree / path).read_text('utf-8'))):
            if not isinstance(node, ast.Call | ast.Yield) or node.lineno not in lines:
                continue
            if RAISED.search(ast.unparse(node.func)) if isinstance(node, ast.Call) else 'wiring' in path:
                parts = [part for argument in ast.iter_child_nodes(node) for part in ast.walk(argument)]
                texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                if texts := [text for text in texts if text.strip()]:
                    words = next((text for text in texts if len(text.split()) > 2), max(texts, key=len))
                    yield f'{path}:{node.lineno}', ' '.join(words.partition('. ')[0].split()[:7]).strip(' .,:')


@pytest.mark.usefixtures('prepared')
@pytest.mark.parametrize('line', line_names(ROOT)[-1:])
def test_errors_page_has_each_message(line: str) -> None:
    found = dict(messages(ROOT / 'build' / line))
    assert len(found) > 30
    assert {place: words for place, words in found.items() if words not in PAGE} == {}
