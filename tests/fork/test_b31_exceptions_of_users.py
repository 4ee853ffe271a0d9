"""B31: exceptions that compare in a way of their own, and models whose exit returns true, change nothing for exits."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.toolsets import CombinedToolset

from .toolsets import METHODS, Journal, Server, Session, scripted

pytestmark = pytest.mark.anyio


class Incomparable(Exception):
    """An exception that can't be compared."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        raise AssertionError('An exception was compared')


class Equal(Exception):
    """An exception that says it's every other one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def contexts(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    context: BaseException | None = error
    while context is not None:
        assert not any(context is one for one in found)
        found.append(context)
        context = context.__context__
    return found


def has(errors: list[BaseException], error: BaseException) -> bool:
    return any(one is error for one in errors)


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('kind', [Server, Session])
@pytest.mark.parametrize('cls', [Incomparable, Equal])
async def test_b31_exit_that_raises_what_compares_oddly_keeps_the_exception_of_the_run(
    cls: type[Exception], kind: type[Server], method: str
):
    """All exits run, and what they raise is in the context of the last one, as when they raise anything else."""
    journal = Journal()
    first, second, of_run = cls('first'), cls('second'), cls('run')
    toolsets = [kind('a', journal, fail={'exit': first}), kind('b', journal, fail={'exit': second}), kind('c', journal)]
    agent = Agent(scripted(of_run), toolsets=[CombinedToolset(toolsets)])
    with pytest.raises(cls) as raised:
        await METHODS[method](agent)
    assert journal.names('exit') == ['c', 'b', 'a']
    for name, got in (('c', of_run), ('b', of_run), ('a', second)):
        assert journal.exit_of(name)[1] is got
    assert raised.value is first
    # Streams may raise what they caught anew, and with another context.
    if method not in ('run_stream', 'run_stream_events'):
        found = contexts(raised.value)
        assert has(found, second)
        assert has(found, of_run)
