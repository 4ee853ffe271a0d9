"""`branch` puts a patch and what it needs on a branch of a clone of upstream, or leaves the clone as it was."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from series.errors import ApplyError, SeriesError
from series.line import Line
from series.patches import find_patch
from series.pull_request import unwrap
from series.verbs.branch import Branch, branch
from tests.series.upstream import PACKAGE, User, quiet, write_series

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
ADD = PACKAGE['pydantic_ai/tools.py']
SUBTRACT = ADD + '\n\ndef subtract(a: int, b: int) -> int:\n    return a - b\n'
BODY = 'It is asked for.\nA subclass cannot\ndo it.'
UPSTREAM = 'https://github.com/pydantic/pydantic-ai'
SERIES: list[tuple[str, dict[str, str | bytes]]] = [
    (f'Add a title\n\n{BODY}\n\nForwarded: no', {'docs/title.md': '# Title\n'}),
    (
        f'Add `subtract()`\n\n{BODY}\n\nCloses: {UPSTREAM}/issues/7\nForwarded: {UPSTREAM}/pull/8',
        {TOOLS: SUBTRACT, 'docs/tools.md': '# Tools\n'},
    ),
    (f'Test nothing\n\n{BODY}\n\nForwarded: no', {'tests/test_nothing.py': 'def test_nothing(): ...\n'}),
    (
        f'Use `subtract()`\n\n{BODY}\n\nNeeds: Add `subtract()`\nForwarded: no',
        {TOOLS: SUBTRACT + '\n\ndef negate(a: int) -> int:\n    return subtract(0, a)\n'},
    ),
]


WRITTEN: dict[str, bytes] = {}
"""The patches of the series, once they are made."""


@pytest.fixture
def series(line: Line, user: User) -> Line:
    """A line whose fourth patch needs the second, and no others."""
    if not WRITTEN:
        shutil.rmtree(write_series(line, *SERIES).tree)
        written = [line.folder / 'series', *line.patches]
        WRITTEN.update({path.relative_to(line.folder).as_posix(): path.read_bytes() for path in written})
    for name, content in WRITTEN.items():
        (line.folder / name).parent.mkdir(exist_ok=True)
        (line.folder / name).write_bytes(content)
    return line


@pytest.fixture
def clone(series: Line, unpacked: Path, tmp_path: Path) -> User:
    """A clone of upstream, with the tag of the line's release, and a main branch that went on from there."""
    folder = tmp_path / 'clone of upstream'
    shutil.copytree(unpacked / 'pydantic_ai', folder / 'pydantic_ai_slim' / 'pydantic_ai')
    made = User(folder)
    made.git('init', '--quiet', '--initial-branch=main')
    made.commit('Release', {'README.md': 'Upstream\n'})
    made.git('tag', f'v{series.name}')
    made.commit('Go on', {TOOLS: ADD.replace('a + b', 'b + a')})
    return made


def state(clone: User) -> object:
    """Return all of a clone that a user can see, and what else is in its repository but the objects."""
    repository = clone.tree / '.git'
    return (
        clone.git('for-each-ref', '--format=%(refname) %(objectname)'),
        clone.git('status', '--branch', '--porcelain', '--untracked-files=all', '--ignored'),
        {
            path.relative_to(repository): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in repository.rglob('*')
            if path.is_file() and repository / 'objects' not in path.parents
        },
    )


def make(
    series: Line,
    clone: User,
    number: int = 4,
    *,
    onto: str | None = None,
    name: str | None = None,
) -> Branch:
    return branch(series, series.patches[number - 1], clone.tree, quiet, onto=onto, name=name)


def test_branch_holds_the_patch_after_those_that_it_needs(series: Line, clone: User) -> None:
    made = make(series, clone)

    assert made.name == clone.git('branch', '--show-current') == 'use-subtract'
    assert made.subjects == ['Add `subtract()`', 'Use `subtract()`']
    assert clone.git('log', '--reverse', '--format=%s', 'v1.0.0..').splitlines() == made.subjects
    assert clone.git('status', '--porcelain') == ''
    assert 'def negate' in (clone.tree / TOOLS).read_text()
    assert not (clone.tree / 'docs/title.md').exists()


def test_branch_commits_as_the_user_and_not_as_who_wrote_the_patch(
    series: Line, clone: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ('NAME', 'EMAIL', 'DATE'):
        monkeypatch.delenv(f'GIT_COMMITTER_{name}')
    clone.git('config', 'user.name', 'C. Contributor')
    clone.git('config', 'user.email', 'contributor@example.com')

    make(series, clone)

    who = 'C. Contributor contributor@example.com'
    assert clone.git('log', '-2', '--format=%an %ae, %cn %ce').splitlines() == [f'{who}, {who}'] * 2
    assert clone.git('log', '-1', '--format=%aI') > '2025-02-02'


def test_branch_that_is_interrupted_before_it_switches_leaves_the_clone_as_it_was(
    series: Line, clone: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(clone)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr('series.verbs.branch._switch', interrupt)
        make(series, clone, 1)
    assert state(clone) == before

    assert make(series, clone, 1).pages == ['docs/title.md']
    assert clone.git('status', '--porcelain') == ''


def test_branch_leaves_the_trailers_of_the_series_out(series: Line, clone: User) -> None:
    make(series, clone)

    assert clone.git('log', '-1', '--format=%B') == f'Use `subtract()`\n\n{BODY}'
    assert clone.git('log', '-1', '--format=%B', 'HEAD~') == (
        f'Add `subtract()`\n\n{BODY}\n\nCloses: https://github.com/pydantic/pydantic-ai/issues/7'
    )


def test_branch_runs_no_hooks(series: Line, clone: User) -> None:
    for name in ('pre-commit', 'commit-msg', 'post-checkout', 'reference-transaction'):
        hook = clone.tree / '.git/hooks' / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text('#!/bin/sh\necho no >&2\nexit 1\n')
        hook.chmod(0o755)

    assert make(series, clone).name == 'use-subtract'


def test_branch_begins_where_onto_says(series: Line, clone: User) -> None:
    made = make(series, clone, onto='main')

    assert (made.onto, clone.git('rev-parse', 'HEAD~2')) == ('main', clone.git('rev-parse', 'main'))
    text = (clone.tree / TOOLS).read_text()
    assert 'b + a' in text
    assert 'def negate' in text


# The text of the pull request


def test_branch_writes_the_text_of_the_pull_request(series: Line, clone: User) -> None:
    made = make(series, clone)
    assert made.text == series.root / 'build/pull-requests/1.0.0/use-subtract.md'
    assert made.text.read_text() == (
        """\
Use `subtract()`

It is asked for. A subclass cannot do it.

This stands on, and the branch begins with:

- Add `subtract()` (https://github.com/pydantic/pydantic-ai/pull/8)
"""
    )
    assert make(series, clone, 2).text.read_text() == (
        'Add `subtract()`\n\nCloses #7\n\nIt is asked for. A subclass cannot do it.\n'
    )


def test_unwrap_leaves_code_and_lists_as_they_are() -> None:
    text = """\
One paragraph
goes on.

    code stays
    as it is

        also here
- an item that
  goes on
- another
    with more

1. First
2. second,
   which goes on

```
fenced
code
```
and | a
| table |
"""
    assert unwrap(text) == (
        'One paragraph goes on.\n\n    code stays\n    as it is\n\n        also here\n- an item that goes on\n'
        '- another with more\n\n1. First\n2. second, which goes on\n\n```\nfenced\ncode\n```\nand | a\n| table |'
    )


# Refusals


def begin_rebase(clone: User) -> None:
    clone.git('switch', '--quiet', '--create', 'other', 'v1.0.0')
    clone.commit('Clash', {TOOLS: 'nothing\n'})
    subprocess.run(['git', 'rebase', '--quiet', 'main'], cwd=clone.tree, check=False, capture_output=True)


def become_another(clone: User) -> None:
    clone.git('switch', '--quiet', '--orphan', 'pages')
    clone.commit('Begin', {'index.html': 'Hello\n'})
    clone.git('tag', '--delete', 'v1.0.0')


REFUSALS: dict[str, tuple[Callable[[User], object], str]] = {
    'a branch of that name': (
        lambda clone: clone.git('branch', 'use-subtract'),
        'has a branch `use-subtract` already.',
    ),
    'a changed file': (
        lambda clone: (clone.tree / TOOLS).write_text('mine'),
        'has changes that are not committed.',
    ),
    'a new file': (
        lambda clone: (clone.tree / 'new.txt').write_text('mine'),
        'has changes that are not committed.',
    ),
    'a rebase': (begin_rebase, 'is in the middle of a `git rebase`.'),
    'a bisect': (lambda clone: clone.git('bisect', 'start'), 'is in the middle of a `git bisect`.'),
    'no tag': (lambda clone: clone.git('tag', '--delete', 'v1.0.0'), 'has no tag `v1.0.0`.'),
    'a branch instead of the tag': (
        lambda clone: (clone.git('tag', '--delete', 'v1.0.0'), clone.git('branch', 'v1.0.0')),
        'has no tag `v1.0.0`.',
    ),
    'another project': (become_another, 'is no clone of upstream: `HEAD` has no `pydantic_ai_slim/pydantic_ai`.'),
}


@pytest.mark.parametrize('case', REFUSALS)
def test_branch_refuses_a_clone(series: Line, clone: User, case: str) -> None:
    change, problem = REFUSALS[case]
    change(clone)
    before = state(clone)

    with pytest.raises(SeriesError) as error:
        make(series, clone)

    assert error.value.problem.endswith(problem)
    assert state(clone) == before


def test_branch_refuses_a_clone_that_lacks_the_tag_with_what_gets_it(series: Line, clone: User) -> None:
    clone.git('tag', '--delete', 'v1.0.0')
    with pytest.raises(SeriesError, match='fetch --tags'):
        make(series, clone)
    with pytest.raises(SeriesError, match='has no revision `nowhere`'):
        make(series, clone, onto='nowhere')


def test_branch_refuses_a_folder_that_is_no_repository(series: Line, tmp_path: Path) -> None:
    for folder in (tmp_path / 'missing', tmp_path / 'home'):
        with pytest.raises(SeriesError, match='is no clone of upstream: it is not a git repository') as error:
            branch(series, series.patches[0], folder, quiet)
        assert '`CLONE=DIR`' in error.value.remedy


def test_branch_refuses_a_user_whom_git_does_not_know(
    series: Line, clone: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(clone)
    for name in ('NAME', 'EMAIL'):
        monkeypatch.delenv(f'GIT_COMMITTER_{name}')
    with pytest.raises(SeriesError, match="Git doesn't know who you are") as error:
        make(series, clone)
    assert 'config user.name' in error.value.remedy
    assert state(clone) == before


def test_find_patch_takes_a_slug_with_or_without_its_topic_or_a_part_of_it(series: Line) -> None:
    second = series.patches[1]
    for name in ('add-subtract', 'fixes/add-subtract', second.relative_to(series.root).as_posix(), 'fixes/d-sub'):
        assert find_patch(series, name) == second


def test_find_patch_of_a_wrong_name_says_the_nearest(series: Line) -> None:
    for name, error in {
        'fixes/add-subtrat': 'There is no patch `fixes/add-subtrat` in `patches/1.0.0`.\nName one of these: `fixes/add-subtract`',
        'heart/add-subtract': 'There is no patch `heart/add-subtract` in `patches/1.0.0`.\nName one of these: `fixes/add-subtract`',
        'subtract': 'Several patches have `subtract` in their names, in `patches/1.0.0`.\n'
        'Name one of these: `fixes/add-subtract`, `fixes/use-subtract`.',
        'hart/USE': 'There is no patch `hart/USE` in `patches/1.0.0`.\nName one of these: `fixes/use-subtract`.',
        '7': 'There is no patch `7` in `patches/1.0.0`.\n`docs/patches.md` lists the patches.',
        '': 'There is no patch `` in `patches/1.0.0`.\n`docs/patches.md` lists the patches.',
    }.items():
        with pytest.raises(SeriesError) as caught:
            find_patch(series, name)
        assert str(caught.value).startswith(error)


def test_branch_refuses_a_name_that_cannot_be(series: Line, clone: User) -> None:
    with pytest.raises(SeriesError, match='cannot be the name of a branch'):
        make(series, clone, name='a..b')


def test_branch_heeds_what_the_user_ignores_everywhere(series: Line, clone: User, tmp_path: Path) -> None:
    (tmp_path / 'home/git').mkdir()
    (tmp_path / 'home/git/ignore').write_text('.idea\n')
    (clone.tree / '.idea').mkdir()
    (clone.tree / '.idea/project.xml').write_text('mine')

    assert make(series, clone).name == 'use-subtract'


def test_branch_does_not_overwrite_what_is_ignored(series: Line, clone: User) -> None:
    (clone.tree / '.git/info').mkdir(exist_ok=True)
    (clone.tree / '.git/info/exclude').write_text('/docs/title.md\n')
    (clone.tree / 'docs').mkdir()
    (clone.tree / 'docs/title.md').write_text('mine')
    before = state(clone)

    with pytest.raises(SeriesError, match='could not switch') as error:
        make(series, clone, 1)

    assert 'docs/title.md' in error.value.words
    assert state(clone) == before


def test_branch_works_from_a_folder_inside_and_in_a_work_tree(series: Line, clone: User, tmp_path: Path) -> None:
    clone.git('worktree', 'add', '--quiet', '--detach', str(tmp_path / 'beside'), 'main')

    made = branch(series, series.patches[0], tmp_path / 'beside' / 'pydantic_ai_slim', quiet)
    assert made.name == 'add-a-title'
    assert clone.git('branch', '--show-current') == 'main'
    assert User(tmp_path / 'beside').git('branch', '--show-current') == 'add-a-title'


# What doesn't apply


def test_branch_of_a_patch_that_does_not_apply_leaves_the_clone_as_it_was(series: Line, clone: User) -> None:
    clone.commit('Go further', {TOOLS: ADD.replace('return "tools"', 'return str("tools")')})
    before = state(clone)

    with pytest.raises(ApplyError) as error:
        make(series, clone, onto='main')

    assert str(error.value) == (
        'The patch `patches/1.0.0/fixes/add-subtract.patch` does not apply to `main`: it does not fit '
        f'`{TOOLS}`. The clone `{clone.tree}` is as it was.\n'
        f'Make the branch on the tag, with the same command without `--onto` (`ONTO=`); then `git -C {clone.tree} rebase --onto main '
        'v1.0.0` merges what it can, and stops at each conflict, which you resolve with git as any other.\n'
        '\n'
        f'    error: patch failed: {TOOLS}:4\n'
        f'    error: {TOOLS}: patch does not apply'
    )
    assert error.value.files == (TOOLS,)
    assert state(clone) == before


def test_branch_on_the_tag_is_merged_by_git(series: Line, clone: User) -> None:
    changed = ADD.replace('def name() -> str:', 'def name() -> str:  # pragma: no cover')
    clone.commit('Go further', {TOOLS: f'"""Tools."""\n\n{changed}'})
    make(series, clone)
    clone.git('rebase', '--quiet', '--onto', 'main', 'v1.0.0')
    text = (clone.tree / TOOLS).read_text()
    assert all(part in text for part in ('"""Tools."""', 'no cover', 'def subtract', 'def negate'))
    # All that the branch is made of is in the clone itself.
    assert clone.git('fsck', '--full', '--strict', '--no-dangling') == ''
