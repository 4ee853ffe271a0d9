"""hatch makes the environments of `matrix`, with uv, from an interpreter and a list of requirements."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from series.environments import EnvironmentFailedError
from series.hatch import HatchEnvironment, HatchProject

NAME = '3.12-all-highest-base'


def wheel(folder: Path, text: str, metadata: str = '') -> str:
    folder.mkdir()
    path = folder / 'small-1-py3-none-any.whl'
    with zipfile.ZipFile(path, 'w') as content:
        content.writestr('small.py', f'print({text!r})\n')
        content.writestr('small-1.dist-info/METADATA', f'Metadata-Version: 2.1\nName: small\nVersion: 1\n{metadata}')
        content.writestr('small-1.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        content.writestr('small-1.dist-info/RECORD', '')
    return f'small @ {path.as_uri()}'


def project(folder: Path, *requirements: str) -> HatchProject:
    return HatchProject(folder, {NAME: HatchEnvironment(Path(sys.executable), requirements)})


def said(python: Path) -> str:
    return subprocess.run([python, '-c', 'import small'], capture_output=True, text=True, check=True).stdout.strip()


def test_hatch_makes_an_environment_once_and_anew_when_its_requirements_change(tmp_path: Path) -> None:
    first, second = wheel(tmp_path / 'first', 'one'), wheel(tmp_path / 'second', 'two')
    python = project(tmp_path / 'hatch', first).make(NAME)
    assert said(python) == 'one'
    (mark := python.parent / 'mark').touch()
    assert project(tmp_path / 'hatch', first).make(NAME) == python
    assert mark.exists()
    # The same name and version, from another file.
    assert said(project(tmp_path / 'hatch', second).make(NAME)) == 'two'
    assert not mark.exists()


def test_hatch_that_was_interrupted_makes_the_environment_anew(tmp_path: Path) -> None:
    made = project(tmp_path / 'hatch', wheel(tmp_path / 'first', 'one'))
    python = made.make(NAME)
    (tmp_path / 'hatch' / 'envs' / f'{NAME}.toml').unlink()
    (python.parents[1] / 'pyvenv.cfg').unlink()
    assert said(made.make(NAME)) == 'one'
    made.remove(NAME)
    assert not python.exists()


def test_hatch_installs_what_an_override_permits(tmp_path: Path) -> None:
    (tmp_path / 'overrides.in').write_text('no-such-package ; python_version < "3"\n')
    small = wheel(tmp_path / 'small', 'one', 'Requires-Dist: no-such-package>=1\n')
    environments = {NAME: HatchEnvironment(Path(sys.executable), [small])}
    assert said(HatchProject(tmp_path / 'hatch', environments, tmp_path / 'overrides.in').make(NAME)) == 'one'


def test_hatch_that_cannot_make_an_environment_says_why(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailedError) as error:
        project(tmp_path / 'hatch', 'small==2').make(NAME)
    assert f'`hatch env create {NAME}` failed' in error.value.problem
    assert 'small' in error.value.words
