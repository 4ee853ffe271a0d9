"""`make test` says at its end what it left out, since this machine lacks what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.postgres import NoPostgresError
from tests.__main__ import left_out


def lack_all(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def find_postgres() -> None:
        raise NoPostgresError('PostgreSQL is not installed.')

    monkeypatch.setattr('tests.__main__.find_postgres', find_postgres)
    monkeypatch.setenv('PATH', str(folder))
    monkeypatch.setenv('PLAYWRIGHT_BROWSERS_PATH', str(folder))
    monkeypatch.delenv('CI', raising=False)


def test_left_out_names_what_the_machine_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lack_all(monkeypatch, tmp_path)

    assert left_out() == {
        'what needs PostgreSQL': 'left out. PostgreSQL is not installed.',
        'what needs a browser': (
            'left out. Chromium is not installed. Install it, on Debian with `apt-get install chromium`, '
            'and run the same command again.'
        ),
    }


def test_left_out_knows_the_browser_that_playwright_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lack_all(monkeypatch, tmp_path)
    (tmp_path / 'chromium-1200').mkdir()

    assert [*left_out()] == ['what needs PostgreSQL']


def test_left_out_is_nothing_in_ci_where_such_tests_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lack_all(monkeypatch, tmp_path)
    monkeypatch.setenv('CI', 'true')

    assert left_out() == {}
