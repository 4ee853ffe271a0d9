"""B14: a step-wise factory's old toolset is exited exactly once, and what was never entered is never exited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext
from pydantic_ai.toolsets import DynamicToolset

from .factories import AT_EACH_STEP
from .toolsets import PLACES, Boom, Journal, Session, scripted

pytestmark = pytest.mark.anyio

factories = pytest.mark.parametrize('factory', AT_EACH_STEP)


def in_turn(*results: Any) -> Callable[[], Any]:
    """Make a function that returns these in turn, or raises those that are exceptions."""
    left = list(results)

    def make() -> Any:
        result = left.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    return make


INSIDE: dict[str, Callable[[Any], AbstractToolset[Any]]] = {
    **PLACES,
    'DynamicToolset': lambda toolset: DynamicToolset(lambda ctx: toolset, per_run_step=False),
}


@pytest.mark.parametrize('inside', INSIDE)
@pytest.mark.parametrize('fails', ['factory', 'enter', 'exit', 'nothing'])
@factories
async def test_b14_holds_in_wrappers_and_combinations(factory: str, fails: str, inside: str):
    journal = Journal()
    error = Boom(fails)
    results: dict[str, list[Any]] = {
        'factory': [Session('a', journal), error],
        'enter': [Session('a', journal), Session('b', journal, fail={'enter': error})],
        'exit': [Session('a', journal, fail={'exit': error}), Session('spare', journal)],
        'nothing': [Session('a', journal), Session('b', journal)],
    }
    toolset = DynamicToolset(AT_EACH_STEP[factory](in_turn(*results[fails])))
    agent = Agent(scripted(['a']), toolsets=[INSIDE[inside](toolset)])
    if fails == 'nothing':
        await agent.run('go')
        assert journal.lifecycle == ['+a', '-a', '+b', '-b']
    else:
        with pytest.raises(Boom) as caught:
            await agent.run('go')
        assert caught.value is error
        assert journal.lifecycle == ['+a', '-a']


@pytest.mark.parametrize('late_first', [True, False], ids=['to the first', 'to the last'])
async def test_b14_shared_toolset_stays_entered_where_another_factory_takes_it_over(late_first: bool):
    journal = Journal()
    shared = Session('a', journal).shared()

    def early(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        return shared if ctx.run_step < 2 else None

    def late(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        return shared if ctx.run_step >= 2 else None

    factories = [late, early] if late_first else [early, late]
    await Agent(scripted(['a'], ['a'], ['a']), toolsets=factories).run('go')
    entered = False
    for event in journal.of('enter', 'exit', 'get_tools', 'call'):
        assert entered is not (event.kind == 'enter'), event.kind
        entered = event.kind != 'exit'
    assert journal.names('call') == ['a'] * 3
    assert not entered
