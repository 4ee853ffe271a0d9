"""Run git without the user's configuration; all git of the tool goes through here."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from series.errors import GitError, SeriesError, quoted, trimmed
from series.folders import inheritable_fds

NAME = 'series'
EMAIL = 'series@localhost'
"""The author of the base commit and the committer of every commit: fixed, so that commit ids are."""


def environment() -> dict[str, str]:
    """Return the environment that git runs in: nobody's configuration but of which folders are safe, a fixed identity and locale.

    Every `GIT_*` variable is dropped, because a hook or an outer git (`GIT_DIR`, `GIT_INDEX_FILE`) would
    otherwise point the command at another repository.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith('GIT_')}
    return kept | {
        'GIT_CONFIG_GLOBAL': safe_directories(),
        'GIT_CONFIG_SYSTEM': os.devnull,
        'GIT_ATTR_NOSYSTEM': '1',
        # Hooks of the repository don't run either.
        **_configured({'core.hooksPath': os.devnull}),
        # Git looks for the user's attributes and ignored files there, whatever the variables above say.
        'HOME': os.devnull,
        'XDG_CONFIG_HOME': os.devnull,
        'GIT_TERMINAL_PROMPT': '0',
        'GIT_EDITOR': 'true',
        'LC_ALL': 'C',
        'TZ': 'UTC',
        'GIT_AUTHOR_NAME': NAME,
        'GIT_AUTHOR_EMAIL': EMAIL,
        'GIT_COMMITTER_NAME': NAME,
        'GIT_COMMITTER_EMAIL': EMAIL,
    }


def _configured(settings: Mapping[str, str], count: int = 0) -> dict[str, str]:
    """Return the variables by which git has settings, after those that it has so already."""
    names = {f'GIT_CONFIG_KEY_{number}': name for number, name in enumerate(settings, count)}
    values = {f'GIT_CONFIG_VALUE_{number}': value for number, value in enumerate(settings.values(), count)}
    return {'GIT_CONFIG_COUNT': str(count + len(settings)), **names, **values}


@cache
def safe_directories() -> str:
    """Return the path of a configuration with nothing but the user's `safe.directory`: without it, git refuses what another user owns.

    It stands in a file, since older gits don't heed it in variables.
    """
    listed = ['git', 'config', '--null', '--show-scope', '--type=path', '--get-all', 'safe.directory']
    done = subprocess.run(listed, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    fields = done.stdout.decode('utf-8', 'surrogateescape').split('\0')
    # Not what a repository says of itself.
    found = [
        value for scope, value in zip(fields[::2], fields[1::2], strict=False) if scope not in ('local', 'worktree')
    ]
    if not found:
        return os.devnull
    file = tempfile.NamedTemporaryFile('w', prefix='safe-', encoding='utf-8', errors='surrogateescape', delete=False)  # noqa: SIM115
    with file:
        for value in found:
            escaped = value.replace('\\', '\\\\').replace('"', '\\"')
            file.write(f'[safe]\n\tdirectory = "{escaped}"\n')
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name


def user_environment() -> dict[str, str]:
    """Return the environment for git in a repository of the user's own: with their configuration, but nobody asked or edited.

    What they ignore, how they have lines end and who they are is theirs to say there. Their hooks don't run.
    """
    # Those of a hook or an outer git name another repository; the identity and the like are the user's to set.
    located = ('GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE', 'GIT_OBJECT_DIRECTORY', 'GIT_COMMON_DIR', 'GIT_PREFIX')
    kept = {name: value for name, value in os.environ.items() if name not in located}
    count = int(kept.get('GIT_CONFIG_COUNT') or 0)
    return kept | {
        **_configured({'core.hooksPath': os.devnull, 'advice.detachedHead': 'false'}, count),
        # `git status` would lock the index to write what it found, and leave the lock when it is killed.
        'GIT_OPTIONAL_LOCKS': '0',
        'GIT_TERMINAL_PROMPT': '0',
        'GIT_EDITOR': 'true',
        'LC_ALL': 'C',
    }


class Git:
    """One repository.

    Args:
        folder: The work tree, or the repository itself when it is bare.
        environment: What git runs in; by default nobody's configuration.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self._environment = environment

    def attempt(
        self, *args: str, stdin: IO[bytes] | None = None, apart: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git and return what came of it, whatever its exit status; `apart`, Ctrl-C doesn't reach it."""
        try:
            process = subprocess.Popen(
                ['git', '-C', str(self.folder), *args],
                stdin=stdin or subprocess.DEVNULL,
                env=self._environment or environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # What git does on when the tool is killed is still under its locks.
                pass_fds=inheritable_fds(),
                start_new_session=apart,
            )
        except FileNotFoundError:
            raise SeriesError(
                "`git` isn't on the path, and the series can't be handled without it.",
                'Install git 2.32 or newer, then run the same command again.',
            ) from None
        try:
            said = process.communicate()
        except KeyboardInterrupt:
            # `subprocess.run()` would kill it, and leave its locks.
            process.communicate()
            raise
        done = subprocess.CompletedProcess(process.args, process.returncode, *said)
        if done.returncode and b'dubious ownership' in done.stderr:
            raise SeriesError(
                f'Git refuses `{self.folder}`, since another user owns it.',
                f'If you trust them, run `git config --global --add safe.directory {self.folder}`, then the same command again.',
                words(done),
            )
        return done

    def run(self, *args: str, stdin: IO[bytes] | None = None) -> str:
        """Run git and return its standard output, without the last newline.

        Raises:
            GitError: It failed.
        """
        done = self.attempt(*args, stdin=stdin)
        if done.returncode:
            raise GitError(args, self.folder, done.returncode, words(done))
        return done.stdout.decode('utf-8', 'replace').removesuffix('\n')

    def lines(self, *args: str) -> list[str]:
        """Run git and return the lines of its standard output."""
        return self.run(*args).splitlines()

    def files(self, revision: str, folder: str) -> dict[str, bytes]:
        """Read the files that a commit has in a folder, byte for byte, by their paths relative to it."""
        listed = [
            entry.split('\t', 1)
            for entry in self.run('ls-tree', '-r', '-z', f'{revision}:{folder}').split('\0')
            if entry
        ]
        if odd := [name for about, name in listed if not about.startswith('100')]:
            raise SeriesError(
                f'The commit `{revision}` has what is no regular file in `{folder}`: '
                f'{quoted(odd)}. Only regular files go into the fork.',
                'Have the commit that adds it write a file in its place, then run the same command again.',
            )
        with tempfile.TemporaryFile() as asked:
            asked.write(''.join(f'{about.split()[2]}\n' for about, _ in listed).encode())
            asked.seek(0)
            done = self.attempt('cat-file', '--batch', stdin=asked)
        found: dict[str, bytes] = {}
        rest = memoryview(done.stdout)
        for _, name in listed:
            head, _, _ = bytes(rest[:100]).partition(b'\n')
            start, size = len(head) + 1, int(head.split()[2])
            found[name] = bytes(rest[start : start + size])
            rest = rest[start + size + 1 :]
        return found

    def has(self, revision: str) -> bool:
        """Say whether a revision names a commit here."""
        return self.attempt('rev-parse', '--quiet', '--verify', f'{revision}^{{commit}}').returncode == 0

    def holds(self, path: str) -> bool:
        """Say whether git keeps something under this path beside the commits, such as `MERGE_HEAD`."""
        return Path(self.run('rev-parse', '--path-format=absolute', '--git-path', path)).exists()

    def unlock(self) -> None:
        """Remove the locks of a git that was killed; no other may be at work here."""
        for stale in (*(self.folder / '.git').glob('*.lock'), *(self.folder / '.git' / 'refs').rglob('*.lock')):
            stale.unlink(missing_ok=True)

    def config(self, name: str) -> str:
        """Return a value of the repository's own configuration, or an empty string."""
        return self.attempt('config', '--local', '--get', name).stdout.decode('utf-8', 'replace').strip()


def words(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what git said, on both of its outputs."""
    said: Sequence[bytes] = (done.stdout, done.stderr)
    return '\n'.join(text for part in said if (text := trimmed(part.decode('utf-8', 'replace'))))
