"""Pins to a commit of the repository, which each installer builds by itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pinning.downstream import ANOTHER, Downstream, newest_line
from tests.pinning.test_hatch import BUILD

ROOT = Path(__file__).parents[2]
TABLE = 'In a `pyproject.toml`'


@pytest.fixture(scope='session')
def repository(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address and the commit of a repository with what the build needs of this one, as it is now."""
    folder = tmp_path_factory.mktemp('repository')
    for part in ('patches', 'pydantic_ai_slim'):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns('__pycache__'))
    git = ['git', '-c', 'user.name=A. Author', '-c', 'user.email=author@example.com', '-c', 'commit.gpgsign=false']
    for command in (['init', '--quiet'], ['add', '.'], ['commit', '--quiet', '--message=state']):
        subprocess.run([*git, *command], cwd=folder, check=True)
    head = subprocess.run([*git, 'rev-parse', 'HEAD'], cwd=folder, check=True, capture_output=True, text=True).stdout
    return {'URL': folder.as_uri(), 'COMMIT': head.strip()}


@pytest.fixture
def pinned(downstream: Downstream, repository: dict[str, str]) -> Downstream:
    return replace(downstream, words=repository)


def test_pip_builds_the_fork_and_keeps_it_beneath_the_full_package(pinned: Downstream) -> None:
    pinned.make_environment(str(pinned.wheel))
    # What it needs is there; pip builds the fork itself, in place of the one that was built already.
    pinned.follow('With pip', 0, '--no-deps', '--force-reinstall')
    origin = json.loads(next(pinned.environment.rglob('pydantic_ai_slim-*/direct_url.json')).read_text())
    assert origin['vcs_info']['commit_id'] == pinned.words['COMMIT']
    pinned.has_fork()

    if 'pydantic-ai' in pinned.companions:
        # pip's own resolver, without the hundred packages that all extras need
        pinned.follow('With pip', 1, '--no-deps')
        again = pinned.run('pip', 'install', '--dry-run', f'pydantic-ai-slim=={pinned.line.base}').stdout
        assert 'Would install' not in again
        assert pinned.installed('pydantic-ai-slim') == pinned.line.version


def test_uv_builds_the_fork_for_a_project(pinned: Downstream) -> None:
    pinned.make_environment()
    pinned.write('[project]\n')
    pinned.follow('With uv', 0)
    pinned.run('uv', 'add', ANOTHER, *pinned.evals.values())
    first = pinned.has_fork('openai', ANOTHER, *pinned.evals)
    assert pinned.words['COMMIT'] in (pinned.folder / 'uv.lock').read_text()

    pinned.make_environment()
    pinned.run('uv', 'sync', '--locked')
    assert pinned.has_fork() == first


def test_uv_sources_cover_the_packages_that_need_the_base(pinned: Downstream) -> None:
    pinned.make_environment()
    pinned.write(pinned.text(TABLE, 1), require=[ANOTHER])
    pinned.run('uv', 'lock')
    lock = (pinned.folder / 'uv.lock').read_text()
    fork = f'name = "pydantic-ai-slim"\nversion = "{pinned.line.version}"\nsource = {{ git = "{pinned.words["URL"]}'
    assert lock.count('name = "pydantic-ai-slim"\nversion') == lock.count(fork) == 1
    assert ('name = "pydantic-ai"\n' in lock) == ('pydantic-ai' in pinned.companions)


@newest_line
def test_hatch_builds_the_fork_once_addresses_are_allowed(pinned: Downstream) -> None:
    pinned.write(pinned.text(TABLE, 0), BUILD, require=[ANOTHER])
    refused = pinned.attempt('hatch', 'run', 'python', '--version')
    assert 'cannot be a direct reference unless field `tool.hatch.metadata.allow-direct-references`' in (
        ' '.join((refused.stdout + refused.stderr).split())
    )
    pinned.write(pinned.text(TABLE, 0), pinned.text(TABLE, 2), BUILD, require=[ANOTHER])
    pinned.run('hatch', 'run', 'python', '--version')
    pinned.has_fork('openai', ANOTHER)


@newest_line
def test_poetry_builds_the_fork_while_it_locks(pinned: Downstream) -> None:
    pinned.write(pinned.text(TABLE, 3), pinned.own_source(), require=[ANOTHER, *pinned.evals.values()])
    pinned.make_poetry_environment()
    pinned.run('poetry', 'lock')
    assert f'resolved_reference = "{pinned.words["COMMIT"]}"' in (pinned.folder / 'poetry.lock').read_text()
    pinned.run('poetry', 'sync', '--no-root')
    pinned.has_fork('openai', ANOTHER, *pinned.evals)
