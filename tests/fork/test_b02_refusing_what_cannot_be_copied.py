"""B2: a stateful toolset without `copy()` is refused when it is wired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, WrapperToolset
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import CombinedToolset, PrefixedToolset

from .declared import Plain
from .line import WRAPPERS
from .toolsets import METHODS, HandWritten, Journal, Requests, Server, Session, WithoutCopy

pytestmark = pytest.mark.anyio


@dataclass
class StatefulWrapper(WrapperToolset[Any]):
    """A wrapper that declares state of its own and doesn't say how to copy it."""

    stateful: bool = True


@dataclass
class StatefulPrefixed(PrefixedToolset[Any]):
    stateful = True


@dataclass
class StatefulCombined(CombinedToolset[Any]):
    stateful = True


@dataclass
class PlainWrapper(WrapperToolset[Any]):
    """A wrapper that declares nothing."""


def without_copy() -> WithoutCopy:
    return WithoutCopy('faulty', Journal())


numbers = count()


def among_others(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return CombinedToolset(
        [Server(f'server_{next(numbers)}', Journal()), toolset, Session(f'session_{next(numbers)}', Journal())]
    )


REFUSED: dict[str, Callable[[], AbstractToolset[Any]]] = {
    'alone': without_copy,
    'in a combination': lambda: among_others(without_copy()),
    'in combinations': lambda: among_others(among_others(among_others(without_copy()))),
    **{f'in a {name}': lambda wrap=wrap: wrap(without_copy()) for name, wrap in WRAPPERS.items()},
    'in a wrapper of a combination': lambda: (
        among_others(without_copy()).prefixed('x').filtered(lambda ctx, tool: True)
    ),
    "in a user's wrapper": lambda: PlainWrapper(without_copy()),
    "in a user's wrapper with state": lambda: StatefulWrapper(without_copy()),
    'wrapper with state': lambda: StatefulWrapper(Server('faulty', Journal())),
    'wrapper with state around a stateful one': lambda: StatefulWrapper(Session('faulty', Journal())),
    'PrefixedToolset with state': lambda: StatefulPrefixed(Server('faulty', Journal()), 'x'),
    'CombinedToolset with state': lambda: StatefulCombined([Session('faulty', Journal())]),
    'wrapper with state in a combination': lambda: among_others(
        StatefulWrapper(Server('faulty', Journal())).prefixed('x')
    ),
}
"""Toolsets that can't be copied, each with the word `faulty` in the label of what is at fault."""

refused = pytest.mark.parametrize('make', REFUSED.values(), ids=REFUSED.keys())


def check(error: UserError) -> None:
    assert 'faulty' in error.message  # what is at fault, by its label
    assert 'copy()' in error.message  # what to do


@refused
def test_b02_agent_with_toolset_without_copy_is_refused(make: Callable[[], AbstractToolset[Any]]):
    with pytest.raises(UserError) as caught:
        Agent(Requests().model, toolsets=[Plain(), make()])
    check(caught.value)


@pytest.mark.parametrize('method', METHODS)
async def test_b02_run_method_with_toolset_without_copy_deep_inside_is_refused(method: str):
    await check_method(method, among_others(among_others(without_copy().prefixed('x')).renamed({})))


async def check_method(method: str, toolset: AbstractToolset[Any]) -> None:
    requests = Requests()
    journal = Journal()
    session = Session('session', journal)
    agent = Agent(requests.model, toolsets=[session])
    with pytest.raises(UserError) as caught:
        await METHODS[method](agent, toolsets=[Server('server', journal), toolset])
    check(caught.value)
    assert requests.count == 0
    assert journal.lifecycle == []


@pytest.mark.parametrize('method', METHODS)
async def test_b02_stateful_toolset_with_copy_is_accepted_everywhere(method: str):
    def toolset(name: str) -> AbstractToolset[Any]:
        return among_others(HandWritten(Session(name, Journal()).prefixed(name))).prefixed(name)

    agent = Agent(Requests().model, toolsets=[toolset('a')])
    assert await METHODS[method](agent, toolsets=[toolset('b')]) == 'done'
    with agent.override(toolsets=[toolset('c')]):
        assert await METHODS[method](agent) == 'done'
