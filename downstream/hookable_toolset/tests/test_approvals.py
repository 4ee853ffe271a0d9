"""Point 6: tools that need an approval, by what the context says."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    ToolApproved,
    ToolDenied,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from hookable_toolset import AgentContext, BaseTool, GlobalHooks, ResumableState, Toolset

from .conftest import Log, asking, script


class Shell(BaseTool):
    name = 'shell'

    def get_approval_metadata(self) -> dict[str, Any]:
        return {'risk_level': 'high'}

    def call(self, ctx: RunContext[AgentContext], command: str) -> str:
        return f'ran {command} {ctx.tool_call_approved} {ctx.tool_call_metadata}'


class Look(BaseTool):
    name = 'look'

    def call(self, ctx: RunContext[AgentContext]) -> str:
        return 'looked'


STEPS: Any = [('shell', {'command': 'rm'}), ('look', {})]


def build(log: Log, **options: Any) -> Agent[AgentContext, Any]:
    toolset: Toolset[AgentContext] = Toolset(
        tools=[Shell, Look],
        global_hooks=GlobalHooks(
            pre=lambda ctx, name, args: log.append(('pre', name, dict(args))) or args,
            post=lambda ctx, name, result: log.append(('post', name)) or result,
        ),
    )
    options = {'output_type': [str, DeferredToolRequests]} | options
    return Agent(script(STEPS), deps_type=AgentContext, toolsets=[toolset], **options)


def context() -> AgentContext:
    return AgentContext(need_user_approve_tools=['shell'])


def test_approval_is_asked_with_metadata_before_any_hook_runs() -> None:
    log: Log = []
    result = build(log).run_sync('Go', deps=context())
    assert isinstance(result.output, DeferredToolRequests)
    (call,) = result.output.approvals
    assert (call.tool_name, call.args_as_dict()) == ('shell', {'command': 'rm'})
    assert result.output.metadata == {call.tool_call_id: {'risk_level': 'high'}}
    assert log == [('pre', 'look', {}), ('post', 'look')]


@pytest.mark.parametrize('way', ['inside the run', 'second run'])
@pytest.mark.parametrize(
    ('answer', 'output', 'ran'),
    [
        (True, "ran rm True {'by': 'Ada'} | looked", {'command': 'rm'}),
        (ToolApproved(override_args={'command': 'ls'}), "ran ls True {'by': 'Ada'} | looked", {'command': 'ls'}),
        (ToolDenied('No.'), 'No. | looked', None),
        (False, 'The tool call was denied. | looked', None),
    ],
)
def test_answer_counts_inside_the_run_and_in_a_second_run(way: str, answer: Any, output: str, ran: Any) -> None:
    log: Log = []

    def results(requests: DeferredToolRequests) -> DeferredToolResults:
        (call,) = requests.approvals
        return DeferredToolResults(
            approvals={call.tool_call_id: answer}, metadata={call.tool_call_id: {'by': 'Ada'}} if answer else {}
        )

    def handler(ctx: RunContext[AgentContext], requests: DeferredToolRequests) -> DeferredToolResults:
        assert requests.metadata == {requests.approvals[0].tool_call_id: {'risk_level': 'high'}}
        return results(requests)

    deps = context()
    if way == 'inside the run':
        result = build(log, output_type=str).run_sync('Go', deps=deps, deferred_tool_handler=handler)
    else:
        agent = build(log)
        asked = agent.run_sync('Go', deps=deps)
        result = agent.run_sync(
            deps=deps, message_history=asked.all_messages(), deferred_tool_results=results(asked.output)
        )
    assert sorted(result.output.split(' | ')) == sorted(output.split(' | '))
    # What the user edited is what the hooks see, and what runs.
    assert [args for what, name, *args in log if what == 'pre' and name == 'shell'] == ([[ran]] if ran else [])


def test_edited_arguments_that_do_not_fit_never_run() -> None:
    log: Log = []

    def handler(ctx: RunContext[AgentContext], requests: DeferredToolRequests) -> DeferredToolResults:
        edited = ToolApproved(override_args={'command': ['rm']})
        return DeferredToolResults(approvals={call.tool_call_id: edited for call in requests.approvals})

    result = build(log, output_type=str).run_sync('Go', deps=context(), deferred_tool_handler=handler)
    assert 'looked' in result.output and 'ran' not in result.output
    assert [entry for entry in log if 'shell' in entry] == []


def test_approval_is_asked_by_the_name_in_the_toolset_and_by_the_name_in_the_run() -> None:
    for name in 'shell', 'my_shell':
        agent = asking(script(('my_shell', {'command': 'rm'})), Toolset[AgentContext](tools=[Shell]).prefixed('my'))
        assert asks(agent, AgentContext(need_user_approve_tools=[name]))


def test_list_of_the_context_counts_as_it_is_at_the_call() -> None:
    deps = context()
    agent = build([])
    assert isinstance(agent.run_sync('Go', deps=deps).output, DeferredToolRequests)
    deps.need_user_approve_tools.remove('shell')
    assert agent.run_sync('Go', deps=deps).output == 'ran rm False None | looked'


# What nobody would be asked about without a word.


@pytest.mark.parametrize('field', ['need_user_approve_tools', 'user_allowed_tools'])
@pytest.mark.parametrize('names', ['shell', 5, [5], None])
def test_names_that_are_no_list_of_names_are_refused(field: str, names: Any) -> None:
    with pytest.raises(UserError, match=r'Write a list of names'):
        AgentContext(**{field: names})
    deps = AgentContext()
    setattr(deps, field, names)
    log: Log = []
    with pytest.raises(UserError, match=r'Write a list of names'):
        build(log).run_sync('Go', deps=deps)
    assert log == []


def test_names_in_a_class_that_no_context_has_are_refused() -> None:
    class Careful(AgentContext):
        need_user_approve_tools = ['shell']  # noqa: RUF012

    with pytest.raises(UserError, match=r'Make the class a `@dataclass`'):
        Careful()


def test_name_that_no_tool_has_is_refused_before_the_first_request() -> None:
    log: Log = []
    with pytest.raises(UserError, match=r"names 'shel', and no tool.* Did you mean 'shell'\?"):
        build(log).run_sync('Go', deps=AgentContext(need_user_approve_tools=['shel', 'look']))
    assert log == []


def test_another_tool_of_the_name_that_would_not_ask_is_refused_before_the_first_request() -> None:
    log: Log = []

    def shell(command: str) -> None:
        log.append(command)

    toolset = Toolset[AgentContext](tools=[Shell]).prefixed('my')
    agent = asking(script(('shell', {'command': 'rm'})), toolset, FunctionToolset([shell]))
    with pytest.raises(UserError, match=r"names 'shell', and the run has another tool of this name"):
        agent.run_sync('Go', deps=context())
    assert log == []


def test_name_in_the_run_and_a_name_of_the_caller_are_known() -> None:
    toolset = Toolset[AgentContext](tools=[Shell])
    agent = asking(script(('other', {'command': 'rm'})), lambda: toolset.prefixed('my').renamed({'other': 'my_shell'}))
    for name in 'shell', 'other':
        assert asks(agent, AgentContext(need_user_approve_tools=[name]))
    with pytest.raises(UserError, match="names 'my_shell', and no tool"):
        agent.run_sync('Go', deps=AgentContext(need_user_approve_tools=['my_shell']))
    deps = AgentContext(need_user_approve_tools=['shell'])
    agent.run_sync('Go', deps=deps)
    deps.message_history.clear()
    child = calling(Toolset(tools=[Look]), 'look')
    assert child.run_sync('Go', deps=deps).output == 'looked'  # 'shell' is a tool of who calls it


@pytest.mark.parametrize('deps', [None, 'Ada', {'need_user_approve_tools': ['shell']}])
def test_deps_that_do_not_say_what_needs_an_approval_are_refused(deps: Any) -> None:
    log: Log = []
    with pytest.raises(UserError, match=r'`deps` .* no `AgentContext`'):
        build(log).run_sync('Go', deps=deps)
    assert log == []


def asks(agent: Agent[AgentContext, Any], deps: Any) -> bool:
    return isinstance(agent.run_sync('Go', deps=deps).output, DeferredToolRequests)


def calling(toolset: Toolset[AgentContext], name: str = 'shell', **args: str) -> Agent[AgentContext, Any]:
    return asking(script((name, args)), toolset)


def test_context_of_the_toolset_and_that_of_the_run_both_say_what_needs_an_approval() -> None:
    for of_toolset, of_run in (context(), AgentContext()), (AgentContext(), context()), (context(), None):
        assert asks(calling(Toolset(of_toolset, [Shell]), command='rm'), of_run)


@pytest.mark.parametrize('deps', [None, AgentContext()])
def test_sub_agent_asks_for_what_its_caller_asks_for_whatever_its_deps(deps: Any) -> None:
    outputs: list[Any] = []

    class Ask(BaseTool):
        name = 'ask'

        async def call(self, ctx: RunContext[AgentContext]) -> None:
            outputs.append((await child.run('Go', deps=deps)).output)

    class Quiet(BaseTool):
        name = 'shell'

        def call(self, ctx: RunContext[AgentContext], command: str) -> str:
            return command

    toolset = Toolset[AgentContext](tools=[Quiet, Ask])
    child = calling(Toolset(tools=[Quiet]), command='rm')
    calling(toolset, 'ask').run_sync('Go', deps=context())
    assert [type(output) for output in outputs] == [DeferredToolRequests]
    assert not asks(child, deps)


def test_subclass_that_calls_tools_by_itself_asks() -> None:
    class Own(Toolset[AgentContext]):
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
            return await tool.call_func(tool_args, ctx)

    assert asks(calling(Own(tools=[Shell]), command='rm'), context())


def test_subclass_with_instructions_of_its_own_is_refused() -> None:
    with pytest.raises(TypeError, match=r'`Own` overrides `get_instructions\(\)`'):

        class Own(Toolset[AgentContext]):  # pyright: ignore[reportUnusedClass]
            async def get_instructions(self, ctx: RunContext[Any]) -> Any:
                return 'Be careful.'


# What the code says, and what the user has allowed.


def test_tool_that_was_added_since_the_session_began_is_asked_for() -> None:
    stored = AgentContext(need_user_approve_tools=['look']).export_state()
    deps = AgentContext(need_user_approve_tools=['shell', 'look']).with_state(
        ResumableState.from_json(stored.to_json())
    )
    assert deps.need_user_approve_tools == ['shell', 'look']
    assert asks(build([]), deps)


def test_what_the_user_has_allowed_is_kept_apart_from_what_the_code_says() -> None:
    deps = context()
    deps.user_allowed_tools.append('shell')
    state = ResumableState.from_json(deps.export_state().to_json())
    assert (state.need_user_approve_tools, state.user_allowed_tools) == (['shell'], ['shell'])
    # The code says again what it says for all; what this user has allowed stays so, and a new tool is asked for.
    again = AgentContext(need_user_approve_tools=['shell']).with_state(state)
    assert again.user_allowed_tools == ['shell'] and not asks(build([]), again)
    assert asks(build([]), AgentContext(need_user_approve_tools=['shell', 'look']).with_state(state))
    assert asks(build([]), context())


def test_user_allows_by_the_name_that_the_model_uses() -> None:
    """What was shown when the user allowed it. A tool of that name elsewhere, or in another toolset, isn't meant."""

    def prefixed(name: str) -> Agent[AgentContext, Any]:
        toolsets = (Toolset[AgentContext](tools=[Shell]).prefixed(prefix) for prefix in ('mine', 'theirs'))
        return asking(script((name, {'command': 'rm'})), *toolsets)

    deps = AgentContext(need_user_approve_tools=['shell'], user_allowed_tools=['mine_shell'])
    assert not asks(prefixed('mine_shell'), deps)
    assert asks(prefixed('theirs_shell'), deps)
    deps.user_allowed_tools[:] = ['shell']
    assert asks(prefixed('mine_shell'), deps)


def test_call_that_has_the_id_of_an_allowed_one_is_asked_for() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart('look', {}, 'same'), ToolCallPart('shell', {'command': 'rm'}, 'same')])

    deps = AgentContext(need_user_approve_tools=['shell', 'look'], user_allowed_tools=['look'])
    log: Log = []
    agent = build(log)
    with agent.override(model=FunctionModel(model)), suppress(UserError, UnexpectedModelBehavior):
        agent.run_sync('Go', deps=deps)
    assert not any('shell' in entry for entry in log)
