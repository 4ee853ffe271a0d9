from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from demo import environments
from series.progress import heartbeat

WriteScript = Callable[[str], Path]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line('markers', 'environments: runs in environments with the base and with the built fork')


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep out what the user's terminal is like."""
    for name in ('FORCE_COLOR', 'NO_COLOR', 'TTY_COMPATIBLE'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('COLUMNS', '120')


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what slow work says of itself out of what a test reads, since any work may be slow on a busy machine."""
    monkeypatch.setattr('series.progress.heartbeat', partial(heartbeat, seconds=3600))


@pytest.fixture
def write_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteScript:
    """Put another script in the place of `demo/scenarios.py`, which any interpreter can run."""

    def write(text: str) -> Path:
        script = tmp_path / 'script.py'
        script.write_text(text, encoding='utf-8')
        monkeypatch.setattr(environments, 'SCRIPT', script)
        return script

    return write
