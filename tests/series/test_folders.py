"""Folders are put into their places in one step, and verbs don't get into each other's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from series import folders
from series.errors import SeriesError
from series.folders import lock, replace_dir, scratch
from series.line import Line
from tests.series.upstream import ROOT, User, start

VERBS = [('apply',), ('apply',), ('extract',), ('apply',)]


@pytest.mark.slow
def test_four_verbs_at_once_on_a_cold_cache_work_or_say_who_is_at_work(uncached: Line, user: User) -> None:
    running = [start(uncached, '-m', 'series', *verb) for verb in VERBS]
    ended = [(*process.communicate(timeout=600), process.returncode) for process in running]
    assert any(code == 0 for *_, code in ended)
    for out, errors, code in ended:
        assert 'Traceback' not in errors
        if code:
            assert errors.endswith(
                (
                    'is at work on `1.0.0`.\nWait until it has ended, then run the same command again.\n',
                    'There is no tree `build/1.0.0`.\nRun `make apply LINE=1.0.0` to make it.\n',
                    'or make it again with `make apply LINE=1.0.0`.\n',
                )
            )
        else:
            assert 'holds the base and 0 patches' in out
    last = start(uncached, '-m', 'series', 'apply')
    last.communicate()
    assert last.returncode == 0
    assert sorted(path.name for path in uncached.tree.parent.iterdir()) == ['1.0.0', 'cache']


def test_verb_beside_another_on_the_same_line_says_which_one(line: Line) -> None:
    with lock(line.root, line.name, 'make extract LINE=1.0.0'):
        out, errors = start(line, '-m', 'series', 'apply').communicate()
    assert out == ''
    assert errors == (
        f'error: `make extract LINE=1.0.0` (process {os.getpid()}) is at work on `1.0.0`.\n'
        'Wait until it has ended, then run the same command again.\n'
    )
    assert not (line.root / 'build' / '.locks').exists()


def test_lock_of_a_killed_verb_is_held_by_its_git_until_that_ends(tmp_path: Path) -> None:
    """So that what the one leaves to be done isn't undone by the other."""
    child = (
        'import os, subprocess, sys\nfrom pathlib import Path\nfrom series.folders import inheritable_fds, lock\n'
        'with lock(Path(sys.argv[1]), "it", "make it"):\n'
        '    subprocess.Popen(["sleep", "2"], pass_fds=inheritable_fds(), stdout=subprocess.DEVNULL)\n'
        '    print(flush=True)\n    os.kill(os.getpid(), 9)\n'
    )
    subprocess.run(
        [sys.executable, '-c', child, str(tmp_path)], env=os.environ | {'PYTHONPATH': str(ROOT)}, check=False
    )
    with pytest.raises(SeriesError, match='`make it`'), lock(tmp_path, 'it', 'make that'):
        pass
    waited: list[str] = []
    with lock(tmp_path, 'it', 'make that', waited.append):
        assert len(waited) == 1


def test_scratch_removes_what_killed_verbs_left_and_nothing_else(tmp_path: Path) -> None:
    left = ('patches/.extract-abc', 'build/.apply-abc', 'build/cache/.base-abc', 'dist/.release-abc', 'dist/.build-x')
    kept = ('patches/1.0.0', 'build/1.0.0', 'dist/release', 'build/.mine', 'patches/.git')
    for name in (*left, *kept):
        (tmp_path / name / 'inside').mkdir(parents=True)
    with scratch(tmp_path, tmp_path / 'build', 'verify') as living:
        with scratch(tmp_path, tmp_path / 'build', 'verify'):
            assert living.exists()
        assert [name for name in left if (tmp_path / name).exists()] == []
    assert [name for name in kept if not (tmp_path / name / 'inside').exists()] == []
    assert not living.exists()


def test_make_clean_removes_what_killed_verbs_left_and_keeps_the_release_and_the_trees(tmp_path: Path) -> None:
    shutil.copytree(ROOT / 'series', tmp_path / 'series', ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(ROOT / 'Makefile', tmp_path)
    gone = ('patches/.extract-abc', 'build/.apply-abc', 'build/cache', 'build/tool', 'dist/.release-abc')
    kept = ('patches/1.0.0', 'build/1.0.0', 'dist/release', 'build/pull-requests', 'build/matrix')
    for name in (*gone, *kept):
        (tmp_path / name / 'inside').mkdir(parents=True)
    (tmp_path / 'dist' / 'a.whl').touch()
    subprocess.run(['make', 'clean', f'PYTHON3={sys.executable}'], cwd=tmp_path, check=True)
    assert [name for name in (*gone, 'dist/a.whl') if (tmp_path / name).exists()] == []
    assert [name for name in kept if not (tmp_path / name / 'inside').exists()] == []


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that is to be put into the place of another one."""
    new, target = tmp_path / 'patches' / '.extract-x' / 'new', tmp_path / 'patches' / '1.0.0'
    for folder in (new, target):
        folder.mkdir(parents=True)
        (folder / 'name').write_text(folder.name)
    return new, target


@pytest.mark.parametrize('exchanges', [True, False])
def test_replace_dir_exchanges_two_folders(
    two: tuple[Path, Path], exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, target = two
    if not exchanges:
        monkeypatch.setattr(folders, '_exchange', lambda one, other: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    replace_dir(new, target)
    assert ((target / 'name').read_text(), (new / 'name').read_text()) == ('new', '1.0.0')


@pytest.mark.parametrize('error', [OSError, KeyboardInterrupt])
@pytest.mark.parametrize('at', [1, 2])
def test_replace_dir_without_exchange_that_fails_leaves_the_old_folder(
    two: tuple[Path, Path], at: int, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, target = two
    rename, steps = Path.rename, iter(range(1, 9))

    def fail(self: Path, other: Path) -> Path:
        if next(steps) == at:
            raise error
        return rename(self, other)

    monkeypatch.setattr(folders, '_exchange', lambda one, other: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(Path, 'rename', fail)
    with pytest.raises(error):
        replace_dir(new, target)
    assert (target / 'name').read_text() == '1.0.0'


def test_replace_dir_without_exchange_that_is_killed_is_undone_by_the_next_verb(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    new, target = two
    code = (
        'import os, sys\nfrom pathlib import Path\nfrom series import folders\nfolders._exchange = lambda *_: False\n'
        'rename = Path.rename\n'
        'Path.rename = lambda self, other: os._exit(9) if self.name == "new" else rename(self, other)\n'
        'folders.replace_dir(*map(Path, sys.argv[1:]))\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code, str(new), str(target)], env=os.environ | {'PYTHONPATH': str(ROOT)}, check=False
    )
    assert done.returncode == 9
    assert not target.exists()
    with scratch(tmp_path, tmp_path / 'build', 'apply'):
        assert (target / 'name').read_text() == '1.0.0'
    assert [path.name for path in target.parent.iterdir()] == ['1.0.0']
