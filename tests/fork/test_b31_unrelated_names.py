"""B31: a toolset that happens to have a method `copy` or an attribute `stateful` behaves as on the base."""

from __future__ import annotations

# The names are used for what they are not meant for.
# pyright: reportAssignmentType=false
import asyncio
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent

from . import toolsets
from .toolsets import METHODS, Journal, Server, run_as, scripted

pytestmark = pytest.mark.anyio

# Each class breaks the declarations of the fork in its own way, which is the point.
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
# pyright: reportAttributeAccessIssue=false


class CopiesFiles(Server):
    """Its `copy` is about something else."""

    def copy(self, source: str, target: str) -> str:
        return f'{source} to {target}'


class CopiesFilesStatically(Server):
    @staticmethod
    def copy(source: str, target: str) -> str:
        return f'{source} to {target}'


class CopiesFilesOfClass(Server):
    @classmethod
    def copy(cls, source: str, target: str) -> str:
        return f'{source} to {target}'


class CopiesFilesAsync(Server):
    async def copy(self, source: str, target: str) -> str:
        return f'{source} to {target}'


class CopiesFilesWith(Server):
    copy = staticmethod(shutil.copyfile)


class CopyIsText(Server):
    copy = 'Copyright'


class CopyIsNone(Server):
    copy = None


class CopyInInstance(Server):
    def __init__(self, name: str, journal: Journal):
        super().__init__(name, journal)
        self.copy = lambda: 'a text'


class CopyIsProperty(Server):
    @property
    def copy(self) -> str:
        return 'a text'


class CopyReturnsItself(Server):
    def copy(self) -> Any:
        return self


class CopyRaises(Server):
    def copy(self) -> Any:
        raise AssertionError('`copy()` was called')


class StatefulMethod(CopyRaises):
    def stateful(self) -> bool:
        return True


class StatefulText(CopyRaises):
    stateful = 'redux'


class StatefulNumber(CopyRaises):
    stateful = 1


class StatefulList(CopyRaises):
    stateful = ['sessions']  # noqa: RUF012


class StatefulInInstance(CopyRaises):
    def __init__(self, name: str, journal: Journal):
        super().__init__(name, journal)
        self.stateful = {'is': 'a store'}


class StatefulProperty(CopyRaises):
    @property
    def stateful(self) -> str:
        return 'yes'


class StatefulFalse(CopyRaises):
    stateful = False


class StatefulWithoutCopy(Server):
    def stateful(self) -> bool:
        return True


KINDS: list[type[Server]] = [
    CopiesFiles,
    CopiesFilesStatically,
    CopiesFilesOfClass,
    CopiesFilesAsync,
    CopiesFilesWith,
    CopyIsText,
    CopyIsNone,
    CopyInInstance,
    CopyIsProperty,
    CopyReturnsItself,
    CopyRaises,
    StatefulMethod,
    StatefulText,
    StatefulNumber,
    StatefulList,
    StatefulInInstance,
    StatefulProperty,
    StatefulFalse,
    StatefulWithoutCopy,
]

PLACES = {name: place for name, place in toolsets.PLACES.items() if name not in ('HandWritten', 'deeper')}

kinds = pytest.mark.parametrize('kind', KINDS)
places = pytest.mark.parametrize('place', PLACES.values(), ids=PLACES.keys())


@kinds
@places
async def test_b31_toolset_with_unrelated_names_is_shared_by_runs(
    place: Callable[[AbstractToolset[Any]], AbstractToolset[Any]], kind: type[Server]
):
    toolset = kind('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[place(toolset)])
    await asyncio.gather(*(run_as(run, agent) for run in 'ab'))
    async with agent:
        pass
    assert sorted(toolset.values) == ['a', 'b']
    assert {event.toolset for event in toolset.journal.events} == {toolset}
    assert len(toolset.journal.of('enter')) == len(toolset.journal.of('exit')) == 3


@pytest.mark.parametrize('method', METHODS)
@kinds
async def test_b31_toolset_with_unrelated_names_given_to_a_run_is_used(kind: type[Server], method: str):
    toolset = kind('t', Journal())
    agent = Agent(scripted(['t']))
    assert await METHODS[method](agent, toolsets=[toolset]) == 'done'
    with agent.override(toolsets=[toolset]):
        assert await METHODS[method](agent) == 'done'
    assert toolset.values == ['', '']
