"""Keep what a verb that stops at a conflict needs to go on, in the tree where the conflict waits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from series.errors import ApplyError
from series.folders import write
from series.git import Git
from series.line import Line
from series.merge import left_marks, remedy
from series.message import read_message

LEFT = 'refs/series/left'
"""What was in the work tree when a verb was killed, before the patch that waits was begun anew."""


@dataclass(frozen=True)
class UnderWay:
    """A verb that is under way in the tree of a line."""

    FOLDER: ClassVar[Path]
    """Where in the tree all that is kept of it is."""
    FILE: ClassVar[str]
    """What in there makes it one that is under way."""
    GO_ON: ClassVar[str]
    """What to run after a conflict is resolved, or instead."""

    line: Line
    """The line of the tree."""

    @classmethod
    def is_in(cls, tree: Path) -> bool:
        """Say whether it is under way in a tree."""
        return (tree / cls.FOLDER / cls.FILE).exists()

    @classmethod
    def kept_in(cls, tree: Path) -> dict[str, Any]:
        """Read what is kept in a tree."""
        return json.loads((tree / cls.FOLDER / cls.FILE).read_text('utf-8'))

    @property
    def folder(self) -> Path:
        """The folder with all that is kept."""
        return self.line.tree / self.FOLDER

    @property
    def git(self) -> Git:
        """The tree."""
        return Git(self.line.tree)

    def keep(self, **changes: Any) -> None:
        """Keep something with the rest, or in place of what was kept under the same name."""
        write(self.folder / self.FILE, json.dumps(self.kept_in(self.line.tree) | changes))

    def end(self) -> None:
        """Remove all that is kept; what is left of it when this is interrupted doesn't count as under way."""
        (self.folder / self.FILE).unlink()
        shutil.rmtree(self.folder)

    def remedy(self, places: Collection[str]) -> str:
        """Say how to go on with a patch that waits, with conflict marks in these places."""
        return remedy(self.line, self.GO_ON, places)

    def refuse_marks(self, what: str, mail: Path, patch: Path) -> None:
        """Refuse to commit what still has the conflict marks that git put there.

        Args:
            what: The patch that waits, in the words of the error.
            mail: The mail that it is applied from.
            patch: Its file.

        Raises:
            ApplyError: It has some.
        """
        marks = left_marks(self.git, ['--cached', 'HEAD'], read_message(mail).subject, [mail], '=======')
        if marks:
            raise ApplyError(
                f'{what} waits in `{self.line.show(self.line.tree)}`, and what is added for it still has conflict marks.',
                self.remedy(marks),
                '\n'.join(marks),
                patch=patch,
                files=sorted(mark.rpartition(':')[0] for mark in marks),
            )
