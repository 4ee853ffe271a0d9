"""What the build needs of this repository, in a folder of its own, with patches of a test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic_ai_slim.fork.line import load_line
from pydantic_ai_slim.fork.package import package_digest
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from series.line import pin_patched

ROOT = Path(__file__).parents[2]
LINES = [load_line(path.parent) for path in sorted(ROOT.glob('patches/*/line.toml'))]
LINE = LINES[-1]
FOLDER = f'pydantic_ai_slim/{LINE.base}'
"""The build folder of `LINE`."""

SOURCE = 'pydantic_ai_slim/pydantic_ai/_utils.py'
"""A file of the base that the tests patch, as upstream's repository has it."""

TESTS = {'tests/test_existing.py': 'def test_existing(): ...\n'}
"""What upstream's repository has that the base has not, and the build does without."""


def copy_checkout(folder: Path) -> None:
    """Copy what the build needs of this repository, as it is now."""
    for part in ('patches', 'pydantic_ai_slim'):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns('__pycache__'))


def add_patch(patches: Path, name: str, text: bytes) -> Path:
    """Write a patch, and list it last."""
    patch = patches / name
    patch.parent.mkdir(exist_ok=True)
    patch.write_bytes(text)
    with (patches / 'series').open('a') as listed:
        listed.write(f'# A comment\n\n{name}\n')
    return patch


def append(text: str) -> Callable[[str], str]:
    return lambda before: before + text


@dataclass
class Checkout:
    """What the build of `LINE` needs of this repository, and the base that it is built with."""

    folder: Path
    base: Path
    """What an installer has made of the base, without what that depends on."""

    @property
    def patches(self) -> Path:
        return self.folder / 'patches' / LINE.base

    @property
    def pins(self) -> Path:
        return self.patches / 'line.toml'

    @property
    def out(self) -> Path:
        return self.folder.parent / 'out'

    @property
    def project(self) -> Path:
        return self.folder / FOLDER

    def pin(self) -> None:
        """Pin what the patches make of the base, as `make extract` does."""
        with tempfile.TemporaryDirectory() as tree:
            copy_package(self.base, Path(tree))
            apply_patches(load_line(self.patches).patches, Path(tree))
            self.pins.write_text(pin_patched(self.pins.read_text(), package_digest(Path(tree))))

    def write_patch(self, name: str, changes: Mapping[str, Callable[[str], str]]) -> Path:
        """Write a patch that changes files of upstream's repository.

        Args:
            name: Its path, which is listed last.
            changes: What becomes of the text of each file, by its path in upstream's repository; new files start empty.
        """
        with tempfile.TemporaryDirectory() as folder:
            for path, change in changes.items():
                file = self.base / path.removeprefix('pydantic_ai_slim/')
                before = file.read_text() if file.exists() else TESTS.get(path, '')
                for side, text in (('a', before), ('b', change(before))):
                    (written := Path(folder) / side / path).parent.mkdir(parents=True, exist_ok=True)
                    if text:
                        written.write_text(text, newline='')
            command = ['git', '-c', 'core.autocrlf=false', 'diff', '--no-index', '--no-prefix', '--full-index']
            diff = subprocess.run([*command, 'a', 'b'], cwd=folder, stdout=subprocess.PIPE, check=False).stdout
        return add_patch(self.patches, name, b'Subject: [PATCH] Change something\n\nThe reason.\n---\n\n' + diff)

    def build(self, backend: str = 'build_wheel', **variables: str) -> subprocess.CompletedProcess[str]:
        """Build with hatchling."""
        self.out.mkdir()
        return subprocess.run(
            [sys.executable, '-c', f'import hatchling.build, sys; hatchling.build.{backend}(sys.argv[1])', self.out],
            cwd=self.project,
            env=os.environ | {'PYTHONPATH': str(self.base)} | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def build_wheel(self, **variables: str) -> Path:
        """Pin the patches, and build a wheel."""
        self.pin()
        done = self.build(**variables)
        assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
        (wheel,) = self.out.iterdir()
        assert wheel.name == f'pydantic_ai_slim-{LINE.version}-py3-none-any.whl'
        return wheel

    def build_and_unpack(self, **variables: str) -> Path:
        """Build a wheel, and return the folder that it unpacks to."""
        with zipfile.ZipFile(self.build_wheel(**variables)) as archive:
            archive.extractall(unpacked := self.out / 'unpacked')
        return unpacked

    def assert_refused(self, message: str, backend: str = 'build_wheel', **variables: str) -> None:
        """Assert that a build says this and nothing else, and that nothing comes out of it."""
        done = self.build(backend, **variables)
        assert (done.stderr, done.stdout, done.returncode) == (f'{message}\n', '', 1)
        assert list(self.out.iterdir()) == []
