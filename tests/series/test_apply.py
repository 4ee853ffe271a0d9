"""`apply` makes the tree, and never at the cost of work."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from series.errors import ApplyError, DownloadError, SeriesError
from series.git import Git, safe_directories
from series.line import Line
from series.verbs.apply import apply
from series.verbs.extract import extract
from tests.series.upstream import ARCHIVE, PACKAGE, User, commit_patches, drop_patch, quiet, refusal, write_series

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
ADDED = PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'b + a')

HOSTILE = """\
[user]
    name = Somebody Else
    email = somebody@example.com
[commit]
    gpgSign = true
[gpg]
    program = false
[core]
    autocrlf = true
    hooksPath = {hooks}
    attributesFile = {attributes}
[apply]
    whitespace = fix
[am]
    threeWay = true
    keepcr = false
[init]
    templateDir = {hooks}
    defaultBranch = trunk
[mailinfo]
    scissors = true
[i18n]
    commitEncoding = latin1
"""


def write_patches(line: Line, *commits: tuple[str, dict[str, str | bytes]]) -> None:
    """Write commits to the line's patches and leave no tree behind."""
    shutil.rmtree(write_series(line, *commits).tree)


def replace_first(line: Line, user: User, files: dict[str, str | bytes]) -> None:
    """Change the first patch behind the tool's back, and leave no tree behind."""
    apply(line, quiet)
    user.git('checkout', '--quiet', '-B', 'series', 'refs/series/base')
    user.commit('Add one', files)
    line.patches[0].write_text(user.git('format-patch', '--stdout', '-1', '--full-index') + '\n')
    shutil.rmtree(line.tree)


# The tree


def test_apply_without_patches_makes_the_base_in_upstream_s_layout(uncached: Line, user: User) -> None:
    head = apply(uncached, quiet)
    files = user.git('ls-tree', '-r', '--name-only', 'HEAD').splitlines()
    from_archive = [name for name in ARCHIVE if name not in ('PKG-INFO', 'README.md')]
    from_wheel = [f'pydantic_ai_slim/{name}' for name in PACKAGE]
    assert sorted(files) == sorted([*from_archive, *from_wheel, 'pydantic_ai_slim/LICENSE'])
    assert (uncached.tree / TOOLS).read_text() == PACKAGE['pydantic_ai/tools.py']
    assert user.git('log', '--format=%H %an <%ae> %aI %cn <%ce> %cI %B') == (
        f'{head} series <series@localhost> 2025-01-31T00:00:00+00:00 series <series@localhost> '
        f'2025-01-31T00:00:00+00:00 pydantic-ai-slim 1.0.0\n\n'
        f'The unmodified release, content {uncached.digest},\n'
        f'with the settings of pydantic-ai 0.9.0, archive {uncached.settings.digest}.'
    )
    assert user.git('status', '--short', '--branch') == '## series'


def test_apply_makes_a_commit_of_each_patch(line: Line, user: User) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}), ('Change it', {'tests/one.txt': '2\n'}))
    head = apply(line, quiet)
    assert user.subjects() == ['Add one', 'Change it']
    assert user.git('rev-parse', 'HEAD') == head
    assert user.git('log', '-2', '--format=%an %aI %cn %cI') == '\n'.join(
        ['A. Author 2025-02-01T12:00:00+01:00 series 2025-02-01T12:00:00+01:00'] * 2
    )


def test_apply_elsewhere_for_someone_else_makes_the_same_commits(
    line: Line, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, str | bytes] = {'tests/crlf.txt': b'a \r\nb\r\n', 'tests/space.txt': 'a  \n\n\n'}
    write_patches(line, ('Add [some] files\n\nWith a body.\n\n-- >8 --\n\nAnd more.', files))
    head = apply(line, quiet)

    (hooks := tmp_path / 'hooks').mkdir()
    for hook in ('applypatch-msg', 'pre-applypatch', 'commit-msg', 'post-checkout', 'reference-transaction'):
        (hooks / hook).write_text('#!/bin/sh\nexit 1\n')
        (hooks / hook).chmod(0o755)
    (attributes := tmp_path / 'attributes').write_text('* text eol=lf\n')
    (Path(os.environ['HOME']) / '.gitconfig').write_text(HOSTILE.format(hooks=hooks, attributes=attributes))
    (attributes_by_default := Path(os.environ['XDG_CONFIG_HOME']) / 'git' / 'attributes').parent.mkdir()
    attributes_by_default.write_text('* text eol=crlf\n')
    monkeypatch.setenv('TZ', 'Asia/Tokyo')
    monkeypatch.setenv('LC_ALL', 'de_DE.UTF-8')
    monkeypatch.setenv('GIT_DIR', str(tmp_path))
    elsewhere = tmp_path / 'elsewhere'
    shutil.copytree(line.root, elsewhere, ignore=shutil.ignore_patterns(line.name + '*', 'build'))
    shutil.copytree(line.folder, elsewhere / 'patches' / line.name)
    shutil.copytree(line.cache, elsewhere / 'build' / 'cache')
    there = replace(line, folder=elsewhere / 'patches' / line.name)
    assert apply(there, quiet) == head
    assert (there.tree / 'tests/crlf.txt').read_bytes() == b'a \r\nb\r\n'
    assert (there.tree / 'tests/space.txt').read_bytes() == b'a  \n\n\n'


def test_apply_leaves_a_tree_that_stands_without_the_cache(line: Line, user: User) -> None:
    apply(line, quiet)
    shutil.rmtree(line.cache)
    assert user.git('fsck', '--full', '--no-dangling') == ''


# A tree that is there


def test_apply_again_moves_the_tree_on_and_keeps_what_else_it_has(line: Line, user: User) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}), ('Add two', {'tests/two.txt': '2\n'}))
    apply(line, quiet)
    user.git('switch', '--quiet', '--create', 'mine')
    user.commit('Try something', {'tests/three.txt': '3\n'})
    user.git('switch', '--quiet', 'series')
    (line.tree / 'notes').mkdir()
    (line.tree / 'notes' / 'todo.txt').write_text('ignored by upstream\n')
    commit_patches(line)

    drop_patch(line.patches[1])
    head = apply(line, quiet)

    assert user.git('rev-parse', 'series', 'HEAD').split() == [head, head]
    assert user.subjects() == ['Add one']
    assert not (line.tree / 'tests/two.txt').exists()
    assert (line.tree / 'notes' / 'todo.txt').read_text() == 'ignored by upstream\n'
    assert user.git('log', '-1', '--format=%s', 'mine') == 'Try something'


def test_apply_on_another_base_moves_the_tree_on(uncached: Line, user: User) -> None:
    write_patches(uncached, ('Add one', {'tests/one.txt': '1\n'}))
    apply(uncached, quiet)
    apply(replace(uncached, released=uncached.released.replace(day=30)), quiet)
    assert user.git('log', '-1', '--format=%as', 'refs/series/base') == '2025-01-30'
    assert user.subjects() == ['Add one']


@pytest.mark.parametrize(
    'change, words',
    [
        ({'pyproject.toml': 'changed\n'}, ' M pyproject.toml'),
        ({'new.py': 'new\n'}, '?? new.py'),
    ],
    ids=['changed', 'new'],
)
def test_apply_over_changes_refuses(line: Line, user: User, change: dict[str, str], words: str) -> None:
    apply(line, quiet)
    for name, text in change.items():
        (line.tree / name).write_text(text)
    assert refusal(apply, line, quiet) == (
        'The tree `build/1.0.0` has changes that are not committed.\n'
        'Commit them with `git -C build/1.0.0 commit`, or put them away with `git -C build/1.0.0 restore` or '
        '`git -C build/1.0.0 clean`, then run the same command again.\n'
        '\n'
        f'    {words}'
    )
    assert {name: (line.tree / name).read_text() for name in change} == change


def test_apply_over_commits_that_are_no_patches_refuses(line: Line, user: User) -> None:
    apply(line, quiet)
    user.commit('Add one', {'tests/one.txt': '1\n'})
    abbreviated = user.git('log', '-1', '--format=%h')
    assert refusal(apply, line, quiet) == (
        'The tree `build/1.0.0` has commits that neither `patches/1.0.0` nor another branch holds.\n'
        'Write those of the branch `series` there with `make extract LINE=1.0.0`, or keep them with `git -C build/1.0.0 branch '
        'NAME COMMIT`; to throw them away, use `git -C build/1.0.0 checkout -B series refs/series/applied`. Then run '
        '`make apply LINE=1.0.0` again.\n'
        '\n'
        f'    {abbreviated} Add one'
    )
    assert user.subjects() == ['Add one']


def test_apply_over_commits_on_no_branch_refuses(line: Line, user: User) -> None:
    apply(line, quiet)
    user.git('checkout', '--quiet', '--detach')
    user.commit('Add one', {'tests/one.txt': '1\n'})
    abbreviated = user.git('log', '-1', '--format=%h')
    with pytest.raises(SeriesError, match=f'{abbreviated} Add one'):
        apply(line, quiet)
    user.git('branch', 'mine')
    apply(line, quiet)
    assert user.git('log', '-1', '--format=%s', 'mine') == 'Add one'


def test_apply_to_a_tree_without_its_branch_makes_it_again(line: Line, user: User) -> None:
    head = apply(line, quiet)
    user.git('checkout', '--quiet', '--detach')
    user.git('branch', '--quiet', '--delete', '--force', 'series')
    with pytest.raises(SeriesError, match='is not on its branch `series`'):
        extract(line, quiet)
    assert apply(line, quiet) == head
    assert user.git('status', '--short', '--branch') == '## series'


def test_apply_after_extracted_patches_were_overwritten_leaves_them_in_the_reflog(line: Line, user: User) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}))
    apply(line, quiet)
    user.commit('Add two', {'tests/two.txt': '2\n'})
    extract(line, quiet)
    drop_patch(line.patches[1])
    apply(line, quiet)
    assert user.subjects() == ['Add one']
    assert user.git('log', '-1', '--format=%s', 'series@{1}') == 'Add two'


def test_apply_after_a_move_that_was_killed_keeps_what_the_user_has_changed_since(line: Line, user: User) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}), ('Add two', {'tests/two.txt': '2\n'}))
    commit_patches(line)
    apply(line, quiet)
    git, before = Git(line.tree), user.git('rev-parse', 'HEAD')
    # As a checkout leaves it that was killed: a part of a file, and the lock.
    note = {'before': before, 'head': user.git('rev-parse', 'HEAD~1'), 'base': '', 'patches': '', 'stopped': ''}
    (line.tree / '.git' / 'series-note.json').write_text(json.dumps(note))
    (line.tree / '.git' / 'index.lock').touch()
    (line.tree / 'tests' / 'two.txt').unlink()
    (line.tree / 'tests' / 'one.txt').write_text('')
    (line.tree / 'pyproject.toml').write_text('mine\n')
    assert refusal(apply, line, quiet) == (
        'The tree `build/1.0.0` was moving to other commits when `make apply` was interrupted, and these files have been '
        'changed since.\n'
        'Put what you need of them away, restore them with `git -C build/1.0.0 restore FILE` or delete them, then run the same '
        'command again.\n'
        '\n'
        '    pyproject.toml'
    )
    assert (line.tree / 'pyproject.toml').read_text() == 'mine\n'

    (line.tree / 'pyproject.toml').write_text(ARCHIVE['pyproject.toml'])
    assert apply(line, quiet) == before
    assert git.run('status', '--porcelain') == ''


def test_apply_during_a_rebase_refuses(line: Line, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}))
    apply(line, quiet)
    monkeypatch.setenv('GIT_SEQUENCE_EDITOR', 'sed -i s/^pick/edit/')
    user.git('rebase', '--quiet', '--interactive', 'refs/series/base')
    with pytest.raises(SeriesError, match='is in the middle of a `git rebase`'):
        apply(line, quiet)
    assert (line.tree / '.git' / 'rebase-merge').exists()


@pytest.mark.parametrize('around', [False, True], ids=['alone', 'inside a repository'])
def test_apply_over_another_folder_refuses(line: Line, user: User, around: bool) -> None:
    line.tree.mkdir()
    (line.tree / 'thesis.txt').write_text('mine\n')
    if around:
        User(line.root).git('init', '--quiet')
    assert refusal(apply, line, quiet) == (
        'The folder `build/1.0.0` is not a tree that `make apply` made.\n'
        'Move it away if you need it, delete it if not, then run `make apply LINE=1.0.0`.'
    )
    assert (line.tree / 'thesis.txt').read_text() == 'mine\n'


# A patch that doesn't apply


def test_apply_of_a_conflict_stops_with_marks_and_the_tool_waits_for_the_user(line: Line, user: User) -> None:
    write_patches(
        line,
        ('Add one', {'tests/one.txt': '1\n'}),
        ('Swap the summands', {TOOLS: ADDED}),
        ('Add two', {'tests/two.txt': '2\n'}),
    )
    replace_first(line, user, {TOOLS: PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'a - b')})
    patches = {patch.name: patch.read_bytes() for patch in line.patches}

    with pytest.raises(ApplyError) as error:
        apply(line, quiet)
    assert str(error.value) == (
        'The patch `patches/1.0.0/fixes/swap-the-summands.patch` does not apply to the base with the patches before it: '
        f'it does not fit `{TOOLS}`.\n'
        'The patch at which git stopped waits in `build/1.0.0`, with conflict marks. Edit the marked files, `git -C build/1.0.0 add` or `rm` them, and run '
        '`git -C build/1.0.0 am --continue` and then `make extract LINE=1.0.0`; or give up with `git -C build/1.0.0 am --abort`.\n'
        '\n'
        f'    error: patch failed: {TOOLS}:1\n'
        f'    error: {TOOLS}: patch does not apply'
    )
    assert (error.value.patch, error.value.files) == (line.patches[1], (TOOLS,))
    assert user.subjects() == ['Add one']
    assert '<<<<<<<' in (line.tree / TOOLS).read_text()

    unfinished = (
        'The tree `build/1.0.0` is in the middle of a `git am`.\n'
        'Finish it with `git -C build/1.0.0 am --continue` and then `make extract LINE=1.0.0`, or give it up with '
        '`git -C build/1.0.0 am --abort`.'
    )
    for verb in (apply, extract):
        with pytest.raises(SeriesError, match=f'^{re.escape(unfinished)}$'):
            verb(line, quiet)
    assert {patch.name: patch.read_bytes() for patch in line.patches} == patches

    (line.tree / TOOLS).write_text(ADDED)
    user.git('add', '--all')
    user.git('am', '--continue')
    assert user.subjects() == ['Add one', 'Swap the summands', 'Add two']
    assert extract(line, quiet) == ['changed fixes/add-one', 'changed fixes/swap-the-summands']

    # That it stopped once is over: a commit can be dropped as ever.
    user.git('reset', '--quiet', '--hard', 'HEAD~1')
    assert extract(line, quiet) == ['deleted fixes/add-two']
    apply(line, quiet)
    assert extract(line, quiet) == []


def test_apply_of_what_git_can_merge_stops_and_says_so(line: Line, user: User) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}), ('Swap the summands', {TOOLS: ADDED}))
    renamed = PACKAGE['pydantic_ai/tools.py'].replace('def name', 'def title')
    replace_first(line, user, {TOOLS: renamed})

    with pytest.raises(ApplyError) as error:
        apply(line, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        'The patch `patches/1.0.0/fixes/swap-the-summands.patch` does not apply to the base with the patches before it: '
        f'it does not fit `{TOOLS}`.\n'
        'Git could merge it and the patches after it, and the tree `build/1.0.0` holds the result. Read its commits, then '
        'write them to `patches/1.0.0` with `make extract LINE=1.0.0`; or give up with `git -C build/1.0.0 checkout -B series refs/series/applied`.'
    )
    assert user.subjects() == ['Add one', 'Swap the summands']
    assert (line.tree / TOOLS).read_text() == renamed.replace('a + b', 'b + a')
    with pytest.raises(SeriesError, match='nor another branch holds'):
        apply(line, quiet)
    assert extract(line, quiet) == ['changed fixes/add-one', 'changed fixes/swap-the-summands']


def test_apply_of_a_patch_for_unknown_content_stops_and_says_how_to_use_the_rest_of_it(line: Line, user: User) -> None:
    write_patches(line, ('Swap the summands', {TOOLS: ADDED}))
    patch = line.patches[0]
    patch.write_text(patch.read_text().replace('-    return a + b', '-    return a * b'))
    with pytest.raises(ApplyError) as error:
        apply(line, quiet)
    assert str(error.value) == (
        'The patch `patches/1.0.0/fixes/swap-the-summands.patch` does not apply to the base with the patches before it: '
        f'it does not fit `{TOOLS}`.\n'
        'The patch at which git stopped waits in `build/1.0.0`. Put what fits into the files and the rest beside them with `git -C build/1.0.0 am '
        '--show-current-patch=diff | git -C build/1.0.0 apply --reject`; edit the files, `git -C build/1.0.0 add` them, '
        'and run `git -C build/1.0.0 am --continue` and then `make extract LINE=1.0.0`; or give up with `git -C build/1.0.0 am --abort`.\n'
        '\n'
        f'    error: patch failed: {TOOLS}:1\n'
        f'    error: {TOOLS}: patch does not apply'
    )
    assert 'It waits' not in user.git('status')
    assert 'You are in the middle of an am session.' in user.git('status')


def test_apply_of_something_that_is_no_mail_stops(line: Line, user: User) -> None:
    (line.folder / 'fixes').mkdir()
    (line.folder / 'fixes/empty.patch').write_text('Not a mail\n')
    (line.folder / 'series').write_text('fixes/empty.patch\n')
    with pytest.raises(ApplyError) as error:
        apply(line, quiet)
    assert error.value.problem == (
        'The patch `patches/1.0.0/fixes/empty.patch` does not apply to the base with the patches before it.'
    )
    assert error.value.words


# The base


def test_apply_of_a_cache_with_another_package_stops(line: Line) -> None:
    """Whoever can write there could have `extract` pin something else."""
    (repository,) = line.cache.glob('base-*.git')
    shutil.rmtree(repository / 'hooks', ignore_errors=True)
    changed = User(Path(shutil.copytree(repository, line.root / 'changed' / '.git')).parent)
    changed.git('config', 'core.bare', 'false')
    changed.git('reset', '--quiet', '--hard')
    (changed.tree / TOOLS).write_text('print("it runs")\n')
    changed.git(
        '-c', 'user.name=A', '-c', 'user.email=a@example.com', 'commit', '--quiet', '--all', '--amend', '--no-edit'
    )
    shutil.rmtree(repository)
    (changed.tree / '.git').rename(repository)
    with pytest.raises(DownloadError) as error:
        apply(line, quiet)
    name = f'build/cache/{repository.name}'
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        f'The package in `{name}` is not what `patches/1.0.0/line.toml` is pinned to.\n'
        f'Find out who changed it; then delete `{name}`, and run the same command again.'
    )
    shutil.rmtree(repository)


@pytest.mark.skipif(os.geteuid() != 0, reason='Only root can give files away.')
def test_apply_in_a_checkout_of_another_user_works_where_the_user_calls_it_safe(line: Line, user: User) -> None:
    write_patches(line, ('Add one', {'tests/one.txt': '1\n'}))
    apply(line, quiet)
    for path in (line.root, *line.root.rglob('*')):
        os.chown(path, 65534, 65534)
    with pytest.raises(SeriesError) as error:
        apply(line, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        f'Git refuses `{line.tree}`, since another user owns it.\n'
        f'If you trust them, run `git config --global --add safe.directory {line.tree}`, then the same command again.'
    )
    settings = Path(os.environ['HOME']) / '.gitconfig'
    settings.write_text(f'[safe]\n\tdirectory = {line.root}/*\n\tdirectory = *\n[user]\n\tname = Nobody\n')
    safe_directories.cache_clear()
    apply(line, quiet)
    assert extract(line, quiet) == []
    assert User(line.tree).git('log', '-1', '--format=%cn') == 'series'


def test_apply_of_another_wheel_than_the_pinned_one_stops(uncached: Line) -> None:
    wrong = replace(uncached, digest='sha256:' + '0' * 64)
    with pytest.raises(DownloadError) as error:
        apply(wrong, quiet)
    assert str(error.value) == (
        'The content of `pydantic-ai-slim` 1.0.0 is not what `patches/1.0.0/line.toml` is pinned to:\n'
        f'expected {wrong.digest}\n'
        f'found    {uncached.digest}\n'
        'Delete `build/cache`, and do not trust the package index that it is from if it says so again. Find out who changed it '
        'first; to pin this one, write its digest into `line.toml`.'
    )
    assert list(uncached.cache.iterdir()) == []
    assert not uncached.tree.exists()


def test_apply_of_another_archive_than_the_pinned_one_stops(uncached: Line) -> None:
    digest = 'sha256:' + '0' * 64
    with pytest.raises(DownloadError) as error:
        apply(replace(uncached, settings=replace(uncached.settings, digest=digest)), quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        'pip could not download `pydantic-ai===0.9.0`.\n'
        "These are pip's words; check the connection and pip's configuration (`pip config list`), then run the same "
        'command again.'
    )
    assert f'Expected sha256 {digest.removeprefix("sha256:")}' in error.value.words
    assert uncached.settings.digest.removeprefix('sha256:') in error.value.words
    assert [path.name for path in uncached.cache.iterdir()] == ['base-wheel-1.0.0']


def test_apply_without_git_says_to_install_it(line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assert refusal(apply, line, quiet) == (
        "`git` isn't on the path, and the series can't be handled without it.\n"
        'Install git 2.32 or newer, then run the same command again.'
    )
