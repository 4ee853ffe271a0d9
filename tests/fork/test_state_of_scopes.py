"""The state of a scope goes to another process as JSON, and comes back as it was, whenever that happens."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import UserError
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, ToolsetScope, ToolsetScopePool, WrapperToolset
from typing_extensions import Self

from .delegation import calling
from .line import WRAPPERS
from .toolsets import METHODS, Journal, Server, Session, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]


class Saved(Session):
    """Says what its state is."""

    @property
    def id(self) -> str:
        return self.name

    async def export_state(self) -> Any:
        await asyncio.sleep(0)
        return self.values

    async def restore_state(self, state: Any) -> None:
        await asyncio.sleep(0)
        self.values = state


class Counting(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def __init__(self, wrapped: AbstractToolset[Any]) -> None:
        super().__init__(wrapped)
        self.calls = 0

    @property
    def id(self) -> str:
        return 'counting'

    def copy(self) -> Self:
        return type(self)(cast('Any', self.wrapped).copy())

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        self.calls += 1
        return await super().call_tool(name, tool_args, ctx, tool)

    async def export_state(self) -> Any:
        return {'calls': self.calls}

    async def restore_state(self, state: Any) -> None:
        self.calls = state['calls']


PROCESS = """
    import asyncio, json, sys
    from typing import Any
    from pydantic_ai import Agent, FunctionToolset
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import ToolsetScope

    class Tasks(FunctionToolset[Any]):
        stateful = True
        tasks: list[str]

        def __init__(self):
            super().__init__([self.add], id='tasks')
            self.tasks = []

        def copy(self):
            return type(self)()

        def add(self, task: str) -> int:
            self.tasks.append(sys.argv[1])
            return len(self.tasks)

        async def export_state(self):
            return self.tasks

        async def restore_state(self, state):
            self.tasks = state

    async def main():
        toolset = Tasks()
        stored = sys.stdin.read()
        async with ToolsetScope(toolset, state=json.loads(stored) if stored else None) as scope:
            await Agent(TestModel(), toolsets=[toolset]).run('Go', toolsets=[scope])
            print(json.dumps(await scope.export()))

    asyncio.run(main())
"""


def test_state_goes_from_process_to_process(tmp_path: Path) -> None:
    script = tmp_path / 'chat.py'
    script.write_text(textwrap.dedent(PROCESS), 'utf-8')
    stored = ''
    for task in ('Wash the car', 'Grüße', 'a\nb'):
        command = [sys.executable, '-I', str(script), task]
        done = subprocess.run(command, input=stored, capture_output=True, encoding='utf-8', check=True)
        stored = done.stdout
    assert json.loads(stored)['toolsets'] == {'tasks': ['Wash the car', 'Grüße', 'a\nb']}


@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
@pytest.mark.parametrize('wrapper', WRAPPERS)
async def test_state_is_restored_in_any_wrapper(wrapper: str, method: str) -> None:
    session = Saved('t', Journal())
    wrapped: Any = WRAPPERS[wrapper](session)
    async with ToolsetScope(session) as scope:
        await run_as('one', calling(['t'], toolsets=[session]), method, toolsets=[scope])
        exported = await scope.export()
    async with ToolsetScope(session, state=exported) as scope:
        await run_as('two', calling(toolsets=[wrapped]), method, toolsets=[scope])
        await run_as('three', calling(['t'], toolsets=[session]), method, toolsets=[scope])
        assert scope.instance_of(session).values == ['one', 'three']
    assert session.values == []


async def test_state_that_is_exported_can_be_restored_however_deep_it_is() -> None:
    session = Saved('t', Journal())
    refused = restored = 0
    state: Any = []
    for _ in range(250):
        state = [state]
        async with ToolsetScope(session) as scope:
            scope.instance_of(session).values = state
            try:
                exported = await scope.export()
            except UserError:
                refused += 1
                continue
        async with ToolsetScope(session, state=exported) as scope:
            assert scope.instance_of(session).values == state
            restored += 1
    assert restored + refused == 250
    assert restored > 100


async def test_first_request_to_the_model_finds_what_was_restored() -> None:
    class Telling(Saved):
        async def get_tools(self, ctx: Any) -> Any:
            seen.append(list(self.values))
            return await super().get_tools(ctx)

    seen: list[list[str]] = []
    session = Telling('t', Journal())
    async with ToolsetScope(session, state={'version': 1, 'toolsets': {'t': ['kept']}}) as scope:
        await run_as('run', calling(toolsets=[session]), toolsets=[scope])
    assert seen == [['kept']]


async def test_sub_agent_borrows_what_was_restored() -> None:
    session = Saved('t', Journal())
    child = calling(['t'], toolsets=[session], name='child')

    async def delegate(value: str) -> str:
        return await run_as('child', child)

    parent = calling(['delegate'], toolsets=[session], tools=[delegate], name='parent')
    async with ToolsetScope(session, state={'version': 1, 'toolsets': {'t': ['kept']}}) as scope:
        await run_as('parent', parent, toolsets=[scope])
        assert scope.instance_of(session).values == ['kept', 'child']


def trees(journal: Journal) -> tuple[list[Any], list[list[AbstractToolset[Any]]]]:
    """Make toolsets that say what their state is, and lists of toolsets that agents get."""
    a, b = Saved('a', journal), Saved('b', journal)
    counting = Counting(CombinedToolset([a, b.prefixed('x')]))
    return [counting, a, b], [[a, b, Server('s', journal)], [counting, b], [counting.prefixed('p'), a, b]]


async def chat(seed: int, *, stored: bool) -> dict[str, Any]:
    """Have a random chat, and return what its toolsets hold in the end.

    Args:
        seed: What makes the chat what it is.
        stored: Whether it's stored now and then, and goes on with new toolsets, as in another process.
    """
    choose, when = random.Random(seed), random.Random(-seed)
    journal = Journal()
    named, given = trees(journal)
    state: Any = None
    rest = choose.randrange(3, 8)
    while rest:
        async with ToolsetScope(*named, state=state) as scope:
            while rest:
                rest -= 1
                tree, steps = (
                    choose.randrange(3),
                    [choose.choice([['a'], ['b'], ['a', 'b']]) for _ in range(choose.randrange(3))],
                )
                if choose.random() < 0.2:
                    agent = calling(toolsets=given[tree])
                    task = asyncio.ensure_future(run_as('cancelled', agent, toolsets=[scope]))
                    for _ in range(choose.randrange(30)):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                else:
                    await run_as(f'run{rest}', calling(*steps, toolsets=given[tree]), toolsets=[scope])
                if stored and when.random() < 0.4:
                    break
            state = json.loads(json.dumps(await scope.export()))
        named, given = trees(journal)
    assert journal.names('enter').count('a') == journal.names('exit').count('a')
    assert all(toolset.values == [] for toolset in named[1:])
    return state


@pytest.mark.parametrize('seed', range(1, 51))
async def test_random_chats_that_are_stored_are_as_those_that_are_not(seed: int) -> None:
    in_one_go, stored = await chat(seed, stored=False), await chat(seed, stored=True)
    assert stored == in_one_go


async def test_what_cannot_be_restored_says_so_before_anything_is_made() -> None:
    journal = Journal()
    session = Saved('t', journal)
    with pytest.raises(UserError, match="'gone'"):
        async with ToolsetScope(session, state={'version': 1, 'toolsets': {'t': ['kept'], 'gone': 1}}):
            pytest.fail('The block was entered')
    assert journal.of('enter') == []


@pytest.mark.parametrize('version', [True, 1.0, '1', 2, None, [1]])
async def test_version_that_is_not_the_number_is_refused(version: Any) -> None:
    session = Saved('t', Journal())
    with pytest.raises(UserError, match='version'):
        async with ToolsetScope(session, state={'version': version, 'toolsets': {'t': ['kept']}}):
            pytest.fail('The block was entered')
    assert session.journal.of('enter') == []


@pytest.mark.parametrize('state', ['{}', [], {}, {'version': 1}, {'version': 1, 'toolsets': []}, 1], ids=repr)
async def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(UserError):
        async with ToolsetScope(Saved('t', Journal()), state=state):
            pytest.fail('The block was entered')


async def test_state_that_is_not_json_is_refused_with_the_name_of_the_toolset() -> None:
    class Bad(Saved):
        async def export_state(self) -> Any:
            return self.values

    session = Bad('t', Journal())
    bad: Any
    async with ToolsetScope(session) as scope:
        for bad, place in (
            ({1, 2}, ''),
            ({'tasks': [{}, {'due': (1, 2)}]}, r" at \['tasks'\]\[1\]\['due'\]"),
            ([{'a': {1: 2}}], r" at \[0\]\['a'\]\[1\]"),
            ([0.0, float('nan')], r' at \[1\]'),
            ('\ud800', ''),
        ):
            scope.instance_of(session).values = bad
            with pytest.raises(UserError, match=f"^The state of Bad 't' is not JSON{place}: "):
                await scope.export()
        scope.instance_of(session).values = []
        await run_as('run', calling(['t'], toolsets=[session]), toolsets=[scope])


async def test_state_is_a_copy() -> None:
    session = Saved('t', Journal())
    agent = calling(['t'], toolsets=[session])
    async with ToolsetScope(session) as scope:
        await run_as('one', agent, toolsets=[scope])
        exported = await scope.export()
        await run_as('two', agent, toolsets=[scope])
        assert exported == {'version': 1, 'toolsets': {'t': ['one']}}
    async with ToolsetScope(session, state=exported) as scope:
        await run_as('three', agent, toolsets=[scope])
        assert exported == {'version': 1, 'toolsets': {'t': ['one']}}
        assert await scope.export() == {'version': 1, 'toolsets': {'t': ['one', 'three']}}


async def test_toolset_that_exports_nothing_is_kept_beside_those_that_do() -> None:
    saved, plain = Saved('t', Journal()), Session('u', Journal())
    agent = calling(['t', 'u'], toolsets=[saved, plain])
    async with ToolsetScope(saved, plain) as scope:
        await run_as('one', agent, toolsets=[scope])
        assert await scope.export() == {'version': 1, 'toolsets': {'t': ['one']}}


async def test_pool_opens_a_key_with_a_state_and_goes_on_without() -> None:
    session = Saved('t', Journal())
    agent = calling(['t'], toolsets=[session])
    async with ToolsetScopePool(session) as chats:
        stored: Any = {'version': 1, 'toolsets': {'t': ['kept']}}
        for name in ('one', 'two'):
            # The second time it's open, and has its own
            async with chats('Ada', state=stored) as chat:
                await run_as(name, agent, toolsets=[chat])
        async with chats('Bob') as chat:
            assert await chat.export() == {'version': 1, 'toolsets': {'t': []}}
        async with chats('Ada') as chat:
            exported = await chat.export()
        assert exported == {'version': 1, 'toolsets': {'t': ['kept', 'one', 'two']}}
        await chats.end('Ada')
        async with chats('Ada', state=exported) as chat:
            assert await chat.export() == exported


async def test_state_that_does_not_fit_is_refused_while_the_key_is_open() -> None:
    session = Saved('t', Journal())
    async with ToolsetScopePool(session) as chats, chats('Ada'):
        states: list[Any] = [{}, 'x', {'version': 2, 'toolsets': {}}, {'version': 1, 'toolsets': {'gone': 1}}]
        for wrong in states:
            with pytest.raises(UserError):
                async with chats('Ada', state=wrong):
                    pytest.fail('The block was entered')
        assert chats.keys == ['Ada']


async def test_export_state_that_is_not_async_is_refused_with_the_name_of_the_toolset() -> None:
    class NotAsync(Saved):
        def export_state(self) -> Any:
            return self.values

    async with ToolsetScope(NotAsync('t', Journal()), name='chat') as scope:
        with pytest.raises(UserError, match=r"^`export_state\(\)` of NotAsync 't' is not async"):
            await scope.export()
        assert repr(scope) == "ToolsetScope(name='chat')"
