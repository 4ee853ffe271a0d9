"""`rebase` makes a whole new line, or nothing but a tree that waits."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pydantic_ai_slim.fork.base import content_digest
from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.package import package_digest
from series import pins
from series.cli import main
from series.errors import ApplyError, SeriesError
from series.line import Line, find_line
from series.verbs import rebase as module
from series.verbs.apply import apply
from series.verbs.extract import extract
from series.verbs.rebase import abort_rebase, finish_rebase, rebase
from tests.series.upstream import (
    ARCHIVE,
    LATER,
    PACKAGE,
    Index,
    User,
    fetch,
    find_release,
    quiet,
    refusal,
    set_author,
    write_archive,
    write_build_folder,
    write_series,
)

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
OLD = PACKAGE['pydantic_ai/tools.py']
NEW = LATER['pydantic_ai/tools.py']
Commit = tuple[str, dict[str, str | bytes]]
ONE: Commit = ('Add one', {'tests/one.txt': '1\n'})
SWAP: Commit = ('Swap the summands', {TOOLS: OLD.replace('a + b', 'b + a')})
TITLE: Commit = ('Call it title', {TOOLS: OLD.replace('def name', 'def title')})
DOUBLE: Commit = ('Add `double()`', {'pydantic_ai_slim/pydantic_ai/double.py': LATER['pydantic_ai/double.py']})
TWO: Commit = ('Add two', {'tests/two.txt': '2\n'})

CONTINUE, ABORT = (f'make rebase ARGS=--{what}' for what in ('continue', 'abort'))


GO_ON = ('-c', 'core.editor=true', 'rebase', '--continue')


@pytest.fixture
def user(line: Line) -> User:
    """Someone who works in the tree of the new line."""
    return User(line.tree.with_name('1.1.0'))


@pytest.fixture
def carry(line: Line, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Line]:
    """Gives the line patches, and all else that a line has."""
    set_author(monkeypatch)

    def carry(*commits: Commit) -> Line:
        shutil.rmtree(write_series(line, *commits).tree)
        with (line.folder / 'line.toml').open('a') as file:
            file.write('httpx = "<1"        # a reason\n# The end\n')
        (line.folder / 'tests.in').write_text(
            '# What the tests need.\npydantic-ai-slim[cli]===1.0.0\nanyio<5     # a reason\npytest\n'
        )
        write_build_folder(line)
        return find_line(line.root, line.name)

    return carry


@pytest.fixture
def near(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what uv and pip answer at hand; with an index, each rebase starts them five times."""
    for each in (pins, module):
        monkeypatch.setattr(each, 'find_release', partial(find_release, releases))
    monkeypatch.setattr(pins, 'download', partial(fetch, releases))


def everything(line: Line) -> dict[str, bytes]:
    """Return all files of a checkout but the cache."""
    return {
        path.relative_to(line.root).as_posix(): path.read_bytes()
        for path in sorted(line.root.rglob('*'))
        if path.is_file() and not path.is_relative_to(line.cache)
    }


def resolve(user: User) -> None:
    """Resolve the conflict of `TITLE`."""
    (user.tree / TOOLS).write_text(
        (user.tree / TOOLS).read_text().partition('<<<<<<<')[0] + 'def title() -> str:\n    return "tools"\n'
    )
    user.git('add', '--all')


# A new line


def test_rebase_makes_the_whole_line(
    carry: Callable[..., Line], releases: Path, user: User, tmp_path: Path, index: Index
) -> None:
    line = carry(ONE, SWAP, DOUBLE)
    before = everything(line)

    rebased = rebase(line, '1.1', quiet)

    new = find_line(line.root)
    assert (rebased.line, new.name) == (new, '1.1.0')
    assert rebased.dropped == ['fixes/add-double.patch']
    assert rebased.notes == [
        'Caps and requirements are those of the old line; nothing has tried whether the new base needs more or fewer.',
    ]
    with zipfile.ZipFile(releases / 'pydantic_ai_slim-1.1.0-py3-none-any.whl') as wheel:
        wheel.extractall(tmp_path / 'wheel')
    build = new.root / 'pydantic_ai_slim' / '1.1.0'
    licences = digest_files({path.name: path.read_bytes() for path in build.glob('LICENSE*')})
    archive = hashlib.sha256((releases / 'pydantic_ai-1.1.0.tar.gz').read_bytes()).hexdigest()
    assert (new.folder / 'line.toml').read_text() == (
        'base = "1.1.0"         # the version of pydantic-ai-slim that the patches apply to\n'
        'released = 2025-02-10   # the day on which the base was published\n'
        "number = 1              # the fork's version is <base>+lifecycle.<number>; raised with each release of the fork\n"
        f'digest = "{content_digest(tmp_path / "wheel")}"  # content_digest() of the base\n'
        f'patched = "{package_digest(new.tree)}"  # package_digest() of the base with the patches; `make extract` writes it\n'
        f'licences = "{licences}"  # digest_files() of the licences in the build folder\n'
        'python = ["3.11", "3.12"]\n'
        '\n'
        "[settings]              # where upstream's settings for tests come from; no release ships tests\n"
        'package = "pydantic-ai"\n'
        'version = "1.1.0"\n'
        f'digest = "sha256:{archive}"  # of the source distribution\n'
        '\n'
        '[caps]\n'
        'httpx = "<1"        # a reason\n'
        '# The end\n'
    )
    assert (new.folder / 'tests.in').read_text() == (
        '# What the tests need.\npydantic-ai-slim[cli]===1.1.0\nanyio<5     # a reason\npytest\n'
    )
    names = [patch.relative_to(new.folder).as_posix() for patch in new.patches]
    assert names == ['fixes/add-one.patch', 'fixes/swap-the-summands.patch']

    build = line.root / 'pydantic_ai_slim/1.1.0'
    assert {path.name for path in build.iterdir()} == {'pyproject.toml', 'LICENSE', 'LICENSE.lifecycle'}
    assert (build / 'pyproject.toml').read_text() == (
        line.root / 'pydantic_ai_slim/1.0.0/pyproject.toml'
    ).read_text().replace('1.0.0', '1.1.0')
    assert [(build / name).read_text() for name in ('LICENSE', 'LICENSE.lifecycle')] == ['The licence\n', 'Ours\n']
    assert (line.root / 'CHANGELOG.md').read_text() == (
        '# Changelog\n\n## 1.1.0\n\n### 1.1.0+lifecycle.1\n\n- What 1.0.0+lifecycle.1 has, on pydantic-ai 1.1.0.\n'
        '- Left out: Add `double()`.\n\n## 1.0.0\n\n### 1.0.0+lifecycle.1\n\n- One.\n'
    )

    # The tree is one that all other verbs work on, and what was there is as it was.
    assert user.subjects() == ['Add one', 'Swap the summands']
    assert (user.tree / TOOLS).read_text() == NEW.replace('a + b', 'b + a')
    assert extract(new, quiet) == []
    apply(new, quiet)
    assert extract(new, quiet) == []
    after = everything(line)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {'CHANGELOG.md'}
    assert not [name for name in after if '.rebase-' in name or 'series-rebase' in name]


def test_rebase_runs_nothing_of_an_archive_that_nothing_pins(
    carry: Callable[..., Line], releases: Path, tmp_path: Path, index: Index
) -> None:
    line = carry(ONE)
    served = Path(shutil.copytree(releases, tmp_path / 'served'))
    index.folder = served
    settings = ARCHIVE['pyproject.toml'].replace('"hatchling.build"', '"hostile"\nbackend-path = ["."]')
    code = f'from hatchling.build import *\nopen({str(tmp_path / "ran")!r}, "w")\n'
    write_archive(served, '1.1.0', {**ARCHIVE, 'pyproject.toml': settings, 'hostile.py': code})
    assert rebase(line, '1.1.0', quiet).line.settings.version == '1.1.0'
    assert not (tmp_path / 'ran').exists()


@pytest.mark.usefixtures('near')
def test_rebase_onto_an_older_release_puts_it_behind_the_newer(carry: Callable[..., Line]) -> None:
    first = rebase(carry(ONE), '2.0.0', quiet).line
    rebase(first, '1.1.0', quiet)
    headings = re.findall('(?m)^## (.*)$', (first.root / 'CHANGELOG.md').read_text())
    assert headings == ['2.0.0', '1.1.0', '1.0.0']


@pytest.mark.slow
def test_rebase_onto_a_pre_release_is_possible_by_name(carry: Callable[..., Line], index: Index) -> None:
    assert rebase(carry(ONE), '2.1.0b1', quiet).line.version == '2.1.0b1+lifecycle.1'


@pytest.mark.usefixtures('near')
def test_rebase_leaves_unfinished_work_in_the_old_tree_alone(carry: Callable[..., Line]) -> None:
    line = carry(ONE)
    apply(line, quiet)
    User(line.tree).commit('Add three', {'tests/three.txt': '3\n'})
    (line.tree / TOOLS).write_text('work\n')
    before = {name: text for name, text in everything(line).items() if name.startswith('build/1.0.0/')}
    rebase(line, '1.1.0', quiet)
    assert {name: text for name, text in everything(line).items() if name.startswith('build/1.0.0/')} == before


@pytest.mark.slow
def test_rebase_where_the_index_does_not_tell_the_day_says_so(
    carry: Callable[..., Line], index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = carry(ONE)
    index.tells = False
    monkeypatch.chdir(line.root)
    assert main(['rebase', '--onto', '1.1.0']) == 0
    said = capsys.readouterr().out
    assert '`patches/1.1.0` holds the new line; its tree is `build/1.1.0`.\n- 1 patches\n' in said
    assert '`released` in `line.toml` is today; correct it.' in said


# A conflict


@pytest.fixture
def stopped(carry: Callable[..., Line], near: None) -> Line:
    """A line whose rebase waits at its second patch."""
    line = carry(ONE, TITLE, TWO)
    with pytest.raises(ApplyError):
        rebase(line, '1.1.0', quiet)
    return line


@pytest.mark.usefixtures('near')
def test_rebase_of_a_conflict_stops_in_the_tree_and_nowhere_else(carry: Callable[..., Line], user: User) -> None:
    line = carry(ONE, TITLE, TWO)
    before = everything(line)
    with pytest.raises(ApplyError) as error:
        rebase(line, '1.1.0', quiet)
    number = (user.tree / TOOLS).read_text().splitlines().index('<<<<<<< HEAD') + 1
    assert str(error.value) == (
        'The patch `fixes/call-it-title.patch` of 1.0.0+lifecycle.1 conflicts with `pydantic-ai-slim` 1.1.0. 1 of 3 patches '
        'are in the tree.\n'
        'The patch at which git stopped waits in `build/1.1.0`, with conflict marks. Edit the marked files, `git -C build/1.1.0 add` or `rm` them, and '
        'run `git -C build/1.1.0 rebase --continue`; if upstream has all of it, run `git -C build/1.1.0 rebase --skip`. When git '
        f'is at the end, `{CONTINUE}` makes the line; `{ABORT}` gives up.\n'
        '\n'
        f'    {TOOLS}:{number}'
    )
    assert error.value.files == (TOOLS,)
    assert user.subjects() == ['Add one']
    assert 'interactive rebase in progress' in user.git('status')
    assert {name: text for name, text in everything(line).items() if not name.startswith('build/1.1.0/')} == before


@pytest.mark.usefixtures('near')
def test_rebase_makes_the_line_after_git_is_at_the_end(stopped: Line, user: User) -> None:
    with pytest.raises(SeriesError, match=f'is in the middle of a `git rebase`(?s:.)* and then `{CONTINUE}`'):
        finish_rebase(stopped.root, None, quiet)
    resolve(user)
    user.git(*GO_ON)
    rebased = finish_rebase(stopped.root, None, quiet)
    assert rebased.dropped == []
    assert user.subjects() == ['Add one', 'Call it title', 'Add two']
    assert extract(rebased.line, quiet) == []


@pytest.mark.usefixtures('near')
def test_rebase_skip_leaves_the_patch_out_and_names_it(stopped: Line, user: User) -> None:
    user.git('rebase', '--skip')
    rebased = finish_rebase(stopped.root, None, quiet)
    assert rebased.dropped == ['fixes/call-it-title.patch']
    assert user.subjects() == ['Add one', 'Add two']
    assert '- Left out: Call it title.\n' in (stopped.root / 'CHANGELOG.md').read_text()


@pytest.mark.usefixtures('near')
def test_rebase_continue_after_git_rebase_abort_refuses_and_git_begins_again(stopped: Line, user: User) -> None:
    user.git('rebase', '--abort')
    with pytest.raises(SeriesError) as error:
        finish_rebase(stopped.root, None, quiet)
    again = 'rebase --onto refs/series/base refs/series/old-base series'
    assert str(error.value) == (
        'The tree `build/1.1.0` is not on the base of 1.1.0.\n'
        f'Begin again with `git -C build/1.1.0 {again}`, or give up with `{ABORT}`.'
    )
    subprocess.run(['git', *again.split()], cwd=user.tree, capture_output=True, check=False)
    resolve(user)
    user.git(*GO_ON)
    assert finish_rebase(stopped.root, None, quiet).dropped == []


@pytest.mark.usefixtures('near')
def test_rebase_abort_removes_all_of_it(carry: Callable[..., Line]) -> None:
    line = carry(ONE, TITLE)
    before = everything(line)
    with pytest.raises(ApplyError):
        rebase(line, '1.1.0', quiet)
    assert abort_rebase(line.root, None).name == '1.1.0'
    assert everything(line) == before
    assert not (line.root / 'build/1.1.0').exists()
    with pytest.raises(SeriesError, match='No rebase is under way'):
        abort_rebase(line.root, None)


# What is interrupted


@pytest.mark.parametrize('step', ['borrow', '_read_state', 'write_series', 'check_patches', 'find_line', '_changelog'])
@pytest.mark.usefixtures('near')
def test_rebase_that_is_interrupted_leaves_no_half_of_a_line(
    carry: Callable[..., Line], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    line = carry(ONE, SWAP)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, step, interrupt)
        rebase(line, '1.1.0', quiet)
    made = sorted(path.name for path in (line.root / 'patches').iterdir())
    assert made == (['1.0.0', '1.1.0'] if step in ('find_line', '_changelog') else ['1.0.0'])
    if (line.root / 'build/1.1.0').exists():
        with pytest.raises(SeriesError, match='is under way'):
            rebase(line, '1.1.0', quiet)
        rebased = finish_rebase(line.root, None, quiet)
    else:
        rebased = rebase(line, '1.1.0', quiet)
    assert len(rebased.line.patches) == 2
    assert extract(rebased.line, quiet) == []
    assert (line.root / 'CHANGELOG.md').read_text().count('## 1.1.0\n') == 1
    assert sorted(path.name for path in (line.root / 'build').iterdir()) == ['1.1.0', 'cache']


@pytest.mark.usefixtures('near')
def test_rebase_abort_of_a_line_that_is_there_refuses(
    carry: Callable[..., Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = carry(ONE)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, '_changelog', interrupt)
        rebase(line, '1.1.0', quiet)
    assert refusal(abort_rebase, line.root, None) == (
        'The line `1.1.0` is there already; only `CHANGELOG.md` may lack it.\n'
        f'Run `{CONTINUE}` for the rest. To be rid of the line, delete `patches/1.1.0`, `pydantic_ai_slim/1.1.0`, `build/1.1.0`.'
    )


# What is refused


@pytest.mark.parametrize(
    'version, message',
    [
        ('next', "'next' is not a version.\nName a release of upstream, such as `1.27.0`."),
        (
            '1.1.0+lifecycle.1',
            '`1.1.0+lifecycle.1` is not a release of upstream, but of a fork.\nName the release itself: `1.1.0`.',
        ),
        (
            '1.0.0',
            (
                'There is a line `1.0.0` already: `patches/1.0.0`.\nWork on it with `make apply LINE=1.0.0`; to start '
                'over, delete that folder, `pydantic_ai_slim/1.0.0` and `build/1.0.0` first.'
            ),
        ),
        (
            '1.2.0',
            (
                'The index has no release `pydantic-ai-slim===1.2.0`.\n'
                'Correct the version; `uv` looks where its configuration and `UV_INDEX` say.'
            ),
        ),
    ],
)
def test_rebase_onto_what_can_be_no_line_refuses(
    carry: Callable[..., Line], version: str, message: str, index: Index
) -> None:
    line = carry(ONE)
    before = everything(line)
    with pytest.raises(SeriesError) as error:
        rebase(line, version, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == message
    assert everything(line) == before


@pytest.mark.parametrize('folder', ['build/1.1.0', 'pydantic_ai_slim/1.1.0'])
@pytest.mark.usefixtures('near')
def test_rebase_over_another_folder_refuses(carry: Callable[..., Line], folder: str) -> None:
    line = carry(ONE)
    (line.root / folder).mkdir()
    assert refusal(rebase, line, '1.1.0', quiet) == (
        f'The folder `{folder}` is in the way: there is no line `1.1.0`, but it will be made there.\n'
        'Move it away if you need it, delete it if not, then run the same command again.'
    )


@pytest.mark.usefixtures('near')
def test_rebase_of_several_that_are_under_way_asks_which(stopped: Line) -> None:
    with pytest.raises(ApplyError):
        rebase(stopped, '2.0.0', quiet)
    assert refusal(abort_rebase, stopped.root, None) == (
        'Several rebases are under way: `build/1.1.0`, `build/2.0.0`.\nName one with `ONTO=...`.'
    )
    abort_rebase(stopped.root, '2.0.0')
    abort_rebase(stopped.root, None)


@pytest.mark.usefixtures('near')
def test_rebase_without_a_release_says_what_is_missing(
    line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(line.root)
    assert main(['rebase']) == 1
    assert capsys.readouterr().err == (
        'error: There is nothing to rebase onto.\nName a release with `--onto VERSION` (`make rebase ONTO=VERSION`).\n'
    )
