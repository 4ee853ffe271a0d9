"""`describe_lifecycle()` says what happens: what it calls shared is seen by the next run, and what it warns about leaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, asdict, dataclass
from importlib import import_module
from io import StringIO
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, RunContext, UserError, WrapperToolset
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.toolsets import (
    AgentToolset,
    CombinedToolset,
    LifecycleDescription,
    ToolsetLifecycle,
    describe_lifecycle,
)
from rich.console import Console
from typing_extensions import Self

from .capabilities import contributing
from .line import WRAPPERS
from .toolsets import (
    FromBeforeForRun,
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


class Forgetful(FromBeforeForRun, HandWritten):
    """A hand-written wrapper that isn't stateful, whatever is inside."""

    stateful = False


class Careless(FromBeforeForRun, HandWritten):
    """A hand-written wrapper whose copies share what is inside."""

    def copy(self) -> Self:
        return type(self)(self.inner)


class Sharing(Session):
    """A toolset whose copies share its state."""

    def copy(self) -> Self:
        copy = super().copy()
        copy.values = self.values
        return copy


class Savepoint(Session):
    """A toolset that a sub-agent gets a wrapper of."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self.prefixed('savepoint')


@dataclass
class Fallback(WrapperToolset[Any]):
    """A wrapper with a second toolset, of which its inherited `copy()` knows nothing."""

    fallback: AbstractToolset[Any]

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, Any]:
        return await self.fallback.get_tools(ctx)

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        return await self.fallback.call_tool(name, tool_args, ctx, tool)


Arrange = Callable[[Journal], AgentToolset[Any]]

SAFE: dict[str, tuple[Arrange, str]] = {
    'stateful': (lambda journal: Session('it', journal), 'copied'),
    'in a wrapper': (lambda journal: Session('it', journal).filtered(lambda ctx, tool_def: True), 'copied'),
    'in a combination': (lambda journal: CombinedToolset([Session('it', journal)]), 'copied'),
    'in a hand-written wrapper': (lambda journal: HandWritten(Session('it', journal)), 'copied'),
    'made by a function': (lambda journal: lambda: Session('it', journal), 'made per run'),
    'made at each step': (lambda journal: lambda ctx: Session('it', journal), 'made per step'),
    'made once': (lambda journal: once_per_run(lambda: Session('it', journal)), 'made per run'),
}
"""Toolsets of whose state the next run sees nothing, and the policy of the innermost one."""

LEAKING: dict[str, Arrange] = {
    'careless wrapper': lambda journal: Careless(Session('it', journal)),
    'second toolset': lambda journal: Fallback(Session('other', journal), fallback=Session('it', journal)),
}
"""Toolsets of whose state the next run sees something, although it's declared."""

REFUSED: dict[str, Arrange] = {
    'forgetful wrapper': lambda journal: Forgetful(Session('it', journal)),
    'deep in a forgetful wrapper': lambda journal: Forgetful(CombinedToolset([Session('it', journal).prefixed('')])),
    'inside of a wrapper': lambda journal: Forgetful(Session('it', journal)).prefixed('a'),
    'no copy': lambda journal: WithoutCopy('it', journal),
}
"""Toolsets that can't be given to an agent."""


def all_of(description: LifecycleDescription) -> list[ToolsetLifecycle]:
    """Return those of all toolsets, each before those inside."""

    def walk(toolsets: tuple[ToolsetLifecycle, ...]) -> Iterator[ToolsetLifecycle]:
        for toolset in toolsets:
            yield toolset
            yield from walk(toolset.inside)

    return list(walk(description.toolsets))


def last(description: LifecycleDescription) -> ToolsetLifecycle:
    """Return that of the innermost of the toolsets given last."""
    return all_of(description)[-1]


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
    [described] = describe_lifecycle(WRAPPERS[name](Session('it', Journal()))).toolsets
    assert (described.policy, described.why) == ('copied', "contains Session 'it', which is stateful")


async def test_describe_shared_server_is_seen_by_the_next_run_and_no_problem():
    agent = Agent(scripted(['it']), toolsets=[Server('it', Journal())])

    description = describe_lifecycle(agent)

    assert description.problems == []
    assert (last(description).policy, last(description).entered_by) == ('shared', 'agent')
    assert await sees_the_run_before(agent) is True


async def test_describe_shared_on_purpose_is_seen_by_the_next_run_and_no_problem():
    agent = Agent(scripted(['it']), toolsets=[Session('it', Journal()).shared()])

    description = describe_lifecycle(agent)

    assert description.problems == []
    assert last(description).policy == 'live'
    assert await sees_the_run_before(agent) is True


@pytest.mark.parametrize('arrangement', LEAKING)
async def test_describe_leaking_toolset_has_one_problem_and_leaks(arrangement: str):
    toolset = LEAKING[arrangement](Journal())
    agent = Agent(scripted(['it']), toolsets=[toolset])

    description = describe_lifecycle(agent)

    [problem] = description.problems
    assert 'is stateful, but' in problem and f"'{type(toolset).__name__}'" in problem
    assert [described.policy for described in all_of(description) if described.label == "Session 'it'"] == ['shared']
    assert await sees_the_run_before(agent) is True


@pytest.mark.parametrize('arrangement', REFUSED)
def test_describe_refused_toolset_has_the_problem_that_agents_raise(arrangement: str):
    toolset: Any = REFUSED[arrangement](Journal())
    with pytest.raises(UserError) as raised:
        Agent(toolsets=[toolset])

    description = describe_lifecycle(toolset)

    [refused] = [described for described in all_of(description) if described.policy == 'refused']
    assert description.problems == list(refused.problems) == [str(raised.value)]
    assert refused.entered_by == 'nobody'


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

    described = all_of(describe_lifecycle(agent))
    async with agent:
        entered = {event.toolset.name for event in journal.of('enter')}

    by_agent = {toolset.label for toolset in described if toolset.entered_by == 'agent'}
    assert entered == {'a', 'b', 'e'}
    assert by_agent == {"the agent's own function tools", "Server 'a'", "Server 'b'", "Session 'e'"}


async def test_describe_sub_agent_borrows_what_it_was_said_to_borrow():
    journal, said, told = Journal(), list[LifecycleDescription](), list[LifecycleDescription]()
    session, savepoint = Session('session', journal), Savepoint('savepoint', journal)
    child = Agent(scripted(['tell']), name='child', toolsets=[session, savepoint, Session('own', journal)])
    parent = Agent(scripted(['delegate']), name='parent', toolsets=[session, savepoint])

    def tell(value: str) -> None:
        told.append(describe_lifecycle(child))

    child.tool_plain(tell)

    async def delegate(value: str) -> None:
        said.append(describe_lifecycle(WrapperAgent(child)))
        await child.run('go')
        said.append(describe_lifecycle(parent))

    parent.tool_plain(delegate)

    await parent.run('go')

    assert [description.subject for description in (*said, *told)] == [
        "Agent 'child' as a sub-agent of 'parent'",
        "The run of agent 'parent'",
        "The run of agent 'child'",
    ]
    before, during = ({t.label: (t.policy, t.why) for t in all_of(d)} for d in (said[0], told[0]))
    borrowed = ('borrowed', "the run of agent 'parent' works with it")
    assert before["Session 'session'"] == during["Session 'session'"] == borrowed
    assert before["Session 'own'"][0] == during["Session 'own'"][0] == 'copied'
    assert before["Savepoint 'savepoint'"][0] == during["PrefixedToolset(Savepoint 'savepoint')"][0] == 'handed over'
    assert during["Savepoint 'savepoint'"] == borrowed
    # Only what is said to be the child's own was entered for it
    assert sorted(event.toolset.name for event in journal.of('enter')) == ['own', 'savepoint', 'session']


async def test_describe_run_shows_what_a_factory_made():
    descriptions: list[LifecycleDescription] = []
    agent = Agent(scripted(['tell']), name='agent', toolsets=[lambda: Session('made', Journal())])

    def tell(value: str) -> None:
        descriptions.append(describe_lifecycle(agent))

    agent.tool_plain(tell)

    await agent.run('go')

    assert last(describe_lifecycle(agent)).label == 'DynamicToolset'
    assert (last(descriptions[0]).label, last(descriptions[0]).policy) == ("Session 'made'", 'made per run')


def test_describe_data_survives_json_and_cannot_be_changed():
    description = describe_lifecycle(Agent(name='support', toolsets=[Careless(Session('it', Journal()))]))

    data = json.loads(json.dumps(asdict(description)))

    assert data['subject'] == "Agent 'support'"
    assert data['toolsets'][1]['inside'][0]['problems'] == description.problems
    with pytest.raises(FrozenInstanceError):
        description.subject = 'another'  # pyright: ignore[reportAttributeAccessIssue]


def test_describe_text_and_rich_say_the_same():
    description = describe_lifecycle(
        Agent(name='[red]', toolsets=[Session('[bold]', Journal()).prefixed('a'), Careless(Session('it', Journal()))])
    )
    out = StringIO()
    Console(file=out, width=500).print(description)

    def words(text: str) -> list[str]:
        return [line.lstrip('│├└─ -').rstrip() for line in text.splitlines()]

    assert words(out.getvalue()) == words(str(description))
    assert sum('WARNING: ' in line for line in words(str(description))) == 1
    assert str(description).endswith('\n1 problem found.')


def test_describe_rich_marks_problems_in_red():
    out = StringIO()
    console = Console(file=out, width=500, force_terminal=True, color_system='standard')
    console.print(describe_lifecycle(Forgetful(Session('it', Journal()))))
    assert '\x1b[1;31mWARNING: ' in out.getvalue()


def test_describe_without_rich_is_plain_text():
    script = (
        'import sys; sys.modules["rich"] = None\n'
        'from pydantic_ai import Agent\n'
        'from pydantic_ai.toolsets import describe_lifecycle\n'
        'print(describe_lifecycle(Agent(name="support")))'
    )
    done = subprocess.run([sys.executable, '-I', '-c', script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "Agent 'support'",
        "- the agent's own function tools: shared by all runs",
        '    not stateful',
        '    entered by `async with agent:` and by each run; a sub-agent shares it',
        'No problem found. What is shared by all runs must not hold the state of one.',
    ]


class Holding(Server):
    """A toolset that isn't stateful and holds containers, one of which it shares on purpose."""

    shared_attributes = frozenset({'fail'})

    def __init__(self, name: str, journal: Journal):
        super().__init__(name, journal)
        self.cache: dict[str, str] = {}
        self.names = ('a', 'b')


def test_describe_shared_toolset_says_which_mutable_containers_it_holds():
    [described] = describe_lifecycle(Holding('it', Journal())).toolsets
    assert (described.policy, described.why) == ('shared', 'holds list `values`, dict `cache`; not declared stateful')
    assert described.problems == ()


async def test_describe_shared_tool_function_says_which_mutable_containers_its_closure_holds():
    n: list[str] = []
    limit = 5

    def it(value: str) -> list[str]:
        n.append(value)
        return n[:limit]

    def logged(value: str) -> list[str]:
        return it(value)

    toolset = FunctionToolset[Any]([it, logged], metadata={'a': 1})
    agent = Agent(scripted(['it']), toolsets=[toolset])

    assert last(describe_lifecycle(agent)).why == 'holds list `n` of tool `it`; not declared stateful'
    assert (
        last(describe_lifecycle(FunctionToolset([logged]))).why
        == 'holds list `n` of tool `logged`; not declared stateful'
    )
    assert last(describe_lifecycle(FunctionToolset(metadata={'a': 1}))).why == 'not stateful'
    assert await sees_the_run_before(agent) is True


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
    assert last(description).why == '`.shared()`; outside of a run factory `factory`, called once per run'
    assert last(description).entered_by == 'run'
    assert await sees_the_run_before(agent) is False
    assert len(made) == 2


def test_describe_factory_of_any_kind_as_it_is_called():
    class Taking(Session):
        def __init__(self, ctx: RunContext[Any]):
            super().__init__('taking', Journal())

    def make_it(*args: Any) -> Session:
        return Session('it', Journal())

    agent = Agent(toolsets=[Mock(), Taking, make_it, lambda: Session('it', Journal())])

    described = all_of(describe_lifecycle(agent))[1:]

    assert {(toolset.policy, toolset.why) for toolset in described} == {
        ('made per step', 'factory `Mock`, called with the run context'),
        ('made per step', 'factory `Taking`, called with the run context'),
        ('made per step', 'factory `make_it`, called with the run context'),
        ('made per run', 'factory `<lambda>`, called once per run; what it returns is not copied'),
    }


class OneForEach(Server):
    """A toolset that decides by itself what a run gets."""

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(self.name, self.journal)


@pytest.mark.parametrize('name', WRAPPERS)
def test_describe_wrapper_around_own_for_run_says_the_same_as_what_is_inside(name: str):
    [outer] = describe_lifecycle(WRAPPERS[name](OneForEach('it', Journal()))).toolsets
    assert [outer.policy, *(inner.policy for inner in outer.inside)] == ['decided per run', 'decided per run']
    assert outer.why == "contains OneForEach 'it', whose `for_run()` is called for each run"


async def test_describe_shared_own_for_run_is_what_it_returns():
    agent = Agent(scripted(['it']), toolsets=[OneForEach('it', Journal()).shared()])
    assert last(describe_lifecycle(agent)).why == (
        '`.shared()`; outside of a run what `OneForEach.for_run()` returns for each run'
    )
    assert await sees_the_run_before(agent) is False


def test_describe_what_capabilities_contribute_in_one_entry_each():
    given = [Session('a', Journal()), Server('b', Journal()).prefixed('x')]
    capabilities: Any = {'capabilities': [contributing(toolset) for toolset in given]}
    description = describe_lifecycle(Agent(name='support', **capabilities))

    assert [(toolset.label, toolset.policy) for toolset in description.toolsets[1:]] == [
        ("Session 'a'", 'copied'),
        ("PrefixedToolset(Server 'b')", 'shared'),
    ]
    assert [toolset.why.split('; ')[-1] for toolset in description.toolsets[1:]] == [
        'contributed by capability Contributing'
    ] * 2
    assert 'CapabilityOwnedToolset' not in str(description)


async def test_describe_capability_with_own_for_run_decides():
    told: list[LifecycleDescription] = []
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

    described = last(describe_lifecycle(agent))
    assert (described.policy, described.why) == (
        'decided per run',
        '`Fresh.for_run()`, called once per run; contributed by capability Fresh',
    )
    wrapper: Any = import_module('pydantic_ai.capabilities').WrapperCapability
    wrapped: Any = {'capabilities': [wrapper(Fresh())]}
    assert last(describe_lifecycle(Agent(**wrapped))).policy == 'decided per run'
    assert await sees_the_run_before(agent) is False

    def tell(value: str) -> None:
        told.append(describe_lifecycle(agent))

    agent.tool_plain(name='tell')(tell)
    await run_as('three', agent, model=scripted(['tell']))
    assert last(told[0]).why.endswith('; contributed by capability Fresh')
