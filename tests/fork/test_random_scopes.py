"""Random chats in scopes: several agents, runs that fail or are cancelled at any step, resets and scopes inside one another."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest
from pydantic_ai import AbstractToolset, UserError
from pydantic_ai.toolsets import CombinedToolset, ToolsetScope, WrapperToolset
from typing_extensions import Self

from .delegation import Notes, calling, delegating, fresh
from .line import once_per_run
from .toolsets import Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


class Boom(Exception):
    pass


class Logged(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def copy(self) -> Self:
        return type(self)(cast('Any', self.wrapped).copy())


def trees(choose: random.Random, journal: Journal) -> tuple[dict[str, Session], list[list[AbstractToolset[Any]]]]:
    """Make toolsets, and lists of toolsets that agents get, each with the tools `a` and `b`."""
    a, b = Notes('a', journal, answer=choose.choice([None, fresh])), Session('b', journal)
    logged = Logged(CombinedToolset([a, b]))
    server = Server('s', journal)
    return {'a': a, 'b': b}, [
        [a, b, server],
        [CombinedToolset([b.prefixed('x'), a]), b],
        [logged],
        [logged, a.prefixed('x')],
        [server, b, logged.prefixed('x'), a, once_per_run(lambda: Session('made', journal))],
    ]


class Chat:
    """A chat in a scope, and what the scope should hold."""

    def __init__(self, choose: random.Random, journal: Journal):
        self.choose = choose
        self.journal = journal
        self.originals, self.trees = trees(choose, journal)

    def agent(self) -> Any:
        tree = self.choose.choice(self.trees)
        steps: list[Any] = [self.choose.choice([['a'], ['b'], ['a', 'b']]) for _ in range(2)]
        if self.choose.random() < 0.2:
            steps.append(Boom())
        if self.choose.random() < 0.3:
            child = calling(['a'], toolsets=self.trees[0], name='child')
            steps.insert(1, ['delegate'])
            tree = [*tree, delegating(child)]
        return calling(*steps, toolsets=tree, name='agent')

    async def run(self, name: str) -> None:
        task = asyncio.ensure_future(run_as(name, self.agent()))
        if self.choose.random() < 0.4:
            for _ in range(self.choose.randrange(60)):
                await asyncio.sleep(0)
            for _ in range(self.choose.choice([1, 1, 2])):
                task.cancel()
                await asyncio.sleep(0)
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None or isinstance(task.exception(), Boom)

    async def go_on(self, depth: int = 0) -> None:
        names = list(self.originals)
        only = self.choose.choice([(), (), (self.originals['a'],)])
        async with ToolsetScope(*only) as scope:
            live: dict[str, Session] = {}
            for number in range(self.choose.randrange(1, 7)):
                what = self.choose.random()
                if what < 0.2:
                    name = self.choose.choice(names)
                    await scope.reset(self.originals[name])
                    live.clear()
                elif what < 0.3 and depth < 2:
                    await self.go_on(depth + 1)
                else:
                    await self.run(f'{depth}{number}')
                for name, toolset in list(live.items()):
                    # It's the same until it's reset
                    assert scope.instance_of(self.originals[name]) is toolset
                entered = {id(event.toolset) for event in self.journal.of('enter')}
                for original in only or self.originals.values():
                    try:
                        instance = scope.instance_of(original)
                    except UserError:
                        assert original.name not in live
                    else:
                        if id(instance) in entered:
                            live[original.name] = instance
            if self.choose.random() < 0.3:
                raise Boom


@pytest.mark.parametrize('seed', range(100))
async def test_b34_random_chats_leave_nothing_behind(seed: int):
    choose = random.Random(seed)
    journal = Journal()
    before = asyncio.all_tasks()
    chats = [Chat(choose, journal) for _ in range(choose.choice([1, 1, 3]))]
    outcomes = await asyncio.gather(*(chat.go_on() for chat in chats), return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, Boom) for outcome in outcomes), outcomes
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before
    by_id: dict[int, list[str]] = {}
    for event in journal.of('enter', 'exit', 'call'):
        if isinstance(event.toolset, Session):
            by_id.setdefault(id(event.toolset), []).append(event.kind)
    for kinds in by_id.values():
        assert (kinds.count('enter'), kinds.count('exit')) == (1, 1), kinds
        assert (kinds[0], kinds[-1]) == ('enter', 'exit'), kinds
    for chat in chats:
        for original in chat.originals.values():
            assert original.values == []
            assert id(original) not in by_id
