"""What the core must not do, whatever it achieves: touch classes, keep tables of toolsets and runs, or keep locks."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import pkgutil
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, toolsets
from pydantic_ai.toolsets import CombinedToolset

from .delegation import Notes, calling, delegating
from .toolsets import Journal, Server, Session, once_per_run, run_as

pytestmark = pytest.mark.anyio

METHODS = ['__aenter__', '__aexit__', 'get_tools', 'call_tool', 'copy', 'for_sub_agent', 'for_run', 'for_run_step']


def modules() -> Iterator[ModuleType]:
    """Import the modules of the toolsets."""
    for found in pkgutil.walk_packages(toolsets.__path__, f'{toolsets.__name__}.'):
        try:
            yield import_module(found.name)
        except ImportError:
            # What needs a package that isn't installed
            continue


def loaded() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.split('.')[0] == pydantic_ai.__name__]


def kept(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Find the containers that a module keeps, in its variables and in those of its classes."""
    for name, value in list(vars(module).items()):
        owned = vars(value).items() if isinstance(value, type) and value.__module__ == module.__name__ else ()
        for path, found in [(name, value), *((f'{name}.{attribute}', found) for attribute, found in owned)]:
            if isinstance(found, CONTAINERS) and not path.rpartition('.')[2].startswith('__'):
                yield path, found


def test_limits_subclassing_a_toolset_runs_no_code():
    ours = [cls for cls in AbstractToolset.__mro__ if cls.__module__.startswith('pydantic_ai')]
    assert ours
    assert not any('__init_subclass__' in vars(cls) for cls in ours)


async def test_limits_methods_of_users_classes_stay_the_same_functions():
    class Mine(Notes):
        async def __aenter__(self) -> Any:
            return await super().__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            return await super().__aexit__(*args)

        def copy(self) -> Any:
            return super().copy()

        def for_sub_agent(self, ctx: RunContext[Any]) -> Any:
            return super().for_sub_agent(ctx)

    classes = [Mine, Notes, Session, Server]
    before = [dict(vars(cls)) for cls in classes]
    assert all(
        isinstance(value, FunctionType) and value.__module__ == cls.__module__
        for cls in classes
        for name, value in vars(cls).items()
        if name in METHODS
    )
    notes = Mine('t', Journal())
    child = calling(['t'], toolsets=[notes])
    await run_as('parent', calling(['t'], ['delegate'], toolsets=[notes, notes.prefixed('x'), delegating(child)]))
    for cls, methods in zip(classes, before, strict=True):
        assert {name: vars(cls).get(name) for name in methods} == methods


def test_limits_toolsets_have_no_new_context_variable():
    found = {name for module in modules() for name, value in vars(module).items() if isinstance(value, ContextVar)}
    # The first two are the base's. That of toolset scopes is set inside of their blocks only
    assert found <= {'RELAYS', '_load_window', 'current_block'}


WEAK = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary)


def test_limits_toolsets_have_no_weak_table():
    found = {
        (module.__name__, name)
        for module in modules()
        for name, value in vars(module).items()
        if isinstance(value, WEAK)
    }
    assert found == set()


async def test_limits_no_module_knows_toolsets_and_runs_that_are_live():
    """What a module knows is what one can reach from its variables without going through classes, functions and modules."""
    journal = Journal()
    held: list[str] = []

    class Looks(Session):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            held.extend(toolsets_known_to_modules())
            return await super().call_tool(*args, **kwargs)

    looks = Looks('t', journal)
    child = calling(['t'], toolsets=[looks], name='child')
    parent = calling(
        ['t'], ['delegate'], ['t'], toolsets=[looks, once_per_run(lambda: Session('u', journal)), delegating(child)]
    )
    await run_as('parent', parent)
    assert len(journal.of('call')) == 3
    assert held == []


CONTAINERS = (dict, list, set, tuple, deque, weakref.WeakSet, *WEAK)


def toolsets_known_to_modules() -> list[str]:
    """Find the toolsets and what belongs to runs in the containers of modules."""
    found: list[str] = []
    for module in loaded():
        for name, value in kept(module):
            queue, seen = [value], set[int]()
            while queue:
                item = queue.pop()
                if id(item) in seen or len(seen) > 10_000:
                    continue
                seen.add(id(item))
                if isinstance(item, weakref.ref):
                    item = item()
                if isinstance(item, (AbstractToolset, RunContext, Agent)) or 'RunToolsets' in type(item).__name__:
                    found.append(f'{module.__name__}.{name}')
                elif isinstance(item, (weakref.WeakSet, *WEAK)):
                    queue.extend(list(item.values()) if isinstance(item, weakref.WeakValueDictionary) else list(item))
                    queue.extend(list(item.values()) if isinstance(item, weakref.WeakKeyDictionary) else [])
                elif isinstance(item, dict):
                    queue.extend([*item.keys(), *item.values()])
                elif isinstance(item, (list, set, tuple, deque)):
                    queue.extend(item)
    return found


async def test_limits_toolsets_that_an_agent_keeps_are_not_changed_by_runs():
    journal = Journal()
    notes = Notes('t', journal)
    given: list[AbstractToolset[Any]] = [
        notes,
        notes.prefixed('x'),
        CombinedToolset([notes.shared().prefixed('y')]),
        once_per_run(lambda: Session('v', journal)),
        once_per_run(lambda: Session('w', journal)).shared(),
        FunctionToolset[Any](),
    ]
    before = [dict(vars(toolset)) for toolset in given]
    for _ in range(2):
        await calling(['t'], toolsets=given).run('go')
    assert [dict(vars(toolset)) for toolset in given] == before
