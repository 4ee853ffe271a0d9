"""hatch, with uv and with pip as its installer."""

from __future__ import annotations

from tests.pinning.downstream import ANOTHER, Downstream, newest_line

BUILD = '\n[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'


@newest_line
def test_hatch_locks_the_fork_and_installs_it_from_the_lock(downstream: Downstream) -> None:
    downstream.write(downstream.text('hatch and an index', 0), BUILD, require=[ANOTHER])
    downstream.run('hatch', 'lock')
    downstream.locks_fork('pylock.toml')
    downstream.run('hatch', 'run', 'python', '--version')
    first = downstream.has_fork('openai', ANOTHER, 'downstream', *downstream.evals)

    downstream.run('hatch', 'env', 'prune')
    assert not downstream.environment.exists()
    downstream.run('hatch', 'run', 'python', '--version')
    assert downstream.has_fork() == first


@newest_line
def test_hatch_with_pip_installs_the_fork(downstream: Downstream) -> None:
    settings = downstream.text('hatch and an index', 0).replace('"uv"', '"pip"').replace('locked = true\n', '')
    settings = settings.replace('UV_INDEX', 'PIP_EXTRA_INDEX_URL')
    downstream.write(settings, BUILD, require=[ANOTHER])
    downstream.run('hatch', 'run', 'python', '--version')
    downstream.has_fork('openai', ANOTHER, 'downstream', *downstream.evals)
