"""A verb that is killed, or that fails at a rename, loses nothing; the same command again then does all of it.

With `SERIES_KILLS=50`, each verb is killed at 50 of its steps and fails at each rename, in place of one of each; that takes an hour.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from series.line import Line
from series.verbs.apply import apply
from series.verbs.extract import extract
from tests.series.upstream import LATER, PACKAGE, ROOT, User, commit_patches, quiet, write_build_folder

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get('SERIES_KILLS', '1'))
TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
OLD = PACKAGE['pydantic_ai/tools.py']
NEW = LATER['pydantic_ai/tools.py']
WHEEL = 'dist/pydantic_ai_slim-1.0.0+lifecycle.1-py3-none-any.whl'
UNITS = ('patches/1.0.0', 'patches/1.1.0', 'pydantic_ai_slim/1.1.0', 'dist/release', WHEEL, 'CHANGELOG.md')
"""What is either as it was, or as the verb makes it, at every instant."""


@dataclass(frozen=True)
class Checkout:
    """A checkout in which a verb is to be run, and copies of it."""

    root: Path
    releases: Path
    environment: dict[str, str]

    def copy(self, name: str) -> Checkout:
        """Copy it."""
        folder = self.root.with_name(name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.root, folder, symlinks=True)
        return Checkout(folder, self.releases, self.environment)

    def run(self, kind: str, at: int, delay: int, *verb: str) -> subprocess.CompletedProcess[str]:
        """Run a verb."""
        command = [sys.executable, '-m', 'tests.series.interrupted', kind, str(at), str(delay), str(self.releases)]
        return subprocess.run(
            [*command, *verb],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    def units(self) -> dict[str, dict[str, bytes]]:
        """Return the content of what is to be there in whole."""
        return {name: _content(self.root / name) for name in UNITS}

    def commits(self) -> dict[str, list[str]]:
        """Return what the commits of each branch of the trees hold. Their ids have the time in them where the user commits."""
        found: dict[str, list[str]] = {}
        for tree in sorted(self.root.glob('build/1.*')):
            for branch in User(tree).git('for-each-ref', '--format=%(refname:short)', 'refs/heads').splitlines():
                listed = User(tree).git('log', '--reverse', '--format=%T %s', branch)
                found[f'{tree.name}/{branch}'] = listed.splitlines()
        return found

    def left(self) -> list[str]:
        """Return what lies around that verbs work with."""
        places = [self.root / name for name in ('', 'build', 'build/cache', 'patches', 'pydantic_ai_slim', 'dist')]
        found = [path for place in places if place.exists() for path in place.iterdir()]
        found += [path for tree in self.root.glob('build/1.*') for path in (tree / '.git').iterdir()]
        return [
            path.name for path in found if re.match(r'\.[a-z]+-|series-note|.*\.lock$|\.locks|\..*\.new$', path.name)
        ]


def _content(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {'': path.read_bytes()}
    files = sorted(file for file in path.rglob('*') if file.is_file())
    # The time of the commit is in a bill of materials, and not in the copy of another run.
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


# The verbs, each in a checkout where it has much to do


def _series(line: Line, user: User) -> None:
    apply(line, quiet)
    for name in ('one', 'two', 'three'):
        user.commit(f'Add {name}', {f'tests/{name}.txt': f'{name}\n'})
    user.commit('Swap the summands', {TOOLS: OLD.replace('a + b', 'b + a')})
    extract(line, quiet)
    commit_patches(line)


def _apply(line: Line, user: User) -> list[str]:
    _series(line, user)
    shutil.rmtree(line.tree)
    return ['apply']


def _apply_again(line: Line, user: User) -> list[str]:
    """Moves a tree that has another branch, and files that git doesn't know, to other commits."""
    _series(line, user)
    user.git('switch', '--quiet', '--create', 'mine')
    user.commit('Try something', {'tests/mine.txt': 'mine\n'})
    user.git('switch', '--quiet', 'series')
    before = line.root / 'before'
    shutil.copytree(line.folder, before)
    user.git('reset', '--quiet', '--hard', 'HEAD~3')
    for number in range(40):
        user.commit(f'Add number {number}', {f'tests/{number}/{name}.txt': 'text\n' * 1000 for name in 'abc'})
    extract(line, quiet)
    commit_patches(line)
    shutil.move(line.folder, line.root / 'after')
    shutil.move(before, line.folder)
    commit_patches(line)
    apply(line, quiet)
    shutil.rmtree(line.folder)
    shutil.move(line.root / 'after', line.folder)
    return ['apply']


def _extract(line: Line, user: User) -> list[str]:
    _series(line, user)
    user.git('reset', '--quiet', '--hard', 'HEAD~1')
    user.commit('Multiply', {TOOLS: OLD.replace('a + b', 'a * b')})
    return ['extract']


def _rebasable(line: Line, user: User) -> None:
    _series(line, user)
    write_build_folder(line)


def _rebase(line: Line, user: User) -> list[str]:
    _rebasable(line, user)
    return ['rebase', '--onto', '1.1.0']


def _rebase_continue(line: Line, user: User) -> list[str]:
    """Makes the line after a conflict."""
    _rebasable(line, user)
    user.git('reset', '--quiet', '--hard', 'HEAD~1')
    user.commit('Call it title', {TOOLS: OLD.replace('def name', 'def title')})
    for number in range(10):
        user.commit(f'Add number {number}', {f'tests/{number}/{name}.txt': 'text\n' * 1000 for name in 'abc'})
    extract(line, quiet)
    return ['rebase', '--onto', '1.1.0', '--continue']


def _rebase_abort(line: Line, user: User) -> list[str]:
    return [*_rebase_continue(line, user)[:-1], '--abort']


def _carry(line: Line, user: User) -> list[str]:
    """Carries ten fixups to the line that a rebase has made."""
    _rebasable(line, user)
    return ['carry', '1.0.0']


def _build(line: Line, user: User) -> list[str]:
    return ['build']


def _release(line: Line, user: User) -> list[str]:
    (line.root / 'CHANGELOG.md').write_text('# Changelog\n\n## 1.0.0\n\n### 1.0.0+lifecycle.1\n\n- Swapped.\n')
    (line.root / '.gitignore').write_text('/build/\n/dist/\n__pycache__/\n')
    User(line.root).git('init', '--quiet')
    User(line.root).git('add', '--all')
    User(line.root).git('commit', '--quiet', '--message', 'state')
    (line.root / 'dist' / 'release').mkdir(parents=True)
    (line.root / 'dist' / 'release' / 'RELEASE.md').write_text('The one before\n')
    return ['release']


CASES: dict[str, Callable[[Line, User], list[str]]] = {
    'apply': _apply,
    'apply again': _apply_again,
    'extract': _extract,
    'rebase': _rebase,
    'rebase --continue': _rebase_continue,
    'rebase --abort': _rebase_abort,
    'carry': _carry,
    'build': _build,
    'release': _release,
}


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest, user: User, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Checkout, list[str]]:
    """A checkout, and the verb to run there."""
    line: Line = request.getfixturevalue('buildable' if request.param in ('build', 'release') else 'line')
    verb = CASES[request.param](line, user)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')]))
    checkout = Checkout(line.root, releases, {**os.environ, 'PYTHONPATH': path})
    tree = User(line.root / 'build/1.1.0')
    if len(verb) > 3:
        done = checkout.run('count', 0, 0, *verb[:-1])
        assert 'conflicts with' in done.stderr
    if verb[-1] == '--continue':
        (tree.tree / TOOLS).write_text(NEW.replace('def label', 'def title'))
        tree.git('add', '--all')
        tree.git('-c', 'core.editor=true', 'rebase', '--continue')

    if verb[0] == 'carry':
        assert not checkout.run('count', 0, 0, 'rebase', '--onto', '1.1.0').returncode
        for number in range(10):
            user.commit('fixup! Add one', {f'tests/{number}/{name}.txt': 'text\n' * 1000 for name in 'abc'})
    return checkout, verb


def finish(checkout: Checkout, verb: list[str]) -> None:
    """Run the command again, or what it says is to be run in its place."""
    done = checkout.run('count', 0, 0, *verb)
    if 'is under way in' in done.stderr:
        done = checkout.run('count', 0, 0, *verb, '--continue')
    if 'No rebase' in done.stderr:
        return  # it was killed when all was done
    if 'There is a line' in done.stderr:  # so it was here, and the error says how to go on
        done = checkout.run('count', 0, 0, 'apply', '1.1.0')
    assert done.returncode == 0, done.stderr


def check_whole(checkout: Checkout, before: Checkout, after: Checkout) -> None:
    """Check that all is either as it was or as it is to be."""
    for name, found in checkout.units().items():
        assert found in (before.units()[name], after.units()[name]), name
    commits, old, new = checkout.commits(), before.commits(), after.commits()
    for name in old:
        # A carry goes on fixup by fixup.
        found, made = commits.get(name), new.get(name)
        if found and made and len(old[name]) < len(found) < len(made):
            made = made[: len(found)]
        assert found in (old[name], made), name


def check_finished(checkout: Checkout, verb: list[str], after: Checkout, where: str) -> None:
    """Run the command again, and check that all is there and nothing else."""
    finish(checkout, verb)
    assert (where, checkout.units()) == (where, after.units())
    assert (where, checkout.commits()) == (where, after.commits())
    assert (where, checkout.left()) == (where, [])


# One test, since what it takes to count the steps and renames is most of it.
def test_verb_that_is_killed_or_fails_at_a_rename_loses_nothing(case: tuple[Checkout, list[str]]) -> None:
    before, verb = case
    after = before.copy('after')
    counted = after.run('count', 0, 0, *verb)
    assert counted.returncode == 0, counted.stderr
    steps, renames = map(int, counted.stdout.split()[-2:])
    assert renames or verb[0] == 'carry'
    for number in range(KILLS):
        at = 1 + (2 * number + 1) * steps // (2 * KILLS)
        # Half of them while git is at work.
        delay = 0 if number % 2 else 1 + 7 * number % 30
        checkout = before.copy('interrupted')
        done = checkout.run('kill', at, delay, *verb)
        where = f'killed at step {at} of {steps}, {delay} ms later'
        assert done.returncode in (-9, 0), f'{where}: {done.stderr}'
        check_whole(checkout, before, after)
        check_finished(checkout, verb, after, where)
    # The last of them, unless it is the long version; before the first, nothing has happened.
    for at in range(1, renames + 1) if KILLS >= 50 or not renames else [renames]:
        checkout = before.copy('interrupted')
        done = checkout.run('fault', at, 0, *verb)
        where = f'failed at rename {at} of {renames}'
        assert (done.returncode, 'Traceback' in done.stderr) == (1, False), f'{where}: {done.stderr}'
        check_whole(checkout, before, after)
        check_finished(checkout, verb, after, where)
