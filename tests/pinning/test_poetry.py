"""Poetry, with the fork's index as an explicit source."""

from __future__ import annotations

from tests.pinning.downstream import ANOTHER, Downstream, newest_line


@newest_line
def test_poetry_adds_the_fork_to_a_project_on_the_base_and_goes_back(downstream: Downstream) -> None:
    evals = downstream.evals
    base = f'pydantic-ai-slim=={downstream.line.base}'
    downstream.write('[project]\n', downstream.own_source(), require=[base, ANOTHER, *evals.values()])
    downstream.make_poetry_environment()
    downstream.run('poetry', 'sync', '--no-root')

    downstream.follow('Poetry and an index', 0)
    first = downstream.has_fork('openai', ANOTHER, *evals)
    downstream.locks_fork('poetry.lock')

    downstream.make_poetry_environment()
    downstream.run('poetry', 'sync', '--no-root')
    assert downstream.has_fork() == first

    downstream.run('poetry', 'remove', 'pydantic-ai-slim')
    downstream.run('poetry', 'source', 'remove', 'fork')
    downstream.run('poetry', 'add', base)
    assert downstream.line.version not in (downstream.folder / 'poetry.lock').read_text()
    assert downstream.line.base == downstream.installed('pydantic-ai-slim')
