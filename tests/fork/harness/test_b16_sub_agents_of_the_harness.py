"""B16 to B21 for the sub-agents of `pydantic-ai-harness`, a release that knows nothing of the fork.

With `SubAgents(inherit_tools=True)`, it runs a sub-agent on `ctx.agent.toolsets`: the originals, each in a filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from ..delegation import Answer, Ledger, Notes, called, calls, entries_and_exits, forked, fresh
from ..toolsets import RUN, SUCCESS, Boom, Journal, Server, run_as

# Not with `import`, whose types could be checked only where the harness is installed.
harness: Any = import_module('pydantic_ai_harness.subagents')

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings(r'ignore:`SubAgents\(inherit_tools=True\)` is deprecated'),
]


class ForRun(Ledger):
    """Says what a run gets in `for_run()`, as upstream's toolsets do, instead of in `copy()`."""

    async def for_run(self, ctx: RunContext[Any]) -> Any:
        return fresh(self, ctx)


kinds = pytest.mark.parametrize('kind', [Notes, ForRun], ids=['copy', 'for_run'])


class Named(WrapperAgent[Any, Any]):
    """An agent whose runs have its name in the journal, whoever starts them."""

    async def run(self, *args: Any, **options: Any) -> Any:
        token = RUN.set(self.name or '')
        try:
            return await super().run(*args, **options)
        finally:
            RUN.reset(token)


def model(*steps: Sequence[str], background: bool = False) -> FunctionModel:
    """Make a model that calls the tools of each step in turn, and then answers with a text.

    Args:
        steps: The names of the tools. `>name` delegates to the sub-agent of that name, if the run may delegate at all.
        background: Whether to delegate without waiting.
    """

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done >= len(steps):
            return ModelResponse(parts=[TextPart('done')])
        may_delegate = any(tool.name == 'delegate_task' for tool in info.function_tools)
        return ModelResponse(parts=[call(name) for name in steps[done] if may_delegate or name[0] != '>'])

    def call(name: str) -> ToolCallPart:
        if name[0] != '>':
            return ToolCallPart(name, {'value': RUN.get()})
        options = {'background': True} if background else {}
        return ToolCallPart('delegate_task', {'agent_name': name[1:], 'task': 'go', **options})

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate((await respond(messages, info)).parts):
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    return FunctionModel(respond, stream_function=stream)


def calling(name: str, *steps: Sequence[str], toolsets: Sequence[Any] = (), **options: Any) -> Agent[Any, Any]:
    """Make an agent that calls the tools of each step in turn."""
    return Agent(model(*steps), name=name, toolsets=list(toolsets), **options)


def delegating(
    name: str,
    *steps: Sequence[str],
    to: Sequence[Agent[Any, Any]],
    toolsets: Sequence[Any],
    inherit_tools: bool = True,
    **controls: Any,
) -> Agent[Any, Any]:
    """Make an agent that delegates to others.

    Args:
        name: Its name.
        steps: The tools that it calls, as for `model()`.
        to: The others, which get its toolsets.
        toolsets: Its toolsets.
        inherit_tools: Whether the others get them from the harness.
        controls: What the harness is told of the others.
    """
    sub_agents = [harness.SubAgent(Named(agent), **controls) for agent in to]
    capability = harness.SubAgents(agents=sub_agents, inherit_tools=inherit_tools)
    return calling(name, *steps, toolsets=toolsets, capabilities=[capability])


# What the child gets


@kinds
@pytest.mark.parametrize('inherited', [True, False], ids=['inherited', 'wired'])
async def test_b16_sub_agent_gets_the_live_toolset_of_the_parent(kind: type[Notes], inherited: bool):
    """It's the same whether the harness hands the toolset on, or the sub-agent was made with it."""
    journal = Journal()
    notes = kind('t', journal)
    child = calling('child', ['t'], toolsets=[] if inherited else [notes])
    await run_as(
        'parent', delegating('parent', ['t'], ['>child'], ['t'], to=[child], toolsets=[notes], inherit_tools=inherited)
    )
    live = called(journal, 'parent')
    assert live is not notes
    assert called(journal, 'child') is live
    assert live.values == ['parent', 'child', 'parent']
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]
    assert journal.lifecycle == ['+t', '-t']
    assert journal.exit_of('t') == SUCCESS
    assert (notes.values, [event.run for event in journal.of('ask')]) == ([], ['child'])


@kinds
async def test_b17_sub_agent_enters_and_exits_the_toolset_that_it_gets_for_its_own(kind: type[Notes]):
    journal = Journal()
    notes = kind('t', journal, answer=fresh)
    child = calling('child', ['t'])
    await run_as('parent', delegating('parent', ['t'], ['>child'], ['t'], to=[child], toolsets=[notes]))
    live, own = called(journal, 'parent'), called(journal, 'child')
    assert own is journal.of('ask')[0].got[1]
    assert (live.values, own.values) == (['parent', 'parent'], ['child'])
    assert entries_and_exits(journal, own) == [('enter', 'child'), ('exit', 'child')]
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


async def test_b16_sub_agent_that_is_the_agent_itself_gets_a_fresh_copy():
    """The harness has `include_self` in place of `inherit_tools`, which is deprecated."""
    journal = Journal()
    notes = Notes('t', journal)
    capability = harness.SubAgents(include_self=True, max_depth=2)
    await run_as('both', calling('agent', ['t', '>self'], toolsets=[notes], capabilities=[capability]))
    outer, inner = calls(journal, 'both')
    assert (notes.values, outer.values, inner.values) == ([], ['both'], ['both'])
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']
    assert not journal.of('ask')


@pytest.mark.parametrize('contained', [True, False])
async def test_b17_exits_after_a_sub_agent_has_failed_get_the_exception_of_their_own_run(contained: bool):
    journal = Journal()
    error = Boom('failed')
    own, shared = Notes('own', journal, answer=fresh), Notes('shared', journal)
    failing = Server('fail', Journal(), fail={'call': error})
    child = calling('child', ['own', 'shared'], ['fail'])
    parent = delegating(
        'parent', ['own', 'shared'], ['>child'], to=[child], toolsets=[own, shared, failing], contain_errors=contained
    )
    if contained:
        await run_as('parent', parent)
    else:
        with pytest.raises(Boom):
            await run_as('parent', parent)
    exits = [(event.toolset.name, event.run, event.got[1]) for event in journal.of('exit')]
    end = None if contained else error
    assert exits == [('own', 'child', error), ('shared', 'parent', end), ('own', 'parent', end)]


@dataclass
class Slow(Journal):
    """A journal whose toolsets take a while in the calls of a sub-agent."""

    seconds: float = 0
    in_call: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a sub-agent is in a call."""

    async def moment(self, kind: str, toolset: Any) -> None:
        if kind == 'call' and RUN.get() != 'parent':
            self.in_call.set()
            await asyncio.sleep(self.seconds)


# Several children


@pytest.mark.parametrize('answer', [None, forked], ids=['shared', 'own'])
async def test_b21_sub_agents_that_run_in_parallel_each_ask(answer: Answer | None):
    names = ['one', 'two', 'three']
    journal = Slow(seconds=0.05)  # so that each has begun before another has ended
    notes = Notes('t', journal, answer=answer)
    children = [calling(name, ['t']) for name in names]
    steps = [['t'], [f'>{name}' for name in names], ['t']]
    await run_as('parent', delegating('parent', *steps, to=children, toolsets=[notes]))
    live = called(journal, 'parent')
    asked = {event.run: event.got[1] for event in journal.of('ask')}
    assert sorted(asked) == sorted(names)
    for name in names:
        assert called(journal, name) is asked[name]
        if answer is not None:
            assert asked[name].values == ['parent', name]
            assert entries_and_exits(journal, asked[name]) == [('enter', name), ('exit', name)]
    if answer is None:
        assert (live.values[0], sorted(live.values[1:-1]), live.values[-1]) == ('parent', sorted(names), 'parent')
    else:
        assert (live.values, len({id(own) for own in asked.values()})) == (['parent', 'parent'], 3)
    assert entries_and_exits(journal, live) == [('enter', 'parent'), ('exit', 'parent')]


def in_background(child: Agent[Any, Any], *steps: Sequence[str], toolsets: Sequence[Any]) -> Agent[Any, Any]:
    """Make an agent that doesn't wait for another one that it delegates to."""
    sub_agents = [harness.SubAgent(Named(child))]
    capability = harness.SubAgents(sub_agents, inherit_tools=True, task_control=harness.TaskControl())
    return Agent(model(*steps, background=True), name='parent', toolsets=toolsets, capabilities=[capability])


async def test_b16_sub_agent_in_the_background_has_its_own():
    """The tool call that starts it has returned when it begins, so nothing encloses it. The harness waits for it."""
    journal = Slow(seconds=0.05)
    notes = Notes('t', journal)
    await run_as('parent', in_background(calling('child', ['t']), ['t'], ['>child'], toolsets=[notes]))
    assert called(journal, 'child') is not called(journal, 'parent')
    assert [(event.kind, event.run) for event in journal.of('enter', 'call', 'exit')] == [
        ('enter', 'parent'),
        ('call', 'parent'),
        ('enter', 'child'),
        ('call', 'child'),
        ('exit', 'child'),
        ('exit', 'parent'),
    ]
    assert journal.of('ask') == []
