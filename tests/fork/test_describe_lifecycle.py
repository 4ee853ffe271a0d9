"""`describe_lifecycle()` says what happens: what it calls shared is seen by the next run, and what it warns about leaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic_ai import AbstractToolset, Agent, RunContext, UserError
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.toolsets import (
    AgentToolset,
    CombinedToolset,
    LifecycleDescription,
    ToolsetLifecycle,
    describe_lifecycle,
)
from typing_extensions import Self

from .capabilities import contributing
from .line import WRAPPERS
from .toolsets import (
    HandWritten,
    Journal,
    Server,
    Session,
    WithoutCopy,
    once_per_run,
    run_as,
    scripted,
)

pytestmark = pytest.mark.anyio


class Sharing(Session):
    """A toolset whose copies share its state."""

    def copy(self) -> Self:
        copy = super().copy()
        copy.values = self.values
        return copy


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


BY_AGENT = 'by `async with agent:` and by each run'


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


async def test_describe_shared_server_is_seen_by_the_next_run_and_no_problem():
    agent = Agent(scripted(['it']), toolsets=[Server('it', Journal())])

    description = describe_lifecycle(agent)

    assert description.problems == []
    assert (last(description).policy, last(description).entered) == ('shared', BY_AGENT)
    assert await sees_the_run_before(agent) is True


async def test_describe_shared_on_purpose_is_seen_by_the_next_run_and_no_problem():
    agent = Agent(scripted(['it']), toolsets=[Session('it', Journal()).shared()])

    description = describe_lifecycle(agent)

    assert description.problems == []
    assert last(description).policy == 'shared'
    assert await sees_the_run_before(agent) is True


@pytest.mark.parametrize('arrangement', REFUSED)
def test_describe_refused_toolset_has_the_problem_that_agents_raise(arrangement: str):
    toolset: Any = REFUSED[arrangement](Journal())
    with pytest.raises(UserError) as raised:
        Agent(toolsets=[toolset])

    description = describe_lifecycle(toolset)

    [refused] = [described for described in description.toolsets if described.policy == 'refused']
    assert description.problems == [refused.problem] == [str(raised.value)]
    assert refused.entered == 'by nobody'


async def test_describe_copy_that_shares_a_container_is_a_problem_before_the_first_run():
    agent = Agent(scripted(['it']), toolsets=[Sharing('it', Journal())])

    [problem] = describe_lifecycle(agent).problems

    assert problem.startswith("Sharing 'it' is stateful, but its copy shares `values` with it")
    with pytest.warns(UserWarning, match='its copy shares `values` with it'):
        assert await sees_the_run_before(agent) is True


async def test_describe_enters_and_calls_nothing_but_copy():
    journal = Journal()
    factory_calls: list[str] = []

    def factory() -> AbstractToolset[Any]:
        factory_calls.append('called')
        return Server('made', journal)

    agent = Agent(toolsets=[Server('server', journal), Session('session', journal), factory])
    describe_lifecycle(agent)

    assert {event.kind for event in journal.events} == {'copy'}
    assert factory_calls == []


async def test_describe_entered_by_agent_is_what_async_with_agent_enters():
    journal = Journal()
    agent = Agent(
        toolsets=[
            Server('a', journal),
            CombinedToolset([Server('b', journal), Session('c', journal)]),
            HandWritten(Server('d', journal)),
            Session('e', journal).shared(),
        ]
    )

    described = describe_lifecycle(agent).toolsets
    async with agent:
        entered = {event.toolset.name for event in journal.of('enter')}

    by_agent = {toolset.label for toolset in described if toolset.entered == BY_AGENT}
    assert entered == {'a', 'b', 'e'}
    assert by_agent == {'the agent', "Server 'a'", "Server 'b'", "Session 'e'"}


def test_describe_data_survives_json_and_cannot_be_changed():
    description = describe_lifecycle(Agent(name='support', toolsets=[Sharing('it', Journal()).prefixed('a')]))

    data = json.loads(json.dumps(asdict(description)))

    assert data['subject'] == "Agent 'support'"
    assert [data['toolsets'][2]['problem']] == description.problems
    assert data['toolsets'][2]['depth'] == 1
    with pytest.raises(FrozenInstanceError):
        description.subject = 'another'  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize('deep', [False, True])
async def test_describe_shared_factory_is_called_once_per_run(deep: bool):
    made: list[Session] = []

    def make() -> Session:
        made.append(Session('it', Journal()))
        return made[-1]

    shared = once_per_run(make).shared()
    agent = Agent(scripted(['it']), toolsets=[CombinedToolset([shared]) if deep else shared])

    description = describe_lifecycle(agent)

    assert description.problems == []
    assert last(description).policy == 'made per run'
    assert last(description).entered == 'by each run'
    assert await sees_the_run_before(agent) is False
    assert len(made) == 2


def test_describe_factory_of_any_kind_as_it_is_called():
    class Taking(Session):
        def __init__(self, ctx: RunContext[Any]):
            super().__init__('taking', Journal())

    def make_it(*args: Any) -> Session:
        return Session('it', Journal())

    agent = Agent(toolsets=[Mock(), Taking, make_it, lambda: Session('it', Journal())])

    described = describe_lifecycle(agent).toolsets[1:]

    assert {(toolset.policy, toolset.why) for toolset in described} == {
        ('made per step', 'made by the factory `Mock`'),
        ('made per step', 'made by the factory `Taking`'),
        ('made per step', 'made by the factory `make_it`'),
        ('made per run', 'made by the factory `<lambda>`'),
    }


class OneForEach(Server):
    """A toolset that decides by itself what a run gets."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(self.name, self.journal)


@pytest.mark.parametrize('name', WRAPPERS)
def test_describe_wrapper_around_own_for_run_is_made_for_each_run(name: str):
    [outer, inner] = describe_lifecycle(WRAPPERS[name](OneForEach('it', Journal()))).toolsets
    assert (outer.policy, inner.policy) == ('copied', 'decided per run')
    assert outer.why == "contains OneForEach 'it', which runs do not share"


async def test_describe_shared_own_for_run_is_what_it_returns():
    agent = Agent(scripted(['it']), toolsets=[OneForEach('it', Journal()).shared()])
    assert last(describe_lifecycle(agent)).why == 'made by `OneForEach.for_run()`'
    assert await sees_the_run_before(agent) is False


def test_describe_what_capabilities_contribute_in_one_entry_each():
    given = [Session('a', Journal()), Server('b', Journal()).prefixed('x')]
    capabilities: Any = {'capabilities': [contributing(toolset) for toolset in given]}
    description = describe_lifecycle(Agent(name='support', **capabilities))

    contributed = [toolset for toolset in description.toolsets[1:] if toolset.depth == 0]
    assert [(toolset.label, toolset.policy) for toolset in contributed] == [
        ("Session 'a'", 'copied'),
        ("PrefixedToolset(Server 'b')", 'shared'),
    ]
    assert [toolset.why.split('; ')[-1] for toolset in contributed] == ['contributed by Contributing'] * 2
    assert 'CapabilityOwnedToolset' not in str(description)


async def test_describe_capability_with_own_for_run_may_replace_its_toolset():
    # `AbstractCapability` is there on some lines only
    base: Any = type(contributing(None)).__mro__[1]

    class Fresh(base):
        def __init__(self) -> None:
            self.toolset = Server('it', Journal())

        async def for_run(self, ctx: RunContext[Any]) -> Any:
            return type(self)()

        def get_toolset(self) -> Any:
            return self.toolset

    capabilities: Any = {'capabilities': [Fresh()]}
    agent = Agent(scripted(['it']), name='support', **capabilities)

    assert last(describe_lifecycle(agent)).why.endswith('contributed by Fresh, whose `for_run()` may replace it')
    assert await sees_the_run_before(agent) is False


async def test_describe_copy_that_no_run_calls_is_a_problem():
    class Undeclared(Session):
        stateful = AbstractToolset.__dict__['stateful']

    agent = Agent(scripted(['it']), toolsets=[Undeclared('it', Journal())])

    [problem] = describe_lifecycle(agent).problems

    assert problem.startswith("Undeclared 'it' has a `copy()` that no run calls. Set `stateful = True`")
    assert await sees_the_run_before(agent) is True


@pytest.mark.parametrize(
    'subject',
    [[], [Session('it', Journal())], Session, None, 'agent'],
    ids=['list', 'list of toolsets', 'class', 'None', 'string'],
)
def test_describe_anything_else_is_refused(subject: Any):
    with pytest.raises(UserError, match=r'`describe_lifecycle\(\)` takes an agent or a toolset, not '):
        describe_lifecycle(subject)


def test_describe_wrapper_agent_and_override_as_runs_would_see_them():
    agent = Agent(name='support', toolsets=[Session('it', Journal())])
    assert describe_lifecycle(WrapperAgent(agent)) == describe_lifecycle(agent)
    with agent.override(toolsets=[Server('other', Journal())]):
        assert last(describe_lifecycle(agent)).label == "Server 'other'"
