"""B7: a `copy()` that copies some other toolset twice has two of it, and so has a task that `copy()` or `for_run()` starts."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .delegation import called, calling
from .toolsets import HandWritten, Journal, Server, Session, run_as

pytestmark = pytest.mark.anyio


class Pair(WrapperToolset[Any]):
    """A wrapper with two sessions, which it makes by copying a template twice."""

    stateful = True

    def __init__(self, template: Session):
        self.template = template
        self.left, self.right = template.copy(), template.copy()
        self.wrapped: AbstractToolset[Any] = CombinedToolset([self.left.prefixed('left'), self.right.prefixed('right')])

    def copy(self) -> Self:
        return type(self)(self.template)


@pytest.mark.parametrize('beside', [False, True])
async def test_b07_copy_that_copies_a_template_twice_has_two_of_it(beside: bool):
    journal = Journal()
    template = Session('t', journal)
    pair = Pair(template)
    agent = calling(['left_t'], ['right_t'], ['left_t'], toolsets=[*([template] if beside else []), pair])
    for run in ('first', 'second'):
        await run_as(run, agent)
        left, right = [*dict.fromkeys(event.toolset for event in journal.of('call') if event.run == run)]
        assert left is not right
        assert (left.values, right.values) == ([run, run], [run])
    assert template.values == []


async def test_b07_hand_written_wrapper_that_copies_a_template_twice_has_two_of_it():
    class Both(HandWritten):
        def __init__(self, template: Session):
            self.template = template
            self.left, self.right = template.copy(), template.copy()
            super().__init__(CombinedToolset([self.left.prefixed('left'), self.right.prefixed('right')]))

        def copy(self) -> Self:
            return type(self)(self.template)

        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            return self.copy()

        async def for_run_step(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            return self

    journal = Journal()
    agent = calling(['left_t'], ['right_t'], toolsets=[Both(Session('t', journal))])
    await run_as('run', agent)
    assert [event.toolset.values for event in journal.of('call')] == [['run'], ['run']]


async def refill(pool: list[Session], template: Session) -> None:
    for _ in range(3):
        await asyncio.sleep(0)
        pool.append(template.copy())


async def test_b07_task_that_a_copy_starts_copies_anew_each_time():
    """It has nothing of the run that it was started in, so two calls of `copy()` give two."""

    class Refilling(Session):
        def copy(self) -> Self:
            copy = super().copy()
            if self.original is self:
                tasks.append(asyncio.ensure_future(refill(pool, template)))
            return copy

    pool: list[Session] = []
    tasks: list[asyncio.Task[None]] = []
    journal = Journal()
    template = Session('template', journal)
    agent = calling(['t'], toolsets=[Refilling('t', journal), template])
    await run_as('run', agent)
    await asyncio.gather(*tasks)
    assert len({id(copy) for copy in pool}) == 3 * len(tasks) > 0
    assert called(journal, 'run').values == ['run']


async def test_b07_task_that_for_run_starts_copies_anew_each_time():
    class Refilling(Server):
        async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
            tasks.append(asyncio.ensure_future(refill(pool, template)))
            return Server(self.name, self.journal)

    pool: list[Session] = []
    tasks: list[asyncio.Task[None]] = []
    journal = Journal()
    template = Session('template', journal)
    await run_as('run', calling(['t'], toolsets=[Refilling('t', journal), template]))
    await asyncio.gather(*tasks)
    assert len({id(copy) for copy in pool}) == 3
