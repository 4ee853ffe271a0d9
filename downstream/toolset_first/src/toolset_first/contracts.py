"""What a project is made of: toolsets, agents and an entry. All of it is configuration; nothing here is alive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_ai import AbstractToolset, FunctionToolset, Tool
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from toolset_first.rules import Rule, frozen


class WorkerArgs(BaseModel):
    """The input of an agent or an entry. Subclasses add fields to it, `attachments: list[str]` among them if they want."""

    model_config = ConfigDict(extra='forbid')

    def prompt(self) -> str:
        """Return what the model reads: the field `input` if there is no other, and JSON otherwise."""
        values = self.model_dump(mode='json', exclude={'attachments'})
        return values['input'] if set(values) == {'input'} else self.model_dump_json(exclude={'attachments'}, indent=2)


@dataclass(frozen=True)
class ToolsetBuildContext:
    """What a factory can go by when it makes a toolset for a run.

    Attributes:
        name: The agent, or the entry.
        folder: The project's folder.
        options: What the `.worker` file says of the toolset.
        call: The `CallRuntime` of the call that the toolset is for, which is the `ctx.deps` of its tools. An entry has several, and none here.
    """

    name: str
    folder: Path = Path()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    call: Any = None


Made: TypeAlias = 'AbstractToolset[Any] | None'
ToolsetFactory: TypeAlias = Callable[[ToolsetBuildContext], 'Made | Awaitable[Made]']


@dataclass(frozen=True, eq=False)
class ToolsetSpec:
    """A toolset to be: a factory, which is called once per run, or an instance, or plain functions.

    An instance has to say what runs get of it: `stateful`, so that each has a copy, or `shared`.

    Attributes:
        factory: Makes a toolset for a run.
        toolset: The instance, where there is no factory. That of `functions`, if there are any.
        functions: Functions, or `Tool`s, in place of a toolset that has these.
        approval_config: The rules for calls of its tools, by the name that models call the tool by. It can't be changed afterwards.
        shared: Whether all runs share the instance, such as a pool.
        options: What the factory finds in its context: a `.worker` file can set these and no others.
    """

    factory: ToolsetFactory | None = None
    toolset: AbstractToolset[Any] | None = None
    approval_config: Mapping[str, Rule] | None = None
    shared: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    functions: InitVar[Sequence[Callable[..., Any] | Tool[Any]]] = ()

    def __post_init__(self, functions: Sequence[Callable[..., Any] | Tool[Any]]) -> None:
        if functions and self.toolset is None:
            object.__setattr__(self, 'toolset', FunctionToolset[Any](functions))
        elif functions:
            raise TypeError('A `ToolsetSpec` takes either a `toolset` or `functions`. Give it one of them.')
        object.__setattr__(self, 'approval_config', frozen(self.approval_config))
        if (self.factory is None) == (self.toolset is None):
            raise TypeError(
                'A `ToolsetSpec` takes either a `factory` or a `toolset`, or `functions`. Give it one of them.'
            )
        if self.factory is not None and not callable(self.factory):
            raise TypeError(f'The factory {self.factory!r} of a `ToolsetSpec` is not callable.')
        if self.toolset is not None and not isinstance(self.toolset, AbstractToolset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f'{self.toolset!r} is no toolset. Pass what makes one as `factory`.')
        if self.toolset is not None and self.options:
            raise TypeError('Only a factory takes options, and this `ToolsetSpec` has an instance.')

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The rules; none, if there is no `approval_config`."""
        return self.approval_config or {}


@dataclass(frozen=True, eq=False)
class AgentSpec:
    """An agent to be. A runtime builds it once, and all calls use that one.

    Attributes:
        name: What it is called by.
        instructions: What the model is told.
        model: The model; without one, the runtime's.
        toolset_specs: Its toolsets.
        toolset_context: What the factories get; without one, the runtime makes it.
        description: What other agents read about it; without one, how its instructions begin.
        schema_in: Its input, if that isn't a text with attachments.
        schema_out: Its output, if that isn't a text.
        model_settings: Settings of the model.
        builtin_tools: Tools that the model's provider runs.
        compatible_models: Patterns of which the model's name must match one, as `anthropic:*`.
        usage_limits: The limits of each of its calls; without any, the runtime's `call_limits`.
    """

    name: str
    instructions: str = ''
    model: Model | str | None = None
    toolset_specs: Sequence[ToolsetSpec] = ()
    toolset_context: ToolsetBuildContext | None = None
    description: str | None = None
    schema_in: type[WorkerArgs] | None = None
    schema_out: type[BaseModel] | None = None
    model_settings: ModelSettings | None = None
    builtin_tools: Sequence[Any] = ()
    compatible_models: Sequence[str] = ()
    usage_limits: UsageLimits | None = None

    def __post_init__(self) -> None:
        check_schema(self.name, self.schema_in)
        for one in self.toolset_specs:
            if not isinstance(one, ToolsetSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f'The agent {self.name!r} has {one!r} among its `toolset_specs`. '
                    'Write `ToolsetSpec(toolset=…)` around a toolset and `ToolsetSpec(factory=…)` around what makes one.'
                )


@dataclass(frozen=True, eq=False)
class EntrySpec:
    """Where a project begins.

    Attributes:
        toolset_spec: A toolset with exactly one tool, `main`.
        name: What it is called in messages.
        description: What it does.
        schema_in: Its input; without one, `main` takes `input`, and `attachments` if it wants.
        usage_limits: The limits of all agents together, each time that it is called; without any, the runtime's.
    """

    toolset_spec: ToolsetSpec
    name: str
    description: str | None = None
    schema_in: type[WorkerArgs] | None = None
    usage_limits: UsageLimits | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.toolset_spec, ToolsetSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f'The entry {self.name!r} has {self.toolset_spec!r} as its `toolset_spec`. '
                'Write `ToolsetSpec(factory=…)` around what makes its toolset.'
            )
        check_schema(self.name, self.schema_in)


def check_schema(name: str, schema_in: object) -> None:
    """Raise a `TypeError` unless that can be the input of what has the name."""
    if schema_in is not None and not (isinstance(schema_in, type) and issubclass(schema_in, WorkerArgs)):
        raise TypeError(
            f'The `schema_in` of {name!r} is {schema_in!r}, which is no subclass of `WorkerArgs`. Derive it from that.'
        )
