"""B3: a `copy()` that returns something else than a copy ends the run before it has begun."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, CombinedToolset, WrapperToolset
from pydantic_ai.exceptions import UserError
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import METHODS, FromBeforeForRun, HandWritten, Journal, Requests, Server, Session, run_as, scripted

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


class HandWrittenReturnsItself(FromBeforeForRun, HandWritten):
    def copy(self) -> Self:
        return self


def hand_written_around_prefixed(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    return HandWritten(toolset.prefixed('x'))


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
places = pytest.mark.parametrize(
    'place',
    [*WRAPPERS.values(), HandWritten, hand_written_around_prefixed],
    ids=[*WRAPPERS, 'HandWritten', 'deeper'],
)


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


@bad
async def test_b03_copy_bad_ends_the_run_before_anything_is_entered(make: Callable[[Journal], AbstractToolset[Any]]):
    journal = Journal()
    error = await check(make(journal), journal)
    assert 'faulty' in error.message
    assert 'copy()' in error.message


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


async def test_b03_copy_bad_is_one_error_however_many_places_it_stands_in():
    journal = Journal()
    faulty = ReturnsItself('faulty', journal)
    places = [faulty.prefixed('a'), CombinedToolset([faulty.prefixed('b'), faulty.prefixed('c')])]
    await check(CombinedToolset([*places, ReturnsNone('another', journal)]), journal)


@dataclass
class Forgetful(WrapperToolset[Any]):
    stateful: bool = True
    log: list[str] = field(default_factory=list[str])

    def copy(self) -> Self:
        return replace(self, log=[])


async def test_b03_wrapper_copy_keeping_what_is_inside_gets_its_copy():
    journal = Journal()
    agent = Agent(scripted(['t']), toolsets=[Forgetful(Session('t', journal))])
    for run in 'ab':
        await run_as(run, agent)
    assert [event.toolset.values for event in journal.of('exit')] == [['a'], ['b']]


async def test_b03_hand_written_wrapper_copy_returning_itself_ends_the_run():
    journal = Journal()
    await check(HandWrittenReturnsItself(Session('inside', journal)), journal)


async def test_b03_copy_raising_ends_the_run_before_anything_is_entered():
    class Raises(Session):
        def copy(self) -> Self:
            raise RuntimeError('no copy today')

    journal = Journal()
    agent = Agent(scripted(), toolsets=[Server('first', journal), Raises('faulty', journal)])
    with pytest.raises(RuntimeError, match='no copy today'):
        await agent.run('go')
    assert journal.lifecycle == []


async def test_b03_run_refused_leaves_later_runs_alone():
    class SometimesItself(Session):
        faulty = True

        def copy(self) -> Self:
            return self if self.faulty else super().copy()

    journal = Journal()
    toolset = SometimesItself('sometimes', journal)
    agent = Agent(scripted(['sometimes']), toolsets=[toolset])
    with pytest.raises(UserError):
        await agent.run('go')
    toolset.faulty = False
    assert (await agent.run('go')).output == 'done'
    assert journal.lifecycle == ['+sometimes', '-sometimes']
    assert toolset.values == []
