"""`release` writes the wheels of all lines with all that belongs to them, or nothing.

Those of the small upstream are built by the tool's own interpreter, because the index is out of reach. `tests/hook`
has the real thing.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from pydantic_ai_slim.fork.digests import digest_files
from series.errors import SeriesError
from series.line import Line, pin_patched
from series.verbs import release as module
from series.verbs.release import release
from tests.series.upstream import BASE, quiet

TOOLS = 'pydantic_ai_slim/pydantic_ai/tools.py'
FORK = f'{BASE}+lifecycle.1'
WHEEL = f'pydantic_ai_slim-{FORK}-py3-none-any.whl'
BILL = f'pydantic_ai_slim-{FORK}.cdx.json'
CHANGELOG = f"""\
# Changelog

## {BASE}

### {FORK}

- The summands are swapped.

### {BASE}+lifecycle.0

- Nothing.
"""


@pytest.fixture
def releasable(buildable: Line, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A checkout with a line of one patch, all of it committed."""
    line = buildable
    (line.root / 'CHANGELOG.md').write_text(CHANGELOG)
    (line.root / '.gitignore').write_text('/build/\n/dist/\n__pycache__/\n')
    git(line, 'init', '--quiet')
    commit(line)
    monkeypatch.setattr(module, 'interpreters', lambda line: (Path(sys.executable), Path(sys.executable)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return line


def git(line: Line, *arguments: str) -> str:
    command = ['git', '-c', 'commit.gpgsign=false', *arguments]
    return subprocess.run(command, cwd=line.root, check=True, capture_output=True, text=True).stdout.strip()


def commit(line: Line) -> None:
    git(line, 'add', '--all')
    git(line, 'commit', '--quiet', '--message=state')


def change_changelog(line: Line, old: str, new: str) -> None:
    path = line.root / 'CHANGELOG.md'
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    commit(line)


def left_over(line: Line) -> list[str]:
    """Return what lies in `dist/` beside the release."""
    dist = line.root / 'dist'
    return [path.name for path in dist.iterdir() if path.name != 'release'] if dist.exists() else []


def test_release_holds_wheel_digests_bill_and_text(releasable: Line) -> None:
    folder = release(releasable.root, quiet)

    assert folder == releasable.root / 'dist' / 'release'
    assert sorted(path.name for path in folder.iterdir()) == ['RELEASE.md', 'SHA256SUMS', WHEEL, BILL]
    assert left_over(releasable) == []
    with zipfile.ZipFile(folder / WHEEL) as content:
        assert 'return b + a' in content.read('pydantic_ai/tools.py').decode()
    done = subprocess.run(
        ['sha256sum', '--check', 'SHA256SUMS'], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f'{WHEEL}: OK\n{BILL}: OK\n')


def test_release_text_has_the_changes_and_how_to_pin_them(releasable: Line) -> None:
    text = (release(releasable.root, quiet) / 'RELEASE.md').read_text()
    head = git(releasable, 'rev-parse', 'HEAD')
    assert text.startswith(f'# {FORK}\n\n## {FORK}\n\n- The summands are swapped.\n\nPin it')
    assert 'Nothing' not in text
    assert f'pip install "pydantic-ai-slim @ git+URL@{head}#subdirectory=pydantic_ai_slim/{BASE}"' in text
    assert f'pip install --extra-index-url INDEX "pydantic-ai-slim=={FORK}"' in text


def test_release_bill_of_materials_names_base_and_patches(releasable: Line) -> None:
    folder = release(releasable.root, quiet)
    text = (folder / BILL).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None

    bill: dict[str, Any] = json.loads(text)
    fork = bill['metadata']['component']
    digest = (folder / 'SHA256SUMS').read_text().split()[0]
    assert (fork['name'], fork['version']) == ('pydantic-ai-slim', FORK)
    assert fork['purl'] == f'pkg:pypi/pydantic-ai-slim@{FORK.replace("+", "%2B")}'
    assert fork['licenses'] == [{'expression': 'MIT'}]
    assert fork['hashes'] == [{'alg': 'SHA-256', 'content': digest}]
    assert fork['pedigree']['commits'] == [{'uid': git(releasable, 'rev-parse', 'HEAD')}]
    (base,) = fork['pedigree']['ancestors']
    assert (base['version'], base['purl']) == (BASE, f'pkg:pypi/pydantic-ai-slim@{BASE}')
    assert base['properties'] == [{'name': 'lifecycle:content-digest', 'value': releasable.digest}]
    (patch,) = releasable.patches
    (described,) = fork['pedigree']['patches']
    assert described['diff']['url'] == f'patches/{BASE}/{patch.parent.name}/{patch.name}'
    assert described['diff']['text']['content'] == patch.read_text()


@pytest.mark.slow
def test_release_again_gives_the_same_bytes_whatever_the_circumstances(
    releasable: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def content() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in release(releasable.root, quiet).iterdir()}

    before = content()
    monkeypatch.setenv('SOURCE_DATE_EPOCH', '1764720000')
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    before_umask = os.umask(0o027)
    try:
        assert content() == before
    finally:
        os.umask(before_umask)


@pytest.mark.slow
def test_release_that_is_not_the_same_twice_is_refused_and_says_where(releasable: Line) -> None:
    made = release(releasable.root, quiet)
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    # The generator of the wheel tells how it was built.
    hook = releasable.root / 'pydantic_ai_slim' / 'hatch_build.py'
    hook.write_text(
        f'{hook.read_text()}\nfrom hatchling.builders import wheel\nwheel.__version__ = os.environ.get("TZ", "here")\n'
    )
    commit(releasable)
    with pytest.raises(SeriesError) as error:
        release(releasable.root, quiet)
    assert error.value.problem.startswith(f'Two builds of {FORK} differ, the first by ')
    assert f'\n- `pydantic_ai_slim-{FORK}.dist-info/WHEEL`\n' in f'{error.value.problem}\n'
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    assert left_over(releasable) == []


@pytest.mark.parametrize('name', ['CHANGELOG.md', 'patches/new.patch'])
def test_release_of_a_checkout_with_changes_is_refused(name: str, releasable: Line) -> None:
    with (releasable.root / name).open('a') as file:
        file.write('more\n')
    with pytest.raises(SeriesError) as error:
        release(releasable.root, quiet)
    assert f'{error.value.problem}\n{error.value.remedy}' == (
        'The checkout has changes that no commit holds, so that nobody could make the same release again.\n'
        'Commit them, or put them away with `git stash --include-untracked`, then run `make release` again.'
    )
    assert name in error.value.words
    assert not (releasable.root / 'dist' / 'release').exists()


@pytest.mark.parametrize(
    ('old', 'new', 'fault'),
    [
        (f'### {FORK}\n', '### 0.1\n', f'There is no entry `### {FORK}`.'),
        ('- The summands are swapped.\n', '', f'The entry `### {FORK}` is empty.'),
        (
            f'### {FORK}\n',
            f'### {FORK} (unreleased)\n',
            f'The entry `### {FORK} (unreleased)` says that it is unreleased.',
        ),
        ('- The summands', 'Unreleased.\n\n- The', f'The entry `### {FORK}` says that it is unreleased.'),
        (
            f'### {FORK}\n',
            f'### {BASE}+lifecycle.2\n\n- More.\n\n### {FORK}\n',
            f'There is an entry `### {BASE}+lifecycle.2`, but `number` in `patches/{BASE}/line.toml` is 1.',
        ),
    ],
)
def test_release_that_the_changelog_does_not_fit_is_refused(old: str, new: str, fault: str, releasable: Line) -> None:
    change_changelog(releasable, old, new)
    with pytest.raises(SeriesError) as error:
        release(releasable.root, quiet)
    assert error.value.problem == f'`CHANGELOG.md` does not fit what is to be released:\n- {fault}'
    assert not (releasable.root / 'dist' / 'release').exists()


def test_release_entry_ends_where_the_next_line_begins(releasable: Line) -> None:
    change_changelog(releasable, f'### {BASE}+lifecycle.0\n', '## 0.9.0\n\n### 0.9.0+lifecycle.1\n')
    ((_, entry),) = module.changelog_entries([releasable])
    assert entry == '- The summands are swapped.'


@pytest.mark.slow
def test_release_is_of_the_commit_and_not_of_what_git_ignores(releasable: Line) -> None:
    (releasable.root / '.gitignore').write_text('/build/\n/dist/\n__pycache__/\n*.orig\n')
    commit(releasable)
    made = (release(releasable.root, quiet) / WHEEL).read_bytes()
    (releasable.root / 'pydantic_ai_slim' / BASE / 'LICENSE.orig').write_text('not ours\n')
    assert (release(releasable.root, quiet) / WHEEL).read_bytes() == made


def test_release_writes_down_what_its_number_stands_for(releasable: Line) -> None:
    """And the same release again, with that in no commit yet, is no change of the checkout."""
    made = release(releasable.root, quiet)
    written = (releasable.root / 'RELEASES').read_text()
    assert written == (made / 'SHA256SUMS').read_text().splitlines(keepends=True)[0]
    release(releasable.root, quiet)
    assert (releasable.root / 'RELEASES').read_text() == written


@pytest.mark.slow
def test_release_of_other_bytes_under_a_number_that_was_released_is_refused(releasable: Line) -> None:
    line = releasable
    made = release(line.root, quiet)
    before, written = (made / WHEEL).read_bytes(), (line.root / 'RELEASES').read_text()
    commit(line)
    (patch,) = line.patches
    patch.write_text(patch.read_text().replace('+    return b + a', '+    return b + a + 0'))
    tools = unpacked_tools(before).replace(b'return b + a', b'return b + a + 0')
    with zipfile.ZipFile(made / WHEEL) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if name.startswith('pydantic_ai/')}
    toml = line.folder / 'line.toml'
    toml.write_text(pin_patched(toml.read_text(), digest_files(files | {'pydantic_ai/tools.py': tools})))
    commit(line)

    with pytest.raises(SeriesError) as error:
        release(line.root, quiet)

    assert error.value.problem.startswith(
        f'Other bytes were released under the number of {FORK}, as `RELEASES` says:\nreleased {written.split()[0]}\nnow      '
    )
    assert error.value.remedy == (
        f'Raise `number` in `patches/{BASE}/line.toml`, add an entry to `CHANGELOG.md`, commit both, and run `make release` again.'
    )
    assert ((made / WHEEL).read_bytes(), (line.root / 'RELEASES').read_text()) == (before, written)


def unpacked_tools(wheel: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(wheel)) as content:
        return content.read('pydantic_ai/tools.py')


def test_release_goes_by_the_digests_that_a_commit_holds(releasable: Line) -> None:
    released = releasable.root / 'RELEASES'
    released.write_text(f'{"1" * 64}  {WHEEL}\n')
    commit(releasable)
    released.unlink()
    assert module.read_releases(releasable.root) == {WHEEL: '1' * 64}
    released.write_text(f'{"2" * 64}  {WHEEL}\n{"3" * 64}  other.whl\n')
    assert module.read_releases(releasable.root) == {WHEEL: '1' * 64, 'other.whl': '3' * 64}


def test_release_does_not_take_a_merge_of_digests_for_some(releasable: Line) -> None:
    (releasable.root / 'RELEASES').write_text(f'<<<<<<< HEAD\n{"1" * 64}  {WHEEL}\n=======\n')
    with pytest.raises(SeriesError, match="`RELEASES` has the line '<<<<<<< HEAD', which is no digest of a wheel"):
        module.read_releases(releasable.root)
