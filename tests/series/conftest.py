"""A checkout with a line on a small upstream, which reaches neither the network nor anyone's configuration."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from series.base import base_repository
from series.git import safe_directories
from series.line import Line
from series.progress import heartbeat
from tests.series.upstream import (
    BASE,
    BUILD,
    PACKAGE,
    ROOT,
    Index,
    User,
    quiet,
    set_author,
    write_line,
    write_releases,
    write_series,
)


@pytest.fixture(scope='session', autouse=True)
def signals() -> None:
    """Have programs end at signals again that whoever began the tests has ignored, as `nohup` and `&` do."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def shut_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the network, the user's configuration of git, pip and uv, and signing out of a test."""
    for name in list(os.environ):
        if name.startswith(('GIT_', 'PIP_', 'UV_')) or name.lower().endswith('_proxy'):
            monkeypatch.delenv(name)
    safe_directories.cache_clear()
    (home := tmp_path / 'home').mkdir()
    variables = {
        'HOME': home,
        'XDG_CONFIG_HOME': home,
        'GIT_CONFIG_SYSTEM': os.devnull,
        'PIP_CONFIG_FILE': os.devnull,
        'PIP_NO_INDEX': '1',
        'PIP_NO_CACHE_DIR': '1',
        'UV_NO_CONFIG': '1',
        'UV_OFFLINE': '1',
        # What ignores the above reaches nobody.
        'ALL_PROXY': 'http://127.0.0.1:9',
        'HTTPS_PROXY': 'http://127.0.0.1:9',
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what slow work says of itself out of what a test reads, since any work may be slow on a busy machine."""
    for module in ('cli', 'progress'):
        monkeypatch.setattr(f'series.{module}.heartbeat', partial(heartbeat, seconds=3600))


@pytest.fixture(scope='session')
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the releases of the small upstream, as pip and uv take them with `--find-links`."""
    folder = tmp_path_factory.mktemp('releases')
    write_releases(folder)
    return folder


@pytest.fixture(scope='session')
def unpacked(releases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base as an installer lays it out."""
    folder = tmp_path_factory.mktemp('unpacked')
    with zipfile.ZipFile(releases / f'pydantic_ai_slim-{BASE}-py3-none-any.whl') as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture(scope='session')
def cache(releases: Path, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `build/cache` of a checkout, with the base made by the tool itself."""
    line = write_line(tmp_path_factory.mktemp('cache'), releases, unpacked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PIP_NO_INDEX', '1')
        patch.setenv('PIP_CONFIG_FILE', os.devnull)
        patch.setenv('PIP_FIND_LINKS', str(releases))
        base_repository(line, quiet)
    return line.cache


@pytest.fixture
def uncached(tmp_path: Path, releases: Path, unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A line without patches in a checkout that has downloaded nothing yet."""
    monkeypatch.setenv('PIP_FIND_LINKS', str(releases))
    return write_line(tmp_path / 'checkout', releases, unpacked)


@pytest.fixture
def line(uncached: Line, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A line without patches in a checkout that has its base; nothing can be downloaded any more."""
    monkeypatch.delenv('PIP_FIND_LINKS')
    shutil.copytree(cache, uncached.cache)
    return uncached


@pytest.fixture
def index(releases: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index with the releases of the small upstream, as pip and uv are configured for it."""
    with Index(releases) as served:
        thread = Thread(target=served.serve_forever, kwargs={'poll_interval': 0.01})
        thread.start()
        for name in ('PIP_NO_INDEX', 'UV_OFFLINE'):
            monkeypatch.delenv(name)
        for name, value in {
            'PIP_INDEX_URL': served.url,
            'UV_DEFAULT_INDEX': served.url,
            'NO_PROXY': '127.0.0.1',
        }.items():
            monkeypatch.setenv(name, value)
        yield served
        served.shutdown()
        thread.join()


@pytest.fixture
def user(uncached: Line, monkeypatch: pytest.MonkeyPatch) -> User:
    set_author(monkeypatch)
    return User(uncached.tree)


OWN = '.'.join(map(str, sys.version_info[:2]))


@pytest.fixture
def buildable(line: Line, user: User, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A line with one patch and with the build folder and the hook of this repository."""
    swapped = PACKAGE['pydantic_ai/tools.py'].replace('a + b', 'b + a')
    write_series(line, ('Swap the summands', {'pydantic_ai_slim/pydantic_ai/tools.py': swapped}))
    pins = line.folder / 'line.toml'
    pins.write_text(pins.read_text().replace('python = ["3.12"]', f'python = ["{OWN}"]'))
    ours = ROOT / 'pydantic_ai_slim'
    copy = partial(shutil.copytree, ignore=shutil.ignore_patterns('__pycache__'))
    copy(ours / 'fork', line.root / 'pydantic_ai_slim' / 'fork')
    copy(BUILD, line.root / 'pydantic_ai_slim' / BASE)
    shutil.copy(ours / 'hatch_build.py', line.root / 'pydantic_ai_slim')
    # Only the tool's own interpreter has hatchling, and a line may be built with another.
    monkeypatch.setattr('series.build.find_builder', lambda folder, python: Path(sys.executable))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return line
