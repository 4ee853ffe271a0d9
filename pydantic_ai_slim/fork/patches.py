"""Apply the patches to the package."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pydantic_ai_slim.fork.base import base_files
from pydantic_ai_slim.fork.errors import GitMissingError, PatchError
from pydantic_ai_slim.fork.line import patch_name
from pydantic_ai_slim.fork.names import PACKAGE, PACKAGE_PATH, UPSTREAM_FOLDER


def copy_package(source: Path, tree: Path) -> None:
    """Copy the base's package into a folder, in the layout of upstream's repository.

    Args:
        source: As `folder` of `base_files()`.
        tree: An existing folder, which gets `pydantic_ai_slim/pydantic_ai/…`.
    """
    write_package({name: path.read_bytes() for name, path in base_files(source).items()}, tree)


def write_package(files: Mapping[str, bytes], tree: Path) -> None:
    """Write the base's package into a folder, in the layout of upstream's repository.

    Args:
        files: As `Base.files`; all but the package is left out.
        tree: As for `copy_package()`.
    """
    for name, content in files.items():
        if name.startswith(f'{PACKAGE}/'):
            target = tree / UPSTREAM_FOLDER / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def apply_patches(patches: Iterable[Path], tree: Path) -> None:
    """Apply what patches change in the package; their tests and docs are left out.

    Args:
        patches: The patch files, in order.
        tree: A folder with what `copy_package()` made. It is changed even if a later patch fails.

    Raises:
        GitMissingError: `git` isn't there or doesn't start.
        PatchError: A patch doesn't apply, reads from outside of the package, or makes something else than a file.
    """
    git = shutil.which('git')
    if git is None:
        raise GitMissingError(
            'The fork is built by applying patches with `git`, but there is no `git` on the `PATH`. Install git, for '
            'example with `apt install git` or `brew install git`, and build again.'
        )
    for patch in patches:
        if faults := list(patch_faults(patch)):
            listed = '\n'.join(f'- {fault}' for fault in faults)
            raise PatchError(
                f'The patch `{patch_name(patch)}` takes more than files of the package:\n{listed}\nOnly files below `{PACKAGE_PATH}` '
                f'go into the fork. {_restore(patch.parent.parent.name)}',
                patch,
                '',
            )
        # `--include` leaves out tests and docs, which the wheel doesn't ship. `--whitespace=nowarn` beats a user's setting.
        command = [git, 'apply', '--whitespace=nowarn', f'--include={PACKAGE_PATH}/*', str(patch.resolve())]
        done = subprocess.run(command, cwd=tree, env=_git_environment(tree), capture_output=True, check=False)
        if done.returncode:
            output = (done.stdout + done.stderr).decode(errors='replace').strip()
            line = patch.parent.parent.name
            raise PatchError(
                f'The patch `{patch_name(patch)}` does not apply to {line} with the patches before it. {_restore(line)} git '
                f'said:\n{output}',
                patch,
                output,
            )


def patch_faults(patch: Path) -> Iterator[str]:
    """Say what in a patch reads from outside of the package, or makes something else than a file there.

    git looks where a patch writes to, not where it copies from. What a patch does outside of the package is left out of the
    fork, but a path that leads out of the tree is a fault everywhere.
    """
    text = patch.read_text('utf-8', 'surrogateescape')
    for part in re.split(r'^diff --git ', text, flags=re.MULTILINE)[1:]:
        header = re.split(r'^(?:@@ |GIT binary patch)', part, maxsplit=1, flags=re.MULTILINE)[0]
        sources, targets = (
            [_unquoted(name) for name in re.findall(rf'^(?:copy|rename) {which} (.+)$', header, re.MULTILINE)]
            for which in ('from', 'to')
        )
        inside = PACKAGE_PATH in header.partition('\n')[0] or any(_is_inside(name) for name in targets)
        for name in sources:
            path = PurePosixPath(name)
            if path.is_absolute() or '..' in path.parts:
                yield f'It reads {name!r}, which is outside of the tree.'
            elif inside and not _is_inside(name):
                yield f'It makes {", ".join(map(repr, targets))} of {name!r}, which is outside of the package.'
        for mode in re.findall(r'^(?:new file mode|new mode) (\d+)\s*$', header, re.MULTILINE) if inside else ():
            if not stat.S_ISREG(int(mode, 8)):
                yield f'It makes something else than a regular file, of mode {mode}: `{header.partition(chr(10))[0]}`.'


def _unquoted(name: str) -> str:
    """Return a path as git reads it, as far as it is ASCII: in quotes, a character can be an octal number."""
    name = name.rstrip('\r')
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name
    return re.sub(r'\\([0-7]{3})', lambda octal: chr(int(octal[1], 8)), name[1:-1])


def _is_inside(name: str) -> bool:
    return name.startswith(f'{PACKAGE_PATH}/')


def _restore(line: str) -> str:
    """Say what to do about a wrong patch."""
    return (
        f'If `patches/{line}` was edited by hand, put that away with `git stash push --include-untracked -- patches/{line}`; if '
        f'the patch is to change, change its commit in the tree of `make apply LINE={line}` and run `make extract LINE={line}`. '
        f'Then build again.'
    )


def _git_environment(tree: Path) -> dict[str, str]:
    """Make an environment in which git sees no repository and no configuration.

    Inside a work tree `git apply` silently skips what lies outside of it, and settings such as `core.autocrlf` or
    `apply.whitespace` would change what it writes.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith('GIT_')}
    return environment | {
        # A repository that isn't there is the only one that git looks for then. A limit to its search would be a list of
        # folders with colons between them, in which one with a colon in its path can't stand.
        'GIT_DIR': str(tree.resolve() / 'no-repository'),
        'GIT_CONFIG_GLOBAL': os.devnull,
        'GIT_CONFIG_SYSTEM': os.devnull,
        'GIT_CONFIG_NOSYSTEM': '1',
        'GIT_ATTR_NOSYSTEM': '1',
        'HOME': str(tree.resolve()),  # git before 2.32 does not know `GIT_CONFIG_GLOBAL`
        'XDG_CONFIG_HOME': str(tree.resolve()),
        'LC_ALL': 'C',
    }
