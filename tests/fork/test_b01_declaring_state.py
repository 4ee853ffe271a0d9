"""B1: `stateful` and `copy()` of a toolset."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import AbstractToolset

from . import declared

HERE = Path(__file__).parent


def label_of(toolset: AbstractToolset[Any]) -> str:
    return type(toolset).__name__


@pytest.mark.parametrize('toolset', declared.TOOLSETS, ids=label_of)
def test_b01_stateful_declared_is_true(toolset: AbstractToolset[Any]):
    assert toolset.stateful is True


@pytest.mark.parametrize('toolset', declared.TOOLSETS, ids=label_of)
def test_b01_copy_of_stateful_toolset_is_another_of_its_class(toolset: AbstractToolset[Any]):
    copy = toolset.copy()
    assert type(copy) is type(toolset)
    assert copy is not toolset
    assert copy.stateful is True


def find_pyright() -> str | None:
    """Find pyright: beside this interpreter, on the path, or in the tool's environment."""
    places = [Path(sys.executable).parent, *os.get_exec_path(), HERE.parents[1] / 'build/tool/bin']
    return shutil.which('pyright', path=os.pathsep.join(map(str, places)))


@pytest.fixture(scope='module')
def pyright() -> str:
    found = find_pyright()
    if found is None:
        pytest.skip('`pyright` is not installed: install it beside the fork, or run `make build/tool/.ready`')
    return found
