"""B13: a factory may return the same stateful instance in runs one after another, and in two places of one run."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import AbstractToolset, UserError, WrapperToolset
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from .delegation import calling
from .toolsets import METHODS, Journal, Server, Session, once_per_run, run_as

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)


class Dropping(WrapperToolset[Any]):
    """A toolset that takes one out of a pool when it's entered, and drops it when it's exited."""

    stateful = True

    def __init__(self, session: Session):
        self.wrapped: AbstractToolset[Any] = session
        self.session = session

    def copy(self) -> Self:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self.wrapped = self.session
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        try:
            return await super().__aexit__(*args)
        finally:
            self.wrapped = CombinedToolset([])


class Refers(Server):
    """A toolset that merely refers to another one, as a template."""

    def __init__(self, name: str, journal: Journal, template: AbstractToolset[Any]):
        super().__init__(name, journal)
        self.template = template


@methods
async def test_b13_instance_that_a_pool_hands_out_again_is_free_after_each_run(method: str):
    journal = Journal()
    session = Session('t', journal)
    agent = calling(['t'], toolsets=[lambda: Dropping(session)])
    for number in range(3):
        await run_as(f'run{number}', agent, method)
    assert session.values == ['run0', 'run1', 'run2']
    assert journal.lifecycle == ['+t', '-t'] * 3


@methods
async def test_b13_toolset_that_drops_what_it_wraps_is_free_itself(method: str):
    journal = Journal()
    pooled = Dropping(Session('t', journal))
    agent = calling(['t'], toolsets=[lambda: pooled])
    for number in range(3):
        await run_as(f'run{number}', agent, method)
    assert pooled.session.values == ['run0', 'run1', 'run2']


@methods
@pytest.mark.parametrize('of_context', [True, False])
async def test_b13_two_factories_of_one_run_may_return_the_same_instance(method: str, of_context: bool):
    journal = Journal()
    session = Session('t', journal)
    factories: list[Any] = (
        [lambda ctx: session.prefixed('x'), lambda ctx: session.prefixed('y')]
        if of_context
        else [lambda: session.prefixed('x'), lambda: session.prefixed('y')]
    )
    agent = calling(['x_t', 'y_t'], toolsets=factories)
    for number in range(2):
        await run_as(f'run{number}', agent, method)
    assert session.values == ['run0', 'run0', 'run1', 'run1']
    assert journal.of('copy') == []
    kinds = [event.kind for event in journal.of('enter', 'exit')]
    assert kinds.count('enter') == kinds.count('exit')


async def test_b13_instance_of_two_factories_is_refused_in_a_run_that_overlaps_until_both_have_exited():
    journal = Journal()
    session = Session('t', journal)
    agent = calling(toolsets=[once_per_run(lambda: session.prefixed('x')), once_per_run(lambda: session.prefixed('y'))])
    async with agent.iter('go') as agent_run:
        async for _ in agent_run:
            with pytest.raises(UserError, match=r"'t'.*in use by an agent run already"):
                await calling(toolsets=[lambda: session]).run('go')
    await calling(toolsets=[lambda: session]).run('go')


@methods
async def test_b13_toolset_that_refers_to_a_template_does_not_use_it(method: str):
    journal = Journal()
    template = Session('t', journal)
    agent = calling(['u'], toolsets=[lambda: Refers('u', journal, template)])

    class Nested(Server):
        async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
            await run_as('inner', agent)
            return await super().call_tool(*args, **kwargs)

    outer = calling(['t', 'n'], toolsets=[lambda: template, Nested('n', journal)])
    await run_as('outer', outer, method)
    assert template.values == ['outer']
    assert journal.names('enter') == ['t', 'n', 'u']
