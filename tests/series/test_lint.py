"""What ruff finds in a commit counts only if it isn't there before."""

from __future__ import annotations

from pathlib import Path

import pytest

from series.errors import SeriesError
from series.git import Git
from series.lint import new_findings
from tests.series.upstream import User, set_author

# As upstream has it: with the preview on, and so without a code for what is no Python
SELECT = '[tool.ruff.lint]\npreview = true\nexplicit-preview-rules = true\nselect = ["E4", "E7", "E9", "F", "RUF043"]\n[tool.ruff.format]\nquote-style = "single"\n'
RAISES = 'import pytest\n\n\ndef test_it():\n    with pytest.raises(ValueError, match={}):\n        int()\n'


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    set_author(monkeypatch)
    (tmp_path / 'tree').mkdir()
    user = User(tmp_path / 'tree')
    user.git('init', '--quiet')
    return user


def found(user: User, settings: str, before: dict[str, str | bytes], after: dict[str, str | bytes]) -> list[str]:
    """Commit files and then others, and return what is found in the second commit."""
    user.commit('Before', {'pyproject.toml': settings, **before})
    user.commit('After', after)
    findings = new_findings(Git(user.tree), user.git('rev-parse', 'HEAD'), [*after])
    assert user.git('status', '--porcelain') == ''
    return findings


def test_findings_have_path_line_and_rule(user: User) -> None:
    assert found(user, SELECT, {}, {'tests/test_it.py': 'import os\n\n' + RAISES.format("'a.b'")}) == [
        'tests/test_it.py:1: F401 `os` imported but unused',
        'tests/test_it.py:7: RUF043 Pattern passed to `match=` contains metacharacters but is neither escaped nor raw',
    ]


def test_findings_of_the_base_do_not_count_wherever_they_have_moved(user: User) -> None:
    before, after = 'import os\n', '"""It."""\n\nimport os\nimport sys\n'
    assert found(user, SELECT, {'a.py': before}, {'a.py': after}) == ['a.py:4: F401 `sys` imported but unused']


def test_findings_on_equal_lines_count_one_by_one(user: User) -> None:
    before, after = ('def f():\n    x = 1\n', 'def f():\n    x = 1\n\n\ndef g():\n    x = 1\n')
    assert found(user, SELECT, {'a.py': before}, {'a.py': after}) == [
        'a.py:6: F841 Local variable `x` is assigned to but never used'
    ]


def test_findings_are_asked_for_by_the_settings_alone(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RUFF_OUTPUT_FORMAT', 'full')
    ignored = f'[tool.ruff]\nexclude = ["b.py"]\n{SELECT}'
    assert found(user, ignored, {}, {'b.py': 'import os\n', 'c.md': 'import os\n'}) == []


def test_findings_of_the_formatter_count(user: User) -> None:
    after: dict[str, str | bytes] = {'a.py': "x = 'a'\ny = ( 1 )\n\nz = 3\n", 'b.py': 'x = "b"\n'}
    before: dict[str, str | bytes] = {'b.py': 'x = "b"\nz = 2\n'}
    assert found(user, SELECT, before, after) == ['a.py: format It is to be formatted otherwise.']


def test_findings_of_a_file_that_is_no_python(user: User) -> None:
    (finding,) = found(user, SELECT, {}, {'a.py': 'x = (\n'})
    assert finding.startswith('a.py:')
    assert 'invalid-syntax' in finding


def test_findings_with_settings_that_ruff_refuses_show_its_words(user: User) -> None:
    with pytest.raises(SeriesError, match=r'^`ruff check` failed in the tree') as error:
        found(user, '[tool.ruff]\nline-length = "long"\n', {}, {'a.py': 'x = 1\n'})
    assert 'line-length' in error.value.words


def test_findings_of_a_file_that_is_deleted_are_none(user: User) -> None:
    user.commit('Before', {'pyproject.toml': SELECT, 'a.py': 'import os\n', 'b.py': ''})
    (user.tree / 'a.py').unlink()
    user.commit('After', {'b.py': 'x = 1\n'})
    assert new_findings(Git(user.tree), user.git('rev-parse', 'HEAD'), ['a.py', 'b.py']) == []
