"""Random chats: several agents and users, runs that are cancelled at any step, generators that are left and interleaved, pools."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, UserError
from pydantic_ai.toolsets import CombinedToolset, ToolsetScope, ToolsetScopePool, WrapperToolset
from typing_extensions import Self

from .delegation import Notes, calling, delegating, forked, fresh
from .line import left_by_the_fork, not_on_1, stream_events
from .toolsets import METHODS, RUN, Boom, Journal, Server, Session, once_per_run, run_as

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings('ignore:No agent run has worked')]

SEEDS = range(int(os.environ.get('RANDOM_SCOPES', '50')))
RUN_METHODS = [method for method in METHODS if method != 'run_sync']


class Logged(WrapperToolset[Any]):
    """A wrapper with state of its own."""

    stateful = True

    def copy(self) -> Self:
        return type(self)(self.wrapped.copy())


class World:
    """Agents that all users have, and the toolsets that each chat keeps."""

    def __init__(self, choose: random.Random):
        self.choose = choose
        self.journal = journal = Journal()
        answers = [None, fresh, forked, lambda live, ctx: Logged(live)]
        self.a, self.b = Notes('a', journal, answer=choose.choice(answers)), Session('b', journal)
        self.other = Session('c', journal)
        self.named: list[Session] = choose.choice([[self.a, self.b], [self.b, self.a], [self.a]])
        a, b, server = self.a, self.b, Server('s', journal)
        logged = Logged(CombinedToolset([a, b]))
        self.trees: list[list[AbstractToolset[Any]]] = [
            [a, b, server],
            [CombinedToolset([b.prefixed('x'), a]), b],
            [logged],
            [logged, a.prefixed('x'), self.other],
            [server, b, logged.prefixed('x'), a, once_per_run(lambda: Session('made', journal))],
        ]

    def agent(self, depth: int = 0) -> Any:
        choose = self.choose
        tree = choose.choice(self.trees)
        steps: list[Any] = [choose.choice([['a'], ['b'], ['a', 'b']]) for _ in range(2)]
        if choose.random() < 0.2:
            steps.append(Boom())
        if depth < 3 and choose.random() < 0.4:
            steps.insert(1, ['delegate'])
            tree = [*tree, delegating(self.agent(depth + 1), run=RUN.get())]
        return calling(*steps, toolsets=tree, name=f'agent{depth}')

    async def run(self, user: str, chat: Any) -> None:
        RUN.set(user)
        task = asyncio.ensure_future(
            run_as(
                user,
                self.agent(),
                self.choose.choice(RUN_METHODS),
                toolsets=[] if chat is None else [chat],
            )
        )
        if self.choose.random() < 0.4:
            for _ in range(self.choose.randrange(60)):
                await asyncio.sleep(0)
            for _ in range(self.choose.choice([1, 1, 2])):
                task.cancel()
                await asyncio.sleep(0)
        await asyncio.wait([task])
        if not task.cancelled():
            assert isinstance(task.exception(), (Boom, asyncio.CancelledError, type(None)))

    async def stream(self, user: str, chat: Any) -> AsyncGenerator[None, None]:
        RUN.set(user)
        with suppress(Boom):
            async with stream_events(self.agent(), 'go', toolsets=[chat]) as events, aclosing(events):  # pyright: ignore[reportArgumentType]
                async for _ in events:
                    yield
                    RUN.set(user)

    def check(self) -> None:
        """Check that nothing crossed from user to user, and that each was entered and exited once, by its owner."""
        by_id: dict[int, list[str]] = defaultdict(list)
        for event in self.journal.of('enter', 'exit', 'call'):
            toolset = event.toolset
            if type(toolset) is Server:
                continue
            by_id[id(toolset)].append(event.kind)
            assert len(set(toolset.values)) <= 1, f'{toolset.values} in one toolset'
        for kinds in by_id.values():
            assert (kinds.count('enter'), kinds.count('exit')) == (1, 1), kinds
            assert (kinds[0], kinds[-1]) == ('enter', 'exit'), kinds
        assert self.a.values == self.b.values == self.other.values == []


async def one_chat(world: World, user: str, open_chat: Any, depth: int = 0) -> None:
    """Have a chat of one user, in which each message is answered by another agent, some of them in a stream that is left."""
    choose = world.choose
    async with open_chat as chat:
        kept = [chat.instance_of(toolset) for toolset in world.named]
        for _ in range(choose.randrange(1, 6)):
            what = choose.random()
            if what < 0.15:
                await world.run(f'{user} on the side', None)
            elif what < 0.3 and depth < 2:
                await one_chat(world, f'{user}{depth}', ToolsetScope(*world.named), depth + 1)
            elif what < 0.5:
                stream, number = world.stream(user, chat), choose.randrange(1, 12)
                async for _ in stream:
                    number -= 1
                    if not number:
                        break
                await stream.aclose()
            else:
                await world.run(user, chat)
            assert [chat.instance_of(toolset) for toolset in world.named] == kept
            assert all(set(toolset.values) <= {user} for toolset in kept)
        if choose.random() < 0.3:
            raise Boom


def check_outcomes(outcomes: list[Any]) -> None:
    assert all(outcome is None or isinstance(outcome, Boom) for outcome in outcomes), outcomes


@pytest.mark.parametrize('seed', SEEDS)
async def test_b34_random_chats_leave_nothing_behind(seed: int):
    choose = random.Random(seed)
    world = World(choose)
    before = asyncio.all_tasks()
    chats = [one_chat(world, f'user{n}', ToolsetScope(*world.named)) for n in range(choose.choice([1, 1, 3]))]
    check_outcomes(await asyncio.gather(*chats, return_exceptions=True))
    for _ in range(20):
        await asyncio.sleep(0)
    assert left_by_the_fork(asyncio.all_tasks() - before) == []
    world.check()


@pytest.mark.parametrize('seed', SEEDS)
async def test_b37_random_chats_of_a_pool_leave_nothing_behind(seed: int):
    """Users come back, some of them are ended, and one is never read to the end."""
    choose = random.Random(seed)
    world = World(choose)
    before = asyncio.all_tasks()

    async def user(name: str) -> None:
        for _ in range(choose.randrange(1, 4)):
            with suppress(Boom):
                await one_chat(world, name, pool(name))
            if choose.random() < 0.3:
                await pool.end(name)

    async with ToolsetScopePool(*world.named, limit=choose.choice([None, 1, 2])) as pool:
        check_outcomes(
            await asyncio.gather(*(user(f'user{n}') for n in range(choose.choice([1, 3, 5]))), return_exceptions=True)
        )
    for _ in range(20):
        await asyncio.sleep(0)
    assert left_by_the_fork(asyncio.all_tasks() - before) == []
    world.check()


@not_on_1  # There, a scope waits for a run that was left
@pytest.mark.parametrize('seed', SEEDS)
async def test_b33_random_generators_that_are_left_and_interleaved_do_not_cross(seed: int):
    """One task reads from several users' streams by turns, awaits some chunks in tasks, and forgets some of them."""
    choose = random.Random(seed)
    world = World(choose)
    before = asyncio.all_tasks()

    async def talk(name: str) -> AsyncGenerator[None, None]:
        async with pool(name) as chat:
            for _ in range(choose.randrange(1, 4)):
                async for _ in world.stream(name, chat):
                    yield

    async with ToolsetScopePool(*world.named) as pool:
        streams = {name: talk(name) for name in ('Ada', 'Bob', 'Eve')}
        while streams:
            name = choose.choice(list(streams))
            what = choose.random()
            if what < 0.03:
                del streams[name]
                continue
            if what < 0.1:
                await world.run('on the side', None)
            RUN.set('nobody')
            chunk = anext(streams[name], False)
            if await (asyncio.ensure_future(chunk) if what < 0.5 else chunk) is False:
                del streams[name]
        gc.collect()
        for _ in range(200):
            await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert left_by_the_fork(asyncio.all_tasks() - before) == []
    world.check()


@pytest.mark.parametrize('seed', SEEDS)
async def test_b35_random_runs_at_once_are_refused_alone(seed: int):
    choose = random.Random(seed)
    world = World(choose)

    async def run(chat: Any) -> Any:
        for _ in range(choose.randrange(30)):
            await asyncio.sleep(0)
        RUN.set('Ada')
        return await run_as('Ada', world.agent(), choose.choice(RUN_METHODS), toolsets=[chat])

    async with ToolsetScope(*world.named) as chat:
        outcomes = await asyncio.gather(*(run(chat) for _ in range(4)), return_exceptions=True)
    for outcome in outcomes:
        assert outcome == 'done' or type(outcome) in (Boom, UserError), outcome
    assert any(outcome == 'done' or isinstance(outcome, Boom) for outcome in outcomes)
    world.check()
