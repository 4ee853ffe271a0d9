"""A checkout with nothing but the pins of the newest line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from series.line import Line, find_line


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """The newest line, without patches, in a checkout of its own."""
    pins = find_line(Path(__file__).parents[2]).folder / 'line.toml'
    (folder := tmp_path / 'patches' / pins.parent.name).mkdir(parents=True)
    shutil.copy(pins, folder)
    return find_line(tmp_path)
