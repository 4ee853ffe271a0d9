"""B8: a copy is entered before the first request and exited once when the run ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import CombinedToolset

from .toolsets import METHODS, Boom, HandWritten, Journal, Server, Session

pytestmark = pytest.mark.anyio


def noting(journal: Journal) -> FunctionModel:
    """Make a model that writes into the journal when it is asked."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        journal.note('request', model)
        return ModelResponse(parts=[TextPart('done')])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        journal.note('request', model)
        yield 'done'

    model = FunctionModel(respond, stream_function=stream)
    return model


@pytest.mark.parametrize('method', METHODS)
async def test_b08_copy_is_entered_before_the_first_request_and_exited_after_the_last(method: str):
    journal = Journal()
    await METHODS[method](Agent(noting(journal), toolsets=[Session('session', journal)]))
    assert [event.kind for event in journal.events] == ['copy', 'enter', 'get_tools', 'request', 'exit']


def tree(journal: Journal, fail: dict[str, dict[str, BaseException]]) -> list[AbstractToolset[Any]]:
    """Make toolsets `a` to `e`, stateful ones and others, nested."""

    def make(name: str) -> AbstractToolset[Any]:
        return (Session if name in 'bde' else Server)(name, journal, fail=fail.get(name))

    return [
        make('a'),
        CombinedToolset([make('b'), HandWritten(CombinedToolset([make('c').prefixed('x'), make('d')]))]).prefixed('y'),
        make('e'),
    ]


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('faulty', list('abcde'))
async def test_b08_entry_that_fails_exits_those_entered_with_its_exception(faulty: str, method: str):
    journal = Journal()
    error = Boom(faulty)
    agent = Agent(noting(journal), toolsets=tree(journal, {faulty: {'enter': error}}))
    with pytest.raises(Boom) as caught:
        await METHODS[method](agent)
    assert caught.value is error
    entered = list('abcde'[: 'abcde'.index(faulty)])
    assert journal.names('enter') == entered
    assert journal.names('exit') == entered[::-1]
    for event in journal.of('exit'):
        assert event.got[:2] == (Boom, error)
    assert journal.of('request') == []
