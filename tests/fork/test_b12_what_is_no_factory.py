"""B12: anything else in `toolsets=` is a `UserError` that names the item's place in the list and its type."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, UserError

from .factories import AT_EACH_STEP, FUNCTIONS, ONCE_PER_RUN, WAYS, Made, given_to
from .toolsets import METHODS, Journal, Requests, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio


async def async_function() -> AbstractToolset[Any]:
    raise NotImplementedError


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


def test_b12_constructor_refuses_what_is_no_factory(item: tuple[Any, list[str]]):
    bad, parts = item
    journal = Journal()
    with pytest.raises(UserError) as caught:
        Agent('test', toolsets=[Server('a', journal), Made(journal, Session), bad, Session('b', journal)])
    check_message(caught.value, 2, parts)
    assert journal.events == []


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


async def test_b12_override_refuses_what_is_no_factory_and_leaves_nothing_behind(item: tuple[Any, list[str]]):
    bad, parts = item
    journal = Journal()
    requests = Requests()
    agent = Agent(requests.model, name='mine', deps_type=str, toolsets=[Made(journal, Session)])
    replaced = Requests()
    with (
        pytest.raises(UserError) as caught,
        agent.override(name='other', deps='other', model=replaced.model, tools=[], toolsets=[bad]),
    ):
        raise AssertionError('the body is not to be run')
    check_message(caught.value, 0, parts)
    assert journal.events == []
    assert agent.name == 'mine'
    assert await run_as('a', agent, deps='mine') == 'done'
    assert journal.lifecycle == ['+t', '-t']
    assert (requests.count, replaced.count) == (1, 0)


async def test_b12_override_inside_another_that_is_refused_leaves_the_outer_one():
    journal = Journal()
    agent = Agent(scripted(['t']))
    bad: Any = 42
    with agent.override(toolsets=[Made(journal, Session)]):
        with pytest.raises(UserError), agent.override(toolsets=[bad]):
            raise AssertionError('the body is not to be run')
        await run_as('a', agent)
    assert journal.lifecycle == ['+t', '-t']


@pytest.mark.parametrize('place', ['constructor', 'run', 'override'])
async def test_b12_all_that_is_no_factory_is_named_at_once(place: str):
    toolsets: list[Any] = [42, FunctionToolset[Any](), {}, lambda: None, object(), 'x']
    with pytest.raises(UserError) as caught, given_to(place, toolsets, scripted()) as run:
        await run('a')
    for index, part in {0: "'int'", 2: "'dict'", 4: "'object'", 5: "'str'"}.items():
        check_message(caught.value, index, [part])
    for index in (1, 3):
        assert f'toolsets[{index}]' not in str(caught.value)


async def test_b12_coroutine_of_an_async_factory_that_was_called_is_refused():
    coroutine: Any = async_function()
    with pytest.raises(UserError) as caught:
        Agent('test', toolsets=[coroutine])
    coroutine.close()
    check_message(caught.value, 0, ["'coroutine'"])


# What factories return

RESULTS: dict[str, Callable[[], Any]] = {
    **{name: make for name, make in VALUES.items() if name != 'NoneType'},
    'function': lambda: lambda: FunctionToolset[Any](),
}


@asynccontextmanager
async def context_manager() -> AsyncGenerator[AbstractToolset[Any], None]:
    yield FunctionToolset[Any]()


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


@pytest.mark.parametrize('factory', ['lambda', 'async function', 'per run', 'function of the context'])
@pytest.mark.parametrize('result', RESULTS)
async def test_b12_message_names_the_type_of_what_a_factory_returned(result: str, factory: str):
    requests = Requests()
    agent = Agent(requests.model, toolsets=[FUNCTIONS[factory](RESULTS[result])])
    with pytest.raises(UserError) as caught:
        await agent.run('go')
    assert result in str(caught.value)
    assert str(caught.value).endswith('.')
    assert requests.count == 0


async def test_b12_message_names_the_factory():
    with pytest.raises(UserError, match=r"generator_function.*'generator'"):
        await Agent(scripted(), toolsets=[cast(Any, generator_function)]).run('go')
    with pytest.raises(UserError, match=r"context_manager.*'_AsyncGeneratorContextManager'"):
        await Agent(scripted(), toolsets=[cast(Any, context_manager)]).run('go')


@pytest.mark.parametrize('factory', AT_EACH_STEP)
async def test_b12_function_of_the_context_that_returns_no_toolset_at_a_later_step_is_refused(factory: str):
    journal = Journal()
    make = Made(journal, Session)
    results: list[Any] = [make(), 42]
    agent = Agent(scripted(['t']), toolsets=[Server('s', journal), AT_EACH_STEP[factory](lambda: results.pop(0))])
    with pytest.raises(UserError, match="'int'") as caught:
        await agent.run('go')
    assert journal.lifecycle == ['+s', '+t', '-t', '-s']
    assert journal.exit_of('s')[1] is caught.value


def get_weather(city: str) -> str:
    """Say what the weather is like in a city."""
    return 'sunny'


def returns_class() -> Any:
    return Session


MISTAKEN: dict[str, tuple[Any, str]] = {
    'class': (returns_class, r"class 'Session'.*[Cc]all it"),
    'tool': (get_weather, r"'str'.*tools=\["),
}


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('mistake', MISTAKEN)
async def test_b12_factory_that_is_mistaken_is_told_the_remedy_and_where_it_was_written(mistake: str, method: str):
    """A class is to be called, and a plain function of a model's arguments is a tool."""
    factory, remedy = MISTAKEN[mistake]
    with pytest.raises(UserError, match=f'(?s){remedy}') as caught:
        await METHODS[method](Agent(scripted(), toolsets=[factory]))
    message = str(caught.value)
    assert factory.__name__ in message
    assert f'test_b12_what_is_no_factory.py:{factory.__code__.co_firstlineno}' in message
    assert 'DynamicToolset' not in message
    assert ' at 0x' not in message


@pytest.mark.parametrize('given', [Session('t', Journal()), Session, lambda: Session('t', Journal())])
@pytest.mark.parametrize('place', ['agent', 'run', 'override'])
async def test_b12_toolset_or_class_that_is_passed_without_a_list_is_named_with_the_list(place: str, given: Any):
    with pytest.raises(UserError, match=r'toolsets=\['):
        if place == 'agent':
            Agent(scripted(), toolsets=given)
        elif place == 'run':
            await Agent(scripted()).run('go', toolsets=given)
        else:
            with Agent(scripted()).override(toolsets=given):
                pass
