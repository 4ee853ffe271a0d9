"""`review` shows what changed in a series."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from series.cli import main
from series.errors import ApplyError
from series.git import Git
from series.line import Line, find_line
from series.verbs.apply import apply
from series.verbs.extract import extract
from series.verbs.review import compare, review
from tests.series.upstream import PACKAGE, User, drop_patch, quiet, refusal, write_later_line, write_series

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
SWAPPED = PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'b + a')


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line with two patches, committed to the repository that it is in, and its tree."""
    write_series(
        line, ('Add one', {'tests/one.txt': '1\n'}), ('Swap the summands\n\nThe order matters.', {TOOLS: SWAPPED})
    )
    root = User(line.root)
    root.git('init', '--quiet')
    (line.root / '.gitignore').write_text('/build/\n')
    root.git('add', '--all')
    root.git('commit', '--quiet', '--message', 'patches: Two')
    root.git('tag', 'two')
    return find_line(line.root)


def change(line: Line, user: User) -> Line:
    """Change the second patch, and add a third."""
    (line.tree / TOOLS).write_text(SWAPPED.replace('"tools"', '"tool"'))
    user.git('commit', '--quiet', '--all', '--amend', '--no-edit')
    user.commit('Add three', {'tests/three.txt': '3\n'})
    extract(line, quiet)
    return find_line(line.root)


def without_ids(text: str) -> str:
    """Put dots into the place of the commits' ids."""
    rows = text.splitlines()
    return '\n'.join(
        ' '.join('.' if len(part) == 7 and part.isalnum() else part for part in row.split(' '))
        if row.lstrip()[:1].isdigit() or row.startswith('-:')
        else row
        for row in rows
    )


def test_review_shows_what_changed_since_a_revision(series: Line, user: User) -> None:
    changed = change(series, user)
    rows = without_ids(review(changed, 'HEAD', quiet)).splitlines()
    assert [row for row in rows if not row.startswith(' ')] == [
        '2:  . ! 2:  . Swap the summands',
        '-:  ------- > 3:  . Add three',
    ]
    assert any(row.strip() == '++    return "tool"' for row in rows)
    assert review(changed, 'two', quiet) == review(changed, 'HEAD', quiet)


def test_review_sees_a_message_that_changed(series: Line, user: User) -> None:
    user.git('commit', '--quiet', '--amend', '--message', 'Swap the summands\n\nThe order is all.')
    extract(series, quiet)
    found = review(find_line(series.root), 'HEAD', quiet)
    assert '    -    The order matters.\n    +    The order is all.' in found


def test_review_names_a_patch_that_comes_after_one_that_it_came_before(series: Line, user: User) -> None:
    user.git('-c', 'sequence.editor=sed -i "1{h;d};2{G}"', 'rebase', '--quiet', '--interactive', 'refs/series/base')
    extract(series, quiet)
    assert without_ids(review(find_line(series.root), 'HEAD', quiet)) == '1:  . = 2:  . Add one'


def test_review_of_what_did_not_change_is_empty(series: Line) -> None:
    shutil.rmtree(series.cache)  # nothing has to be looked at
    assert review(series, 'HEAD', quiet) == ''


def test_review_is_coloured_on_request(series: Line, user: User) -> None:
    changed = change(series, user)
    assert '\x1b[' not in review(changed, 'HEAD', quiet)
    assert '\x1b[' in review(changed, 'HEAD', quiet, colour=True)


def test_review_on_another_base_compares_all_the_same(
    series: Line, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = series.folder / 'line.toml'
    toml.write_text(toml.read_text().replace('released = 2025-01-31', 'released = 2025-01-30'))
    drop_patch(series.patches[0])
    changed = find_line(series.root)
    Git(series.root).run('commit', '--quiet', '--all', '--message', 'patches: One')
    monkeypatch.setenv('PIP_FIND_LINKS', str(releases))
    assert without_ids(review(changed, 'two', quiet)).splitlines() == [
        '1:  . < -:  ------- Add one',
    ]


def test_review_of_an_unknown_revision_refuses(series: Line) -> None:
    assert refusal(review, series, 'nowhere', quiet) == (
        'There is no revision `nowhere` in this repository.\n'
        'Name a commit, a branch or a tag, such as `HEAD~3`; `git log -- patches` lists those that changed a series.'
    )


def test_review_of_a_revision_without_the_line_refuses(series: Line) -> None:
    shutil.copytree(series.folder, other := series.folder.with_name('1.1.0'))
    (other / 'line.toml').write_text((other / 'line.toml').read_text().replace('"1.0.0"', '"1.1.0"'))
    assert refusal(review, find_line(series.root, '1.1.0'), 'HEAD', quiet) == (
        'There is no line `1.1.0` in `HEAD`.\n'
        'It has `1.0.0`. Name a later revision, or compare two lines with `--against LINE` (`ARGS="--against LINE"`).'
    )


def test_review_of_a_revision_in_which_patches_stood_in_no_list_refuses(series: Line) -> None:
    Git(series.root).run('rm', '--quiet', 'patches/1.0.0/series')
    Git(series.root).run('commit', '--quiet', '--message', 'patches: As they were once')
    Git(series.root).run('checkout', '--quiet', 'two', '--', 'patches')
    assert refusal(review, series, 'HEAD', quiet) == (
        '`patches/1.0.0` has another layout in `HEAD`: its patches stand in no list `series` there.\n'
        'Name a later revision; `git log --diff-filter=A -- patches/1.0.0/series` says which one has brought the list.'
    )


def test_review_of_patches_that_do_not_apply_names_the_one(series: Line) -> None:
    text = series.patches[1].read_text()
    series.patches[1].write_text(text.replace('a + b', 'a - b'))
    with pytest.raises(ApplyError, match='does not apply to its own line'):
        review(find_line(series.root), 'HEAD', quiet)


def test_review_leaves_the_tree_alone(series: Line, user: User) -> None:
    changed = change(series, user)
    (series.tree / TOOLS).write_text('work\n')
    before = user.git('status', '--porcelain'), user.git('log'), user.git('for-each-ref')
    review(changed, 'HEAD', quiet)
    assert (user.git('status', '--porcelain'), user.git('log'), user.git('for-each-ref')) == before
    assert sorted(path.name for path in series.tree.parent.iterdir()) == ['1.0.0', 'cache']


@pytest.fixture
def second(series: Line, releases: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Line:
    """Another line, without the first patch."""
    monkeypatch.setenv('PIP_FIND_LINKS', str(releases))
    line = write_later_line(series, releases, tmp_path)
    apply(line, quiet)
    swapped = (line.tree / TOOLS).read_text().replace('a + b', 'b + a')
    return write_series(line, ('Swap the summands\n\nThe order matters.', {TOOLS: swapped}))


def test_compare_of_two_lines_matches_their_patches(series: Line, second: Line) -> None:
    rows = [row for row in without_ids(compare(series, second, quiet)).splitlines() if not row.startswith(' ')]
    assert rows == ['1:  . < -:  ------- Add one', '2:  . ! 1:  . Swap the summands']


def test_main_review_tells_a_line_from_a_revision(
    second: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(second.root)
    monkeypatch.setenv('NO_COLOR', '1')
    for arguments, out in {
        ('1.0.0',): 'The series on 1.0.0 is the same as in `HEAD`.\n',
        ('1.0.0', 'two'): 'The series on 1.0.0 is the same as in `two`.\n',
        ('1.0.0', '--against', '1.0.0'): 'The series on 1.0.0 is the same as on 1.0.0.\n',
    }.items():
        assert main(['review', *arguments]) == 0
        assert capsys.readouterr().out == out
    # The newest line, which the revision lacks.
    assert main(['review', 'two']) == 1
    assert capsys.readouterr().err.startswith('error: There is no line `1.1.0` in `two`.\n')
    assert main(['review', '--against', '1.0.0']) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith('Add one')
    assert main(['review', '1.1.0', 'two', '--against', '1.0.0']) == 1
    assert capsys.readouterr().err == (
        'error: A line is compared either with a revision or with another line.\nLeave one of the two out.\n'
    )
