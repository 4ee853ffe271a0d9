"""B12: anything else in `toolsets=` is a `UserError` that names the item's place in the list and its type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, UserError

from .factories import FUNCTIONS, ONCE_PER_RUN, WAYS, Made, given_to
from .toolsets import METHODS, Journal, Requests, Server, Session

pytestmark = pytest.mark.anyio


def generator_function() -> Iterator[AbstractToolset[Any]]:
    yield FunctionToolset[Any]()


VALUES: dict[str, Callable[[], Any]] = {
    'int': lambda: 42,
    'bool': lambda: False,
    'str': lambda: 'Session',
    'NoneType': lambda: None,
    'list': lambda: [FunctionToolset[Any]()],
    'tuple': lambda: (lambda: FunctionToolset[Any](),),
    'dict': lambda: {'toolset': FunctionToolset[Any]()},
    'object': object,
    'Agent': lambda: Agent('test'),
    'module': lambda: json,
    'generator': generator_function,
}
"""What can't be called, by the name of its type."""


@pytest.fixture(params=VALUES)
def item(request: pytest.FixtureRequest) -> tuple[Any, list[str]]:
    """An item that is no factory, and parts of the message about it."""
    return VALUES[request.param](), [f"'{request.param}'"]


def check_message(error: UserError, index: int, parts: list[str]) -> None:
    """Check that a message names the place and says all that it has to."""
    message = str(error)
    assert f'toolsets[{index}]' in message
    for part in parts:
        assert part in message
    assert message.endswith('.')


@pytest.mark.parametrize('method', METHODS)
async def test_b12_run_refuses_what_is_no_factory(item: tuple[Any, list[str]], method: str):
    bad, parts = item
    journal = Journal()
    requests = Requests()
    agent = Agent(requests.model, toolsets=[Made(journal, Session, 'a'), Session('b', journal), Server('c', journal)])
    with pytest.raises(UserError) as caught:
        await METHODS[method](agent, toolsets=[Made(journal, Session), bad])
    check_message(caught.value, 1, parts)
    assert journal.events == []
    assert requests.count == 0

    assert await METHODS[method](agent) == 'done'
    assert sorted(journal.lifecycle) == ['+a', '+b', '+c', '-a', '-b', '-c']


# What factories return

RESULTS: dict[str, Callable[[], Any]] = {
    **{name: make for name, make in VALUES.items() if name != 'NoneType'},
    'function': lambda: lambda: FunctionToolset[Any](),
}


@pytest.mark.parametrize(('place', 'method'), WAYS)
@pytest.mark.parametrize('factory', FUNCTIONS)
async def test_b12_factory_that_returns_no_toolset_is_refused(factory: str, place: str, method: str):
    journal = Journal()
    results: list[Any] = [42]
    make = Made(journal, Session)
    toolsets = [
        Server('a', journal),
        Made(journal, Session, 'b'),
        FUNCTIONS[factory](lambda: results.pop() if results else make()),
    ]
    requests = Requests()
    with given_to(place, toolsets, requests.model) as run:
        with pytest.raises(UserError, match="'int'") as caught:
            await run('first', method)
        assert requests.count == 0
        nothing_entered = factory in ONCE_PER_RUN
        assert journal.lifecycle == ([] if nothing_entered else ['+a', '+b', '-b', '-a'])
        assert all(event.got[1] is caught.value for event in journal.of('exit'))

        assert await run('second', method) == 'done'
    assert [event.run for event in journal.of('enter') if event.toolset.name == 't'] == ['second']
