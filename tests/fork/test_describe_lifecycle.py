"""`describe_lifecycle()` says what happens: what it calls shared is seen by the next run, and what it warns about leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, UserError
from pydantic_ai.toolsets import (
    AgentToolset,
    CombinedToolset,
    LifecycleDescription,
    ToolsetLifecycle,
    describe_lifecycle,
)

from .line import WRAPPERS
from .toolsets import (
    HandWritten,
    Journal,
    Session,
    WithoutCopy,
    once_per_run,
    run_as,
    scripted,
)

pytestmark = pytest.mark.anyio


Arrange = Callable[[Journal], AgentToolset[Any]]

SAFE: dict[str, tuple[Arrange, str]] = {
    'stateful': (lambda journal: Session('it', journal), 'copied'),
    'in a wrapper': (lambda journal: Session('it', journal).filtered(lambda ctx, tool_def: True), 'copied'),
    'in a combination': (lambda journal: CombinedToolset([Session('it', journal)]), 'copied'),
    'in a hand-written wrapper': (lambda journal: HandWritten(Session('it', journal)), 'decided per run'),
    'made by a function': (lambda journal: lambda: Session('it', journal), 'made per run'),
    'made at each step': (lambda journal: lambda ctx: Session('it', journal), 'made per step'),
    'made once': (lambda journal: once_per_run(lambda: Session('it', journal)), 'made per run'),
}
"""Toolsets of whose state the next run sees nothing, and the policy of the innermost one."""

REFUSED: dict[str, Arrange] = {
    'no copy': lambda journal: WithoutCopy('it', journal),
    'no copy, inside of a wrapper': lambda journal: WithoutCopy('it', journal).prefixed('a'),
}
"""Toolsets that can't be given to an agent."""


def last(description: LifecycleDescription) -> ToolsetLifecycle:
    """Return that of the innermost of the toolsets given last."""
    return description.toolsets[-1]


async def sees_the_run_before(agent: Agent[Any, Any]) -> bool:
    """Run the agent twice, and say whether its toolset kept in the second what it was given in the first."""
    seen: list[list[str]] = []
    for name in ('one', 'two'):
        seen.append(await last_answer(agent, name))
    assert seen[0] == ['one'] and seen[1][-1] == 'two'
    return 'one' in seen[1]


async def last_answer(agent: Agent[Any, Any], name: str) -> list[str]:
    """Run the agent under a name, and return the values that its last tool call answered with."""
    values: list[str] = []

    async def listen(ctx: RunContext[Any], events: Any) -> None:
        async for event in events:
            if event.event_kind == 'function_tool_result':
                values[:] = event.part.content

    await run_as(name, agent, event_stream_handler=listen)
    return values


@pytest.mark.parametrize('arrangement', SAFE)
async def test_describe_safe_toolset_has_no_problem_and_leaks_nothing(arrangement: str):
    arrange, policy = SAFE[arrangement]
    agent = Agent(scripted(['it']), toolsets=[arrange(Journal())])

    description = describe_lifecycle(agent)

    assert description.problems == []
    assert last(description).policy == policy
    assert await sees_the_run_before(agent) is False


@pytest.mark.parametrize('name', WRAPPERS)
def test_describe_each_wrapper_of_the_line_is_copied_for_what_is_inside(name: str):
    [described, _] = describe_lifecycle(WRAPPERS[name](Session('it', Journal()))).toolsets
    assert (described.policy, described.why) == ('copied', "contains Session 'it', which runs do not share")


@pytest.mark.parametrize('arrangement', REFUSED)
def test_describe_refused_toolset_has_the_problem_that_agents_raise(arrangement: str):
    toolset: Any = REFUSED[arrangement](Journal())
    with pytest.raises(UserError) as raised:
        Agent(toolsets=[toolset])

    description = describe_lifecycle(toolset)

    [refused] = [described for described in description.toolsets if described.policy == 'refused']
    assert description.problems == [refused.problem] == [str(raised.value)]
    assert refused.entered == 'by nobody'
