"""B32: a stateful toolset that a capability contributes is the one that the run's own hooks of this capability see."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability

from .toolsets import METHODS, RUN, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

methods = pytest.mark.parametrize('method', METHODS)


@dataclass
class Makes(AbstractCapability[Any]):
    """A capability that makes a toolset for each run, and looks at what it collected at the end."""

    journal: Journal
    kind: type[Server] = Session
    seen: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    toolset: Any = None

    async def for_run(self, ctx: RunContext[Any]) -> Any:
        return type(self)(self.journal, self.kind, self.seen, self.kind('t', self.journal))

    def get_toolset(self) -> Any:
        return self.toolset

    async def before_run(self, ctx: RunContext[Any]) -> None:
        self.toolset.values.append(f'before {RUN.get()}')

    async def after_run(self, ctx: RunContext[Any], *, result: Any) -> Any:
        self.seen[RUN.get()] = self.toolset.values
        return result


@methods
@pytest.mark.parametrize('kind', [Session, Server])
async def test_b32_capability_sees_what_its_for_run_made(kind: type[Server], method: str):
    journal = Journal()
    capability = Makes(journal, kind)
    agent = Agent(scripted(['t']), capabilities=[capability])
    runs = ['first', 'second']
    for run in runs:
        await run_as(run, agent, method)
    assert capability.seen == {run: [f'before {run}', run] for run in runs}
    assert journal.of('copy') == []
    assert journal.lifecycle == ['+t', '-t'] * 2


async def test_b32_capabilities_of_runs_at_once_see_their_own():
    journal = Journal()
    capability = Makes(journal)
    agent = Agent(scripted(['t']), capabilities=[capability])
    runs = [f'run{number}' for number in range(5)]
    await asyncio.gather(*(run_as(run, agent) for run in runs))
    assert capability.seen == {run: [f'before {run}', run] for run in runs}


async def test_b32_capability_that_is_given_to_a_run_sees_what_its_for_run_made():
    capability = Makes(Journal())
    await run_as('run', Agent(scripted(['t'])), capabilities=[capability])
    assert capability.seen == {'run': ['before run', 'run']}


@methods
async def test_b32_capability_that_a_function_makes_sees_its_toolset(method: str):
    journal, made = Journal(), list[Makes]()

    def make(ctx: RunContext[Any]) -> Any:
        made.append(Makes(journal, toolset=Session('t', journal)))
        return made[-1]

    agent = Agent(scripted(['t']), capabilities=[make])
    for run in ('first', 'second'):
        await run_as(run, agent, method)
    found: dict[str, list[str]] = {}
    for capability in made:
        found.update(capability.seen)
    assert found == {'first': ['before first', 'first'], 'second': ['before second', 'second']}
