"""`status` says how a series stands to a release, and changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from series.cli import main
from series.errors import DownloadError, NoReleaseError
from series.line import Line, digest_patches, find_line
from series.merge import Outcome
from series.verbs.apply import apply
from series.verbs.extract import extract
from series.verbs.status import status
from tests.series.upstream import LATER, PACKAGE, Index, User, quiet, write_wheel

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
OLD = PACKAGE['pydantic_ai/tools.py']
SWAPPED = OLD.replace('a + b', 'b + a')
TITLED = SWAPPED.replace('def name', 'def title')


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line with a patch of each kind, of which the later ones stand on the one that conflicts."""
    apply(line, quiet)
    user.commit('Add one', {'tests/one.txt': '1\n', 'pydantic_ai_slim/pydantic_ai/one.py': 'one = 1\n'})
    user.commit('Swap the summands', {TOOLS: SWAPPED})
    user.commit('Call it title', {TOOLS: TITLED})
    user.commit('Return another title', {TOOLS: TITLED.replace('"tools"', '"title"')})
    double = 'pydantic_ai_slim/pydantic_ai/double.py'
    # Its test makes no difference: the package has it.
    user.commit(
        'Add `double()`', {double: LATER['pydantic_ai/double.py'], 'tests/test_double.py': 'import pydantic_ai\n'}
    )
    extract(line, quiet)
    return find_line(line.root)


def outcomes(line: Line, onto: str | None = None) -> list[tuple[Outcome, list[str]]]:
    (found,) = status([line], quiet, onto)
    return [(made.outcome, list(made.places)) for made in found.attempts]


@pytest.mark.slow
def test_status_onto_a_release_takes_that_one(series: Line, index: Index) -> None:
    assert outcomes(series, '1.0.0') == [(Outcome.APPLIES, [])] * 5
    (found,) = status([series], quiet, '1.1')
    assert found.release == '1.1.0'


@pytest.mark.slow
def test_status_of_a_file_that_is_gone_names_it(series: Line, index: Index, tmp_path: Path) -> None:
    (tmp_path / 'more').mkdir()
    write_wheel(tmp_path / 'more', '3.0.0', {'pydantic_ai/__init__.py': '', 'pydantic_ai/double.py': ''})
    index.folder = tmp_path / 'more'
    gone = (Outcome.CONFLICTS, [f'{TOOLS} (which the base does not have)'])
    assert outcomes(series)[1:4] == [gone, (Outcome.APPLIES, []), (Outcome.APPLIES, [])]


@pytest.mark.slow
def test_status_takes_a_fork_on_the_index_for_its_base(series: Line, index: Index, tmp_path: Path) -> None:
    for path in index.folder.iterdir():
        shutil.copy(path, tmp_path)
    write_wheel(tmp_path, '2.0.0+lifecycle.7', PACKAGE)
    index.folder = tmp_path
    (found,) = status([series], quiet)
    assert found.release == '2.0.0'


@pytest.mark.slow
def test_status_leaves_the_line_and_the_tree_alone(series: Line, index: Index, user: User) -> None:
    (series.tree / TOOLS).write_text('work\n')
    before = user.git('status', '--porcelain'), user.git('log'), digest_patches(series.patches)
    status([series], quiet)
    assert (user.git('status', '--porcelain'), user.git('log'), digest_patches(series.patches)) == before
    assert sorted(path.name for path in (series.root / 'build').iterdir()) == ['1.0.0', 'cache']


def test_status_without_the_index_says_so(series: Line) -> None:
    with pytest.raises(DownloadError) as error:
        status([series], quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        'uv could not ask the index for `pydantic-ai-slim`.\n'
        "These are uv's words; check the connection and uv's configuration, then run the same command again."
    )
    assert 'the network was disabled' in error.value.words


def test_status_onto_an_unknown_release_refuses(series: Line, index: Index) -> None:
    with pytest.raises(NoReleaseError, match=r'^The index has no release `pydantic-ai-slim===7\.0\.0`\.'):
        status([series], quiet, '7.0.0')


def test_status_prints_a_table_of_each_line(
    series: Line, index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(series.root)
    assert main(['status']) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        '1.0.0 on 2.0.0:',
        'applies    fixes/add-one',
        'merges     fixes/swap-the-summands',
        'conflicts  fixes/call-it-title',
        f'           {TOOLS}:5',
        'applies    fixes/return-another-title',
        'contained  fixes/add-double',
        '2 applies, 1 merges, 1 contained, 1 conflicts',
    ]
    (series.folder / 'line.toml').write_text((series.folder / 'line.toml').read_text().replace('"1.0.0"', '"2.0.0"'))
    series.folder.rename(series.folder.with_name('2.0.0'))
    assert main(['status', '2.0.0']) == 0
    assert capsys.readouterr().out == '2.0.0 on 2.0.0: there is nothing newer.\n'
