"""The tests of the contract that make up random toolsets, runs and faults, with many more examples than there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest

MODULES = sorted(
    {path.stem for path in (Path(__file__).parents[1] / 'fork').glob('test_random_*.py')} - {'test_random_scopes'}
)
"""All but the random chats, which `test_conversations.py` has many more of."""


@pytest.mark.parametrize('name', MODULES)
def test_random_toolsets_keep_the_contract(name: str, full: bool, figures: Callable[[str], Counter[str]]) -> None:
    if not full:
        pytest.skip('the tests of the contract do this')
    # Not before, since hypothesis' settings hold for what is imported from then on
    module = import_module(f'tests.fork.{name}')
    for test, function in list(vars(module).items()):
        if test.startswith('test_') and isfunction(function):
            function()

    row = figures(f'{(module.__doc__ or name).partition(".")[0]}')
    row.update(module.FIGURES)
    assert row['runs'] and row['faults']
