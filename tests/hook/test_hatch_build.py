"""The build: what goes into the wheel, and what stops it.

Wheels are built here as every installer builds them, by hatchling in a process of its own, but with the base on
`PYTHONPATH` instead of in a build environment, which takes longer. `test_installation.py` has the real thing.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pydantic_ai_slim.fork.base import base_files, content_digest
from pydantic_ai_slim.fork.digests import digest_files
from pydantic_ai_slim.fork.line import load_line
from pydantic_ai_slim.fork.package import package_digest
from pydantic_ai_slim.fork.patches import apply_patches, copy_package
from tests.hook.checkout import LINE, ROOT, SOURCE, Checkout, add_patch, append

# What goes into the wheel


def test_wheel_has_what_patches_change_in_the_package_and_nothing_else_of_them(checkout: Checkout) -> None:
    changes = {
        SOURCE: append('# one  \n'),
        'pydantic_ai_slim/pydantic_ai/new/module.py': append('added = True\r\n'),
        'tests/test_existing.py': append('def test_more(): ...\n'),
        'docs/new.md': append('# New\n'),
    }
    checkout.write_patch('fixes/change-something.patch', changes)
    # Only tests and docs, as the patch that adds a missing test would
    checkout.write_patch('checks/test-something.patch', {'tests/test_other.py': append('def test_other(): ...\n')})

    unpacked = checkout.build_and_unpack()

    expected = package_files(checkout.base)
    expected['pydantic_ai/_utils.py'] += b'# one  \n'
    expected['pydantic_ai/new/module.py'] = b'added = True\r\n'
    assert package_files(unpacked) == expected
    assert sorted(path.name for path in unpacked.iterdir()) == [
        'pydantic_ai',
        f'pydantic_ai_slim-{LINE.version}.dist-info',
    ]


@pytest.mark.slow
def test_build_inside_another_work_tree_and_under_a_user_s_configuration_gives_the_same(
    checkout: Checkout, tmp_path: Path
) -> None:
    checkout.write_patch('fixes/change.patch', {SOURCE: append('# trailing  \n')})
    outer = tmp_path / 'out:er'
    outer.mkdir()
    subprocess.run(['git', 'init', '--quiet', str(outer)], check=True)
    home = tmp_path / 'home'
    (home / 'git').mkdir(parents=True)
    (home / 'git' / 'attributes').write_text('*.py text eol=crlf\n')
    (home / '.gitconfig').write_text('[core]\nautocrlf = true\nsafecrlf = true\n[apply]\nwhitespace = error-all\n')

    of_home = {'HOME': str(home), 'XDG_CONFIG_HOME': str(home)}
    of_git = {'GIT_DIR': str(outer / '.git'), 'GIT_WORK_TREE': str(outer)}
    unpacked = checkout.build_and_unpack(TMPDIR=str(outer), **of_home, **of_git)

    expected = package_files(checkout.base)['pydantic_ai/_utils.py'] + b'# trailing  \n'
    assert package_files(unpacked)['pydantic_ai/_utils.py'] == expected


@pytest.mark.slow
def test_build_under_other_circumstances_gives_the_same_bytes_and_leaves_nothing(
    checkout: Checkout, tmp_path: Path
) -> None:
    """Whoever calls hatchling, with whatever umask, time and folder; a patch that makes a file executable changes nothing."""
    patch = checkout.write_patch('fixes/change.patch', {SOURCE: append('# one\n')})
    first = checkout.build_wheel()
    (tmp_path / 'else where').mkdir()
    other = Checkout(tmp_path / 'else where' / 'checkout', checkout.base)
    shutil.copytree(checkout.folder, other.folder)
    (tmp_path / 'tmp').mkdir()
    header, rest = patch.read_text().split('\nindex ', 1)
    (other.patches / 'fixes' / patch.name).write_text(f'{header}\nold mode 100644\nnew mode 100755\nindex {rest}')
    unlike = {'TZ': 'Pacific/Kiritimati', 'LC_ALL': 'C', 'PYTHONHASHSEED': '268', 'SOURCE_DATE_EPOCH': '1893456000'}
    before = content(other.folder)
    umask = os.umask(0o077)
    try:
        again = other.build_wheel(TMPDIR=str(tmp_path / 'tmp'), **unlike)
    finally:
        os.umask(umask)
    assert first.read_bytes() == again.read_bytes()
    assert content(other.folder) == before
    assert list((tmp_path / 'tmp').iterdir()) == []


def content(folder: Path) -> dict[Path, bytes]:
    """Return the content of files, but for what Python compiles unless it's told not to."""
    files = [path for path in folder.rglob('*') if path.is_file() and path.parent.name != '__pycache__']
    return {path: path.read_bytes() for path in files}


CAPS = {'opentelemetry-api': '<1.44', 'cohere': '<6'}


def test_metadata_is_the_base_s_own_but_for_version_caps_licence_and_repository(checkout: Checkout) -> None:
    caps = ''.join(f'{name} = "{cap}"\n' for name, cap in CAPS.items())
    checkout.pins.write_text(f'url = "https://example.com/fork"\n{checkout.pins.read_text()}{caps}')
    found = email.message_from_bytes(read_info(checkout.build_and_unpack(), 'METADATA'))
    own = email.message_from_bytes(read_info(checkout.base, 'METADATA'))

    assert [key for key in found if key == 'Dynamic'] == []
    assert len(own.get_all('Requires-Dist', [])) == 70
    assert len(own.get_all('Provides-Extra', [])) == 41
    assert len(own.get_all('Classifier', [])) == 19
    for field in sorted({*found.keys(), *own.keys()} - {'Version', 'License-File', 'Requires-Dist', 'Project-URL'}):
        assert (field, found.get_all(field)) == (field, own.get_all(field))
    assert found.get_payload() == own.get_payload()
    assert found.get_all('Version') == [LINE.version]
    assert found.get_all('License-File') == ['LICENSE', 'LICENSE.lifecycle']
    assert found.get_all('Project-URL') == [*own.get_all('Project-URL', []), 'Fork, https://example.com/fork']
    required = found.get_all('Requires-Dist', [])
    assert required == [capped(text) for text in own.get_all('Requires-Dist', [])]
    assert 'opentelemetry-api<1.44,>=1.28.0' in required
    assert "cohere<6,>=5.20.6; (platform_system != 'Emscripten') and extra == 'cohere'" in required


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


@pytest.mark.slow
@pytest.mark.parametrize('name', ['with [brackets]', 'with *', 'what?'])
def test_checkout_whose_path_is_a_pattern_keeps_the_licences(name: str, checkout: Checkout, tmp_path: Path) -> None:
    checkout.folder = checkout.folder.rename(tmp_path / name)
    unpacked = checkout.build_and_unpack()
    assert read_info(unpacked, 'licenses/LICENSE') == read_info(checkout.base, 'licenses/LICENSE')
    assert read_info(unpacked, 'licenses/LICENSE.lifecycle') == (ROOT / 'LICENSE').read_bytes()


def test_module_beside_the_hook_does_not_stand_for_one_of_the_builder_s(checkout: Checkout) -> None:
    (checkout.project.parent / 'packaging.py').write_text('1 / 0\n')
    assert package_files(checkout.build_and_unpack()) == package_files(checkout.base)


# What stops the build. Each message is asserted as a whole, and there must be no wheel


def test_base_missing_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    checkout.base = tmp_path / 'none'
    checkout.assert_refused(
        f'BaseMismatchError: The fork of {LINE.base} is built from the installed base, but `pydantic-ai-slim` is not installed in '
        f'the build environment. Build without `--no-build-isolation`, or install `pydantic-ai-slim==={LINE.base}` there first.'
    )


def test_base_of_another_version_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    checkout.base = tmp_path / 'fake'
    info = checkout.base / f'pydantic_ai_slim-{LINE.base}+lifecycle.1.dist-info'
    info.mkdir(parents=True)
    (info / 'METADATA').write_text(f'Metadata-Version: 2.4\nName: pydantic-ai-slim\nVersion: {LINE.base}+lifecycle.1\n')
    checkout.assert_refused(
        f'BaseMismatchError: The fork of {LINE.base} is built from the installed base, but the build environment holds '
        f'`pydantic-ai-slim` {LINE.base}+lifecycle.1. Build without `--no-build-isolation`, or install '
        f'`pydantic-ai-slim==={LINE.base}` there first: with three equals signs, since two accept the fork itself too.'
    )


@pytest.fixture
def other_base(checkout: Checkout, tmp_path: Path) -> Path:
    """A copy of the base, which the checkout is built with, for a test to change."""
    checkout.base = shutil.copytree(checkout.base, tmp_path / 'other')
    return checkout.base


def add_text(path: Path) -> None:
    with path.open('a') as file:
        file.write('# more\n')


OTHERWISE: dict[str, Callable[[Path], object]] = {
    'changed': lambda base: add_text(base / 'pydantic_ai' / '_utils.py'),
    'added': lambda base: (base / 'pydantic_ai' / 'added.py').touch(),
    'removed': lambda base: (base / 'pydantic_ai' / 'py.typed').unlink(),
    'metadata': lambda base: add_text(next(base.glob('*.dist-info/METADATA'))),
}


@pytest.mark.parametrize('change', OTHERWISE)
def test_base_of_other_content_is_refused(change: str, checkout: Checkout, other_base: Path) -> None:
    OTHERWISE[change](other_base)
    checkout.assert_refused(
        f'BaseMismatchError: The content of the installed `pydantic-ai-slim` {LINE.base} in `{other_base}` is not what '
        f'`{checkout.pins}` is pinned to:\n'
        f'expected {LINE.digest}\n'
        f'found    {content_digest(other_base)}\n'
        f'Either the installed files were changed, or the package index serves another file under this version. Empty the '
        f'cache of your installer, with `pip cache remove pydantic_ai_slim` or `uv cache clean pydantic-ai-slim`, and build '
        f'again; if the digests still differ, do not trust that package index.'
    )


PUT_AWAY = f'put that away with `git stash push --include-untracked -- patches/{LINE.base}`'
EXTRACT = f'`make apply LINE={LINE.base}` and run `make extract LINE={LINE.base}`. Then build again.'


def test_patch_that_does_not_apply_is_refused(checkout: Checkout) -> None:
    patch = checkout.write_patch('fixes/change-something.patch', {SOURCE: append('# one\n')})
    add_patch(checkout.patches, 'heart/change-it-again.patch', patch.read_bytes())
    lines = (checkout.base / 'pydantic_ai' / '_utils.py').read_text().count('\n')
    checkout.assert_refused(
        f'PatchError: The patch `heart/change-it-again` does not apply to {LINE.base} with the patches before it. If '
        f'`patches/{LINE.base}` was edited by hand, {PUT_AWAY}; if the patch is to change, '
        f'change its commit in the tree of {EXTRACT} git said:\n'
        f'error: patch failed: {SOURCE}:{lines - 2}\n'
        f'error: {SOURCE}: patch does not apply'
    )


def test_git_missing_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    message = (
        'GitMissingError: The fork is built by applying patches with `git`, but there is no `git` on the `PATH`. Install '
        'git, for example with `apt install git` or `brew install git`, and build again.'
    )
    checkout.assert_refused(message, PATH=str(tmp_path))


def test_line_missing_is_refused(checkout: Checkout) -> None:
    shutil.rmtree(checkout.folder / 'patches')
    checkout.assert_refused(
        f'LineError: There is no line `{LINE.base}`: `{checkout.pins}` does not exist. The fork is built '
        f'inside a checkout of its repository, where `patches/` and `pydantic_ai_slim/` stand side by side. Clone the '
        f'repository and build `pydantic_ai_slim/{LINE.base}` there.'
    )


def test_source_distribution_is_refused(checkout: Checkout) -> None:
    message = (
        'UnsupportedBuildError: The fork has no source distribution: it is made of the installed base and of the patches in '
        'a checkout of its repository, and a source distribution would hold neither. Build a wheel in the checkout instead, '
        'with `make build`, `uv build --wheel` or `python -m build --wheel`.'
    )
    checkout.assert_refused(message, 'build_sdist')


def test_editable_installation_is_refused(checkout: Checkout) -> None:
    message = (
        'UnsupportedBuildError: The fork has no editable installation: its source is made from the base and the patches '
        'at every build. Install it without `--editable`; to change it, edit the tree that `make apply` makes.'
    )
    checkout.assert_refused(message, 'build_editable')


@pytest.mark.parametrize('variable', ['1', 'true'])
def test_build_without_hooks_is_refused(variable: str, checkout: Checkout) -> None:
    """It was a wheel of the fork with nothing in it."""
    message = (
        'UnsupportedBuildError: The fork cannot be built without hooks, since a hook applies the patches. Unset the '
        'environment variable `HATCH_BUILD_NO_HOOKS`, or leave the option for that out, and build again.'
    )
    checkout.assert_refused(message, HATCH_BUILD_NO_HOOKS=variable)


def test_cap_of_what_the_base_does_not_require_is_refused(checkout: Checkout) -> None:
    checkout.pins.write_text(checkout.pins.read_text() + 'opentelemetry-sdk = "<1.44"\nnumpy = "<3"\n')
    checkout.assert_refused(
        f'LineError: `{checkout.pins}` caps `numpy`, `opentelemetry-sdk`, which `pydantic-ai-slim` {LINE.base} does not require. Correct '
        f'the name or remove the cap, and build again.'
    )


# What isn't pinned isn't built


def test_installed_base_that_brings_along_more_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    """All that is pinned is as it was, and a `.pth` would run in the interpreter that builds."""
    target, wheel = tmp_path / 'installed', tmp_path / f'pydantic_ai_slim-{LINE.base}-py3-none-any.whl'
    with zipfile.ZipFile(wheel, 'w') as archive:
        for path in sorted(checkout.base.rglob('*')):
            name = path.relative_to(checkout.base).as_posix()
            if path.is_file() and '__pycache__' not in name and name.startswith('pydantic_ai'):
                archive.write(path, name)
        archive.writestr('evil.pth', 'import evil\n')
        archive.writestr('evil.py', '')
        archive.writestr(f'pydantic_ai_slim-{LINE.base}.data/scripts/evil', '#!python\n')
    install = [sys.executable, '-m', 'uv', 'pip', 'install', '--quiet', '--offline', '--no-deps']
    subprocess.run([*install, '--target', str(target), str(wheel)], check=True)
    checkout.base = target
    checkout.assert_refused(
        f'BaseMismatchError: The installed `pydantic-ai-slim` {LINE.base} in `{target}` has brought along what the release does not '
        f'have: `bin/evil`, `evil.pth`, `evil.py`. The package index serves another file under this version, and such a file '
        f'can run code in every Python that has it. Delete that environment, empty the cache of your installer, with `pip cache '
        f'remove pydantic_ai_slim` or `uv cache clean pydantic-ai-slim`, and do not trust that package index.'
    )


def test_installed_base_without_a_record_is_refused(checkout: Checkout, other_base: Path) -> None:
    next(other_base.glob('pydantic_ai_slim-*/RECORD')).unlink()
    checkout.assert_refused(
        f'BaseMismatchError: The installed `pydantic-ai-slim` {LINE.base} has no `RECORD` of the files that came with it, so nobody '
        'can tell what it brought along. Build without `--no-build-isolation`, or install it with pip or uv.'
    )


@pytest.mark.parametrize('name', [f'Pydantic_AI_Slim-{LINE.base}.dist-info', 'PYDANTIC.AI-SLIM.egg-info'])
def test_second_metadata_folder_is_refused(name: str, checkout: Checkout, other_base: Path) -> None:
    """As an installer makes it of a wheel that brings such a folder along in its `.data/purelib`."""
    second = shutil.copytree(other_base / f'pydantic_ai_slim-{LINE.base}.dist-info', other_base / name)
    (second / 'entry_points.txt').write_text('[console_scripts]\npai = evil:main\n')
    checkout.assert_refused(
        f'BaseMismatchError: There are several folders with the metadata of `pydantic-ai-slim` in `{other_base}`: '
        f'`{name}`, `pydantic_ai_slim-{LINE.base}.dist-info`. The fork takes its metadata from one that '
        f'is pinned. Build without `--no-build-isolation`, or install `pydantic-ai-slim` there again; if there are still '
        f'several, the package index serves another file than the release. Do not trust it then.'
    )


def test_licence_of_other_content_is_refused(checkout: Checkout) -> None:
    project = checkout.project
    add_text(project / 'LICENSE')
    found = digest_files({name: (project / name).read_bytes() for name in ('LICENSE', 'LICENSE.lifecycle')})
    checkout.assert_refused(
        f'BuildFolderError: The licences in `{project}`, `LICENSE`, `LICENSE.lifecycle`, are not those that `{checkout.pins}` is pinned '
        f'to:\nexpected {LINE.licences}\nfound    {found}\nRestore them with `git checkout -- pydantic_ai_slim` and build again; '
        f'if they are meant to be others, write that digest into `line.toml` as `licences` first.'
    )


@pytest.mark.parametrize('name', ['line/__init__.py', 'line.abi3.so', 'line.pyc'])
def test_what_would_be_loaded_in_place_of_a_module_of_the_hook_is_refused(name: str, checkout: Checkout) -> None:
    (rogue := checkout.project.parent / 'fork' / name).parent.mkdir(exist_ok=True)
    rogue.write_text('print("it runs")\n')
    done = checkout.build()
    assert done.returncode
    assert 'it runs' not in done.stdout
    where = name.partition('/')[0]
    assert done.stderr.startswith('BuildFolderError: ')
    assert f'there is what does not belong there: `{where}`. Move it away, and build again.' in done.stderr


@pytest.fixture
def patch(checkout: Checkout) -> Path:
    """A patch of the checkout for two files, and the pin of what it makes."""
    other = 'pydantic_ai_slim/pydantic_ai/exceptions.py'
    patch = checkout.write_patch('fixes/change.patch', {name: append('# one\n') for name in (SOURCE, other)})
    checkout.pin()
    return patch


@pytest.fixture
def unpatched(base: Path, tmp_path: Path) -> Path:
    """The base in upstream's layout."""
    (folder := tmp_path / 'unpatched').mkdir()
    copy_package(base, folder)
    return folder


def mismatch(checkout: Checkout, tree: Path, git: str | None = None) -> str:
    """Return what is said when the build makes what is in the folder `tree`."""
    return (
        f'ForkMismatchError: The base with the patches is not the package that `{checkout.pins}` is pinned to:\n'
        f'expected {load_line(checkout.patches).patched}\n'
        f'found    {package_digest(tree)}\n'
        f'Either the patches are not those that were pinned, or `{git or shutil.which("git")}` has not applied all of them. '
        f'If they were edited by hand, {PUT_AWAY} and build again; if they are meant to be others, run `make apply '
        f'LINE={LINE.base}` and `make extract LINE={LINE.base}` first.'
    )


@pytest.mark.usefixtures('patch')
def test_git_that_does_nothing_is_refused(checkout: Checkout, unpatched: Path, tmp_path: Path) -> None:
    git = tmp_path / 'bin' / 'git'
    git.parent.mkdir()
    git.write_text('#!/bin/sh\nexit 0\n')
    git.chmod(0o755)
    path = os.pathsep.join([str(git.parent), os.environ['PATH']])
    checkout.assert_refused(mismatch(checkout, unpatched, str(git)), PATH=path)


@pytest.mark.parametrize('change', ['strip prefixes', 'cut off', 'remove'])
def test_patches_that_are_not_applied_in_full_are_refused(
    change: str, checkout: Checkout, patch: Path, unpatched: Path
) -> None:
    text = patch.read_text()
    if change == 'strip prefixes':
        patch.write_text(re.sub(r'(?<=[ /])[ab]/(?=pydantic_ai_slim)', '', text))
    elif change == 'cut off':
        patch.write_text(text.rpartition('diff --git')[0])
        apply_patches([patch], unpatched)
    else:
        patch.unlink()
        (checkout.patches / 'series').write_text('')
    checkout.assert_refused(mismatch(checkout, unpatched))


@pytest.mark.usefixtures('patch')
def test_line_without_the_digest_of_the_patched_package_is_refused(checkout: Checkout) -> None:
    checkout.pins.write_text(re.sub(r'(?m)^patched .*\n', '', checkout.pins.read_text()))
    checkout.assert_refused(
        f'ForkMismatchError: `{checkout.pins}` has no `patched`, the digest of the package with the patches, so nobody could tell '
        f'whether they were applied in full. Run `make apply LINE={LINE.base}` and `make extract LINE={LINE.base}`, which write it, and '
        f'build again.'
    )


COPY = f'similarity index 100%\ncopy from {{}}\ncopy to {SOURCE}x\n'
OUTSIDE = "It reads '../secret.py', which is outside of the tree."
TAKES = {
    'a copy from outside of the tree': (
        f'diff --git a/../secret.py b/{SOURCE}\n{COPY.format("../secret.py")}',
        OUTSIDE,
    ),
    'a copy from outside of the tree, in disguise': (
        f'diff --git "a/\\056\\056/secret.py" b/{SOURCE}\n' + COPY.format('"\\056\\056/secret.py"'),
        OUTSIDE,
    ),
    'a copy from an absolute path': (
        f'diff --git a/x b/{SOURCE}\n{COPY.format("/etc/passwd")}',
        "It reads '/etc/passwd', which is outside of the tree.",
    ),
    'a copy from outside of the package': (
        f'diff --git a/tests/a.py b/{SOURCE}x\n{COPY.format("tests/a.py")}',
        f"It makes '{SOURCE}x' of 'tests/a.py', which is outside of the package.",
    ),
    'a symlink': (
        f'diff --git a/{SOURCE}x b/{SOURCE}x\nnew file mode 120000\n--- /dev/null\n+++ b/{SOURCE}x\n@@ -0,0 +1 @@\n+/etc/passwd\n',
        f'It makes something else than a regular file, of mode 120000: `a/{SOURCE}x b/{SOURCE}x`.',
    ),
}


@pytest.mark.parametrize('what', TAKES)
def test_patch_that_takes_more_than_files_of_the_package_is_refused(
    what: str, checkout: Checkout, tmp_path: Path
) -> None:
    (tmp_path / 'tmp').mkdir()
    (tmp_path / 'tmp' / 'secret.py').write_text('secret\n')
    text, fault = TAKES[what]
    mail = f'From: A. Author <author@example.com>\nSubject: Take it\n\n---\n\n{text}'
    add_patch(checkout.patches, 'fixes/take-it.patch', mail.encode())
    message = (
        f'PatchError: The patch `fixes/take-it` takes more than files of the package:\n- {fault}\nOnly files below '
        f'`pydantic_ai_slim/pydantic_ai` go into the fork. If `patches/{LINE.base}` was edited by hand, {PUT_AWAY}; '
        f'if the patch is to change, change its commit in the tree of {EXTRACT}'
    )
    checkout.assert_refused(message, TMPDIR=str(tmp_path / 'tmp'))
