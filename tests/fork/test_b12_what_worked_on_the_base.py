"""B12: all that was a factory on the base is one, and a wrapper around a factory has its tools, whatever the wrapper forwards."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest
from pydantic_ai import AbstractToolset, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset, DynamicToolset
from typing_extensions import Self

from .delegation import calling
from .toolsets import METHODS, Journal, Server, run_as

pytestmark = pytest.mark.anyio


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a decorator does that doesn't know `functools.wraps`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def decorated_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Do the same with an async function around it."""

    async def call(*args: Any) -> Any:
        return function(*args)

    return call


def given_context(function: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Let a function that takes nothing be one that takes the run context."""

    @wraps(function)
    def call(ctx: RunContext[Any]) -> Any:
        return function()(ctx)

    return call


class OfContext(Server):
    """A toolset class that takes the run context."""

    journal: Journal

    def __init__(self, ctx: RunContext[Journal]):
        assert isinstance(ctx, RunContext)
        super().__init__('t', ctx.deps)


class OfAnything(OfContext):
    """One that doesn't say what it takes."""

    def __init__(self, ctx):
        super().__init__(ctx)


class Callable1:
    """Something that can be called with the context."""

    def __call__(self, *args: Any) -> Any:
        return make(*args)


def make(ctx: RunContext[Journal]) -> AbstractToolset[Journal]:
    """Make a toolset, as a factory of the base does."""
    assert isinstance(ctx, RunContext)
    return Server('t', ctx.deps)


def optional(ctx: RunContext[Journal] = None) -> AbstractToolset[Journal]:  # pyright: ignore[reportArgumentType]
    """Do the same, and say that the context isn't needed."""
    return make(ctx)


FACTORIES: dict[str, Any] = {
    'decorated without wraps': decorated(make),
    'decorated without wraps, async': decorated_async(make),
    'decorated with wraps, to take the context': given_context(lambda: make),
    'a class with __call__ of anything': Callable1(),
    'Mock': Mock(side_effect=make),
    'MagicMock': MagicMock(side_effect=make),
    'AsyncMock': AsyncMock(side_effect=make),
    'a class of the context': OfContext,
    'a class of anything': OfAnything,
    'a function of an optional context': optional,
}
factories = pytest.mark.parametrize('factory', FACTORIES.values(), ids=FACTORIES)

GIVEN: dict[str, Callable[[Any], Any]] = {
    'itself': lambda factory: factory,
    'DynamicToolset': DynamicToolset,
    'DynamicToolset per run': lambda factory: DynamicToolset(factory, per_run_step=False),
    'wrapped': lambda factory: DynamicToolset(factory, per_run_step=False).renamed({}),
}


@factories
@pytest.mark.parametrize('given', GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize('method', ['run', 'run_stream'])
async def test_b12_factory_of_the_base_is_called_with_the_context(factory: Any, given: Any, method: str):
    journal = Journal()
    await run_as('run', calling(['t'], toolsets=[given(factory)]), method, deps=journal)
    assert [event.toolset.values for event in journal.of('call')] == [['run']]
    assert journal.names('enter') == journal.names('exit')


class ForgetsEntry(WrapperToolset[Any]):
    """A wrapper that doesn't forward entries."""

    async def __aenter__(self) -> Self:
        return self


class ForgetsBoth(ForgetsEntry):
    """One that doesn't forward exits either."""

    async def __aexit__(self, *args: object) -> bool | None:
        return None


@pytest.mark.parametrize('wrapper', [ForgetsEntry, ForgetsBoth])
@pytest.mark.parametrize('takes_context', [True, False])
@pytest.mark.parametrize('method', METHODS)
async def test_b12_wrapper_that_forwards_no_entry_has_the_tools_of_a_factory(
    wrapper: type[ForgetsEntry], takes_context: bool, method: str
):
    journal = Journal()
    factory = (lambda ctx: Server('t', journal)) if takes_context else (lambda: Server('t', journal))
    once = DynamicToolset(factory, per_run_step=False)
    for toolset in (wrapper(once), CombinedToolset([wrapper(once)]).renamed({})):
        journal.events.clear()
        await run_as('run', calling(['t'], toolsets=[toolset]), method)
        assert [event.toolset.values for event in journal.of('call')] == [['run']]
