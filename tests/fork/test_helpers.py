"""The examples at the top of the modules that these tests get their toolsets, models and agents from."""

from __future__ import annotations

import asyncio
import doctest
from pathlib import Path
from types import ModuleType

import pytest
from pydantic_ai import Agent

from . import approvals, cancelling, delegation, factories, toolsets, trees


@pytest.mark.parametrize(
    'module',
    [approvals, cancelling, delegation, factories, toolsets, trees],
    ids=lambda module: module.__name__.rpartition('.')[2],
)
def test_helpers_do_what_their_example_shows(module: ModuleType, tmp_path: Path) -> None:
    known = {
        'asyncio': asyncio,
        'Agent': Agent,
        'folder': tmp_path,
        **{name: getattr(toolsets, name) for name in ('Journal', 'Server', 'Session', 'run_as', 'scripted')},
    }
    failed, tried = doctest.testmod(module, extraglobs=known)

    assert tried
    assert not failed
