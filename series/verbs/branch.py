"""Put a patch, with what it needs, on a branch of the user's own clone of upstream, and write the pull request's text."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai_slim.fork.line import patch_name
from pydantic_ai_slim.fork.names import PACKAGE, UPSTREAM_FOLDER
from series.errors import ApplyError, SeriesError, quoted
from series.git import Git, environment, user_environment, words
from series.line import Line
from series.merge import misfits
from series.message import Message, all_needs, direct_needs, read_message
from series.progress import Report
from series.pull_request import pull_request_text
from series.tree import unfinished

_OURS = {'Needs', 'Forwarded'}
"""The trailers that say something of the series, which upstream has no use for."""


@dataclass(frozen=True)
class Branch:
    """What was made."""

    name: str
    onto: str
    subjects: list[str]
    """Of its commits."""
    text: Path
    """The file with the pull request's title and body."""
    pages: list[str]
    """Pages that it adds: releases ship none of the files that list them, so no patch can."""


def branch(
    line: Line,
    patch: Path,
    folder: Path,
    report: Report,
    *,
    onto: str | None = None,
    name: str | None = None,
) -> Branch:
    """Make a branch with a patch and all patches that it needs, in the order of the series, and switch the clone to it.

    The commits are made beside the clone's index and work tree. Only when all of them are there, the branch is made and
    checked out; until then nothing that the user sees changes. Author and committer are who the clone's configuration says.

    Args:
        patch: The patch, one of the line's.
        folder: The clone of upstream.
        onto: The revision that the branch begins at; by default the tag of the line's release.
        name: What to call the branch; by default after the subject of the patch.
    """
    report('Reading the patches')
    messages = {path: read_message(path) for path in line.patches}
    stack = all_needs([patch], direct_needs(messages))
    name = name or patch.stem
    git = _open_clone(folder, name)
    target = _target(git, onto or f'v{line.name}', tagged=onto is None)
    identity = _identity(git)
    with tempfile.TemporaryDirectory() as scratch:
        # An index of its own: the clone's stays as it is.
        settings = environment() | identity | {'GIT_INDEX_FILE': str(Path(scratch) / 'index')}
        plumbing = Git(git.folder, settings)
        plumbing.run('read-tree', target)
        commit = target
        for done, each in enumerate(stack):
            report(f'Applying `{patch_name(each)}`', done, len(stack))
            _apply(plumbing, line, each, onto)
            commit = _commit(plumbing, commit, _message(messages[each]), Path(scratch))
    report(f'Making the branch `{name}`')
    text = line.root / 'build' / 'pull-requests' / line.name / f'{patch.stem}.md'
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(pull_request_text(messages[patch], [messages[each] for each in stack[:-1]]), 'utf-8')
    _switch(git, name, commit)
    pages = git.lines(
        '-c', 'core.quotePath=false', 'diff', '--name-only', '--diff-filter=A', target, commit, 'docs/*.md'
    )
    subjects = [messages[each].subject for each in stack]
    return Branch(name, onto or f'v{line.name}', subjects, text, pages)


# The clone


def _open_clone(folder: Path, name: str) -> Git:
    """Refuse a clone that a branch can't be made in, and return the user's own git there."""
    git = Git(folder, user_environment())
    found = git.attempt('rev-parse', '--show-toplevel') if folder.is_dir() else None
    if found is None or found.returncode or not found.stdout.strip():
        raise SeriesError(
            f'The folder `{folder}` is no clone of upstream: it is not a git repository with a work tree.',
            'Clone pydantic-ai with `git clone`, and name its folder with `--clone DIR` (`CLONE=DIR`).',
            words(found) if found else '',
        )
    git = Git(Path(found.stdout.decode('utf-8', 'surrogateescape').rstrip('\n')), user_environment())
    operation = unfinished(git) or ('bisect' if git.holds('BISECT_LOG') else None)
    if operation:
        end = 'reset' if operation == 'bisect' else '--abort'
        raise SeriesError(
            f'The clone `{folder}` is in the middle of a `git {operation}`.',
            f'Finish it, or give it up with `git -C {folder} {operation} {end}`, then run the same command again.',
        )
    if changes := git.run('-c', 'core.quotePath=false', 'status', '--porcelain'):
        raise SeriesError(
            f'The clone `{folder}` has changes that are not committed.',
            f'Commit them, or put them away with `git -C {folder} stash --include-untracked`, then run the same command '
            f'again.',
            changes,
        )
    if git.attempt('check-ref-format', '--branch', name).returncode:
        raise SeriesError(
            f'{name!r} cannot be the name of a branch.', 'Name another with `--name BRANCH` (`ARGS="--name BRANCH"`).'
        )
    if git.has(f'refs/heads/{name}'):
        raise SeriesError(
            f'The clone `{folder}` has a branch `{name}` already.',
            f'Name another with `--name BRANCH` (`ARGS="--name BRANCH"`), or delete that one with `git -C {folder} branch --delete '
            f'--force {name}`.',
        )
    return git


def _target(git: Git, revision: str, *, tagged: bool) -> str:
    """Return the commit that the branch begins at."""
    found = f'refs/tags/{revision}' if tagged else revision
    if not git.has(found):
        if not _is_upstream(git, 'HEAD'):
            raise _no_upstream(git, 'HEAD')
        raise SeriesError(
            f'The clone `{git.folder}` has no {"tag" if tagged else "revision"} `{revision}`.',
            f'Get it with `git -C {git.folder} fetch --tags URL`, where URL is that of upstream, or name another with '
            f'`--onto REV` (`ONTO=REV`), then run the same command again.',
        )
    if not _is_upstream(git, found):
        raise _no_upstream(git, revision)
    return git.run('rev-parse', f'{found}^{{commit}}')


def _is_upstream(git: Git, revision: str) -> bool:
    return not git.attempt('cat-file', '-e', f'{revision}:{UPSTREAM_FOLDER}/{PACKAGE}/__init__.py').returncode


def _no_upstream(git: Git, revision: str) -> SeriesError:
    return SeriesError(
        f'The repository `{git.folder}` is no clone of upstream: `{revision}` has no `{UPSTREAM_FOLDER}/{PACKAGE}`.',
        'Name the folder of a clone of pydantic-ai with `--clone DIR` (`CLONE=DIR`).',
    )


def _identity(git: Git) -> dict[str, str]:
    """Return who commits, as the user has told git."""
    found = git.attempt('-c', 'user.useConfigOnly=true', 'var', 'GIT_COMMITTER_IDENT')
    identity = re.fullmatch(r'(.*) <(.*)> \d+ [-+]\d+', found.stdout.decode('utf-8', 'replace').strip())
    if found.returncode or not identity:
        raise SeriesError(
            "Git doesn't know who you are, and the commits will be yours.",
            f'Say it with `git -C {git.folder} config user.name NAME` and `git -C {git.folder} config user.email ADDRESS`, '
            f'then run the same command again.',
            words(found),
        )
    return {
        f'GIT_{role}_{what}': identity[at]
        for role in ('AUTHOR', 'COMMITTER')
        for at, what in ((1, 'NAME'), (2, 'EMAIL'))
    }


# The commits


def _apply(git: Git, line: Line, patch: Path, onto: str | None) -> None:
    """Apply a patch to the index."""
    done = git.attempt('apply', '--cached', '--whitespace=nowarn', str(patch))
    if not done.returncode:
        return
    said = words(done)
    files = misfits(said)
    where = f'`{onto}`' if onto else f'the tag `v{line.name}`'
    remedy = (
        f'Make the branch on the tag, with the same command without `--onto` (`ONTO=`); then `git -C {git.folder} rebase --onto '
        f'{onto} v{line.name}` merges what it can, and stops at each conflict, which you resolve with git as any other.'
        if onto
        else f"`{line.make('verify')}` checks that it applies to the release. If it does, the clone's tag `v{line.name}` isn't upstream's."
    )
    raise ApplyError(
        f'The patch `{line.show(patch)}` does not apply to {where}: it does not fit '
        f'{quoted(files)}. The clone `{git.folder}` is as it was.',
        remedy,
        said,
        patch=patch,
        files=files,
    )


def _message(message: Message) -> str:
    """Return what upstream has a use for of a patch's message."""
    trailers = '\n'.join(f'{name}: {value}' for name, value in message.trailers if name not in _OURS)
    return '\n\n'.join(part for part in (message.subject, message.text, trailers) if part)


def _commit(git: Git, parent: str, message: str, scratch: Path) -> str:
    """Commit the index."""
    (scratch / 'message').write_text(f'{message}\n', 'utf-8')
    return git.run('commit-tree', git.run('write-tree'), '-p', parent, '-F', str(scratch / 'message'))


def _switch(git: Git, name: str, commit: str) -> None:
    """Make the branch and check it out, or neither."""
    # What upstream ignores, like an environment, may be of value to the user.
    switch = ('switch', '--quiet', '--no-overwrite-ignore', '--no-track', '--create', name, commit)
    # What a git that is killed has written in part, nothing here would know how to take back.
    done = git.attempt(*switch, apart=True)
    if done.returncode:
        raise SeriesError(
            f'Git could not switch the clone `{git.folder}` to the new branch `{name}`, which is not made.',
            'Move away what git names, then run the same command again.',
            words(done),
        )
