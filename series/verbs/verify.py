"""Check a series patch by patch: its messages, and that the package works after each of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue

from pydantic_ai_slim.fork.line import patch_name
from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER
from series import coverage, linkcheck, tree, upstream_tests
from series.base import base_repository, clone
from series.environments import keep_environment, line_python, overrides
from series.errors import ApplyError, Fault, VerifyError, quoted
from series.folders import lock, scratch
from series.git import Git
from series.line import Line
from series.lint import new_findings
from series.merge import apply_one
from series.message import all_needs, direct_needs, message_faults, read_message
from series.patches import without_index, write_patches
from series.programs import Programs
from series.progress import Report
from series.verbs.extract import patched_digest

_PACKAGE = f'{UPSTREAM_FOLDER}/{PACKAGE}/'
_PATHS = (_PACKAGE, 'tests/', 'docs/')
SECONDS = 1800.0
"""How long the tests of a patch may take before they are ended. It is some minutes for all of them together."""


@dataclass
class Verified:
    """What was found of one patch."""

    patch: Path
    tests: int = 0
    """How many tests passed after it and all patches before it."""
    faults: list[Fault] = field(default_factory=list[Fault])


def upstream_environment(line: Line) -> Path:
    """Make the environment that upstream's tests run in, unless it is there, and return its interpreter.

    The line's `tests.in` says what it holds, and nothing that was published later is in it. So one that was made of the
    same is the same, and whoever needs it at the same time shares it.
    """
    folder = line.root / 'build' / 'envs' / f'upstream-{line.name}'
    python = line_python(line)
    # A release of a dependency that came later can break a test, which would say nothing about a patch.
    newest = f'{line.released + timedelta(days=1)}T00:00:00Z'
    requirements = ['--exclude-newer', newest, *overrides(line), '--requirement', line.folder / 'tests.in']
    requirements.append('coverage>=7.10')
    with lock(line.root, folder.name, f'making `{line.show(folder)}`', lambda _: None):
        return keep_environment(folder, python, requirements)[0]


def verify(
    line: Line,
    report: Report,
    environment: Callable[[Line], Path] = upstream_environment,
    *,
    together: bool = False,
    only: Path | None = None,
) -> list[Verified]:
    """Apply a series to the base, in a folder that is thrown away, and check it after every patch.

    Checked are the message, the paths, that `ruff` with upstream's settings finds nothing in them that it doesn't find
    before the patch, that `pydantic_ai` is imported, the tests that the patch adds or changes, that these run all lines that it adds to the package, as upstream's CI asks, and that links
    in its docs resolve; after the last patch the tests of all patches; and that an extract would change nothing. A
    patch that doesn't need all patches before it is checked once more on those that it needs, and each that it needs must be
    missed when it isn't there. The tree and the patches stay as they are.

    The patches of an older line carry only the tests in which it differs from the newest. What needs the others isn't checked:
    which lines are run, and whether each need is missed.

    Args:
        environment: Makes the interpreter that imports and tests are run with.
        together: Whether to import and test the patches together only, after the last. On what it needs each has to apply even so.
        only: The one patch to check.

    Returns:
        The patches, with the numbers of tests that passed.
    """
    with scratch(line.root, line.tree.parent, 'verify') as folder:
        base = base_repository(line, report)
        report("Making the environment of upstream's tests")
        python = environment(line)
        report('Checking the base out')
        git = clone(base, folder / 'tree', 'HEAD')
        found, checks = _plan(git, line, report, together=together, only=only)
        if together and not only:
            for check in checks:
                check.tested, check.measured = check.commit == checks[-1].commit, False
        patched = line.patched if only else patched_digest(git)
        _run_all(checks, git, python, folder, report)
    if found and patched != line.patched and not any(verified.faults for verified in found):
        pins = f'{line.show(line.folder)}/line.toml'
        found[-1].faults.append(
            Fault(f'`{pins}` pins another package than the patches make. `make extract` pins theirs.')
        )
    if any(verified.faults for verified in found):
        again = line.make('verify') + (f' PATCH={patch_name(only)}' if only else '')
        raise VerifyError(
            line.name,
            {line.show(verified.patch): verified.faults for verified in found if verified.faults},
            f'Correct the commits in `{line.show(line.tree)}` with `git rebase --interactive {tree.BASE}`, write them to '
            f'`{line.show(line.folder)}` with `{line.make("extract")}`, and run `{again}` again.',
        )
    return found


def _plan(
    git: Git, line: Line, report: Report, *, together: bool, only: Path | None
) -> tuple[list[Verified], list[_Check]]:
    """Check what needs no Python, and make the commits on which the rest is to be checked: not on what each needs, if `together`.

    The patches of an older line leave tests and pages to those of the newest, so they needn't carry any.
    """
    patches = line.patches
    messages = {patch: read_message(patch) for patch in patches}
    needs = direct_needs(messages)
    stack = _Stack(git)
    found: list[Verified] = []
    checks: list[_Check] = []
    carried: set[str] = set()
    for number, patch in enumerate(patches):
        if only not in (None, patch):
            continue
        report(f'Applying `{patch_name(patch)}`', number, len(patches))
        found.append(verified := Verified(patch))
        earlier = [messages[before].subject for before in patches[:number]]
        verified.faults += [Fault(fault) for fault in message_faults(patch, messages[patch], earlier)]
        try:
            commit = stack.commit(patches[: number + 1])
        except ApplyError as error:
            name = 'It' if error.patch == patch else f'`{patch_name(error.patch)}`'
            verified.faults.append(Fault(f'{name} does not apply to the base with the patches before it.', error.words))
            break
        git.run('checkout', '--quiet', '--detach', commit)
        paths = git.lines('-c', 'core.quotePath=false', 'diff', '--name-only', '--no-renames', 'HEAD~1', 'HEAD')
        verified.faults += _path_faults(git, paths, tested=line.is_newest)
        checks.append(_Check(verified, commit, paths, measured=line.is_newest))
        if patch == patches[-1] and not only:
            checks.append(_Check(verified, commit, sorted(carried.difference(paths)), last=True))
        carried.update(paths)
        # It has to apply there in any case.
        apart = [*_apart(stack, verified, paths, patches[:number], needs)]
        if not together:
            checks += [*apart, *(_unneeded(stack, verified, paths, needs) if line.is_newest else ())]
    else:
        # A patch that says what a mail says of itself, or was edited by hand, comes out otherwise.
        commits = f'{checks[0].commit}^!' if only else f'{tree.BASE}..{stack.commit(patches)}'
        for verified, written in zip(found, write_patches(git, git.folder.with_name('written'), commits), strict=True):
            if without_index(verified.patch) != without_index(written):
                verified.faults.append(Fault('`make extract` would write it otherwise. Let it, after `make apply`.'))
        if not only:
            git.run('checkout', '--quiet', '--detach', stack.commit(patches))
    return found, checks


def _apart(
    stack: _Stack, verified: Verified, paths: list[str], before: list[Path], needs: Mapping[Path, list[Path]]
) -> Iterator[_Check]:
    """Plan the check of a patch on what it needs, where that isn't all before it anyway."""
    patch = verified.patch
    needed = all_needs(needs[patch], needs)
    if needed != before:
        where = 'on the base with only the patches that it needs' if needed else 'on the base alone'
        try:
            yield _Check(verified, stack.commit([*needed, patch]), paths, where=f', {where}')
        except ApplyError as error:
            name = 'It' if error.patch == patch else f'`{patch_name(error.patch)}`, which it needs,'
            remedy = 'Name in a `Needs:` trailer what it needs besides.'
            verified.faults.append(Fault(f'{name} does not apply {where}. {remedy}', error.words))


def _unneeded(
    stack: _Stack, verified: Verified, paths: list[str], needs: Mapping[Path, list[Path]]
) -> Iterator[_Check]:
    """Plan the checks of a patch without each part of what it needs."""
    patch = verified.patch
    for need in needs[patch]:
        rest = all_needs([other for other in needs[patch] if other != need], needs)
        if need not in rest:
            # Most can't be applied there, which is the end of it.
            with suppress(ApplyError):
                yield _Check(verified, stack.commit([*rest, patch]), paths, unneeded=need)


def _run_all(checks: list[_Check], git: Git, python: Path, folder: Path, report: Report) -> None:
    """Run checks, as many at a time as there are processors, and write what they find down in their order."""
    workers = min(len(checks), os.cpu_count() or 1)
    if not workers:
        return
    runs: SimpleQueue[_Run] = SimpleQueue()
    programs = Programs()
    for number in range(workers):
        (outside := folder / f'outside-{number}').mkdir()
        runs.put(_Run(clone(git.folder, folder / f'checkout-{number}', 'HEAD'), python, outside, programs))

    def run(check: _Check) -> _Check:
        worker = runs.get()
        try:
            worker.run(check)
        finally:
            runs.put(worker)
        return check

    with ThreadPoolExecutor(workers) as pool:
        try:
            # What takes longest comes first, so that no processor waits for it in the end.
            waiting = [pool.submit(run, check) for check in sorted(checks, key=lambda check: -len(check.paths))]
            report('Verifying the patches', 0, len(checks))
            for done, finished in enumerate(as_completed(waiting), 1):
                report(f'Verified {finished.result().name}', done, len(checks))
        finally:
            # When it is interrupted, nothing of it goes on.
            programs.end()
            pool.shutdown(cancel_futures=True)
    failed: set[Path] = set()
    for check in checks:
        if check.in_order:
            check.verified.tests += check.tests
            if check.faults:
                failed.add(check.verified.patch)
        elif check.verified.patch in failed:
            # It says nothing of what the patch needs.
            continue
        check.verified.faults += check.faults


def _path_faults(git: Git, paths: Sequence[str], *, tested: bool) -> Iterator[Fault]:
    """Say what a patch touches that it must not, and, if it has to be `tested`, that it isn't."""
    for path in paths:
        if not path.startswith(_PATHS):
            yield Fault(f'It touches `{path}`, which is in none of {quoted(_PATHS)}.')
        elif not git.attempt('check-ignore', '--quiet', '--no-index', path).returncode:
            yield Fault(f"It touches `{path}`, which upstream's `.gitignore` keeps out.")
    if tested and any(path.startswith(_PACKAGE) for path in paths) and not any(_is_test(path) for path in paths):
        yield Fault(f'It changes `{_PACKAGE}` and carries no test of that.')


def _is_test(path: str) -> bool:
    return path.startswith('tests/') and Path(path).match('test_*.py')


@dataclass
class _Check:
    """A patch on a commit, to be imported and tested."""

    verified: Verified
    commit: str
    paths: Sequence[str]
    """The files that it touches."""
    where: str = ''
    """What the commit stands on, in the words of a fault, unless that is all patches before it."""
    unneeded: Path | None = None
    """The patch that the commit lacks, and without which something must fail."""
    last: bool = False
    """Whether it is about what all other patches carry."""
    tested: bool = True
    """Whether it is imported and tested, or only read by ruff."""
    measured: bool = False
    """Whether the tests that the patch carries have to run the lines that it adds, and links in its docs to resolve."""
    faults: list[Fault] = field(default_factory=list[Fault])
    tests: int = 0

    @property
    def in_order(self) -> bool:
        """Whether the commit stands on all patches before it."""
        return not self.where and self.unneeded is None

    @property
    def name(self) -> str:
        """What is checked, for the user to read."""
        if self.last:
            return 'what all patches carry, after the last'
        without = f' without `{patch_name(self.unneeded)}`' if self.unneeded else ''
        return f'`{patch_name(self.verified.patch)}`{self.where}{without}'


class _Stack:
    """Makes commits of some of the patches, each of them once.

    Args:
        git: The tree, whose branch `series` is the base.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._commits: dict[tuple[Path, ...], str] = {(): git.run('rev-parse', tree.BASE)}

    def commit(self, patches: Sequence[Path]) -> str:
        """Return the commit that patches make on the base."""
        made = next(count for count in range(len(patches), -1, -1) if tuple(patches[:count]) in self._commits)
        if made < len(patches):
            self._git.run('checkout', '--quiet', '--detach', self._commits[tuple(patches[:made])])
        for count in range(made, len(patches)):
            apply_one(self._git, patches[count])
            self._commits[tuple(patches[: count + 1])] = self._git.run('rev-parse', 'HEAD')
        return self._commits[tuple(patches)]


@dataclass
class _Run:
    """Runs Python on a checkout in the environment of upstream's tests."""

    git: Git
    python: Path
    folder: Path
    """For what the tests need and leave outside of the checkout. Those of another one would remove it."""
    programs: Programs

    def run(self, check: _Check) -> None:
        """Ask ruff, run the tests, as far as they are there, and import the package where that says more."""
        if check.in_order and not check.last:
            self._lint(check)
        if not check.tested:
            return
        self._check_out(check.commit)
        found = self._measured(check)
        if check.last and not self._import_package(check):
            found += self._api(check)
        # What all patches carry is tested on a commit that is imported for the last patch already.
        if not check.last and (found or not check.tests):
            found = self._import_package(check) or found
        if check.unneeded:
            fault = Fault(
                f'It needs no `{patch_name(check.unneeded)}`, without which it applies and its tests pass, but names it in `Needs:`.'
            )
            found = [] if found else [fault]
        check.faults += found

    def _measured(self, check: _Check) -> list[Fault]:
        """Run the tests, and where they pass, say which of the added lines they don't run and which links lead nowhere."""
        code = [path for path in check.paths if path.startswith(_PACKAGE) and path.endswith('.py')]
        if not check.measured:
            return self._test(check)
        wanted = coverage.added(self.git, check.commit, code) if code else {}
        if not wanted:
            return self._test(check) or self._references(check)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix='coverage-') as name:
            settings = coverage.write_settings(self.git.folder, Path(name), code)
            measuring = '-m', 'coverage', 'run', f'--rcfile={settings}'
            if found := self._test(check, *measuring):
                return found
            if missing := self._missing(settings, wanted):
                self._python(*measuring, str(coverage.write_imports(Path(name), code)))
                missing = self._missing(settings, wanted)
        problem = 'The tests that it carries do not run all lines that it adds.'
        return [*([Fault(problem, '\n'.join(missing))] if missing else []), *self._references(check)]

    def _missing(self, settings: Path, wanted: Mapping[str, set[int]]) -> list[str]:
        """Say which of the wanted lines nothing that was measured so far has run."""
        report = settings.with_name('report.json')
        self._python('-c', coverage.REPORT, str(settings), str(report))
        return coverage.missing(report, self.git.folder, wanted)

    def _references(self, check: _Check) -> list[Fault]:
        """Say which links in the pages and docstrings that it touches lead nowhere."""
        docs = self.git.folder / 'docs'
        files = [
            self.git.folder / path
            for path in check.paths
            if path.startswith(('docs/', _PACKAGE))
            and path.endswith(('.md', '.py'))
            and (self.git.folder / path).exists()
        ]
        broken = [
            f'{path.relative_to(self.git.folder)}: {link}'
            for path in files
            if path.suffix == '.md'
            for link in linkcheck.broken_links(docs, path)
        ]
        # What upstream itself refers to is none of the patch's.
        before = [
            self.git.attempt(
                'cat-file', 'blob', f'{check.commit}~1:{path.relative_to(self.git.folder)}'
            ).stdout.decode()
            for path in files
        ]
        known = linkcheck.names(before)
        if names := [name for name in linkcheck.names(path.read_text('utf-8') for path in files) if name not in known]:
            broken += filter(None, self._python('-c', linkcheck.RESOLVE, *names).stdout.splitlines())
        return [Fault('Its docs have links that lead nowhere.', '\n'.join(broken))] if broken else []

    def _api(self, check: _Check) -> list[Fault]:
        """Say what in the API isn't compatible with the base any more, in the words of griffe, as upstream's CI asks it."""
        base = self.git.run('rev-list', '--max-parents=0', check.commit)
        command = ['-m', 'griffecli', 'check', PACKAGE, '--search', UPSTREAM_FOLDER, '--against', base]
        command += ['--format', 'oneline', '--no-color']
        done = self.programs.run([sys.executable, *command], SECONDS, cwd=self.git.folder)
        fault = Fault('With all patches, the API is not compatible with that of the base.', done.stdout)
        return [fault] if done.returncode else []

    def _check_out(self, commit: str) -> None:
        """Check a commit out, with the compiled files of what it has in common with the one before."""
        changed = self.git.lines('-c', 'core.quotePath=false', 'diff', '--name-only', '--no-renames', 'HEAD', commit)
        # Tests may have changed files.
        self.git.run('checkout', '--quiet', '--force', '--detach', commit)
        self.git.run('clean', '--quiet', '--force', '-dx', '--exclude=__pycache__')
        # Two files can have the same size and second, which is all that compiled ones are checked by.
        for path in map(self.git.folder.joinpath, changed):
            for compiled in path.parent.glob(f'__pycache__/{path.stem}.*'):
                compiled.unlink()

    def _lint(self, check: _Check) -> None:
        if found := new_findings(self.git, check.commit, check.paths):
            problem = "`ruff` with upstream's settings finds in it what it doesn't find without it."
            check.faults.append(Fault(problem, '\n'.join(found)))

    def _import_package(self, check: _Check) -> list[Fault]:
        done = self._python('-c', f'import pathlib, {PACKAGE}; print(pathlib.Path({PACKAGE}.__file__).resolve())')
        if done.returncode:
            return [Fault(f'`import {PACKAGE}` fails after it{check.where}.', done.stdout)]
        if not Path(done.stdout.strip()).is_relative_to(self.git.folder):
            return [Fault(f'`import {PACKAGE}` finds another package than the patched one{check.where}.', done.stdout)]
        return []

    def _test(self, check: _Check, *measuring: str) -> list[Fault]:
        tests = sorted(path for path in check.paths if _is_test(path) and (self.git.folder / path).exists())
        if not tests:
            return []
        # Faults enough to see what is wrong; whether there is one is all that is asked without a patch that is needed.
        most = 1 if check.unneeded else 5
        # Long before a test that hangs is ended, it shows where it does.
        hangs = ('-o', f'faulthandler_timeout={SECONDS / 2:g}')
        options = ('-q', '--tb=short', f'--maxfail={most}', '-p', 'no:cacheprovider', *hangs)
        done = self._python(*measuring, '-m', 'pytest', *options, *tests)
        summary = done.stdout.strip().rpartition('\n')[2]
        check.tests += int(passed[1]) if (passed := re.search(r'(\d+) passed', summary)) else 0
        fault = Fault(f'The tests in {quoted(tests)} fail after it{check.where}.', done.stdout)
        return [fault] if done.returncode else []

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(('PYTHON', 'PYTEST'))}
        environment |= upstream_tests.variables(self.python, self.folder)
        environment |= {'PYTHONPATH': UPSTREAM_FOLDER, 'NO_COLOR': '1'}
        environment['PYTEST_DEBUG_TEMPROOT'] = str(self.folder)
        environment.pop('SSL_CERT_FILE', None)
        return self.programs.run([str(self.python), *arguments], SECONDS, cwd=self.git.folder, env=environment)
