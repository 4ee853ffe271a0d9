"""The state of a scope goes to another process as JSON, and comes back as it was, whenever that happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import ToolsetScope

from .delegation import calling
from .line import WRAPPERS
from .toolsets import METHODS, Journal, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


class Saved(Session):
    """Says what its state is."""

    @property
    def id(self) -> str:
        return self.name

    async def export_state(self) -> Any:
        await asyncio.sleep(0)
        return self.values

    async def restore_state(self, state: Any) -> None:
        await asyncio.sleep(0)
        self.values = state


@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
@pytest.mark.parametrize('wrapper', WRAPPERS)
async def test_state_is_restored_in_any_wrapper(wrapper: str, method: str) -> None:
    session = Saved('t', Journal())
    wrapped: Any = WRAPPERS[wrapper](session)
    async with ToolsetScope(session) as scope:
        await run_as('one', calling(['t'], toolsets=[session]), method, toolsets=[scope])
        exported = await scope.export()
    async with ToolsetScope(session, state=exported) as scope:
        await run_as('two', calling(toolsets=[wrapped]), method, toolsets=[scope])
        await run_as('three', calling(['t'], toolsets=[session]), method, toolsets=[scope])
        assert scope.instance_of(session).values == ['one', 'three']
    assert session.values == []


async def test_state_that_is_exported_can_be_restored_however_deep_it_is() -> None:
    session = Saved('t', Journal())
    refused = restored = 0
    state: Any = []
    for _ in range(250):
        state = [state]
        async with ToolsetScope(session) as scope:
            scope.instance_of(session).values = state
            try:
                exported = await scope.export()
            except UserError:
                refused += 1
                continue
        async with ToolsetScope(session, state=exported) as scope:
            assert scope.instance_of(session).values == state
            restored += 1
    assert restored + refused == 250
    assert restored > 100
