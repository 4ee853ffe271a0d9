"""B22: what isn't callable, or can't take two arguments, is refused where it is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext, UserError
from pydantic_ai.models.test import TestModel

from .approvals import Handler, Tools, agent_of, approve
from .toolsets import METHODS

pytestmark = pytest.mark.anyio


async def one(requests: DeferredToolRequests) -> None: ...


def three(ctx: RunContext[Any], requests: DeferredToolRequests, user: str) -> None: ...


def named(*, ctx: RunContext[Any], requests: DeferredToolRequests) -> None: ...


class One:
    def handle(self, requests: DeferredToolRequests) -> None: ...

    def __call__(self) -> None: ...


NO_HANDLERS: dict[str, Any] = {
    'True': True,
    'a name': 'approve',
    'results': approve(DeferredToolRequests()),
    'of the requests': one,
    'of more': three,
    'of keywords': named,
    'a method of the requests': One().handle,
    'an object that takes nothing': One(),
    'with too much given': partial(three, None, None, 'Ada'),  # pyright: ignore
}


@pytest.mark.parametrize('handler', NO_HANDLERS.values(), ids=NO_HANDLERS)
async def test_b22_what_is_no_handler_is_refused_where_it_is_given(handler: Any):
    match = '`deferred_tool_handler` needs to be a function of the context and the requests'
    with pytest.raises(UserError, match=match):
        Agent(TestModel(), deferred_tool_handler=handler)
    tools = Tools()
    agent = agent_of(tools, ['look', 'delete'])
    for method in METHODS.values():
        with pytest.raises(UserError, match=match):
            await method(agent, deferred_tool_handler=handler)
    with pytest.raises(UserError, match=match), agent.override(deferred_tool_handler=handler):
        raise NotImplementedError
    assert tools.tried == []
    # Nothing of it stays.
    assert (await agent.run('go', deferred_tool_handler=Handler(approve))).output == 'all done'


def more(ctx: RunContext[Any], requests: DeferredToolRequests, user: str = '', *, note: str = '') -> None: ...


class Two:
    async def handle(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> None: ...

    def __bool__(self) -> bool:
        return False

    __call__ = handle


HANDLERS: dict[str, Callable[..., Any]] = {
    'with defaults': more,
    'a lambda': lambda ctx, requests: None,  # pyright: ignore
    'of anything': lambda *args, **kwargs: None,
    'a method': Two().handle,
    'an object that is false': Two(),
    'partial': partial(three, user='Ada'),
    'Mock': Mock(return_value=None),
    'MagicMock': MagicMock(return_value=None),
}


@pytest.mark.parametrize('handler', HANDLERS.values(), ids=HANDLERS)
async def test_b22_what_takes_two_arguments_is_a_handler(handler: Callable[..., Any]):
    agent = agent_of(Tools(), ['delete'], output_type=[str, DeferredToolRequests], deferred_tool_handler=handler)
    assert isinstance((await agent.run('go')).output, DeferredToolRequests)
