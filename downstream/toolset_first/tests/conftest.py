"""Projects to load, each in a folder of its own and with modules of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the files of a project, `tools__py='…'` as `tools.py` or by their paths."""

    def write(paths: Mapping[str, str] | None = None, /, **files: str) -> Path:
        for name, text in {**(paths or {}), **{name.replace('__', '.'): text for name, text in files.items()}}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text), 'utf-8')
        return tmp_path

    return write


@pytest.fixture
def anyio_backend() -> str:
    """What anyio's plugin runs the async tests on."""
    return 'asyncio'
