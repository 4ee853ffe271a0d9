"""B2: a wrapper that would hand one stateful toolset to all runs is refused, wherever it holds that."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset

from .capabilities import contributing
from .delegation import calling
from .toolsets import METHODS, FromBeforeForRun, Journal, Requests, Server, Session, WithoutCopy, run_as, scripted

pytestmark = pytest.mark.anyio


class Holds(FromBeforeForRun, Server):
    """A wrapper that's written straight on `AbstractToolset`, and knows nothing of state."""

    def __init__(self, held: Any):
        super().__init__('holds', Journal())
        self.held = held


class HoldsInSlot(Holds):
    """One that holds it in a slot."""

    __slots__ = ('held',)


HELD: dict[str, Callable[[AbstractToolset[Any]], Any]] = {
    'itself': lambda toolset: toolset,
    'a list': lambda toolset: [toolset],
    'a tuple': lambda toolset: (toolset,),
    'a dict': lambda toolset: {'key': toolset},
    'the second of a list': lambda toolset: [Server('s', Journal()), toolset],
    'a wrapper': lambda toolset: toolset.prefixed('x'),
    'a combination in a list': lambda toolset: [CombinedToolset([toolset])],
}
PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'itself': lambda toolset: toolset,
    'wrapped': lambda toolset: toolset.prefixed('x'),
    'combined': lambda toolset: CombinedToolset([Server('s', Journal()), toolset.renamed({})]),
    'held by another': lambda toolset: Holds([toolset]),
}
held = pytest.mark.parametrize('hold', HELD.values(), ids=HELD)
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES)
holders = pytest.mark.parametrize('cls', [Holds, HoldsInSlot])
methods = pytest.mark.parametrize('method', METHODS)

REFUSED = r"[Hh]olds.*'t'.*stateful"


@held
@places
@holders
def test_b02_wrapper_that_hides_state_is_refused_by_agent_and_override(cls: type[Holds], hold: Any, place: Any):
    toolset = place(cls(hold(Session('t', Journal()))))
    with pytest.raises(UserError, match=REFUSED):
        Agent(toolsets=[toolset])
    with pytest.raises(UserError, match=REFUSED), Agent().override(toolsets=[toolset]):
        raise NotImplementedError


@held
def test_b02_message_names_the_way_out_that_needs_no_change_to_the_class(hold: Any):
    with pytest.raises(UserError) as caught:
        Agent(toolsets=[Holds(hold(Session('t', Journal())))])
    assert '`lambda: Holds(' in str(caught.value)


async def test_b02_way_out_that_the_message_names_works():
    journal = Journal()
    agent = calling(['holds'], toolsets=[lambda: Holds(Session('t', journal))])
    for _ in range(2):
        await agent.run('go')


@held
@methods
async def test_b02_wrapper_that_hides_state_is_refused_by_runs(hold: Any, method: str):
    requests = Requests()
    with pytest.raises(UserError, match=REFUSED):
        await METHODS[method](Agent(requests.model), toolsets=[Holds(hold(Session('t', Journal())))])
    assert requests.count == 0


@held
async def test_b02_wrapper_of_what_runs_share_is_accepted(hold: Any):
    for toolset in (Server('t', Journal()), Session('t', Journal()).shared()):
        await run_as('run', calling(['holds'], toolsets=[Holds(hold(toolset))]))


@held
async def test_b02_wrapper_that_is_stateful_and_copies_is_accepted(hold: Any):
    class Copies(Holds):
        stateful = True

        def copy(self) -> Any:
            return type(self)(hold(Session('t', Journal())))

    await run_as('run', calling(['holds'], toolsets=[Copies(hold(Session('t', Journal())))]))


async def test_b02_wrapper_with_for_run_of_its_own_is_accepted():
    class Makes(Server):
        def __init__(self, held: Any):
            super().__init__('makes', Journal())
            self.held = held

        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            return type(self)(await self.held.for_run(ctx))

    await run_as('run', calling(['makes'], toolsets=[Makes(Session('t', Journal()))]))


def test_b02_all_that_is_hidden_is_named_at_once():
    journal = Journal()
    toolsets = [Holds(Session('one', journal)), Holds([Session('two', journal)]), WithoutCopy('three', journal)]
    with pytest.raises(UserError) as error:
        Agent(toolsets=toolsets)
    assert all(f"'{name}'" in str(error.value) for name in ('one', 'two', 'three'))


@methods
@pytest.mark.parametrize(
    'made', [WithoutCopy, lambda name, journal: Holds(Session(name, journal))], ids=['copy', 'holds']
)
@pytest.mark.parametrize('by', ['capability', 'function', 'async function', 'run'])
async def test_b02_what_a_capability_contributes_is_refused(by: str, made: Any, method: str):
    journal, requests = Journal(), Requests()
    capability = contributing(made('t', journal))

    def function(ctx: RunContext[Any]) -> Any:
        return capability

    async def async_function(ctx: RunContext[Any]) -> Any:
        return capability

    given = {'capability': capability, 'function': function, 'async function': async_function, 'run': capability}[by]
    with pytest.raises(UserError, match=r"'t'.*stateful|stateful.*'t'"):
        if by == 'run':
            await METHODS[method](Agent(requests.model), capabilities=[given])
        else:
            await METHODS[method](Agent(requests.model, capabilities=[given]))
    assert requests.count == 0
    assert journal.of('enter') == []


@methods
async def test_b06_capability_function_that_returns_the_same_capability_does_not_leak(method: str):
    """The first run works with the toolset itself, since the capability could be new, and each later one with a copy."""
    journal = Journal()
    session = Session('t', journal)
    capability = contributing(session)
    agent = Agent(scripted(['t']), capabilities=[lambda ctx: capability])
    for run in ('first', 'second'):
        await run_as(run, agent, method)
    assert [event.toolset.values for event in journal.of('call')] == [['first'], ['second']]
    assert len({id(event.toolset) for event in journal.of('call')}) == 2
