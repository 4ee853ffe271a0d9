"""Point 1: a toolset is built once, and refuses what can't work."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, UserError

from hookable_toolset import BaseTool, GlobalHooks, Toolset

from .conftest import script


class Greet(BaseTool):
    name = 'greet'
    description = 'Greet someone.'

    def call(self, ctx: RunContext[Any], who: str) -> str:
        """Greet.

        Args:
            ctx: The context.
            who: A name.
        """
        return f'Hello {who}'


class Part(Greet):
    name = 'part'


def pre(ctx: RunContext[Any], args: dict[str, Any]) -> dict[str, Any]:
    return args


def test_toolset_of_classes_and_instances_lists_their_schemas() -> None:
    seen: list[Any] = []
    agent = Agent(script(('greet', {'who': 'Ada'}), seen=seen), toolsets=[Toolset(tools=[Greet, Part()])])
    assert agent.run_sync('Hi').output == 'Hello Ada'
    greet, part = seen[0].function_tools
    assert (greet.name, greet.description, part.name) == ('greet', 'Greet someone.', 'part')
    assert greet.parameters_json_schema['properties'] == {'who': {'description': 'A name.', 'type': 'string'}}


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'tools': [Greet, Greet()]}, "has the name 'greet', as another one has. Rename one of them."),
        ({'tools': [Greet], 'pre_hooks': {'gret': pre}}, "no such tool. There are: 'greet'. Correct the name."),
        ({'post_hooks': {'greet': pre}}, "There is a post hook for 'greet', but no such tool. There are: none."),
        (
            {'tools': [Greet], 'pre_hooks': {'greet': 'log'}},
            "The pre hook of 'greet' can't be called with `(ctx, args)`: 'log' is not a callable object.",
        ),
        (
            {'tools': [Greet], 'post_hooks': {'greet': lambda result: result}},  # type: ignore
            "The post hook of 'greet' can't be called with `(ctx, result)`: too many positional arguments.",
        ),
        (
            {'tools': [Greet], 'global_hooks': GlobalHooks(pre=pre)},  # type: ignore
            "The global pre hook can't be called with `(ctx, tool_name, args)`: too many positional arguments.",
        ),
        (
            {'tools': [Greet], 'global_hooks': GlobalHooks(post=lambda ctx, tool_name, result, more: result)},
            "The global post hook can't be called with `(ctx, tool_name, result)`: missing a required argument: 'more'",
        ),
        ({'tools': [Greet], 'global_hooks': {'pre': pre}}, 'Write `GlobalHooks(pre=..., post=...)`.'),
        ({'tools': [42]}, '`tools[0]` is 42, which is no `BaseTool`.'),
        ({'tools': [dict]}, "`tools[0]` is <class 'dict'>, which is no `BaseTool`."),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        Toolset(**options)
    assert message in str(caught.value)
    assert str(caught.value).startswith('Toolset is not built: ')


def test_all_that_does_not_fit_is_said_at_once() -> None:
    class Nameless(BaseTool):
        def call(self, ctx: RunContext[Any]) -> None: ...

    class Configured(Greet):
        name = 'configured'

        def __init__(self, limit: int):
            self.limit = limit

    class Abstract(BaseTool):
        name = 'abstract'

    with pytest.raises(UserError) as caught:
        Toolset(tools=[Nameless, Configured, Abstract], pre_hooks={'x': 'y'}, toolset_id='mine')  # type: ignore
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("Toolset 'mine' is not built: ")
    for line, part in zip(
        lines,
        [
            'has no `name`',
            "can't be called without arguments. Give an instance.",
            'Abstract',
            'no such tool. There are: none.',
            'is not a callable object',
        ],
        strict=True,
    ):
        assert part in line


def test_max_retries_of_the_tool_beat_those_of_the_toolset() -> None:
    from pydantic_ai import ModelRetry

    calls: list[str] = []

    class Stubborn(BaseTool):
        name = 'stubborn'
        max_retries = 3

        def call(self, ctx: RunContext[Any]) -> str:
            calls.append(f'{self.name} {ctx.retry}/{ctx.max_retries}')
            if ctx.retry < ctx.max_retries:
                raise ModelRetry('Again')
            return 'at last'

    class Meek(Stubborn):
        name = 'meek'
        max_retries = None

    for name in 'stubborn', 'meek':
        agent = Agent(script(*[(name, {})] * 4), toolsets=[Toolset(tools=[Stubborn, Meek], max_retries=2)])  # type: ignore
        agent.run_sync('Go')
    assert calls[:4] == ['stubborn 0/3', 'stubborn 1/3', 'stubborn 2/3', 'stubborn 3/3']
    assert calls[4:7] == ['meek 0/2', 'meek 1/2', 'meek 2/2']
