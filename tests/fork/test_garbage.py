"""That garbage is kept out of later collections hides nothing that a test leaves open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SETTINGS = """
import sys

sys.path.append({root!r})
from tests.fork.conftest import pytest_collection_finish, pytest_runtest_protocol
"""
LEAVES = """
import pytest

class Session:
    def __init__(self):
        self.itself = self

    def __del__(self):
        raise ValueError('left open')

@pytest.fixture
def session():
    return Session()

def test_with_a_session(session):
    pass
"""


def test_what_the_fixture_of_the_last_test_of_a_file_leaves_open_fails_a_test(tmp_path: Path):
    (tmp_path / 'conftest.py').write_text(SETTINGS.format(root=str(Path(__file__).parents[2])))
    (tmp_path / 'test_leaves.py').write_text(LEAVES)
    (tmp_path / 'test_next.py').write_text('def test_next():\n    pass\n')
    (tmp_path / 'pytest.ini').write_text('[pytest]\nfilterwarnings = error\n')
    command = [sys.executable, '-I', '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert 'ValueError: left open' in done.stdout
