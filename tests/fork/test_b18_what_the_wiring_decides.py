"""B18: the wiring decides last: a factory makes a fresh one, `.shared()` shares, `ctx.for_sub_agent()` hands over."""

from __future__ import annotations

import pytest

from .delegation import (
    Notes,
    calling,
    never,
)
from .toolsets import METHODS, Journal, run_as

pytestmark = pytest.mark.anyio


# Factories


# `.shared()`


@pytest.mark.parametrize('method', METHODS)
async def test_b18_shared_outside_of_a_run_is_the_original(method: str):
    journal = Journal()
    notes = Notes('t', journal, answer=never)
    agent = calling(['t'], toolsets=[notes.shared()])
    for number in range(3):
        await run_as(f'run{number}', agent, method)
    assert notes.values == ['run0', 'run1', 'run2']
    assert journal.of('copy') == []
    assert journal.lifecycle == ['+t', '-t'] * 3


# `ctx.for_sub_agent()`
