"""What every run of upstream's tests needs, whoever it is for."""

from __future__ import annotations

import os
from pathlib import Path


def make_example_folders(tree: Path, *more: str) -> None:
    """Make the folders where `tests/test_examples.py` looks for examples in upstream's repository; it fails without one.

    Args:
        tree: The folder with `tests/`.
        more: Others to be made there.
    """
    for name in ('docs', 'pydantic_evals', 'pydantic_graph', *more):
        (tree / name).mkdir(exist_ok=True)


def variables(python: Path, folder: Path) -> dict[str, str]:
    """Return the variables that the tests run with, to be added to others.

    Args:
        python: The interpreter of their environment.
        folder: A folder outside of the tree, which gets an empty one for certificates.
    """
    (certificates := folder / 'certificates').mkdir(exist_ok=True)
    return {
        'PATH': os.pathsep.join([str(python.parent), os.environ.get('PATH', os.defpath)]),
        # Upstream's fixtures make ten HTTP clients for each test and nearly all of the time would go into reading the
        # certificates of each. No test needs any, since none talks to a server outside.
        'SSL_CERT_DIR': str(certificates),
    }
