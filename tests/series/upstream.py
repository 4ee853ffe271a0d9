"""A small upstream, a line on it, and a user of its tree."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ParamSpec

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from pydantic_ai_slim.fork.base import content_digest
from pydantic_ai_slim.fork.digests import digest_files
from series.errors import SeriesError
from series.index import Release
from series.line import Line, find_line, line_names
from series.verbs.apply import apply
from series.verbs.extract import extract

P = ParamSpec('P')
ROOT = Path(__file__).parents[2]
BASE = '1.0.0'
BUILD = ROOT / 'pydantic_ai_slim' / line_names(ROOT)[-1]
"""A build folder of this repository."""

PACKAGE = {
    'pydantic_ai/__init__.py': 'from .tools import add\n\n__all__ = ("add",)\n',
    'pydantic_ai/tools.py': 'def add(a: int, b: int) -> int:\n    return a + b\n\n\ndef name() -> str:\n    return "tools"\n',
    'pydantic_ai/py.typed': '',
}
INFO = {
    'METADATA': f"""\
Metadata-Version: 2.4
Name: pydantic-ai-slim
Version: {BASE}
Summary: A small upstream
Project-URL: Homepage, https://example.com
Author-email: "A. Author" <author@example.com>
License-Expression: MIT
License-File: LICENSE
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.10
Requires-Dist: httpx>=0.27
Provides-Extra: cli
Requires-Dist: rich>=13; extra == 'cli'
Description-Content-Type: text/markdown

A small upstream.
""",
    'WHEEL': 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    'entry_points.txt': '[console_scripts]\npai = pydantic_ai:add\n',
    'licenses/LICENSE': 'The licence\n',
}
ARCHIVE = {
    'PKG-INFO': 'Metadata-Version: 2.4\nName: pydantic-ai\nVersion: 0.9.0\n',
    '.gitignore': '__pycache__\n/notes/\n',
    'LICENSE': 'The licence\n',
    'README.md': 'Not for the tree\n',
    'pyproject.toml': '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'
    '[project]\nname = "pydantic-ai"\nversion = "0.9.0"\n\n'
    '[tool.hatch.build.targets.wheel]\nbypass-selection = true\n\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n\n'
    '[tool.ruff.lint]\npreview = true\nexplicit-preview-rules = true\nselect = ["F841"]\n[tool.ruff.format]\nexclude = ["*"]\n',
}

LATER = PACKAGE | {
    'pydantic_ai/tools.py': PACKAGE['pydantic_ai/tools.py'].replace('def name', 'def label'),
    'pydantic_ai/double.py': 'def double(a: int) -> int:\n    return 2 * a\n',
}
"""The package of the releases after the base."""

PUBLISHED = {
    'pydantic_ai-0.9.0.tar.gz': '2025-01-20T10:00:00Z',
    f'pydantic_ai_slim-{BASE}-py3-none-any.whl': '2025-01-31T10:00:00Z',
    # The day of UTC is what counts.
    'pydantic_ai_slim-1.1.0-py3-none-any.whl': '2025-02-10T23:30:00Z',
    'pydantic_ai-1.1.0.tar.gz': '2025-02-10T23:31:00Z',
    'pydantic_ai_slim-2.0.0-py3-none-any.whl': '2025-09-01T10:00:00Z',
    'pydantic_ai_slim-2.1.0b1-py3-none-any.whl': '2025-10-01T10:00:00Z',
}
"""What an index says of the files of `write_releases()`."""


def write_releases(folder: Path) -> None:
    """Write what upstream has released, as pip takes it with `--find-links`: wheels, and archives with settings."""
    write_wheel(folder, BASE, PACKAGE)
    write_wheel(
        folder, '1.1.0', LATER, 'Classifier: Programming Language :: Python :: 3.12\nRequires-Dist: anyio>=4,<5\n'
    )
    write_wheel(folder, '2.0.0', LATER)
    write_wheel(folder, '2.1.0b1', LATER)
    write_archive(folder, '0.9.0', ARCHIVE)
    write_archive(folder, '1.1.0', ARCHIVE)


def write_wheel(folder: Path, version: str, package: dict[str, str], metadata: str = '') -> None:
    """Write a wheel of the base with a package; what there is more of metadata begins with the Python versions."""
    own = INFO['METADATA'].replace(f'Version: {BASE}', f'Version: {version}')
    pythons = 'Classifier: Programming Language :: Python :: 3.11\n' + metadata
    info = INFO | {'METADATA': own.replace('Requires-Python', f'{pythons}Requires-Python')}
    files = package | {f'pydantic_ai_slim-{version}.dist-info/{name}': text for name, text in info.items()}
    if version == BASE:
        files[f'pydantic_ai_slim-{BASE}.dist-info/METADATA'] = INFO['METADATA']
    files[f'pydantic_ai_slim-{version}.dist-info/RECORD'] = ''.join(f'{name},,\n' for name in files)
    with zipfile.ZipFile(folder / f'pydantic_ai_slim-{version}-py3-none-any.whl', 'w') as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def write_archive(folder: Path, version: str, files: dict[str, str]) -> None:
    """Write a source archive of the distribution that upstream's repository has in its root."""
    with tarfile.open(folder / f'pydantic_ai-{version}.tar.gz', 'w:gz') as archive:
        for name, text in files.items():
            text = text.replace('0.9.0', version)
            member = tarfile.TarInfo(f'pydantic_ai-{version}/{name}')
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def find_release(releases: Path, requirement: str) -> Release:
    """Answer as the index does, from a folder with the releases."""
    wanted = Requirement(requirement)
    name = wanted.name.replace('-', '_')
    found = {Version(path.name.split('-')[1].removesuffix('.tar.gz')): path.name for path in releases.glob(f'{name}-*')}
    newest = max(wanted.specifier.filter(found))
    path = releases / f'{name}-{newest}.tar.gz'
    return Release(
        wanted.name,
        newest,
        date.fromisoformat(PUBLISHED[found[newest]][:10]),
        *((str(path), f'sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}') if path.exists() else ()),
    )


def fetch(releases: Path, folder: Path, requirement: str, *options: str) -> Path:
    """Find a release in a folder, as pip downloads it."""
    package, _, version = requirement.partition('===')
    (path,) = releases.glob(f'{package.replace("-", "_")}-{version}[-.]*')
    return path


class Index(ThreadingHTTPServer):
    """A package index on this machine, with the files of a folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(('127.0.0.1', 0), _IndexHandler)
        self.folder = folder
        self.tells = True
        """Whether it says when a file was uploaded."""
        self.url = f'http://127.0.0.1:{self.server_port}/simple/'

    def page(self, project: str) -> str | None:
        """Return the page of a project, if there is one."""
        name = project.replace('-', '_')
        files = [path for path in sorted(self.folder.iterdir()) if path.name.startswith(f'{name}-')]
        listed: list[dict[str, Any]] = [
            {
                'filename': path.name,
                'url': f'../../{path.name}',
                'hashes': {'sha256': hashlib.sha256(path.read_bytes()).hexdigest()},
            }
            | ({'upload-time': PUBLISHED[path.name]} if self.tells and path.name in PUBLISHED else {})
            for path in files
        ]
        page: dict[str, Any] = {'meta': {'api-version': '1.1'}, 'name': project, 'files': listed, 'versions': []}
        return json.dumps(page) if files else None


class _IndexHandler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Index)
        if not self.path.startswith('/simple/'):
            self.directory = str(self.server.folder)
            super().do_GET()
            return
        page = self.server.page(self.path.split('/')[2])
        self.send_response(200 if page else 404)
        self.send_header('Content-Type', 'application/vnd.pypi.simple.v1+json')
        self.end_headers()
        self.wfile.write((page or '').encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def write_line(root: Path, releases: Path, unpacked: Path) -> Line:
    """Write the `line.toml` of a line without patches."""
    folder = root / 'patches' / BASE
    folder.mkdir(parents=True)
    (folder / 'line.toml').write_text(
        f"""\
base = "{BASE}"
released = 2025-01-31
number = 1
digest = "{content_digest(unpacked)}"
licences = "{digest_files({path.name: path.read_bytes() for path in BUILD.glob('LICENSE*')})}"
python = ["3.12"]

[settings]
package = "pydantic-ai"
version = "0.9.0"
digest = "sha256:{hashlib.sha256((releases / 'pydantic_ai-0.9.0.tar.gz').read_bytes()).hexdigest()}"

[caps]
"""
    )
    return find_line(root)


@dataclass
class User:
    """Someone who works in a tree, with git as it is configured for them."""

    tree: Path

    def git(self, *arguments: str) -> str:
        """Run git in the tree and return what it prints; it must succeed."""
        done = subprocess.run(['git', *arguments], cwd=self.tree, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def commit(self, message: str, files: Mapping[str, str | bytes]) -> None:
        """Write files and commit them."""
        for name, content in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git('add', '--all')
        self.git('commit', '--quiet', '--message', message)

    def subjects(self) -> list[str]:
        """Return the subjects of the tree's commits, without the base's."""
        return self.git('log', '--reverse', '--format=%s', 'refs/series/base..HEAD').splitlines()


def write_series(line: Line, *commits: tuple[str, Mapping[str, str | bytes]]) -> Line:
    """Make the tree of a line, commit to it, extract that, and return the line as it is then."""
    apply(line, quiet)
    for message, files in commits:
        User(line.tree).commit(message, files)
    extract(line, quiet)
    return find_line(line.root, line.name)


def set_author(patch: pytest.MonkeyPatch) -> None:
    """Have git commit as this author, at this time."""
    for name, value in {'NAME': 'A. Author', 'EMAIL': 'author@example.com', 'DATE': '2025-02-01T12:00:00+0100'}.items():
        patch.setenv(f'GIT_AUTHOR_{name}', value)
        patch.setenv(f'GIT_COMMITTER_{name}', value)


def write_build_folder(line: Line) -> None:
    """Write what else a line has that can be rebased: its build folder, the licence and a changelog."""
    (build := line.root / 'pydantic_ai_slim' / line.name).mkdir(parents=True)
    text = (BUILD / 'pyproject.toml').read_text()
    (build / 'pyproject.toml').write_text(text.replace(BUILD.name, line.base))
    (line.root / 'LICENSE').write_text('Ours\n')
    (line.root / 'CHANGELOG.md').write_text('# Changelog\n\n## 1.0.0\n\n### 1.0.0+lifecycle.1\n\n- One.\n')


def write_later_line(line: Line, releases: Path, folder: Path) -> Line:
    """Write the pins of a line on the next release; what is unpacked for that goes to a folder."""
    with zipfile.ZipFile(releases / 'pydantic_ai_slim-1.1.0-py3-none-any.whl') as wheel:
        wheel.extractall(folder)
    pins = (line.folder / 'line.toml').read_text().replace('base = "1.0.0"', 'base = "1.1.0"')
    (made := line.folder.with_name('1.1.0')).mkdir()
    (made / 'line.toml').write_text(pins.replace(line.digest, content_digest(folder)))
    return find_line(line.root, '1.1.0')


def drop_patch(patch: Path) -> None:
    """Delete a patch and its line in the list."""
    listed = patch.parent.parent / 'series'
    listed.write_text(listed.read_text().replace(f'{patch.parent.name}/{patch.name}\n', ''))
    patch.unlink()


def commit_patches(line: Line) -> None:
    """Commit the patches to the repository that the line's checkout is, which is made if it is none."""
    repository = User(line.root)
    repository.git('init', '--quiet')
    repository.git('add', '--all', 'patches')
    repository.git('commit', '--quiet', '--message', 'Change the patches')


def quiet(step: str, done: int = 0, of: int | None = None) -> None:
    """Report nothing."""


def refusal(verb: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> str:
    """Return what a verb says when it refuses."""
    with pytest.raises(SeriesError) as error:
        verb(*arguments, **options)
    return str(error.value)


def start(line: Line, *command: str) -> subprocess.Popen[str]:
    """Start Python in the root of a line's checkout, with the tool on its path."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=line.root,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
