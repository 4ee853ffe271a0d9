"""The base as an installer lays it out, and a checkout whose line has no patches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hook.checkout import LINE, Checkout, copy_checkout


@pytest.fixture(scope='session')
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base of `LINE` as an installer lays it out, without what it depends on."""
    folder = tmp_path_factory.mktemp('base')
    install = [sys.executable, '-m', 'uv', 'pip', 'install', '--quiet', '--python', sys.executable]
    subprocess.run([*install, '--no-deps', '--target', str(folder), f'pydantic-ai-slim==={LINE.base}'], check=True)
    return folder


@pytest.fixture
def checkout(tmp_path: Path, base: Path) -> Checkout:
    """What the build of `LINE` needs of this repository, without its patches."""
    made = Checkout(tmp_path / 'checkout', base)
    copy_checkout(made.folder)
    for listed in made.folder.glob('patches/*/series'):
        listed.write_text('')
    for patch in made.folder.rglob('*.patch'):
        patch.unlink()
    made.pin()
    return made
