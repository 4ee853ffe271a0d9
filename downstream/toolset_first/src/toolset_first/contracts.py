"""What a project is made of: toolsets, agents and an entry. All of it is configuration; nothing here is alive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_ai import AbstractToolset
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

if TYPE_CHECKING:
    from toolset_first.runtime import CallRuntime

Verdict: TypeAlias = Literal['allow', 'ask', 'deny']
Rule: TypeAlias = Verdict | Mapping[str, Mapping[str, Verdict]] | Callable[[dict[str, Any]], Verdict]
"""What is said of a tool's calls: always the same; by argument, as `{'account': {'travel*': 'allow'}}`; or by a function of the arguments.

Patterns are those of file names, but for texts of any kind: `*` matches `/` and `..`, so use a function where a path is judged."""


class ToolsetFirstError(Exception):
    """Something that the author or the user of a project can put right. The message says how."""


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
        call: The call that the toolset is for, which is the `ctx.deps` of its tools. An entry has several, and none here.
    """

    name: str
    folder: Path = Path()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    call: CallRuntime | None = None


Made: TypeAlias = 'AbstractToolset[Any] | None'
ToolsetFactory: TypeAlias = Callable[[ToolsetBuildContext], 'Made | Awaitable[Made]']


@dataclass(frozen=True, eq=False)
class ToolsetSpec:
    """A toolset to be: a factory, which is called once per run, or an instance, which the runtime's `isolation` applies to.

    Attributes:
        factory: Makes a toolset for a run.
        toolset: The instance, where there is no factory.
        approval_config: The rules for calls of its tools, by the name of the tool.
        shared: Whether all runs share the instance, such as a pool.
        options: What the factory finds in its context.
    """

    factory: ToolsetFactory | None = None
    toolset: AbstractToolset[Any] | None = None
    approval_config: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    shared: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if (self.factory is None) == (self.toolset is None):
            raise TypeError('A `ToolsetSpec` takes either a `factory` or a `toolset`. Give it one of them.')
        if self.factory is not None and not callable(self.factory):
            raise TypeError(f'The factory {self.factory!r} of a `ToolsetSpec` is not callable.')
        if self.toolset is not None and not isinstance(self.toolset, AbstractToolset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f'{self.toolset!r} is no toolset. Pass what makes one as `factory`.')
        if self.toolset is not None and self.options:
            raise TypeError('Only a factory takes options, and this `ToolsetSpec` has an instance.')


@dataclass(frozen=True, eq=False)
class AgentSpec:
    """An agent to be. A runtime builds it once, and all calls use that one.

    Attributes:
        name: What it is called by.
        instructions: What the model is told.
        model: The model; without one, the runtime's.
        toolset_specs: Its toolsets.
        toolset_context: What the factories get; without one, the runtime makes it.
        description: What other agents read about it.
        schema_in: Its input, if that isn't a text with attachments.
        schema_out: Its output, if that isn't a text.
        model_settings: Settings of the model.
        builtin_tools: Tools that the model's provider runs.
        compatible_models: Patterns of which the model's name must match one, as `anthropic:*`.
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

    def __post_init__(self) -> None:
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
    """

    toolset_spec: ToolsetSpec
    name: str
    description: str | None = None
    schema_in: type[WorkerArgs] | None = None
