"""B7: a `copy()` that copies some other toolset twice has two of it."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .delegation import calling
from .toolsets import HandWritten, Journal, Session, run_as

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
