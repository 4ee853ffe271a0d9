"""`write_locks` reads what upstream requires, and has uv lock it. Here uv only says what it was asked."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from series.errors import DownloadError, NoReleaseError
from series.line import Line
from series.verbs.locks import bounds_file, for_other_tests, lock_file, write_locks
from tests.series.upstream import BASE, quiet, refusal

SETTINGS = """\
[tool.uv]
default-groups = ["dev", "docs"]

[tool.uv.sources]
theme = { git = "https://example.com/theme" }
pydantic-ai = { workspace = true }

[dependency-groups]
dev = ["pytest>=8", "tool @ git+https://example.com/tool@1234", "trio"]
docs = [{ include-group = "pages" }, "pydantic-ai[agents]"]
pages = ["mkdocs>=1", "theme"]
"""

STANDARD = f"""\
Requires-Dist: pydantic-ai-slim[cli]=={BASE}
Provides-Extra: agents
Requires-Dist: agents>=2; extra == 'agents'
Provides-Extra: windows
Requires-Dist: windows>=1; (sys_platform == 'win32') and extra == 'windows'
Provides-Extra: outlines-gpu
Requires-Dist: vllm; extra == 'outlines-gpu'
"""

EVALS = f'Requires-Dist: pydantic-ai-slim=={BASE}\nRequires-Dist: pyyaml>=6\n'


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What uv was asked: the requirements, the bounds and the rest, in the order of the locks."""
    found: list[dict[str, str]] = []

    def uv(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        *options, listed = arguments
        bounds = options[options.index('--constraint') + 1]
        options[options.index('--constraint') + 1] = 'BOUNDS'
        required = Path(listed).read_text()
        found.append({'required': required, 'bounds': Path(bounds).read_text(), 'options': ' '.join(options)})
        failed = 'unknown' in required + found[-1]['bounds']
        return subprocess.CompletedProcess(arguments, int(failed), b'one==1\n', b'No such release' if failed else b'')

    monkeypatch.setattr('series.verbs.locks.uv', uv)
    return found


@pytest.fixture
def offered(
    uncached: Line, tmp_path: Path, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, str], None]:
    """Offers a release of upstream's, beside the small base."""
    monkeypatch.setattr('series.verbs.locks.base_repository', lambda *_: uncached.cache)  # pyright: ignore
    monkeypatch.setattr('series.verbs.locks.Git.run', lambda *_: SETTINGS)  # pyright: ignore

    def base_wheel(*_: object) -> Path:
        return releases / f'pydantic_ai_slim-{BASE}-py3-none-any.whl'

    def download(_: Path, requirement: str, *options: str) -> Path:
        name, version = requirement.split('===')
        wheel = tmp_path / f'{name.replace("-", "_")}-{version}-py3-none-any.whl'
        if not wheel.exists():
            raise NoReleaseError('', '')
        return wheel

    monkeypatch.setattr('series.verbs.locks.download_base', base_wheel)
    monkeypatch.setattr('series.verbs.locks.download', download)

    def offer(name: str, version: str, requires: str) -> None:
        stem = f'{name.replace("-", "_")}-{version}'
        with zipfile.ZipFile(tmp_path / f'{stem}-py3-none-any.whl', 'w') as wheel:
            wheel.writestr(
                f'{stem}.dist-info/METADATA', f'Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requires}'
            )
            wheel.writestr(f'{stem}.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
            wheel.writestr(f'{stem}.dist-info/RECORD', '')

    return offer


def test_locks_hold_what_upstreams_ci_installs(
    uncached: Line, offered: Callable[[str, str, str], None], asked: list[dict[str, str]]
) -> None:
    offered('pydantic-ai', BASE, STANDARD)
    written = write_locks(uncached, quiet)
    assert [path.name for path in written] == [
        'slim-highest.txt',
        'slim-lowest-direct.txt',
        'standard-highest.txt',
        'standard-lowest-direct.txt',
        'all-highest.txt',
        'all-lowest-direct.txt',
    ]
    assert written[0].read_text() == f"# What upstream's tests of {BASE} need. Written by `make locks`.\none==1\n"
    base, ours = f'pydantic-ai-slim==={BASE}', 'pytest-timeout>=2.3.1'
    # What the packages require themselves is required directly, as in upstream's workspace. Not what is in a repository.
    slim = ['httpx>=0.27', base, ours, 'pytest>=8', 'trio']
    assert asked[0]['required'].split() == slim
    standard = sorted([*slim, 'agents>=2', 'mkdocs>=1', 'rich>=13'])
    assert asked[2]['required'].split() == standard
    # Without what needs GPUs.
    assert asked[4]['required'].splitlines() == sorted([*standard, 'windows>=1; sys_platform == "win32"'])
    assert ' --universal --python-version 3.12 ' in asked[0]['options']
    assert ' --exclude-newer 2025-02-01T00:00:00Z ' in asked[0]['options']
    assert [one['options'].partition('--resolution ')[2].split()[0] for one in asked] == [
        'highest',
        'lowest-direct',
    ] * 3


def test_locks_take_siblings_that_the_index_has_in_that_version(
    uncached: Line, offered: Callable[[str, str, str], None], asked: list[dict[str, str]]
) -> None:
    offered('pydantic-ai', '0.9.0', 'Requires-Dist: pydantic-ai-slim==0.9.0\nRequires-Dist: pydantic-evals==0.9.0\n')
    write_locks(uncached, quiet)
    # In another version it would bring another base.
    assert 'pydantic-evals' not in asked[2]['required']
    offered('pydantic-evals', BASE, EVALS)
    write_locks(uncached, quiet)
    assert {f'pydantic-evals==={BASE}', 'pyyaml>=6'} <= set(asked[8]['required'].split())


def test_locks_heed_the_bounds_of_the_line(
    uncached: Line, offered: Callable[[str, str, str], None], asked: list[dict[str, str]]
) -> None:
    (uncached.folder / 'tests.in').write_text(f'pydantic-ai-slim[cli]==={BASE}\nanyio\n# a remark\ngriffe<1.6  # why\n')
    bounds_file(uncached).parent.mkdir()
    bounds_file(uncached).write_text('trio>=0.20\n')
    write_locks(uncached, quiet)
    assert {one['bounds'] for one in asked} == {'griffe<1.6\ntrio>=0.20\n'}
    assert bounds_file(uncached).read_text() == 'trio>=0.20\n'


def test_locks_that_uv_cannot_make_leave_those_of_before(
    uncached: Line, offered: Callable[[str, str, str], None], asked: list[dict[str, str]]
) -> None:
    write_locks(uncached, quiet)
    lock = lock_file(uncached, 'slim', 'highest')
    before = lock.read_bytes()
    bounds_file(uncached).write_text('unknown>=1\n')
    assert refusal(write_locks, uncached, quiet) == (
        f'`patches/{BASE}/locks/slim-highest.txt` was not written: uv finds no releases that go together.\n'
        f'Bound what stands in the way in `patches/{BASE}/locks/bounds.in`, and run `make locks LINE={BASE}` again.\n'
        '\n'
        '    one==1\n'
        '    No such release'
    )
    assert lock.read_bytes() == before


@pytest.mark.slow
def test_locks_tell_a_release_that_is_missing_from_an_index_that_is(
    uncached: Line, releases: Path, asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here pip itself looks, and finds the base and nothing else."""
    write_locks(uncached, quiet)
    assert len(asked) == 6
    monkeypatch.setenv('PIP_FIND_LINKS', str(releases / 'gone'))
    with pytest.raises(DownloadError):
        write_locks(uncached, quiet)
    assert len(asked) == 6


def test_locks_have_the_development_dependencies_of_other_tests_in_place_of_their_own() -> None:
    own = '[dependency-groups]\ndev = ["pytest>=8", "pytest-new", "redis", "left @ git+https://example.com/left"]'
    others = '[dependency-groups]\ndev = [{ include-group = "more" }, "old-recorder>=2"]\nmore = ["PyTest>=7"]'
    locked = ['httpx==1.0', 'pytest-new==3.1 ; python_version >= "3.12"', 'pytest==8.4', 'redis==8.1']
    assert for_other_tests(locked, own, others) == ['httpx==1.0', 'pytest==8.4', 'redis==8.1', 'old-recorder>=2']
    assert for_other_tests(locked, own, own) == locked
    lock = """
        [[package]]
        name = "old-recorder"
        version = "2.5"
        dependencies = [{ name = "tape" }, { name = "httpx" }]

        [[package]]
        name = "tape"
        version = "8.1"
    """
    assert for_other_tests(locked, own, others, lock)[3:] == ['old-recorder==2.5', 'tape==8.1']
