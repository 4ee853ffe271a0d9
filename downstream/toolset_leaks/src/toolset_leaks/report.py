"""What was found, for people and as data."""

from __future__ import annotations

import fnmatch
import functools
import textwrap
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.toolsets import AbstractToolset

from . import rules
from .snapshot import Place

WIDTH = 100
"""So many columns the text of a report has at most."""


@dataclass
class Finding:
    """State that runs leave behind in what they share."""

    where: str
    """What changed first, like `` `TodoToolset.todos[0]` `` or ``closure cell `storage` of `add_todo` ``."""
    name: str
    """The name by which it can be declared as shared on purpose, like `TodoToolset.todos`."""
    toolset: str
    """The toolset or capability through which it was reached."""
    held_by: str
    """Whether that is a `toolset` or a `capability`, or it's in the `deps`."""
    what: str
    """What changed."""
    left_by: str
    """The first run that left it behind, with the tools that it called."""
    read_by: str = ''
    """The first run that began with it, or went on at the same time; empty if there was none yet."""
    remedy: str = ''
    """What to write instead."""
    times: int = 1
    """How many runs left it behind."""
    next_run: str = ''
    """Which run would read it next."""

    def __str__(self) -> str:
        often = f' (and {self.times - 1} more)' if self.times > 1 else ''
        reader = f'{self.read_by} could read it' if self.read_by else f'{self.next_run} can read it'
        through = '' if self._names_its_toolset() else f', reached from {self.toolset}'
        lines = [f'{self.where}{through}', self.what, f'left by {self.left_by}{often}', reader, self.remedy]
        return '\n'.join(_fold(line, '    ' * bool(number), '    ') for number, line in enumerate(lines))

    def _names_its_toolset(self) -> bool:
        return self.where.startswith(tuple(f'`{self.toolset.partition(" ")[0]}{end}' for end in '.['))


@dataclass
class Report:
    """What was found in all runs that were watched."""

    leaks: list[Finding] = field(default_factory=list[Finding])
    """State of one run that a later run can see."""
    cleared: list[Finding] = field(default_factory=list[Finding])
    """State that each next run cleared when it began, so that only runs at the same time can see it."""
    noted: dict[str, str] = field(default_factory=dict[str, str])
    """What looks like a count, a time or a cache of public facts, by name: it's said, and is no leak."""
    runs: int = 0
    """How many runs were watched."""
    failed: list[str] = field(default_factory=list[str])
    """The runs that failed, with their errors: what they would have done otherwise isn't known."""
    too_much: bool = False
    """Whether something wasn't looked at since there was too much."""
    called: list[str] = field(default_factory=list[str])
    """The tools that `find_leaks()` called."""
    not_called: list[str] = field(default_factory=list[str])
    """Those that it didn't."""
    unproven: dict[str, str] = field(default_factory=dict[str, str])
    """Those that it called and none of whose calls succeeded, each with the first error."""
    undecided: str = ''
    """Why nothing is known, if no call of `find_leaks()` succeeded and nothing was found."""

    @property
    def incomplete(self) -> bool:
        """Whether there is something of which it isn't known whether it leaks."""
        return self.too_much or bool(self.unproven) or bool(self.undecided)

    def __str__(self) -> str:
        if self.leaks:
            head = f'{_count(len(self.leaks), "leak")} found in {_count(self.runs, "run")}:'
        else:
            but = ', but what some tools keep is not known' if self.unproven else ''
            head = self.undecided or f'No leak found in {_count(self.runs, "run")}{but}.'
        notes = [f'Cleared by the next run, so seen by runs at the same time only: {one.where}' for one in self.cleared]
        notes += self.noted.values()
        if self.failed:
            them = 'it' if len(self.failed) == 1 else 'they'
            notes.append(
                f'{_count(len(self.failed), "run")} failed, so what {them} would have left behind is not known. '
                f'The first: {self.failed[0]}'
            )
        if self.unproven and not self.undecided:
            tools = '; '.join(f'`{name}` ({error})' for name, error in self.unproven.items())
            notes.append(f'No call of these succeeded, so what they keep is not known: {tools}. {WAYS_ON}')
        if self.too_much:
            notes.append('There was too much to look at all of it; what was left out may hold state.')
        if self.not_called:
            notes.append(f'Not called: {", ".join(self.not_called)}.')
        return '\n\n'.join([_fold(head), *map(str, self.leaks), *map(_fold, notes)])


WAYS_ON = (
    'Give the tools what they need with `--deps MODULE:NAME`, and arguments that they accept with `--arguments FILE`, '
    'or in Python with `make_deps=` and `arguments=`.'
)
"""What helps if no call of a tool succeeded."""


class ToolsetLeakError(AssertionError):
    """Runs of an agent leave state behind that later runs can see.

    Attributes:
        report: All that was found.
    """

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report


def is_declared(name: str, patterns: Iterable[str]) -> bool:
    """Whether something is declared as shared on purpose: itself, or what contains it."""
    return any(
        name == pattern
        or name.startswith((f'{pattern}.', f'{pattern}['))
        or fnmatch.fnmatchcase(name, pattern)
        or fnmatch.fnmatchcase(name, f'{pattern}[[.]*')
        for pattern in patterns
    )


def held_by(holder: Any, attribute: Any, inside: Sequence[Any]) -> str:
    """Say what holds the state of a toolset or a capability, if that was handed to it: a callback or an object.

    Args:
        holder: The toolset or capability.
        attribute: The attribute of it through which the state was reached.
        inside: The objects on the way from there to the state.
    """
    if any(rules.is_tool_class(rules.class_of(value)) for value in inside):
        return ''
    own = f'`{attribute}` of `{type(holder).__name__}`'
    if any(isinstance(value, (types.FunctionType, types.MethodType, functools.partial)) for value in inside):
        return f'The callback {own} holds it, so a new one is needed, too. '
    if isinstance(inside[0], rules.WALKED):
        return ''
    return f'The `{type(inside[0]).__name__}` in {own} holds it, so a new one is needed, too. '


def remedy_of_deps(place: Place, deps: Any) -> str:
    """Say what to write instead of deps that hold state and that several runs are given."""
    made = 'dict(...)' if isinstance(deps, dict) else f'{type(deps).__name__}(...)'
    return (
        f'Write instead: make the deps again for each run, `agent.run(..., deps={made})`, with nothing in them that an '
        f'earlier run has written to. {_declare(place)}.'
    )


def remedy(place: Place, root: Any, by: str = '', *, returns_itself: bool = False) -> str:
    """Say what to write instead of what holds the state at a place.

    Args:
        place: Where the state is.
        root: The toolset or capability through which it was reached.
        by: What `held_by()` says.
        returns_itself: Whether a run worked with `root` itself.
    """
    own = type(root).__name__
    declare = by + _declare(place)
    if 'closure cell' in place.frame:
        return (
            f'Write instead: make the function `{place.owner}` and what it keeps again for each run, '
            f'in a factory{_factory(root)}, or keep it in `deps`. {declare}.'
        )
    if place.frame.startswith('default'):
        return f'Write instead: `None` as the default, and make the value in the body of `{place.owner}`. {declare}.'
    if 'global' in place.frame or 'context variable' in place.frame or 'of a function' in place.frame:
        return (
            f'Write instead: keep it in an attribute of a toolset that is made for each run, or in `deps`. {declare}.'
        )
    attribute = place.expression.partition('.')[2].partition('[')[0].partition('.')[0]
    holder = place.expression.partition('.')[0]
    if 'class attribute' in place.frame:
        return (
            f'Write instead: set it in `{holder}.__init__()`, since all instances share it, and make `{holder}` again '
            f'for each run. {declare}.'
        )
    if holder != own:
        return f'Write instead: make the `{holder}` again for each run, or keep it in `deps`. {declare}.'
    for_run = getattr(rules.class_of(root), 'for_run', None)
    if for_run and rules.origin(str(for_run.__module__)) != 'framework':
        author = f'in `{own}.for_run()`, ' + (
            f'which returns the object itself, return a new `{own}`'
            if returns_itself
            else f'whose result shares this, give the new `{own}` one of its own'
        )
    elif not isinstance(root, AbstractToolset) and not hasattr(root, 'stateful'):
        author = f'let `{own}.for_run()` return a new one for each run, with what is configured'
    elif hasattr(AbstractToolset, 'stateful'):
        author = f'`stateful = True` in `{own}`, and a `copy()` that begins without it'
    else:
        author = f"a `{own}.for_run()` that returns a new `{own}`, and passes on what's configured"
    if not isinstance(root, AbstractToolset):
        return f'Write instead: {author}. {declare}.'
    return (
        f'Write instead: {author}; or, where it is used, a factory{_factory(root)}. {declare}, or in the class: '
        f'`shared_attributes = frozenset({{{attribute!r}}})`.'
    )


def _declare(place: Place) -> str:
    return f'If runs share it on purpose, declare it: `shared=[{place.name.partition("[")[0]!r}]`'


def _factory(toolset: Any) -> str:
    """Return what a factory looks like on the installed line."""
    name = type(toolset).__name__
    made = f'{name}(...)' if 'FunctionToolset' not in name else 'make_toolset()'
    if hasattr(AbstractToolset, 'stateful'):
        return f': `toolsets=[lambda: {made}]`'
    return f', `@agent.toolset(per_run_step=False)`, that returns `{made}`, or `agent.run(..., toolsets=[{made}])`'


def _fold(text: str, first: str = '', rest: str = '') -> str:
    """Break a text into lines that fit."""
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return '\n'.join(lines)


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them, each once."""
    return ', '.join(f'`{name}`' for name in dict.fromkeys(names))


def _count(number: int, name: str) -> str:
    return f'{number} {name}{"" if number == 1 else "s"}'
