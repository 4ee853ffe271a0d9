"""What the hooks do: the whole of a build, in its order."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_ai_slim.fork.base import find_base
from pydantic_ai_slim.fork.errors import ForkError, UnsupportedBuildError
from pydantic_ai_slim.fork.folder import check_folder
from pydantic_ai_slim.fork.line import line_of
from pydantic_ai_slim.fork.metadata import fork_metadata
from pydantic_ai_slim.fork.names import UPSTREAM_FOLDER
from pydantic_ai_slim.fork.package import check_package
from pydantic_ai_slim.fork.patches import apply_patches, write_package


@contextmanager
def clear_message() -> Generator[None]:
    """End the build with the message of a `ForkError` alone, since a traceback would bury it."""
    try:
        yield
    except ForkError as error:
        sys.exit(f'{type(error).__name__}: {error}')


def fill_in(fields: dict[str, Any], root: Path) -> None:
    """Fill in what a `pyproject.toml` declares as dynamic, from the base's own metadata.

    Args:
        fields: Its table `[project]`, which is changed.
        root: The folder that it is in.

    Raises:
        ForkError: The fork can't be built.
    """
    check_hooks()
    line = line_of(root)
    check_folder(root, fields['license-files'], line)
    found = fork_metadata(find_base(line).distribution, line)
    fields.update((field, found[field]) for field in fields['dynamic'])
    # hatchling takes the names for patterns, and with them the path of the folder, which may have brackets.
    fields['license-files'] = [glob.escape(str(root.resolve() / name)) for name in fields['license-files']]


def lay_out(root: Path, target: str, version: str, tree: Path) -> dict[str, str]:
    """Make the files of the wheel.

    Args:
        root: The folder with the `pyproject.toml`.
        target: As for `check_build()`.
        version: Likewise.
        tree: An empty folder, where they are made.

    Returns:
        Where in the wheel each of them goes, by its path.

    Raises:
        ForkError: The fork can't be built.
    """
    check_build(target, version)
    line = line_of(root)
    write_package(find_base(line).files, tree)
    apply_patches(line.patches, tree)
    # One by one, since hatchling would leave some names out of a folder.
    return {str(path): path.relative_to(tree / UPSTREAM_FOLDER).as_posix() for path in check_package(line, tree)}


def check_hooks() -> None:
    """Check that the build hook will run: without it, the wheel would be that of the fork and have nothing in it.

    Raises:
        UnsupportedBuildError: It is switched off.
    """
    if os.environ.get('HATCH_BUILD_NO_HOOKS') in ('true', '1'):
        raise UnsupportedBuildError(
            'The fork cannot be built without hooks, since a hook applies the patches. Unset the environment variable '
            '`HATCH_BUILD_NO_HOOKS`, or leave the option for that out, and build again.'
        )


def check_build(target: str, version: str) -> None:
    """Check that what is to be built is a wheel to install.

    Args:
        target: What hatchling builds: `wheel` or `sdist`.
        version: The kind of wheel: `standard` or `editable`.

    Raises:
        UnsupportedBuildError: It is something else.
    """
    if target == 'sdist':
        raise UnsupportedBuildError(
            'The fork has no source distribution: it is made of the installed base and of the patches in a checkout of its '
            'repository, and a source distribution would hold neither. Build a wheel in the checkout instead, with '
            '`make build`, `uv build --wheel` or `python -m build --wheel`.'
        )
    if version != 'standard':
        raise UnsupportedBuildError(
            'The fork has no editable installation: its source is made from the base and the patches at every build. '
            'Install it without `--editable`; to change it, edit the tree that `make apply` makes.'
        )
