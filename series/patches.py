"""Write commits as patches, the same on every machine."""

from __future__ import annotations

import os
from pathlib import Path

from series import tree
from series.git import Git

_FORMAT_PATCH = (
    # The tree's own configuration is the user's to change, so every setting that shows in a patch is beaten here.
    *('-c', 'diff.suppressBlankEmpty=false', '-c', 'core.quotePath=true', '-c', 'i18n.logOutputEncoding=UTF-8'),
    # How binary content is compressed.
    *('-c', 'core.compression=-1'),
    *('-c', 'format.mboxrd=false', '-c', 'format.forceInBodyFrom=false', '-c', 'diff.statGraphWidth=0'),
    'format-patch',
    '--quiet',
    '--keep-subject',
    '--zero-commit',
    # It is the version of git.
    '--no-signature',
    # Abbreviations grow with the number of objects in the repository.
    '--full-index',
    # Three dashes end the message only where a summary of the files follows; without them it can't hold `diff`.
    *('--patch', '--stat=72', '--summary', '--binary'),
    # A moved file takes a few lines, not all of upstream's text.
    *('--find-renames=50%', '-l0', '--diff-algorithm=myers', '--indent-heuristic', f'-O{os.devnull}'),
    *('--unified=3', '--inter-hunk-context=0', '--src-prefix=a/', '--dst-prefix=b/', '--submodule=short'),
    *('--no-relative', '--no-ext-diff', '--no-textconv', '--no-color', '--no-notes', '--no-base', '--no-attach'),
    *('--no-thread', '--no-cover-letter', '--no-numbered', '--no-signoff', '--encode-email-headers'),
    *('--no-add-header', '--no-to', '--no-cc', '--no-from', '--no-in-reply-to'),
    *('--start-number=1', '--suffix=.patch', '--filename-max-length=64'),
)


def write_patches(git: Git, folder: Path, commits: str = f'{tree.BASE}..HEAD') -> list[Path]:
    """Write commits of a tree as patches into a new folder, and return them in order.

    Args:
        git: The tree.
        folder: The folder.
        commits: The commits, as git names a range; by default the series.
    """
    git.run(*_FORMAT_PATCH, '--output-directory', str(folder), commits)
    return sorted(folder.glob('*.patch'))
