"""Points 2 and 3: the order of hooks, and errors as values."""

from __future__ import annotations

import asyncio
import traceback
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    ModelRetry,
    RunContext,
    UserError,
)

from hookable_toolset import AgentContext, BaseTool, CallMetadata, GlobalHooks, HookableToolsetTool, Toolset

from .conftest import Hook, Log, script


class Double(BaseTool):
    name = 'double'
    log: Log

    def __init__(self, log: Log | None = None):
        self.log = [] if log is None else log

    def call(self, ctx: RunContext[Any], number: int) -> int:
        self.log.append(('execute', number))
        return number * 2


class Fail(BaseTool):
    name = 'fail'

    def __init__(self, error: BaseException):
        self.error = error

    async def call(self, ctx: RunContext[Any]) -> None:
        raise self.error


def hooks(log: Log, *, is_async: bool) -> dict[str, Any]:
    """One hook of each kind, which notes what it is shown and adds its own to it."""

    def made(function: Hook) -> Hook:
        if not is_async:
            return function

        async def hook(*args: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args)

        return hook

    def pre(ctx: Any, args: dict[str, Any]) -> dict[str, Any]:
        log.append(('tool_pre', args['number']))
        return {'number': args['number'] + 10}

    def post(ctx: Any, result: Any) -> Any:
        log.append(('tool_post', result))
        return f'{result}, post'

    def global_pre(ctx: Any, name: str, args: dict[str, Any]) -> dict[str, Any]:
        log.append(('global_pre', name, args['number']))
        args['number'] += 100  # in place
        return args

    def global_post(ctx: Any, name: str, result: Any) -> Any:
        log.append(('global_post', name, result))
        return f'{result}, global post'

    return {
        'pre_hooks': {'double': made(pre)},
        'post_hooks': {'double': made(post)},
        'global_hooks': GlobalHooks(pre=made(global_pre), post=made(global_post)),
    }


def run(toolset: Toolset[Any], *calls: tuple[str, dict[str, Any]], **options: Any) -> Any:
    return Agent(script(*calls), toolsets=[toolset], **options).run_sync('Go').output


@pytest.mark.parametrize('is_async', [False, True])
def test_hooks_run_in_order_and_change_arguments_and_results(is_async: bool) -> None:
    log: Log = []
    toolset = Toolset(tools=[Double(log)], **hooks(log, is_async=is_async))
    assert run(toolset, ('double', {'number': 1})) == '222, post, global post'
    assert log == [
        ('global_pre', 'double', 1),
        ('tool_pre', 101),
        ('execute', 111),
        ('tool_post', 222),
        ('global_post', 'double', '222, post'),
    ]


def test_hooks_get_the_context_of_the_call() -> None:
    seen: Log = []

    def post(ctx: RunContext[str], name: str, result: Any) -> Any:
        seen.append((ctx.deps, ctx.tool_name, ctx.tool_call_id, name))
        return result

    toolset: Toolset[str] = Toolset(AgentContext(), tools=[Double], global_hooks=GlobalHooks(post=post))
    agent = Agent(script(('p_double', {'number': 1})), deps_type=str, toolsets=[toolset.prefixed('p')])
    agent.run_sync('Go', deps='Ada')
    assert seen == [('Ada', seen[0][1], 'p_double-0-0', 'double')]


@pytest.mark.parametrize('value', ['7', 7.0])
def test_arguments_that_a_hook_changed_are_validated_again(value: Any) -> None:
    toolset = Toolset(tools=[Double], pre_hooks={'double': lambda ctx, args: {'number': value}})
    assert run(toolset, ('double', {'number': 7})) == '14'


def test_nested_arguments_that_a_hook_changed_in_place_are_validated_again() -> None:
    class Total(BaseTool):
        name = 'total'

        def call(self, ctx: RunContext[Any], numbers: list[int], more: int = 0) -> int:
            return sum(numbers) + more

    def pre(ctx: Any, args: dict[str, Any]) -> dict[str, Any]:
        args['numbers'].append('4')
        return args

    assert run(Toolset(tools=[Total], pre_hooks={'total': pre}), ('total', {'numbers': [1, 2]})) == '7'


@pytest.mark.parametrize(
    ('returned', 'message'),
    [
        ({'number': 'many'}, "The pre hooks of tool 'double' changed its arguments to what it does not accept."),
        ({'numbers': 1}, "The pre hooks of tool 'double' changed its arguments to what it does not accept."),
        (None, "A pre hook of tool 'double' returned None. Return the arguments, changed or not, as a dict."),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_that_names_the_hook(returned: Any, message: str) -> None:
    toolset = Toolset(tools=[Double], pre_hooks={'double': lambda ctx, args: returned})
    with pytest.raises(UserError, match=message):
        run(toolset, ('double', {'number': 1}))


def test_arguments_that_no_hook_changed_are_not_validated_again() -> None:
    validated: Log = []

    class Note(BaseTool):
        name = 'note'

        def call(self, ctx: RunContext[Any], text: str) -> str:
            return 'noted'

    Note.call.__annotations__['text'] = Annotated[str, AfterValidator(lambda text: validated.append(text) or text)]
    toolset = Toolset(tools=[Note], global_hooks=GlobalHooks(pre=lambda ctx, name, args: args))
    assert run(toolset, ('note', {'text': 'x'})) == 'noted'
    before = len(validated)
    run(Toolset(tools=[Note]), ('note', {'text': 'x'}))
    assert before == len(validated) - before  # as often as without a hook


class Point(BaseModel):
    x: int
    point: int = 0


class Draw(BaseTool):
    name = 'draw'

    def call(self, ctx: RunContext[Any], point: Point) -> str:
        return repr(point)


def test_single_model_is_an_argument_by_name_for_hooks() -> None:
    seen: Log = []

    def keep(ctx: Any, args: dict[str, Any]) -> dict[str, Any]:
        seen.append(args)
        return args

    assert run(Toolset(tools=[Draw], pre_hooks={'draw': keep}), ('draw', {'x': 1})) == 'Point(x=1, point=0)'
    assert seen == [{'point': Point(x=1)}]
    for changed in {'point': Point(x=5)}, {'point': {'x': '5'}}:
        toolset = Toolset(tools=[Draw], pre_hooks={'draw': lambda ctx, args, changed=changed: changed})
        assert run(toolset, ('draw', {'x': 1})) == 'Point(x=5, point=0)'
    with pytest.raises(UserError, match='to what it does not accept'):
        run(Toolset(tools=[Draw], pre_hooks={'draw': lambda ctx, args: {'x': 1}}), ('draw', {'x': 1}))


def test_arguments_of_any_kind_reach_the_tool() -> None:
    class Sum(BaseTool):
        name = 'sum'

        def call(self, ctx: RunContext[Any], *rest: int, first: int, **named: int) -> int:
            return first + sum(rest) + sum(named.values())

    class Twice(Toolset[Any]):
        async def _call_tool_func(self, args: Any, ctx: Any, tool: HookableToolsetTool[Any]) -> Any:
            return [await tool.call_func(args, ctx), await tool.call_func(args, ctx)]

    assert run(Twice(tools=[Sum]), ('sum', {'first': 1, 'rest': [2, 3], 'x': 4})) == '[10, 10]'


def test_error_that_is_left_is_raised_the_same_object_with_its_traceback() -> None:
    error = LookupError('nothing there')
    toolset = Toolset(tools=[Fail(error)], global_hooks=GlobalHooks(post=lambda ctx, name, result: result))
    with pytest.raises(LookupError) as caught:
        run(toolset, ('fail', {}))
    assert caught.value is error
    assert 'raise self.error' in ''.join(traceback.format_tb(error.__traceback__))
    assert error.__cause__ is None


def test_error_of_a_post_hook_is_shown_to_the_next_and_raised() -> None:
    seen: Log = []

    def post(ctx: Any, result: Any) -> Any:
        raise RuntimeError('in the hook')

    def global_post(ctx: Any, name: str, result: Any) -> Any:
        seen.append(result)
        return result

    toolset = Toolset(tools=[Double], post_hooks={'double': post}, global_hooks=GlobalHooks(post=global_post))
    with pytest.raises(RuntimeError, match='in the hook') as caught:
        run(toolset, ('double', {'number': 1}))
    assert seen == [caught.value]


@pytest.mark.parametrize('where', ['global', 'tool'])
def test_error_of_a_pre_hook_goes_through_the_post_hooks_and_the_tool_is_not_called(where: str) -> None:
    log: Log = []

    def refuse(*args: Any) -> Any:
        raise PermissionError('not today')

    def post(ctx: Any, name: str, result: Any) -> Any:
        log.append(result)
        return f'refused: {result}' if isinstance(result, PermissionError) else result

    toolset = Toolset(
        tools=[Double(log)],
        pre_hooks={'double': lambda ctx, args: refuse()} if where == 'tool' else {},
        global_hooks=GlobalHooks(pre=(lambda ctx, name, args: refuse()) if where == 'global' else None, post=post),
    )
    assert run(toolset, ('double', {'number': 1})) == 'refused: not today'
    assert len(log) == 1 and isinstance(log[0], PermissionError)


CONTROL = [ApprovalRequired(metadata={'why': 'x'}), CallDeferred(metadata={'why': 'x'}), ModelRetry('again')]


@pytest.mark.parametrize('error', CONTROL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize('where', ['tool', 'pre', 'post', '_call_tool_func'])
def test_what_tells_the_run_what_to_do_is_shown_to_post_hooks_and_always_raised(error: Exception, where: str) -> None:
    seen: Log = []

    def raise_it(*args: Any) -> Any:
        raise error

    def post(ctx: Any, result: Any) -> Any:
        return raise_it() if where == 'post' else seen.append(result)

    def global_post(ctx: Any, name: str, result: Any) -> Any:
        seen.append(result)
        return 'in its place'

    class Wrapping(Toolset[Any]):
        async def _call_tool_func(self, args: Any, ctx: Any, tool: HookableToolsetTool[Any]) -> Any:
            try:
                return raise_it() if where == '_call_tool_func' else await tool.call_func(args, ctx)
            except Exception as e:  # noqa: BLE001
                return e if where == '_call_tool_func' else RuntimeError(f'wrapped: {e}')

    class Quiet(Fail):
        async def call(self, ctx: RunContext[Any]) -> None:
            if where == 'tool':
                raise self.error

    toolset = Wrapping(
        tools=[Quiet(error)],
        pre_hooks={'fail': raise_it} if where == 'pre' else {},
        post_hooks={'fail': post},
        global_hooks=GlobalHooks(post=global_post),
    )
    agent = Agent(script(('fail', {}), 'told'), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    result = agent.run_sync('Go')
    assert seen == ([error] if where == 'post' else [error, error])
    if isinstance(error, ModelRetry):
        assert result.output == 'told'
        assert 'again' in str(result.all_messages()[2].parts[0])
    else:
        assert isinstance(result.output, DeferredToolRequests)
        assert result.output.metadata == {'fail-0-0': {'why': 'x'}}


def test_post_hook_that_fails_when_shown_a_retry_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def post(ctx: Any, result: Any) -> Any:
        raise RuntimeError('in the hook')

    toolset = Toolset(tools=[Fail(ModelRetry('again'))], post_hooks={'fail': post})
    assert run(toolset, ('fail', {}), 'told') == 'told'  # type: ignore
    assert "A post hook of tool 'fail' failed" in caplog.text and 'in the hook' in caplog.text


def test_retry_that_a_toolset_has_answered_by_calling_again_is_over() -> None:
    class Second(BaseTool):
        name = 'second'
        calls = 0

        def call(self, ctx: RunContext[Any]) -> str:
            Second.calls += 1
            if Second.calls == 1:
                raise ModelRetry('once more')
            return f'call {Second.calls}'

    class Again(Toolset[Any]):
        async def _call_tool_func(self, args: Any, ctx: Any, tool: HookableToolsetTool[Any]) -> Any:
            try:
                return await tool.call_func(args, ctx)
            except ModelRetry:
                return await tool.call_func(args, ctx)

    assert run(Again(tools=[Second]), ('second', {})) == 'call 2'


@pytest.mark.anyio
async def test_cancellation_is_never_a_value() -> None:
    seen: Log = []
    started = asyncio.Event()

    class Wait(BaseTool):
        name = 'wait'

        async def call(self, ctx: RunContext[Any]) -> None:
            started.set()
            await asyncio.sleep(60)

    class Catching(Toolset[Any]):
        async def _call_tool_func(self, args: Any, ctx: Any, tool: HookableToolsetTool[Any]) -> Any:
            try:
                return await tool.call_func(args, ctx)
            except BaseException as e:  # noqa: BLE001 (what no toolset should do)
                return e

    for make in Toolset[Any], Catching:
        started.clear()
        toolset = make(tools=[Wait], global_hooks=GlobalHooks(post=lambda ctx, name, result: seen.append(result)))
        task = asyncio.ensure_future(Agent(script(('wait', {})), toolsets=[toolset]).run('Go'))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen == []


@pytest.mark.anyio
async def test_time_limit_of_a_call_is_a_value_and_the_call_is_ended() -> None:
    ended: Log = []

    class Slow(BaseTool):
        name = 'slow'

        async def call(self, ctx: RunContext[Any]) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

    class Quick(Slow):
        name = 'quick'
        timeout = 0.01

    def post(ctx: Any, name: str, result: Any) -> Any:
        return str(result)

    toolset = Toolset(tools=[Slow, Quick], timeout=0.02, global_hooks=GlobalHooks(post=post))
    result = await Agent(script([('slow', {}), ('quick', {})]), toolsets=[toolset]).run('Go')
    assert result.output == ("Tool 'slow' took longer than 0.02 seconds. | Tool 'quick' took longer than 0.01 seconds.")
    assert ended == [True, True]
    with pytest.raises(TimeoutError, match="Tool 'slow' took longer"):
        await Agent(script(('slow', {})), toolsets=[Toolset(tools=[Slow], timeout=0.01)]).run('Go')


# What the hooks of a call share.


def test_hooks_of_a_call_share_metadata_and_those_of_another_have_their_own() -> None:
    log: Log = []

    class Double(BaseTool):
        name = 'double'

        def call(self, ctx: RunContext[Any], n: int) -> int:
            return n * 2

    def before_all(ctx: Any, tool_name: str, args: Any, metadata: CallMetadata) -> Any:
        assert metadata == {}
        metadata['asked'] = args['n']
        return args

    async def before(ctx: Any, args: Any, metadata: CallMetadata) -> Any:
        return {'n': args['n'] + metadata['asked']}

    async def after(ctx: Any, result: Any, metadata: CallMetadata) -> Any:
        metadata['took'] = 1
        return result

    def after_all(ctx: Any, tool_name: str, result: Any, metadata: CallMetadata) -> Any:
        log.append((result, dict(metadata)))
        return result

    class Executing(Toolset[Any]):
        async def _call_tool_func(self, args: Any, ctx: Any, tool: HookableToolsetTool[Any]) -> Any:
            tool.metadata['executed'] = args['n']
            return await super()._call_tool_func(args, ctx, tool)

    toolset = Executing(
        tools=[Double],
        pre_hooks={'double': before},
        post_hooks={'double': after},
        global_hooks=GlobalHooks(pre=before_all, post=after_all),
    )
    Agent(script([('double', {'n': 1}), ('double', {'n': 5})]), toolsets=[toolset]).run_sync('Go')
    assert sorted(log, key=repr) == [
        (20, {'asked': 5, 'executed': 10, 'took': 1}),
        (4, {'asked': 1, 'executed': 2, 'took': 1}),
    ]
