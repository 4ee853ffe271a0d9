"""Point 7: tools with state, copies, and views."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any, Self

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, UserError
from pydantic_ai.toolsets import describe_lifecycle

from hookable_toolset import AgentContext, BaseTool, Toolset

from .conftest import Log, script


class Notes(BaseTool):
    name = 'note'
    stateful = True

    def __init__(self, title: str = 'Notes'):
        self.kept = [title]

    def call(self, ctx: RunContext[Any], text: str) -> str:
        self.kept.append(text)
        return ','.join(self.kept)

    def get_instruction(self, ctx: RunContext[Any]) -> str:
        return f'There are {len(self.kept)} notes.'


class Titled(Notes):
    def copy(self) -> Self:
        return type(self)(self.kept[0])


class Hash(BaseTool):
    name = 'hash'

    def call(self, ctx: RunContext[Any], text: str) -> int:
        return len(text)


def test_toolset_is_stateful_exactly_if_a_tool_is() -> None:
    assert Toolset(tools=[Hash, Notes]).stateful
    plain = Toolset(tools=[Hash])
    assert not plain.stateful
    assert plain.copy() is plain


def test_copy_renews_the_stateful_tools_only_and_keeps_the_schemas() -> None:
    toolset = Toolset(tools=[Hash, Notes, Titled('Mine')][:2])
    toolset.tools[1].kept.append('dirt')  # type: ignore[attr-defined]
    copy = toolset.copy()
    assert copy.tools[0] is toolset.tools[0]
    assert copy.tools[1] is not toolset.tools[1]
    assert copy.tools[1].kept == ['Notes']  # type: ignore[attr-defined]

    async def validators(of: Toolset[Any]) -> list[Any]:
        seen: Log = []

        class Seeing(BaseTool):
            name = 'see'

            async def call(self, ctx: RunContext[Any]) -> None:
                tools = await of.get_tools(ctx)
                seen.extend((tool.args_validator, tool.tool_def) for tool in tools.values())

        await Agent(script(('see', {})), toolsets=[Toolset(tools=[Seeing])]).run('Go')
        return seen

    for ours, theirs in zip(asyncio.run(validators(toolset)), asyncio.run(validators(copy)), strict=True):
        assert ours[0] is theirs[0] and ours[1] is theirs[1]


def test_copy_keeps_what_was_configured() -> None:
    class Own(Toolset[Any]):
        def __init__(self, greeting: str, **options: Any):
            super().__init__(**options)
            self.greeting = greeting

    hook = {'note': lambda ctx, result: f'<{result}>'}  # type: ignore
    toolset = Own('hi', tools=[Notes], post_hooks=hook, toolset_id='own', timeout=5, skip_unavailable=False)
    copy = toolset.copy()
    assert (copy.greeting, copy.id, copy.timeout, copy.skip_unavailable) == ('hi', 'own', 5, False)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(2):
            assert Agent(script(('note', {'text': 'a'})), toolsets=[toolset]).run_sync('Go').output == '<Notes,a>'


def test_runs_do_not_see_each_others_state_one_after_another_or_at_once() -> None:
    toolset = Toolset(tools=[Notes, Hash])
    agent = Agent(script(('note', {'text': 'a'}), ('note', {'text': 'b'})), toolsets=[toolset])
    for _ in range(3):
        assert agent.run_sync('Go').output == 'Notes,a | Notes,a,b'

    async def many() -> set[str]:
        return {result.output for result in await asyncio.gather(*(agent.run('Go') for _ in range(100)))}

    assert asyncio.run(many()) == {'Notes,a | Notes,a,b'}
    assert toolset.tools[0].kept == ['Notes']  # type: ignore[attr-defined]


def test_stateful_instance_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(UserError, match=r'is stateful, but does not override `copy\(\)`'):
        Toolset(tools=[Notes('Mine')])
    agent = Agent(script(('note', {'text': 'a'})), toolsets=[Toolset(tools=[Titled('Mine')])])
    assert [agent.run_sync('Go').output for _ in range(2)] == ['Mine,a', 'Mine,a']


def test_nothing_leaks_as_far_as_is_known() -> None:
    toolset = Toolset(tools=[Notes, Hash])
    agent = Agent(script('hi'), toolsets=[toolset, toolset.subset(['hash']).prefixed('p')])
    assert not describe_lifecycle(agent).problems


def delegating(child: Agent[Any, str], toolset: Any) -> Agent[Any, str]:
    async def delegate(ctx: RunContext[Any]) -> str:
        return (await child.run('Go', deps=ctx.deps)).output

    return Agent(
        script(('note', {'text': 'parent'}), ('delegate', {}), ('note', {'text': 'again'})),
        toolsets=[toolset, FunctionToolset([delegate])],
    )


def test_sub_agent_with_a_view_works_with_the_state_of_the_run_that_encloses_it() -> None:
    toolset = Toolset(tools=[Notes, Hash])
    seen: Log = []
    child = Agent(script(('note', {'text': 'child'}), seen=seen), toolsets=[toolset.subset(['note'])])
    for _ in range(2):
        assert delegating(child, toolset).run_sync('Go').output == (
            'Notes,parent | Notes,parent,child | Notes,parent,child,again'
        )
    assert {tool.name for info in seen for tool in info.function_tools} == {'note'}
    # By itself, it has a copy of its own.
    assert child.run_sync('Go').output == 'Notes,child'
    assert toolset.tools[0].kept == ['Notes']  # type: ignore[attr-defined]


def test_sub_agent_gets_what_the_toolset_says() -> None:
    class Fresh(Toolset[Any]):
        def for_sub_agent(self, ctx: RunContext[Any]) -> Toolset[Any]:
            return self.copy()

    toolset = Fresh(tools=[Notes, Hash])
    child = Agent(script(('note', {'text': 'child'})), toolsets=[toolset.subset(['note'])])
    assert delegating(child, toolset).run_sync('Go').output == 'Notes,parent | Notes,child | Notes,parent,again'


def test_view_and_toolset_in_one_run_work_with_one_state() -> None:
    toolset = Toolset(tools=[Notes, Hash])
    agent = Agent(
        script(('note', {'text': 'a'}), ('p_note', {'text': 'b'})),
        toolsets=[toolset, toolset.subset(['note']).prefixed('p')],
    )
    assert [agent.run_sync('Go').output for _ in range(2)] == ['Notes,a | Notes,a,b'] * 2


def test_view_has_its_tools_and_their_instructions_only() -> None:
    class Told(Hash):
        name = 'told'

        def get_instruction(self, ctx: RunContext[Any]) -> str:
            return 'Use `told`.'

    class Other(Told):
        name = 'other'

        def get_instruction(self, ctx: RunContext[Any]) -> str:
            return 'Use `other`.'

    toolset = Toolset(tools=[Told, Other, Hash])
    for names, tools, instructions in [
        (['other', 'hash'], ['other', 'hash'], 'Use `other`.'),
        (['hash', 'told'], ['told', 'hash'], 'Use `told`.'),
        ([], [], None),
    ]:
        seen: Log = []
        result = Agent(script('hi', seen=seen), toolsets=[toolset.subset(names)]).run_sync('Go')
        assert [tool.name for tool in seen[0].function_tools] == tools
        assert result.all_messages()[0].instructions == instructions  # type: ignore[union-attr]


def test_view_lists_other_toolsets_in_full() -> None:
    """What a tool does to say whether it is available has nothing to do with the view."""
    inner = Toolset(tools=[Hash])
    listed: Log = []

    class Asks(Hash):
        name = 'asks'

        async def get_instruction(self, ctx: RunContext[Any]) -> str:
            listed.append(list(await inner.get_tools(ctx)))
            return 'x'

    Agent(script('hi'), toolsets=[Toolset(tools=[Asks, Notes]).subset(['asks'])]).run_sync('Go')
    assert listed and all(names == ['hash'] for names in listed)


def test_unknown_names_are_refused_by_toolsets_and_views() -> None:
    toolset = Toolset(tools=[Notes, Hash], toolset_id='mine')
    with pytest.raises(UserError) as caught:
        toolset.subset(['hush', 'note', 'notes'])
    assert str(caught.value) == (
        "Toolset 'mine' has no tool 'hush' or 'notes'. There are: 'note', 'hash'. Correct the name."
    )
    with pytest.raises(UserError, match=r"has no tool 'note'\. There are: 'hash'"):
        toolset.subset(['hash']).subset(['note'])
    assert toolset.subset(['note', 'hash']).subset(['note']).names == ('note',)


class Counter(BaseTool):
    name = 'count'
    stateful = True

    def __init__(self) -> None:
        self.count = 0

    def call(self, ctx: RunContext[Any], fail: bool = False) -> int:
        self.count += 1
        if fail:
            raise ConnectionError('gone')
        return self.count

    def export_state(self) -> int:
        return self.count

    def restore_state(self, state: int) -> None:
        self.count = state


def test_exported_state_goes_on_in_the_next_run_of_the_context_and_in_no_other() -> None:
    agent = Agent(script(('count', {}), ('count', {})), deps_type=AgentContext, toolsets=[Toolset(tools=[Counter])])
    ada, grace = AgentContext(), AgentContext()
    assert agent.run_sync('Go', deps=ada).output == '1 | 2'
    assert agent.run_sync('Go', deps=grace).output == '1 | 2'
    assert agent.run_sync('Go', deps=ada).output == '3 | 4'
    assert (ada.toolset_states, grace.toolset_states) == ({'': {'count': 4}}, {'': {'count': 2}})


def test_bound_context_keeps_the_state_of_its_tools_too() -> None:
    ctx = AgentContext()
    agent = Agent(script(('count', {})), toolsets=[Toolset(ctx, tools=[Counter], toolset_id='c')])
    assert [agent.run_sync('Go').output for _ in range(2)] == ['1', '2']
    assert ctx.toolset_states == {'c': {'count': 2}}


def test_toolset_that_is_only_listed_takes_nothing_from_the_context() -> None:
    other: Toolset[AgentContext] = Toolset(tools=[Counter])

    class Lists(BaseTool):
        name = 'list'

        async def call(self, ctx: RunContext[AgentContext]) -> str:
            return ','.join(await other.get_tools(ctx))

    context = AgentContext()
    lists = Agent(script(('list', {})), deps_type=AgentContext, toolsets=[Toolset[AgentContext](tools=[Lists])])
    assert lists.run_sync('Go', deps=context).output == 'count'
    counts = Agent(script(('count', {})), deps_type=AgentContext, toolsets=[other])
    assert [counts.run_sync('Go', deps=context).output for _ in range(2)] == ['1', '2']


def test_state_of_a_failed_run_is_forgotten() -> None:
    context = AgentContext()
    toolset: Toolset[AgentContext] = Toolset(tools=[Counter])
    good = Agent(script(('count', {})), deps_type=AgentContext, toolsets=[toolset])
    bad = Agent(script(('count', {}), ('count', {'fail': True})), deps_type=AgentContext, toolsets=[toolset])
    assert good.run_sync('Go', deps=context).output == '1'
    with pytest.raises(ConnectionError):
        bad.run_sync('Go', deps=context)
    assert context.toolset_states == {'': {'count': 1}}
    assert good.run_sync('Go', deps=context).output == '2'


def test_state_during_a_run_is_exported_as_it_is() -> None:
    seen: Log = []

    class Peek(BaseTool):
        name = 'peek'

        def call(self, ctx: RunContext[AgentContext]) -> None:
            seen.append(ctx.deps.export_state().toolset_states)

    agent = Agent(
        script(('count', {}), ('peek', {})), deps_type=AgentContext, toolsets=[Toolset(tools=[Counter, Peek])]
    )
    agent.run_sync('Go', deps=AgentContext())
    assert seen == [{'': {'count': 1}}]


def test_run_inside_of_a_run_of_the_same_context_leaves_its_state_alone() -> None:
    """An agent that calls itself has fresh tools; those of the outer run are the ones that are kept."""

    class Again(BaseTool):
        name = 'again'

        async def call(self, ctx: RunContext[AgentContext]) -> str:
            return (await inner.run('Go', deps=ctx.deps)).output

    toolset: Toolset[AgentContext] = Toolset(tools=[Counter, Again])
    options: Any = {'deps_type': AgentContext, 'toolsets': [toolset]}
    agent = Agent(script(('count', {}), ('again', {}), ('count', {})), **options)
    inner = agent
    with agent.override(model=script(('count', {}), ('count', {}))):
        context = AgentContext()
        assert agent.run_sync('Go', deps=context).output == '1 | 2'

    class Once(Again):
        async def call(self, ctx: RunContext[AgentContext]) -> str:
            with agent.override(model=script(('count', {}))):
                return (await agent.run('Go', deps=ctx.deps)).output

    toolset = Toolset(tools=[Counter, Once])
    agent = Agent(script(('count', {}), ('again', {}), ('count', {})), deps_type=AgentContext, toolsets=[toolset])
    assert agent.run_sync('Go', deps=context).output == '3 | 1 | 4'
    assert context.toolset_states == {'': {'count': 4}}


def test_state_that_nobody_takes_over_is_an_error_that_says_so() -> None:
    class Forgetful(Counter):
        restore_state = BaseTool.restore_state

    agent = Agent(script(('count', {})), deps_type=AgentContext, toolsets=[Toolset(tools=[Forgetful])])
    context = AgentContext()
    agent.run_sync('Go', deps=context)
    with pytest.raises(NotImplementedError, match="'Forgetful' exports a state, but does not override `restore_state"):
        agent.run_sync('Go', deps=context)
