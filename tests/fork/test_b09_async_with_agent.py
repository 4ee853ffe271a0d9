"""B9: `async with agent:` enters what runs share, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import Journal, Server, Session, scripted

pytestmark = pytest.mark.anyio

wrappers = pytest.mark.parametrize('wrap', WRAPPERS.values(), ids=WRAPPERS.keys())


async def check(agent: Agent[Any, Any], journal: Journal, *names: str) -> None:
    """Check that these toolsets are entered in this order, and exited in reverse."""
    async with agent:
        assert journal.lifecycle == [f'+{name}' for name in names]
        async with agent:
            assert journal.lifecycle == [f'+{name}' for name in names]
        assert journal.lifecycle == [f'+{name}' for name in names]
    assert journal.lifecycle == [*(f'+{name}' for name in names), *(f'-{name}' for name in reversed(names))]
    assert all(event.toolset.original is event.toolset for event in journal.of('enter', 'exit'))


@wrappers
async def test_b09_agent_with_wrapped_stateful_toolset_does_not_enter_it(
    wrap: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    journal = Journal()
    await check(Agent(scripted(), toolsets=[wrap(Session('session', journal))]), journal)


class OfUser(WrapperToolset[Any]):
    """A wrapper that opens something of its own, whatever is inside."""

    async def __aenter__(self) -> Self:
        opened.append('wrapper')
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        opened.append('exit of wrapper')
        return await super().__aexit__(*args)


class CombinationOfUser(CombinedToolset[Any]):
    async def __aenter__(self) -> Self:
        opened.append('combination')
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        opened.append('exit of combination')
        return await super().__aexit__(*args)


opened: list[str] = []


@pytest.mark.parametrize('per_run_step', [True, False])
@pytest.mark.parametrize('kind', ['wrapper', 'combination'])
@pytest.mark.parametrize('deep', [False, True])
async def test_b09_wrapper_around_a_dynamic_toolset_is_entered_as_on_the_base(
    kind: str, per_run_step: bool, deep: bool
):
    def factory(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        raise AssertionError('The factory was called')

    opened.clear()
    dynamic = DynamicToolset[Any](factory, per_run_step=per_run_step)
    toolset: AbstractToolset[Any] = OfUser(dynamic) if kind == 'wrapper' else CombinationOfUser([dynamic])
    if deep:
        toolset = CombinedToolset([Server('s', Journal()), toolset]).filtered(lambda ctx, tool_def: True)
    async with Agent(scripted(), toolsets=[toolset]):
        assert opened == [kind]
    assert opened == [kind, f'exit of {kind}']
