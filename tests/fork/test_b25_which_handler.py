"""B25: a run's handler beats the agent's, `override` beats both and can switch it off, and without one nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from .approvals import OUTPUTS, Handler, Tools, agent_of, approve
from .toolsets import METHODS

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)


@methods
async def test_b25_the_nearest_handler_is_used(method: str):
    on_agent, on_run, on_override = Handler(approve), Handler(approve), Handler(approve)
    agent = agent_of(Tools(), ['delete'], output_type=OUTPUTS, deferred_tool_handler=on_agent)

    async def asks(handler: Handler | None, **options: Any) -> None:
        output = await METHODS[method](agent, **options)
        assert (output == 'all done') is (handler is not None)
        for some in (on_agent, on_run, on_override):
            assert len(some.asked) == (1 if some is handler else 0)
            some.requests.clear()

    await asks(on_agent)
    await asks(on_run, deferred_tool_handler=on_run)
    await asks(on_agent, deferred_tool_handler=None)
    with agent.override(deferred_tool_handler=on_override):
        await asks(on_override)
        await asks(on_override, deferred_tool_handler=on_run)
        with agent.override(deferred_tool_handler=None):
            await asks(None)
            await asks(None, deferred_tool_handler=on_run)
        with agent.override(deps=None):
            await asks(on_override)
    await asks(on_agent)
