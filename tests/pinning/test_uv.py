"""uv, as a project manager and in the place of pip."""

from __future__ import annotations

import pytest

from tests.pinning.downstream import ANOTHER, Downstream

PROJECT = '[project]\n'


def test_uv_adds_the_fork_to_a_project_on_the_base_and_goes_back(downstream: Downstream) -> None:
    evals = downstream.evals
    downstream.make_environment()
    downstream.write(PROJECT, require=[f'pydantic-ai-slim=={downstream.line.base}', ANOTHER])
    downstream.run('uv', 'sync')

    downstream.follow('uv and an index', 0)
    downstream.has_fork('openai', ANOTHER)
    downstream.run('uv', 'add', 'colorama', *evals.values())
    downstream.run('uv', 'sync')
    downstream.has_fork('openai', ANOTHER, *evals)
    downstream.locks_fork('uv.lock')

    # As the page says: the base's version, without the source and the index
    project = downstream.folder / 'pyproject.toml'
    before = project.read_text()
    text = before.replace(downstream.line.version, downstream.line.base).partition('[tool.uv.sources]')[0]
    assert 'url = ' in before
    assert 'url = ' not in text
    project.write_text(text)
    downstream.run('uv', 'lock')
    downstream.run('uv', 'sync', '--locked')
    # It may not even be importable, with the newest dependencies.
    assert downstream.installed('pydantic-ai-slim') == downstream.line.base
    assert downstream.line.version not in (downstream.folder / 'uv.lock').read_text()


def test_uv_adds_the_fork_to_a_new_project(downstream: Downstream) -> None:
    downstream.make_environment()
    downstream.write(PROJECT)
    downstream.follow('uv and an index', 0)
    downstream.run('uv', 'add', ANOTHER, *downstream.evals.values())
    first = downstream.has_fork('openai', ANOTHER, *downstream.evals)
    downstream.locks_fork('uv.lock')

    downstream.make_environment()
    downstream.run('uv', 'sync', '--locked')
    assert downstream.has_fork() == first


def test_uv_takes_nothing_else_from_an_explicit_index(downstream: Downstream) -> None:
    downstream.index.asked.clear()
    downstream.make_environment()
    downstream.write(downstream.text('uv and an index', 1), require=[ANOTHER, *downstream.companions.values()])
    downstream.follow('uv and an index', 2)
    first = downstream.has_fork('openai', ANOTHER, *downstream.companions)
    downstream.locks_fork('uv.lock')
    assert {path for path, _ in downstream.index.asked if path.endswith('/')} <= {'/simple/pydantic-ai-slim/'}

    downstream.make_environment()
    downstream.run('uv', 'sync', '--locked')
    assert downstream.has_fork() == first


def test_uv_pip_upgrades_from_the_base_to_the_fork_and_back(downstream: Downstream) -> None:
    evals = downstream.evals
    downstream.make_environment(f'pydantic-ai-slim=={downstream.line.base}', ANOTHER)
    downstream.follow('uv and an index', 3, *evals.values())
    downstream.has_fork('openai', ANOTHER, *evals)
    downstream.run('uv', 'pip', 'install', f'pydantic-ai-slim=={downstream.line.base}')
    downstream.has_fork()
    downstream.run('uv', *downstream.text('Back to the base', 0).split())
    downstream.has_base(ANOTHER, *evals)


@pytest.mark.parametrize('form', ['url', 'plain'])
def test_uv_pip_takes_the_fork_from_an_index_in_either_form(form: str, downstream: Downstream) -> None:
    downstream.make_environment()
    address = getattr(downstream.index, form)
    fork = f'pydantic-ai-slim=={downstream.line.version}'
    downstream.run('uv', 'pip', 'install', '--no-deps', '--no-cache', '--index', address, fork)
    assert downstream.installed('pydantic-ai-slim') == downstream.line.version
