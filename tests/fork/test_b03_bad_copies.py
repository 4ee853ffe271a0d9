"""B3: a `copy()` that returns something else than a copy ends the run before it has begun."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, WrapperToolset
from pydantic_ai.exceptions import UserError
from typing_extensions import Self

from .toolsets import METHODS, PLACES, Journal, Requests, Server, Session

pytestmark = pytest.mark.anyio


class ReturnsNone(Session):
    def copy(self) -> Any:
        return None


class ReturnsText(Session):
    def copy(self) -> Any:
        return 'a copy'


class ReturnsClass(Session):
    def copy(self) -> Any:
        return type(self)


class ReturnsItself(Session):
    def copy(self) -> Self:
        return self


class ReturnsCoroutine(Session):
    async def copy(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self)('faulty', self.journal)


@dataclass
class WrapperReturnsItself(WrapperToolset[Any]):
    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return self


class WrapperReturnsCoroutine(WrapperReturnsItself):
    async def copy(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return replace(self, log=[])


MAKERS: dict[str, Callable[[Journal], AbstractToolset[Any]]] = {
    'None': lambda journal: ReturnsNone('faulty', journal),
    'text': lambda journal: ReturnsText('faulty', journal),
    'class': lambda journal: ReturnsClass('faulty', journal),
    'itself': lambda journal: ReturnsItself('faulty', journal),
    'coroutine': lambda journal: ReturnsCoroutine('faulty', journal),
    'wrapper returns itself': lambda journal: WrapperReturnsItself(Server('faulty', journal)),
    'wrapper of stateful returns itself': lambda journal: WrapperReturnsItself(Session('faulty', journal)),
    'wrapper returns coroutine': lambda journal: WrapperReturnsCoroutine(Server('faulty', journal)),
}
bad = pytest.mark.parametrize('make', MAKERS.values(), ids=MAKERS.keys())
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES)


async def check(toolset: AbstractToolset[Any], journal: Journal, method: str = 'run') -> UserError:
    """Check that a run with the toolset among others ends before anything has happened."""
    requests = Requests()
    agent = Agent(requests.model, toolsets=[Server('first', journal), Session('second', journal), toolset])
    with warnings.catch_warnings(), pytest.raises(UserError) as caught:
        warnings.filterwarnings('ignore', message='coroutine .* was never awaited')
        await METHODS[method](agent, toolsets=[Server('last', journal)])
    assert journal.lifecycle == []
    assert journal.of('get_tools') == []
    assert requests.count == 0
    return caught.value


@pytest.mark.parametrize('method', METHODS)
async def test_b03_copy_bad_ends_each_kind_of_run(method: str):
    journal = Journal()
    await check(ReturnsItself('faulty', journal), journal, method)


@bad
@places
async def test_b03_copy_bad_inside_others_ends_the_run_before_anything_is_entered(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], make: Callable[[Journal], AbstractToolset[Any]]
):
    journal = Journal()
    error = await check(place(make(journal)), journal)
    assert 'faulty' in error.message
