"""Check that the folder that a wheel is built from holds what belongs there, and nothing that could change the build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import BuildFolderError
from pydantic_ai_slim.fork.line import PinnedLine

_SETTINGS = 'pyproject.toml'

_OTHERS = ('dist', '__pycache__')
"""What builders and interpreters make there, and no build reads."""


def check_folder(root: Path, licences: Sequence[str], line: PinnedLine) -> None:
    """Check the files of a build folder.

    A file that git doesn't track, or ignores, doesn't show in `git status`, and a `hatch.toml` takes the place of settings.

    Args:
        root: The folder with the `pyproject.toml`.
        licences: The names of the licences that go into the wheel.
        line: The line.

    Raises:
        BuildFolderError: A file is missing or doesn't belong there, or the licences aren't those that are pinned.
    """
    wanted = {_SETTINGS, *licences}
    names = {path.name for path in root.iterdir()} - set(_OTHERS)
    if names != wanted:
        faults = [f'- `{name}` does not belong there.' for name in sorted(names - wanted)]
        faults += [f'- `{name}` is missing.' for name in sorted(wanted - names)]
        raise BuildFolderError(
            f'The fork is not built from a folder that has other files than this repository. In `{root}`:\n'
            + '\n'.join(faults)
            + '\nMove away what does not belong there, restore what is missing with `git checkout -- pydantic_ai_slim`, and '
            'build again.'
        )
    digest = digest_files({name: (root / name).read_bytes() for name in licences})
    if digest != line.licences:
        raise BuildFolderError(
            f'The licences in `{root}`, {", ".join(f"`{name}`" for name in licences)}, are not those that '
            f'`{line.folder / "line.toml"}` is pinned to:\n'
            f'expected {line.licences}\n'
            f'found    {digest}\n'
            f'Restore them with `git checkout -- pydantic_ai_slim` and build again; if they are meant to be others, write that '
            f'digest into `line.toml` as `licences` first.'
        )
