"""B31: a toolset that happens to have a method `copy` or an attribute `stateful` behaves as on the base."""

from __future__ import annotations

# The names are used for what they are not meant for.
# pyright: reportAssignmentType=false
import asyncio
import shutil
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .line import WRAPPERS
from .toolsets import METHODS, HandWrittenBase, Journal, Server, Session, run_as, scripted

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

PLACES: dict[str, Callable[[AbstractToolset[Any]], AbstractToolset[Any]]] = {
    'alone': lambda toolset: toolset,
    **{name: wrap for name, wrap in WRAPPERS.items() if name != 'PrefixedToolset'},
    'CombinedToolset': lambda toolset: CombinedToolset([CombinedToolset([toolset])]),
}

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


@pytest.mark.parametrize('cls', [CopiesFiles, CopiesFilesStatically, CopiesFilesOfClass])
def test_b31_unrelated_copy_works_as_it_is_written(cls: Any):
    assert cls('t', Journal()).copy('a', target='b') == 'a to b'


async def test_b31_unrelated_async_copy_works_as_it_is_written():
    assert await CopiesFilesAsync('t', Journal()).copy('a', target='b') == 'a to b'


def test_b31_unrelated_static_copy_works_on_the_class():
    assert CopiesFilesStatically.copy('a', 'b') == 'a to b'
    assert CopiesFilesOfClass.copy('a', 'b') == 'a to b'
    assert CopiesFilesWith.copy is shutil.copyfile


async def test_b31_unrelated_copy_called_by_a_tool_works_as_it_is_written():
    class Files(FunctionToolset[Any]):
        def __init__(self) -> None:
            super().__init__()
            self.add_function(self.copy)

        def copy(self, value: str) -> str:
            return f'copied {value!r}'

    result = await Agent(scripted(['copy']), toolsets=[Files()]).run('go')
    returned = [
        part.content for message in result.all_messages() for part in message.parts if part.part_kind == 'tool-return'
    ]
    assert returned == ["copied ''"]


async def test_b31_wrapper_with_unrelated_names_is_shared_by_runs():
    class Wrapper(WrapperToolset[Any]):
        def stateful(self) -> bool:
            return True

        def copy(self, source: str, target: str) -> str:
            return f'{source} to {target}'

    toolset = Server('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[Wrapper(toolset)])
    for _ in range(2):
        assert (await agent.run('go')).output == 'done'
    assert toolset.values == ['', '']


async def test_b31_hand_written_wrapper_that_knows_nothing_works_around_stateless_toolsets():
    class Wrapper(HandWrittenBase):
        def __init__(self, inner: AbstractToolset[Any]):
            self.inner = inner

        @property
        def id(self) -> str | None:
            return None

        async def __aenter__(self) -> Any:
            return await self.inner.__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            return await self.inner.__aexit__(*args)

        async def get_tools(self, ctx: RunContext[Any]) -> Any:
            return await self.inner.get_tools(ctx)

        async def call_tool(self, *args: Any) -> Any:
            return await self.inner.call_tool(*args)

    toolset = Server('t', Journal())
    agent = Agent(scripted(['t']), toolsets=[Wrapper(toolset)])
    for _ in range(2):
        await agent.run('go')
    assert toolset.journal.lifecycle == ['+t', '-t'] * 2


async def test_b31_exit_called_with_keywords_works_as_it_is_written():
    class Keywords(Server):
        async def __aexit__(
            self, exc_type: object = None, exc_value: object = None, traceback: object = None
        ) -> bool | None:
            return await super().__aexit__(exc_type, exc_value, traceback)

    toolset = Keywords('t', Journal())
    await toolset.__aenter__()
    await toolset.__aexit__(exc_type=None, exc_value=None, traceback=None)
    assert toolset.journal.lifecycle == ['+t', '-t']


async def test_b31_exit_whose_value_is_used_outside_of_a_run_can_swallow():
    class Swallows(Server):
        async def __aexit__(self, *args: object) -> bool | None:
            await super().__aexit__(*args)
            return True

    async with Swallows('t', Journal()):
        raise ValueError


def test_b31_toolset_class_with_arguments_for_subclasses_works():
    class Registered(Server):
        registry: list[str] = []  # noqa: RUF012

        def __init_subclass__(cls, *, key: str, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.registry.append(key)

    class First(Registered, key='first'):
        pass

    assert First.registry == ['first']


async def test_b31_method_replaced_in_the_class_after_its_definition_is_used(monkeypatch: pytest.MonkeyPatch):
    class Patched(Server):
        pass

    async def enter(self: Patched) -> Patched:
        self.journal.note('patched', self)
        return self

    monkeypatch.setattr(Patched, '__aenter__', enter)
    toolset = Patched('t', Journal())
    await Agent(scripted(), toolsets=[toolset]).run('go')
    assert toolset.journal.names('patched') == ['t']


async def test_b31_inherited_methods_do_not_hide_those_of_the_next_base():
    class Connected(AbstractToolset[Any]):
        async def __aenter__(self) -> Self:
            events.append('enter')
            return await super().__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            events.append('exit')
            return await super().__aexit__(*args)

    class Search(FunctionToolset[Any], Connected):
        pass

    events: list[str] = []
    await Agent(scripted(), toolsets=[Search()]).run('go')
    assert events == ['enter', 'exit']


@pytest.mark.parametrize('name', ['__aenter__', '__aexit__', 'get_tools', 'call_tool'])
def test_b31_methods_can_be_mocked(name: str):
    with patch.object(FunctionToolset, name) as mock:
        assert isinstance(mock, AsyncMock)


NAMES = ('_inside', '_around', '_put_inside', '_make_for_run', '_instance', '_toolsets', '_run', '_scope')
"""What a toolset of a user may well have of its own."""


@pytest.mark.parametrize('wrapper', ['itself', *WRAPPERS])
@pytest.mark.parametrize('cls', [Server, Session])
async def test_b31_private_attributes_of_users_are_left_alone(cls: type[Server], wrapper: str):
    class HasItsOwn(cls):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            vars(self).update({name: f'my {name}' for name in NAMES})

    journal = Journal()
    toolset = HasItsOwn('t', journal)
    wrapped = toolset if wrapper == 'itself' else WRAPPERS[wrapper](toolset)
    agent = Agent(scripted(['x_t' if wrapper == 'PrefixedToolset' else 't']), toolsets=[wrapped])
    for run in 'ab':
        await run_as(run, agent)
    used = {id(event.toolset): event.toolset for event in journal.of('call')}
    assert len(used) == (2 if cls is Session else 1)
    for each in [toolset, *used.values()]:
        assert [vars(each)[name] for name in NAMES] == [f'my {name}' for name in NAMES]
