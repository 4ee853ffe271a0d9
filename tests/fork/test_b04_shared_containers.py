"""B4: a copy that shares a mutable container with its original is warned about."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent
from pydantic_ai.toolsets import DynamicToolset
from typing_extensions import Self

from .declared import Plain
from .toolsets import METHODS, PLACES, Journal, Session, scripted

pytestmark = pytest.mark.anyio


def sharing(value: Any, shared: frozenset[str] = frozenset()) -> AbstractToolset[Any]:
    """Make a toolset of a new class whose copies share the value, since one class is warned about once."""

    class Sharing(Plain):
        stateful = True
        shared_attributes = shared

        def __init__(self) -> None:
            self.cache = value
            self.other: dict[str, str] = {}

        def copy(self) -> Self:
            copy = type(self)()
            assert copy.cache is self.cache
            return copy

    return Sharing()


async def warnings_of(
    *toolsets_: AbstractToolset[Any], runs: int = 1, method: str = 'run', more: list[AbstractToolset[Any]] | None = None
) -> list[str]:
    """Return the warnings of some runs with the toolsets."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        agent = Agent(scripted(), toolsets=toolsets_)
        for _ in range(runs):
            await METHODS[method](agent, toolsets=more)
    return [str(warning.message) for warning in caught if warning.category.__name__ == 'ToolsetStateWarning']


@pytest.mark.parametrize('method', METHODS)
async def test_b04_container_shared_gives_a_warning_in_each_kind_of_run(method: str):
    assert len(await warnings_of(method=method, more=[sharing({})])) == 1


places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())


@places
async def test_b04_container_shared_inside_others_gives_a_warning(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    (message,) = await warnings_of(place(sharing({})))
    assert 'Sharing' in message


@places
async def test_b04_wrappers_and_combinations_of_the_line_give_no_warning(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]],
):
    assert await warnings_of(place(Session('session', Journal())), DynamicToolset(lambda ctx: None)) == []
