"""pip-compile with hashes, and the installers that check them."""

from __future__ import annotations

from tests.pinning.downstream import ANOTHER, Downstream, newest_line


@newest_line
def test_pip_compile_locks_the_fork_with_its_hash(downstream: Downstream) -> None:
    # In the project's environment, as it compiles for the interpreter that it runs on.
    downstream.make_environment(downstream.tool('pip-tools'))
    requirements = downstream.text('pip-compile, with hashes', 0)
    (downstream.folder / 'requirements.in').write_text(f'{requirements}{ANOTHER}\n')
    compile_, install = downstream.text('pip-compile, with hashes', 1).splitlines()
    downstream.run(*compile_.split())
    lock = downstream.locks_fork('requirements.txt')

    downstream.make_environment()
    downstream.run(*install.split())
    first = downstream.has_fork('openai', ANOTHER, *downstream.evals)

    # The same again, with an installer that checks hashes in its own way
    downstream.make_environment()
    several = (
        '--index-strategy=unsafe-best-match'  # as the lock names all indexes of the user's, and pip looks into each
    )
    downstream.run('uv', 'pip', 'install', several, '--require-hashes', '--requirement', 'requirements.txt')
    assert downstream.has_fork() == first

    digest = downstream.index.files()[downstream.wheel.name]
    (downstream.folder / 'requirements.txt').write_text(lock.replace(digest, digest[::-1]))
    downstream.make_environment()
    refused = downstream.attempt(*install.split(), '--no-deps')
    assert refused.returncode != 0
    assert 'THESE PACKAGES DO NOT MATCH THE HASHES' in refused.stdout + refused.stderr
