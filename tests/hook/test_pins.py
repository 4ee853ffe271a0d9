"""What a line is pinned to: its `line.toml`, its list of patches, and the digests that both are compared by."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pydantic_ai_slim.fork.base import base_files, content_digest
from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import FileNameError, ForkMismatchError, LineError
from pydantic_ai_slim.fork.line import Archive, PinnedLine, list_patches, load_line
from pydantic_ai_slim.fork.package import package_digest
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from tests.hook.checkout import LINE, LINES, ROOT, add_patch


def test_load_line_returns_what_the_file_says(tmp_path: Path) -> None:
    folder = write_line(
        tmp_path,
        f"""
        base = '9.9.9'
        released = 2026-01-02
        number = 3
        digest = 'sha256:{'0' * 64}'
        patched = 'sha256:{'2' * 64}'
        python = ['3.12']
        [settings]
        package = 'settings-of-it'
        version = '9.9.8'
        digest = 'sha256:{'1' * 64}'
        [caps]
        Some_Package = '<2'
        """,
    )
    for name in ('heart/b.patch', 'fixes/a.patch'):
        add_patch(folder, name, b'')
    line = load_line(folder)
    assert line == PinnedLine(
        folder=folder,
        base='9.9.9',
        released=date(2026, 1, 2),
        number=3,
        digest='sha256:' + '0' * 64,
        patched='sha256:' + '2' * 64,
        licences=None,
        url=None,
        python=('3.12',),
        settings=Archive('settings-of-it', '9.9.8', 'sha256:' + '1' * 64),
        caps={'some-package': '<2'},
    )
    assert line.version == '9.9.9+lifecycle.3'
    assert line.patches == [folder / 'heart/b.patch', folder / 'fixes/a.patch']


def test_list_that_is_not_that_of_the_patches_is_refused(tmp_path: Path) -> None:
    for name in ('heart/b.patch', 'heart/b.patch', 'fixes/a.patch', 'plain.patch'):
        add_patch(tmp_path, name, b'')
    (tmp_path / 'fixes/a.patch').rename(tmp_path / 'fixes/c.patch')
    with pytest.raises(LineError) as caught:
        list_patches(tmp_path)
    assert str(caught.value) == (
        f'`{tmp_path / "series"}` does not list the patches beside it:\n'
        '- `heart/b.patch` is listed 2 times.\n'
        '- `fixes/a.patch` is listed, but is not there.\n'
        '- `plain.patch` is not the path of a patch in a topic, such as `fixes/slug.patch`.\n'
        '- `fixes/c.patch` is there, but is not listed.\n'
        'List each patch once, in the order in which they apply, then run the same command again.'
    )


@pytest.mark.parametrize(
    ('content', 'fault'),
    [
        (b'fixes/a.patch\r\n', 'it has carriage returns'),
        (b'fixes/\xff.patch\n', "'utf-8' codec can't decode byte 0xff in position 6: invalid start byte"),
    ],
)
def test_list_that_sed_would_read_otherwise_is_refused(content: bytes, fault: str, tmp_path: Path) -> None:
    add_patch(tmp_path, 'fixes/a.patch', b'')
    (tmp_path / 'series').write_bytes(content)
    with pytest.raises(LineError) as caught:
        list_patches(tmp_path)
    assert str(caught.value) == (
        f'`{tmp_path / "series"}` is not UTF-8 with a newline alone at the end of each line: {fault}. Write it again, or '
        'restore it with `git checkout`.'
    )


def test_load_line_with_several_faults_names_them_all(tmp_path: Path) -> None:
    folder = write_line(
        tmp_path,
        f"""
        base = '9.9'
        released = '2026-01-02'
        number = 0
        digest = 'md5:0'
        patched = ''
        python = []
        colour = 'green'
        [settings]
        package = ''
        version = '1'
        digest = 'sha256:{'0' * 64}'
        [caps]
        httpx = '1'
        """,
    )
    with pytest.raises(LineError) as caught:
        load_line(folder)
    assert str(caught.value) == (
        f'`{folder / "line.toml"}` is not a valid line:\n'
        "- `base` must be the name of the folder, '9.9.9', but is '9.9'.\n"
        "- `released` must be a date such as `2025-12-03`, but is '2026-01-02'.\n"
        '- `number` must be a whole number from 1, but is 0.\n'
        "- `digest` must be `sha256:` and 64 hexadecimal digits, but is 'md5:0'.\n"
        "- `patched` must be `sha256:` and 64 hexadecimal digits, but is ''.\n"
        '- `python` must be a list such as `["3.12"]`, but is [].\n'
        '- `settings` must be a table of `package`, `version` and `digest`, the last being `sha256:` and 64 hexadecimal '
        f"digits, but is {{'package': '', 'version': '1', 'digest': 'sha256:{'0' * 64}'}}.\n"
        """- `caps` must be a table of version bounds by package, such as `httpx = "<1"`, but is {'httpx': '1'}.\n"""
        '- `colour` is not a key of a line; the keys are `base`, `released`, `number`, `digest`, `patched`, '
        '`licences`, `url`, `python`, `settings`, `caps`.\n'
        'Correct the file and build again.'
    )


def write_line(folder: Path, text: str) -> Path:
    (folder / '9.9.9').mkdir()
    (folder / '9.9.9' / 'line.toml').write_text(text)
    return folder / '9.9.9'


@pytest.mark.parametrize('line', LINES, ids=lambda line: line.base)
def test_each_line_has_a_build_folder_of_its_own(line: PinnedLine) -> None:
    text = (ROOT / 'pydantic_ai_slim' / line.base / 'pyproject.toml').read_text()
    (requirement,) = re.findall(r'"(pydantic-ai-slim[^"]*)"', text.partition('[project]')[0])
    # Poetry can't read `===`.
    assert '===' not in requirement
    accepted = Requirement(requirement).specifier.filter(
        [line.base, line.version, f'{line.base}+lifecycle.{line.number + 1}']
    )
    assert list(accepted) == [line.base]
    assert f'"../../patches/{line.base}/**"' in text
    assert (ROOT / 'pydantic_ai_slim' / line.base / 'LICENSE.lifecycle').read_bytes() == (ROOT / 'LICENSE').read_bytes()


# The digests


def test_content_digest_is_the_same_for_a_wheel_and_for_what_pip_and_uv_install(base: Path, tmp_path: Path) -> None:
    pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check', '--quiet']
    wanted = ['--no-deps', f'pydantic-ai-slim==={LINE.base}']
    subprocess.run([*pip, 'download', '--dest', str(tmp_path), *wanted], check=True)
    (wheel,) = tmp_path.glob('*.whl')
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / 'unpacked')
    subprocess.run([*pip, 'install', '--no-deps', '--target', str(tmp_path / 'installed'), str(wheel)], check=True)
    assert (tmp_path / 'installed/pydantic_ai/__pycache__').exists()

    digests = {content_digest(folder) for folder in (tmp_path / 'unpacked', tmp_path / 'installed', base)}

    assert digests == {LINE.digest}


def test_content_digest_is_that_of_a_listing_of_sha256sum_zero(tmp_path: Path) -> None:
    files = {
        'pydantic_ai/__init__.py': b'',
        'pydantic_ai/a b/ä.txt': b'text',
        'pydantic_ai_slim-1.dist-info/METADATA': b'Name: x\n',
        'pydantic_ai_slim-1.dist-info/licenses/LICENSE': b'free',
    }
    others = ('pydantic_ai/__pycache__/a.pyc', 'pydantic_ai_slim-1.dist-info/RECORD', 'other/module.py')
    for name, content in [*files.items(), *((name, b'ignored') for name in others)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert list(base_files(tmp_path)) == list(files)

    listing = subprocess.run(['sha256sum', '--zero', *files], cwd=tmp_path, check=True, capture_output=True).stdout

    digest = subprocess.run(['sha256sum'], input=listing, check=True, capture_output=True).stdout.split()[0]
    assert content_digest(tmp_path) == f'sha256:{digest.decode()}'


@pytest.mark.parametrize('name', ['a\nb', 'a\rb', 'a\\b', 'a\u202eb', 'a\udcffb'], ids=ascii)
def test_content_digest_refuses_names_that_can_stand_for_other_files(name: str) -> None:
    """In a listing by lines, a newline in a name made one file look like two."""
    with pytest.raises(FileNameError) as caught:
        digest_files({f'pydantic_ai/{name}': b'', 'pydantic_ai/b.py': b''})
    assert str(caught.value) == (
        f'No release has files with such names: {f"pydantic_ai/{name}"!r}. They can stand for other files than they seem to. '
        f'Find out which package brought them; if it is `pydantic-ai-slim`, do not trust the package index that it is from.'
    )


def test_symlink_in_the_patched_package_is_refused(tmp_path: Path) -> None:
    """Whatever makes it."""
    package = tmp_path / 'pydantic_ai_slim' / 'pydantic_ai'
    package.mkdir(parents=True)
    (package / 'link.py').symlink_to('/etc/passwd')
    with pytest.raises(ForkMismatchError) as caught:
        package_digest(tmp_path)
    assert str(caught.value) == (
        'With the patches, the package has what is neither a folder nor a regular file: '
        '`pydantic_ai_slim/pydantic_ai/link.py`. Only regular files go into the fork. Find the patch that makes it, and have it '
        'write a file.'
    )


@pytest.mark.parametrize('line', LINES, ids=lambda line: line.base)
def test_patches_of_this_repository_make_what_their_line_pins(line: PinnedLine, tmp_path: Path) -> None:
    install = [sys.executable, '-m', 'uv', 'pip', 'install', '--quiet', '--python-version', line.python[-1]]
    subprocess.run(
        [*install, '--no-deps', '--target', str(tmp_path / 'base'), f'pydantic-ai-slim==={line.base}'], check=True
    )
    (tree := tmp_path / 'tree').mkdir()
    copy_package(tmp_path / 'base', tree)
    apply_patches(line.patches, tree)
    assert (content_digest(tmp_path / 'base'), package_digest(tree)) == (line.digest, line.patched)
