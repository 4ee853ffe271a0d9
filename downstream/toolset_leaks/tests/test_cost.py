"""What `cost.py` prints of a run under watch. Whether it takes too long is no matter of a test, as machines are noisy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.anyio


def load_cost() -> ModuleType:
    spec = importlib.util.spec_from_file_location('cost', Path(__file__).parents[1] / 'cost.py')
    assert spec and spec.loader
    module = sys.modules['cost'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cost = load_cost()


async def test_cost_says_which_agents_it_measured(capsys: pytest.CaptureFixture[str]):
    await cost.main(['--runs', '5', '--only', 'one tool, 100 dicts'])

    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith('| one tool')]
    assert row.startswith('| one tool, 100 dicts in one dict, with a list each |')
