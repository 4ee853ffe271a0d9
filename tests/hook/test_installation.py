"""The fork is built and installed with the real base, and nothing that depends on the base replaces it.

`tests/pinning` does what users do, who pin it to a commit or to a wheel on an index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from pydantic_ai_slim.fork.base import base_files
from pydantic_ai_slim.fork.digests import digest_files
from series.build import build
from series.environments import find_python
from series.line import find_lines, pin_patched
from series.verbs.release import interpreters, release
from tests.hook.checkout import FOLDER, LINE, ROOT, add_patch, copy_checkout
from tests.series.upstream import quiet

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what the build needs of this one, as it is now."""
    folder = tmp_path_factory.mktemp('repository')
    copy_checkout(folder)
    commit(folder)
    return folder


@pytest.fixture(scope='module')
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('wheel')
    run('uv', 'build', '--quiet', '--wheel', '--out-dir', str(folder), str(repository / FOLDER))
    (path,) = folder.glob('*.whl')
    return path


def commit(folder: Path) -> None:
    identity = ['-c', 'user.name=A. Author', '-c', 'user.email=author@example.com', '-c', 'commit.gpgsign=false']
    for command in (['init', '--quiet'], ['add', '.'], ['commit', '--quiet', '--message=state']):
        subprocess.run(['git', *identity, *command], cwd=folder, check=True)


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip or uv and return what came of it; it must succeed."""
    command = [sys.executable, '-m', module, *arguments]
    # Compiling what a build needs takes longer than building.
    variables = os.environ | {'PIP_NO_COMPILE': '1'}
    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


class Environment:
    """A new environment, into which `installer` installs."""

    def __init__(self, folder: Path, installer: str) -> None:
        self.folder = folder
        self.installer = installer
        self.python = folder / 'bin' / 'python'
        run('uv', 'venv', '--quiet', '--no-project', '--python', sys.executable, str(folder))

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if self.installer == 'uv':
            return run('uv', 'pip', 'install', '--python', str(self.python), *arguments)
        return run('pip', '--python', str(self.python), 'install', '--disable-pip-version-check', *arguments)

    def call(self, code: str) -> str:
        """Run code in it, from its own folder, so that no source folder is on the path."""
        done = subprocess.run(
            [str(self.python), '-I', '-c', code], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def version(self) -> str:
        return self.call('import importlib.metadata; print(importlib.metadata.version("pydantic-ai-slim"))')


def test_build_constraints_refuse_another_file_of_the_builder_s(repository: Path, tmp_path: Path) -> None:
    listed = ROOT / 'requirements' / f'build-{LINE.base}.txt'
    environment = Environment(tmp_path / 'environment', 'uv')
    environment.install('--no-deps', '--no-cache', '--build-constraint', str(listed), str(repository / FOLDER))
    assert environment.version() == LINE.version
    changed = tmp_path / 'changed.txt'
    changed.write_text(
        re.sub(
            r'(?s)(pluggy==.*?)(?=\n\w)', lambda pin: re.sub('sha256:....', 'sha256:0000', pin[1]), listed.read_text()
        )
    )
    with pytest.raises(AssertionError, match='Hash mismatch for `pluggy=='):
        environment.install(
            '--no-deps', '--no-cache', '--reinstall', '--build-constraint', str(changed), str(repository / FOLDER)
        )


def test_fork_imports_with_the_newest_dependencies_and_stays_beside_what_depends_on_the_base(
    wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / 'environment', 'uv')
    environment.install(str(wheel))
    code = 'import pydantic_ai; from pydantic_ai.models.test import TestModel as M; print('
    assert environment.call(f'{code}pydantic_ai.Agent(M()).run_sync("hi").output)') == 'success (no tool calls)'

    dependent = tmp_path / 'dependent-1-py3-none-any.whl'
    with ZipFile(dependent, 'w') as archive:
        metadata = f'Metadata-Version: 2.1\nName: dependent\nVersion: 1\nRequires-Dist: pydantic-ai-slim=={LINE.base}\n'
        archive.writestr('dependent-1.dist-info/METADATA', metadata)
        archive.writestr(
            'dependent-1.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n'
        )
        archive.writestr('dependent-1.dist-info/RECORD', '')
    for installer in ('uv', 'pip'):
        environment.installer = installer
        environment.install('--reinstall' if installer == 'uv' else '--force-reinstall', '--no-deps', str(dependent))
        environment.install(str(dependent))
        assert environment.version() == LINE.version


def test_change_of_a_patch_is_not_hidden_by_the_cache_of_uv(repository: Path, tmp_path: Path) -> None:
    checkout = tmp_path / 'checkout'
    shutil.copytree(repository, checkout)
    environment = Environment(tmp_path / 'environment', 'uv')
    # A folder on the command line is built each time; one that is required somewhere, when its `cache-keys` say so.
    (tmp_path / 'requirements.txt').write_text(f'pydantic-ai-slim @ {(checkout / FOLDER).as_uri()}\n')
    install = ['--no-deps', '--requirement', str(tmp_path / 'requirements.txt')]
    environment.install(*install)
    assert 'Building' not in environment.install(*install).stderr
    add_patch(
        checkout / 'patches' / LINE.base,
        'fixes/added.patch',
        b'Subject: [PATCH] Add a module\n\n'
        b'diff --git a/pydantic_ai_slim/pydantic_ai/added.py b/pydantic_ai_slim/pydantic_ai/added.py\n'
        b'new file mode 100644\n--- /dev/null\n+++ b/pydantic_ai_slim/pydantic_ai/added.py\n@@ -0,0 +1 @@\n+added = True\n',
    )
    # As `make extract` pins it.
    (package,) = environment.folder.rglob('site-packages/pydantic_ai')
    files = {name: path.read_bytes() for name, path in base_files(package.parent).items() if '.dist-info/' not in name}
    pins = checkout / 'patches' / LINE.base / 'line.toml'
    digest = digest_files(files | {'pydantic_ai/added.py': b'added = True\n'})
    pins.write_text(pin_patched(pins.read_text(), digest))
    environment.install(*install)
    assert list(environment.folder.rglob('pydantic_ai/added.py'))


def test_fork_on_an_index_does_not_become_its_own_base(wheel: Path, repository: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    # `==BASE` would take the fork's wheel from there.
    build = 'build', '--quiet', '--wheel', '--out-dir', str(out), '--find-links', str(wheel.parent)
    run('uv', *build, str(repository / FOLDER))
    assert [path.name for path in out.glob('*.whl')] == [wheel.name]


def test_release_has_the_wheels_that_build_makes_with_whichever_interpreter(repository: Path, tmp_path: Path) -> None:
    checkout = tmp_path / 'checkout'
    shutil.copytree(repository, checkout)
    lines = find_lines(checkout)
    entries = '\n'.join(f'### {line.version}\n\n- Something.\n' for line in lines)
    (checkout / 'CHANGELOG.md').write_text(f'# Changelog\n\n{entries}')
    (checkout / '.gitignore').write_text('/dist/\n')
    commit(checkout)
    released = release(checkout, quiet)
    for line in lines:
        name = f'pydantic_ai_slim-{line.version}-py3-none-any.whl'
        built = build(line, quiet)
        assert built.name == name
        assert (released / name).read_bytes() == built.read_bytes()
        bill = json.loads((released / f'pydantic_ai_slim-{line.version}.cdx.json').read_text())
        assert len(bill['metadata']['component']['pedigree']['patches']) == len(line.patches)
        first, second = interpreters(line)
        own = f'{sys.version_info.major}.{sys.version_info.minor}'
        others = [version for version in line.python if version != own and find_python(version) not in (None, first)]
        assert (first != second) == bool(others)
