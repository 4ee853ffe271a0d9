"""The build: what goes into the wheel, and what stops it.

Wheels are built here as every installer builds them, by hatchling in a process of its own, but with the base on
`PYTHONPATH` instead of in a build environment, which takes longer. `test_installation.py` has the real thing.
"""

from __future__ import annotations

import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pydantic_ai_slim.fork.base import base_files, content_digest
from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.errors import FileNameError, ForkMismatchError, LineError
from pydantic_ai_slim.fork.line import Archive, PinnedLine, list_patches, load_line
from pydantic_ai_slim.fork.package import package_digest
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from series.line import pin_patched

ROOT = Path(__file__).parents[2]
LINES = [load_line(path.parent) for path in sorted(ROOT.glob('patches/*/line.toml'))]
LINE = LINES[-1]

SOURCE = '_utils.py'
"""A file of the base that the tests patch."""


@pytest.fixture(scope='session')
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base of `LINE` as an installer lays it out, without what it depends on."""
    folder = tmp_path_factory.mktemp('base')
    install = [sys.executable, '-m', 'uv', 'pip', 'install', '--quiet', '--python', sys.executable]
    subprocess.run([*install, '--no-deps', '--target', str(folder), f'pydantic-ai-slim==={LINE.base}'], check=True)
    return folder


@pytest.fixture
def checkout(tmp_path: Path, base: Path) -> Path:
    """What the build of `LINE` needs of this repository, without its patches."""
    folder = tmp_path / 'checkout'
    copy_checkout(folder)
    for listed in folder.glob('patches/*/series'):
        listed.write_text('')
    for patch in folder.rglob('*.patch'):
        patch.unlink()
    pin(folder, base)
    return folder


def pin(checkout: Path, base: Path) -> None:
    """Pin what the patches of `LINE` make of the base, as `make extract` does."""
    path = checkout / 'patches' / LINE.base / 'line.toml'
    with tempfile.TemporaryDirectory() as tree:
        copy_package(base, Path(tree))
        apply_patches(load_line(path.parent).patches, Path(tree))
        path.write_text(pin_patched(path.read_text(), package_digest(Path(tree))))


def copy_checkout(folder: Path) -> None:
    for part in ('patches', 'pydantic_ai_slim'):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns('__pycache__'))


def build(
    checkout: Path, base: Path | None, out: Path, *, backend: str = 'build_wheel', **variables: str
) -> subprocess.CompletedProcess[str]:
    """Build with hatchling, the base being what `base` holds."""
    return subprocess.run(
        [sys.executable, '-c', f'import hatchling.build, sys; hatchling.build.{backend}(sys.argv[1])', str(out)],
        cwd=checkout / 'pydantic_ai_slim' / LINE.base,
        env=os.environ | {'PYTHONPATH': str(base or '')} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def build_and_unpack(checkout: Path, base: Path, out: Path, **variables: str) -> Path:
    """Build a wheel and return the folder that it unpacks to."""
    out.mkdir()
    pin(checkout, base)
    done = build(checkout, base, out, **variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
    (wheel,) = out.iterdir()
    assert wheel.name == f'pydantic_ai_slim-{LINE.version}-py3-none-any.whl'
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / 'unpacked')
    return out / 'unpacked'


def write_patch(patches: Path, name: str, changes: Mapping[str, Callable[[str], str]], tree: Path, base: Path) -> Path:
    """Write a patch as `git format-patch` does, that changes files of upstream's repository.

    Args:
        patches: The folder that gets it.
        name: Its path there, which is listed last.
        changes: What becomes of the text of each file, by its path in upstream's repository; new files start empty.
            `tests/test_existing.py` is there too.
        tree: A new or empty folder to work in.
        base: The base, as an installer lays it out.
    """

    def git(*arguments: str) -> bytes:
        identity = ['-c', 'user.name=A. Author', '-c', 'user.email=author@example.com', '-c', 'core.autocrlf=false']
        return subprocess.run(['git', *identity, *arguments], cwd=tree, check=True, capture_output=True).stdout

    tree.mkdir()
    git('init', '--quiet')
    copy_package(base, tree)
    (tree / 'tests').mkdir()
    (tree / 'tests' / 'test_existing.py').write_text('def test_existing(): ...\n')
    git('add', '.')
    git('commit', '--quiet', '--message=base')
    for path, change in changes.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_bytes().decode() if file.exists() else ''
        file.write_bytes(change(text).encode())
    git('add', '.')
    git('commit', '--quiet', '--message=Change something\n\nThe reason.')
    return add_patch(patches, name, git('format-patch', '--stdout', '--full-index', '--no-signature', '-1'))


def add_patch(patches: Path, name: str, text: bytes) -> Path:
    patch = patches / name
    patch.parent.mkdir(exist_ok=True)
    patch.write_bytes(text)
    with (patches / 'series').open('a') as listed:
        listed.write(f'# A comment\n\n{name}\n')
    return patch


def append(text: str) -> Callable[[str], str]:
    return lambda before: before + text


# What goes into the wheel


def test_wheel_has_what_patches_change_in_the_package_and_nothing_else_of_them(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    patches = checkout / 'patches' / LINE.base
    changes = {
        f'pydantic_ai_slim/pydantic_ai/{SOURCE}': append('# one  \n'),
        'pydantic_ai_slim/pydantic_ai/new/module.py': append('added = True\r\n'),
        'tests/test_existing.py': append('def test_more(): ...\n'),
        'docs/new.md': append('# New\n'),
    }
    write_patch(patches, 'fixes/change-something.patch', changes, tmp_path / 'tree', base)
    # Only tests and docs, as the patch that adds a missing test would
    only_tests = {'tests/test_other.py': append('def test_other(): ...\n')}
    write_patch(patches, 'checks/test-something.patch', only_tests, tmp_path / 'other', base)

    unpacked = build_and_unpack(checkout, base, tmp_path / 'out')

    expected = package_files(base)
    expected[f'pydantic_ai/{SOURCE}'] += b'# one  \n'
    expected['pydantic_ai/new/module.py'] = b'added = True\r\n'
    assert package_files(unpacked) == expected
    assert sorted(path.name for path in unpacked.iterdir()) == [
        'pydantic_ai',
        f'pydantic_ai_slim-{LINE.version}.dist-info',
    ]


@pytest.mark.slow
def test_build_leaves_the_checkout_as_it_was_and_no_temporary_files(checkout: Path, base: Path, tmp_path: Path) -> None:
    before = content(checkout)
    (temporary := tmp_path / 'tmp').mkdir()
    build_and_unpack(checkout, base, tmp_path / 'out', TMPDIR=str(temporary))
    assert content(checkout) == before
    assert list(temporary.iterdir()) == []


def content(folder: Path) -> dict[Path, bytes]:
    """Return the content of files, but for what Python compiles unless it's told not to."""
    files = [path for path in folder.rglob('*') if path.is_file() and path.parent.name != '__pycache__']
    return {path: path.read_bytes() for path in files}


@pytest.mark.slow
def test_build_inside_another_work_tree_and_under_a_user_s_configuration_gives_the_same(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    changes = {f'pydantic_ai_slim/pydantic_ai/{SOURCE}': append('# trailing  \n')}
    write_patch(checkout / 'patches' / LINE.base, 'fixes/change.patch', changes, tmp_path / 'tree', base)
    outer = tmp_path / 'out:er'
    outer.mkdir()
    subprocess.run(['git', 'init', '--quiet', str(outer)], check=True)
    home = tmp_path / 'home'
    (home / 'git').mkdir(parents=True)
    (home / 'git' / 'attributes').write_text('*.py text eol=crlf\n')
    (home / '.gitconfig').write_text('[core]\nautocrlf = true\nsafecrlf = true\n[apply]\nwhitespace = error-all\n')

    unpacked = build_and_unpack(
        checkout,
        base,
        tmp_path / 'out',
        TMPDIR=str(outer),
        HOME=str(home),
        XDG_CONFIG_HOME=str(home),
        GIT_DIR=str(outer / '.git'),
        GIT_WORK_TREE=str(outer),
    )

    expected = (base / 'pydantic_ai' / SOURCE).read_bytes() + b'# trailing  \n'
    assert (unpacked / 'pydantic_ai' / SOURCE).read_bytes() == expected


CAPS = {'opentelemetry-api': '<1.44', 'cohere': '<6'}


def test_metadata_is_the_base_s_own_but_for_version_caps_and_licence(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    pins = checkout / 'patches' / LINE.base / 'line.toml'
    pins.write_text(pins.read_text() + ''.join(f'{name} = "{cap}"\n' for name, cap in CAPS.items()))
    unpacked = build_and_unpack(checkout, base, tmp_path / 'out')
    found = email.message_from_bytes(read_info(unpacked, 'METADATA'))
    own = email.message_from_bytes(read_info(base, 'METADATA'))

    assert [key for key in found if key == 'Dynamic'] == []
    assert len(own.get_all('Requires-Dist', [])) == 70
    assert len(own.get_all('Provides-Extra', [])) == 41
    assert len(own.get_all('Classifier', [])) == 19
    for field in sorted({*found.keys(), *own.keys()} - {'Version', 'License-File', 'Requires-Dist'}):
        assert (field, found.get_all(field)) == (field, own.get_all(field))
    assert found.get_payload() == own.get_payload()
    assert found.get_all('Version') == [LINE.version]
    assert found.get_all('License-File') == ['LICENSE', 'LICENSE.lifecycle']
    assert found.get_all('Requires-Dist') == [capped(text) for text in own.get_all('Requires-Dist', [])]
    assert 'opentelemetry-api<1.44,>=1.28.0' in found.get_all('Requires-Dist', [])
    assert "cohere<6,>=5.20.6; (platform_system != 'Emscripten') and extra == 'cohere'" in found.get_all(
        'Requires-Dist', []
    )


@pytest.mark.slow
def test_metadata_leads_to_the_repository_that_the_line_names(checkout: Path, base: Path, tmp_path: Path) -> None:
    pins = checkout / 'patches' / LINE.base / 'line.toml'
    pins.write_text(f'url = "https://example.com/fork"\n{pins.read_text()}')
    found = email.message_from_bytes(read_info(build_and_unpack(checkout, base, tmp_path / 'out'), 'METADATA'))
    own = email.message_from_bytes(read_info(base, 'METADATA'))

    assert found.get_all('Project-URL') == [*own.get_all('Project-URL', []), 'Fork, https://example.com/fork']


def capped(text: str) -> str:
    """Return a requirement of the base as the fork should have it."""
    requirement = Requirement(text)
    if requirement.name not in CAPS:
        return text
    bounds = requirement.specifier & SpecifierSet(CAPS[requirement.name])
    return text.replace(str(requirement.specifier), str(bounds))


def package_files(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in base_files(folder).items() if name.startswith('pydantic_ai/')}


def read_info(folder: Path, name: str) -> bytes:
    (path,) = folder.glob(f'pydantic_ai_slim-*.dist-info/{name}')
    return path.read_bytes()


# What stops the build. Each message is asserted as a whole, and there must be no wheel


def assert_refused(checkout: Path, base: Path | None, tmp_path: Path, message: str, **variables: str) -> None:
    out = tmp_path / 'out'
    out.mkdir()
    done = build(checkout, base, out, **variables)
    assert done.stderr == f'{message}\n'
    assert done.stdout == ''
    assert done.returncode == 1
    assert list(out.iterdir()) == []


def test_base_missing_is_refused(checkout: Path, tmp_path: Path) -> None:
    message = (
        f'BaseMismatchError: The fork of {LINE.base} is built from the installed base, but `pydantic-ai-slim` is not installed in '
        f'the build environment. Build without `--no-build-isolation`, or install `pydantic-ai-slim==={LINE.base}` there first.'
    )
    assert_refused(checkout, None, tmp_path, message)


def test_base_of_another_version_is_refused(checkout: Path, tmp_path: Path) -> None:
    base = tmp_path / 'fake'
    info = base / f'pydantic_ai_slim-{LINE.base}+lifecycle.1.dist-info'
    info.mkdir(parents=True)
    (info / 'METADATA').write_text(f'Metadata-Version: 2.4\nName: pydantic-ai-slim\nVersion: {LINE.base}+lifecycle.1\n')
    message = (
        f'BaseMismatchError: The fork of {LINE.base} is built from the installed base, but the build environment holds '
        f'`pydantic-ai-slim` {LINE.base}+lifecycle.1. Build without `--no-build-isolation`, or install '
        f'`pydantic-ai-slim==={LINE.base}` there first: with three equals signs, since two accept the fork itself too.'
    )
    assert_refused(checkout, base, tmp_path, message)


@pytest.mark.parametrize('change', ['changed', 'added', 'removed', 'metadata'])
def test_base_of_other_content_is_refused(change: str, checkout: Path, base: Path, tmp_path: Path) -> None:
    other = tmp_path / 'other'
    shutil.copytree(base, other)
    if change == 'changed':
        add_text(other / 'pydantic_ai' / SOURCE)
    elif change == 'added':
        (other / 'pydantic_ai' / 'added.py').touch()
    elif change == 'removed':
        (other / 'pydantic_ai' / 'py.typed').unlink()
    else:
        add_text(next(other.glob('*.dist-info/METADATA')))
    message = (
        f'BaseMismatchError: The content of the installed `pydantic-ai-slim` {LINE.base} in `{other}` is not what '
        f'`{checkout}/patches/{LINE.base}/line.toml` is pinned to:\n'
        f'expected {LINE.digest}\n'
        f'found    {content_digest(other)}\n'
        f'Either the installed files were changed, or the package index serves another file under this version. Empty the '
        f'cache of your installer, with `pip cache remove pydantic_ai_slim` or `uv cache clean pydantic-ai-slim`, and build '
        f'again; if the digests still differ, do not trust that package index.'
    )
    assert_refused(checkout, other, tmp_path, message)


def add_text(path: Path) -> None:
    with path.open('a') as file:
        file.write('# more\n')


def test_patch_that_does_not_apply_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    patches = checkout / 'patches' / LINE.base
    path = f'pydantic_ai_slim/pydantic_ai/{SOURCE}'
    patch = write_patch(patches, 'fixes/change-something.patch', {path: append('# one\n')}, tmp_path / 'tree', base)
    add_patch(patches, 'heart/change-it-again.patch', patch.read_bytes())
    lines = (base / 'pydantic_ai' / SOURCE).read_text().count('\n')
    message = (
        f'PatchError: The patch `heart/change-it-again` does not apply to {LINE.base} with the patches before it. If '
        f'`patches/{LINE.base}` was edited by hand, put that away with `git stash push --include-untracked -- patches/{LINE.base}`; if the patch is to change, '
        f'change its commit in the tree of `make apply LINE={LINE.base}` and run `make extract LINE={LINE.base}`. Then build again. git said:\n'
        f'error: patch failed: {path}:{lines - 2}\n'
        f'error: {path}: patch does not apply'
    )
    assert_refused(checkout, base, tmp_path, message)


def test_git_missing_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    message = (
        'GitMissingError: The fork is built by applying patches with `git`, but there is no `git` on the `PATH`. Install '
        'git, for example with `apt install git` or `brew install git`, and build again.'
    )
    assert_refused(checkout, base, tmp_path, message, PATH=str(tmp_path))


def test_line_missing_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    shutil.rmtree(checkout / 'patches')
    message = (
        f'LineError: There is no line `{LINE.base}`: `{checkout}/patches/{LINE.base}/line.toml` does not exist. The fork is built '
        f'inside a checkout of its repository, where `patches/` and `pydantic_ai_slim/` stand side by side. Clone the '
        f'repository and build `pydantic_ai_slim/{LINE.base}` there.'
    )
    assert_refused(checkout, base, tmp_path, message)


def test_source_distribution_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    done = build(checkout, base, tmp_path / 'out', backend='build_sdist')
    assert done.stderr == (
        'UnsupportedBuildError: The fork has no source distribution: it is made of the installed base and of the patches in '
        'a checkout of its repository, and a source distribution would hold neither. Build a wheel in the checkout instead, '
        'with `make build`, `uv build --wheel` or `python -m build --wheel`.\n'
    )
    assert done.returncode == 1
    assert list(tmp_path.rglob('*.tar.gz')) == []


def test_editable_installation_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    done = build(checkout, base, tmp_path / 'out', backend='build_editable')
    assert done.stderr == (
        'UnsupportedBuildError: The fork has no editable installation: its source is made from the base and the patches '
        'at every build. Install it without `--editable`; to change it, edit the tree that `make apply` makes.\n'
    )
    assert done.returncode == 1
    assert list(tmp_path.rglob('*.whl')) == []


def test_cap_of_what_the_base_does_not_require_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    path = checkout / 'patches' / LINE.base / 'line.toml'
    path.write_text(path.read_text() + 'opentelemetry-sdk = "<1.44"\nnumpy = "<3"\n')
    message = (
        f'LineError: `{path}` caps `numpy`, `opentelemetry-sdk`, which `pydantic-ai-slim` {LINE.base} does not require. Correct '
        f'the name or remove the cap, and build again.'
    )
    assert_refused(checkout, base, tmp_path, message)


# What isn't pinned isn't built


def test_installed_base_that_brings_along_more_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    """All that is pinned is as it was, and a `.pth` would run in the interpreter that builds."""
    target, wheel = tmp_path / 'installed', tmp_path / f'pydantic_ai_slim-{LINE.base}-py3-none-any.whl'
    with zipfile.ZipFile(wheel, 'w') as archive:
        for path in sorted(base.rglob('*')):
            name = path.relative_to(base).as_posix()
            if path.is_file() and '__pycache__' not in name and name.startswith('pydantic_ai'):
                archive.write(path, name)
        archive.writestr('evil.pth', 'import evil\n')
        archive.writestr('evil.py', '')
        archive.writestr(f'pydantic_ai_slim-{LINE.base}.data/scripts/evil', '#!python\n')
    install = [sys.executable, '-m', 'uv', 'pip', 'install', '--quiet', '--offline', '--no-deps']
    subprocess.run([*install, '--target', str(target), str(wheel)], check=True)
    message = (
        f'BaseMismatchError: The installed `pydantic-ai-slim` {LINE.base} in `{target}` has brought along what the release does not '
        f'have: `bin/evil`, `evil.pth`, `evil.py`. The package index serves another file under this version, and such a file '
        f'can run code in every Python that has it. Delete that environment, empty the cache of your installer, with `pip cache '
        f'remove pydantic_ai_slim` or `uv cache clean pydantic-ai-slim`, and do not trust that package index.'
    )
    assert_refused(checkout, target, tmp_path, message)


def test_installed_base_without_a_record_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, other := tmp_path / 'other')
    next(other.glob('pydantic_ai_slim-*/RECORD')).unlink()
    message = (
        f'BaseMismatchError: The installed `pydantic-ai-slim` {LINE.base} has no `RECORD` of the files that came with it, so nobody '
        'can tell what it brought along. Build without `--no-build-isolation`, or install it with pip or uv.'
    )
    assert_refused(checkout, other, tmp_path, message)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['with [brackets]', 'with *', 'what?'])
def test_checkout_whose_path_is_a_pattern_keeps_the_licences(
    name: str, checkout: Path, base: Path, tmp_path: Path
) -> None:
    checkout = checkout.rename(tmp_path / name)
    unpacked = build_and_unpack(checkout, base, tmp_path / 'out')
    assert read_info(unpacked, 'licenses/LICENSE') == read_info(base, 'licenses/LICENSE')
    assert read_info(unpacked, 'licenses/LICENSE.lifecycle') == (ROOT / 'LICENSE').read_bytes()


def test_licence_of_other_content_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    project = checkout / 'pydantic_ai_slim' / LINE.base
    add_text(project / 'LICENSE')
    found = digest_files({name: (project / name).read_bytes() for name in ('LICENSE', 'LICENSE.lifecycle')})
    path = checkout / 'patches' / LINE.base / 'line.toml'
    message = (
        f'BuildFolderError: The licences in `{project}`, `LICENSE`, `LICENSE.lifecycle`, are not those that `{path}` is pinned '
        f'to:\nexpected {LINE.licences}\nfound    {found}\nRestore them with `git checkout -- pydantic_ai_slim` and build again; '
        f'if they are meant to be others, write that digest into `line.toml` as `licences` first.'
    )
    assert_refused(checkout, base, tmp_path, message)


def test_module_beside_the_hook_does_not_stand_for_one_of_the_builder_s(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    (checkout / 'pydantic_ai_slim' / 'packaging.py').write_text('1 / 0\n')
    assert package_files(build_and_unpack(checkout, base, tmp_path / 'out')) == package_files(base)


@pytest.mark.parametrize('name', ['line/__init__.py', 'line.abi3.so', 'line.pyc'])
def test_what_would_be_loaded_in_place_of_a_module_of_the_hook_is_refused(
    name: str, checkout: Path, base: Path, tmp_path: Path
) -> None:
    (rogue := checkout / 'pydantic_ai_slim' / 'fork' / name).parent.mkdir(exist_ok=True)
    rogue.write_text('print("it runs")\n')
    done = build(checkout, base, tmp_path)
    assert done.returncode
    assert 'it runs' not in done.stdout
    where = name.partition('/')[0]
    assert done.stderr.startswith('BuildFolderError: ')
    assert f'there is what does not belong there: `{where}`. Move it away, and build again.' in done.stderr


@pytest.mark.parametrize('name', [f'Pydantic_AI_Slim-{LINE.base}.dist-info', 'PYDANTIC.AI-SLIM.egg-info'])
def test_second_metadata_folder_is_refused(name: str, checkout: Path, base: Path, tmp_path: Path) -> None:
    """As an installer makes it of a wheel that brings such a folder along in its `.data/purelib`."""
    other = tmp_path / 'other'
    shutil.copytree(base, other)
    second = other / name
    shutil.copytree(other / f'pydantic_ai_slim-{LINE.base}.dist-info', second)
    (second / 'entry_points.txt').write_text('[console_scripts]\npai = evil:main\n')
    message = (
        f'BaseMismatchError: There are several folders with the metadata of `pydantic-ai-slim` in `{other}`: '
        f'`{name}`, `pydantic_ai_slim-{LINE.base}.dist-info`. The fork takes its metadata from one that '
        f'is pinned. Build without `--no-build-isolation`, or install `pydantic-ai-slim` there again; if there are still '
        f'several, the package index serves another file than the release. Do not trust it then.'
    )
    assert_refused(checkout, other, tmp_path, message)


def test_content_digest_can_not_be_forged_with_a_name(tmp_path: Path) -> None:
    """In a listing by lines, a newline in a name made one file look like two."""
    empty = hashlib.sha256(b'').hexdigest()
    one, other = tmp_path / 'one', tmp_path / 'other'
    for folder, names in ((one, ('a.py', 'b.py')), (other, (f'a.py\n{empty}  pydantic_ai/b.py',))):
        for name in names:
            (folder / 'pydantic_ai' / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / 'pydantic_ai' / name).touch()
    content_digest(one)
    with pytest.raises(FileNameError) as caught:
        content_digest(other)
    assert str(caught.value) == (
        f"No release has files with such names: 'pydantic_ai/a.py\\n{empty}  pydantic_ai/b.py'. They can stand for other "
        f'files than they seem to. Find out which package brought them; if it is `pydantic-ai-slim`, do not trust the package '
        f'index that it is from.'
    )


@pytest.mark.parametrize('name', ['a\nb', 'a\rb', 'a\\b', 'a\u202eb', 'a\udcffb'], ids=ascii)
def test_content_digest_refuses_names_that_do_not_print(name: str) -> None:
    with pytest.raises(FileNameError):
        digest_files({f'pydantic_ai/{name}': b''})


@pytest.fixture
def patched(checkout: Path, base: Path, tmp_path: Path) -> Path:
    """A checkout with a patch for two files, and with the pin of what it makes."""
    changes = {f'pydantic_ai_slim/pydantic_ai/{name}': append('# one\n') for name in ('_utils.py', 'exceptions.py')}
    write_patch(checkout / 'patches' / LINE.base, 'fixes/change.patch', changes, tmp_path / 'tree', base)
    pin(checkout, base)
    return checkout


def mismatch(checkout: Path, base: Path, tree: Path, git: str | None = None) -> str:
    """Return what is said when the build makes what is in the folder `tree`."""
    pins = checkout / f'patches/{LINE.base}/line.toml'
    return (
        f'ForkMismatchError: The base with the patches is not the package that `{pins}` is pinned to:\n'
        f'expected {load_line(pins.parent).patched}\n'
        f'found    {package_digest(tree)}\n'
        f'Either the patches are not those that were pinned, or `{git or shutil.which("git")}` has not applied all of them. '
        f'If they were edited by hand, put that away with `git stash push --include-untracked -- patches/{LINE.base}` and build again; if they are meant to be others, run `make apply '
        f'LINE={LINE.base}` and `make extract LINE={LINE.base}` first.'
    )


@pytest.fixture
def unpatched(base: Path, tmp_path: Path) -> Path:
    """The base in upstream's layout."""
    (folder := tmp_path / 'unpatched').mkdir()
    copy_package(base, folder)
    return folder


def test_git_that_does_nothing_is_refused(patched: Path, base: Path, tmp_path: Path, unpatched: Path) -> None:
    git = tmp_path / 'bin' / 'git'
    git.parent.mkdir()
    git.write_text('#!/bin/sh\nexit 0\n')
    git.chmod(0o755)
    path = os.pathsep.join([str(git.parent), os.environ['PATH']])
    assert_refused(patched, base, tmp_path, mismatch(patched, base, unpatched, str(git)), PATH=path)


def strip_prefixes(patch: Path) -> None:
    patch.write_text(re.sub(r'(?<=[ /])[ab]/(?=pydantic_ai_slim)', '', patch.read_text()))


def cut_off(patch: Path) -> None:
    patch.write_text(patch.read_text().rpartition('diff --git')[0])


def remove(patch: Path) -> None:
    patch.unlink()
    (patch.parent.parent / 'series').write_text('')


@pytest.mark.parametrize('change', [strip_prefixes, cut_off, remove])
def test_patches_that_are_not_applied_in_full_are_refused(
    change: Callable[[Path], None], patched: Path, base: Path, tmp_path: Path, unpatched: Path
) -> None:
    (patch,) = patched.glob(f'patches/{LINE.base}/*/*.patch')
    change(patch)
    if change is cut_off:
        apply_patches([patch], unpatched)
    assert_refused(patched, base, tmp_path, mismatch(patched, base, unpatched))


def test_line_without_the_digest_of_the_patched_package_is_refused(patched: Path, base: Path, tmp_path: Path) -> None:
    path = patched / 'patches' / LINE.base / 'line.toml'
    path.write_text(re.sub(r'(?m)^patched .*\n', '', path.read_text()))
    message = (
        f'ForkMismatchError: `{path}` has no `patched`, the digest of the package with the patches, so nobody could tell '
        f'whether they were applied in full. Run `make apply LINE={LINE.base}` and `make extract LINE={LINE.base}`, which write it, and '
        f'build again.'
    )
    assert_refused(patched, base, tmp_path, message)


@pytest.mark.parametrize('variable', ['1', 'true'])
def test_build_without_hooks_is_refused(patched: Path, base: Path, tmp_path: Path, variable: str) -> None:
    """It was a wheel of the fork with nothing in it."""
    message = (
        'UnsupportedBuildError: The fork cannot be built without hooks, since a hook applies the patches. Unset the '
        'environment variable `HATCH_BUILD_NO_HOOKS`, or leave the option for that out, and build again.'
    )
    assert_refused(patched, base, tmp_path, message, HATCH_BUILD_NO_HOOKS=variable)


TARGET = f'pydantic_ai_slim/pydantic_ai/{SOURCE}'
TAKES = {
    'a copy from outside of the tree': (
        f'diff --git a/../secret.py b/{TARGET}\nsimilarity index 100%\ncopy from ../secret.py\ncopy to {TARGET}x\n',
        "It reads '../secret.py', which is outside of the tree.",
    ),
    'a copy from outside of the tree, in disguise': (
        (
            f'diff --git "a/\\056\\056/secret.py" b/{TARGET}\nsimilarity index 100%\ncopy from "\\056\\056/secret.py"\n'
            f'copy to {TARGET}x\n'
        ),
        "It reads '../secret.py', which is outside of the tree.",
    ),
    'a copy from an absolute path': (
        f'diff --git a/x b/{TARGET}\nsimilarity index 100%\ncopy from /etc/passwd\ncopy to {TARGET}x\n',
        "It reads '/etc/passwd', which is outside of the tree.",
    ),
    'a copy from outside of the package': (
        f'diff --git a/tests/a.py b/{TARGET}x\nsimilarity index 100%\ncopy from tests/a.py\ncopy to {TARGET}x\n',
        f"It makes '{TARGET}x' of 'tests/a.py', which is outside of the package.",
    ),
    'a symlink': (
        (
            f'diff --git a/{TARGET}x b/{TARGET}x\nnew file mode 120000\nindex 0000000..594de98\n--- /dev/null\n'
            f'+++ b/{TARGET}x\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n'
        ),
        f'It makes something else than a regular file, of mode 120000: `a/{TARGET}x b/{TARGET}x`.',
    ),
}


@pytest.mark.parametrize('what', TAKES)
def test_patch_that_takes_more_than_files_of_the_package_is_refused(
    what: str, checkout: Path, base: Path, tmp_path: Path
) -> None:
    (tmp_path / 'tmp').mkdir()
    (tmp_path / 'tmp' / 'secret.py').write_text('secret\n')
    text, fault = TAKES[what]
    mail = f'From: A. Author <author@example.com>\nSubject: Take it\n\n---\n\n{text}'
    add_patch(checkout / 'patches' / LINE.base, 'fixes/take-it.patch', mail.encode())
    message = (
        f'PatchError: The patch `fixes/take-it` takes more than files of the package:\n- {fault}\nOnly files below '
        f'`pydantic_ai_slim/pydantic_ai` go into the fork. If `patches/{LINE.base}` was edited by hand, put that away with `git stash push --include-untracked '
        f'-- patches/{LINE.base}`; if the patch is to change, change its commit in the tree of `make apply LINE={LINE.base}` and run '
        f'`make extract LINE={LINE.base}`. Then build again.'
    )
    assert_refused(checkout, base, tmp_path, message, TMPDIR=str(tmp_path / 'tmp'))


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


@pytest.mark.slow
def test_build_under_other_circumstances_gives_the_same_bytes(checkout: Path, base: Path, tmp_path: Path) -> None:
    """Whoever calls hatchling, with whatever umask, time and folder; a patch that makes a file executable changes nothing."""
    changes = {f'pydantic_ai_slim/pydantic_ai/{SOURCE}': append('# one\n')}
    patch = write_patch(checkout / 'patches' / LINE.base, 'fixes/change.patch', changes, tmp_path / 'tree', base)
    build_and_unpack(checkout, base, tmp_path / 'first')
    elsewhere = tmp_path / 'else where'
    shutil.copytree(checkout, elsewhere)
    (tmp_path / 'tmp').mkdir()
    (tmp_path / 'again').mkdir()
    header, rest = patch.read_text().split('\nindex ', 1)
    (elsewhere / 'patches' / LINE.base / 'fixes' / patch.name).write_text(
        f'{header}\nold mode 100644\nnew mode 100755\nindex {rest}'
    )
    unlike = {'TZ': 'Pacific/Kiritimati', 'LC_ALL': 'C', 'PYTHONHASHSEED': '268', 'SOURCE_DATE_EPOCH': '1893456000'}
    umask = os.umask(0o077)
    try:
        done = build(elsewhere, base, tmp_path / 'again', TMPDIR=str(tmp_path / 'tmp'), **unlike)
    finally:
        os.umask(umask)
    assert (done.returncode, done.stderr) == (0, '')
    first, again = (next((tmp_path / name).glob('*.whl')) for name in ('first', 'again'))
    assert first.read_bytes() == again.read_bytes()


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


# `line.toml`


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


# The lines of this repository


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


# The content digest


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
