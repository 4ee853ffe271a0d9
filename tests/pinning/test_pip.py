"""pip, with the fork's index beside the user's own."""

from __future__ import annotations

from tests.pinning.downstream import ANOTHER, Downstream


def test_pip_upgrades_from_the_base_to_the_fork_and_back(downstream: Downstream) -> None:
    evals = downstream.evals
    downstream.make_environment()
    # With the newest dependencies, of which some broke the base; the fork replaces those.
    downstream.run('pip', 'install', f'pydantic-ai-slim=={downstream.line.base}', ANOTHER)

    downstream.follow('pip and an index', 0, *evals.values())
    downstream.has_fork('openai', ANOTHER, *evals)
    downstream.run('pip', 'check')

    # Two equals signs accept what is there.
    downstream.run('pip', 'install', f'pydantic-ai-slim=={downstream.line.base}', *evals.values())
    downstream.has_fork(ANOTHER, *evals)

    downstream.follow('Back to the base', 0)
    downstream.has_base(ANOTHER, *evals)
    downstream.run('pip', 'check')


def test_pip_takes_the_fork_from_an_index_of_static_files(downstream: Downstream) -> None:
    downstream.make_environment()
    fork = f'pydantic-ai-slim=={downstream.line.version}'
    downstream.run('pip', 'install', '--no-deps', '--extra-index-url', downstream.index.plain, fork)
    assert downstream.installed('pydantic-ai-slim') == downstream.line.version
