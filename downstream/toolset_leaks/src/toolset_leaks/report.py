"""What was found, for people and as data."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.toolsets import AbstractToolset

from .snapshot import Place


@dataclass
class Finding:
    """State that runs leave behind in what they share."""

    where: str
    """What changed first, like `` `TodoToolset.todos[0]` `` or ``closure cell `storage` of `add_todo` ``."""
    name: str
    """The name by which it can be declared as shared on purpose, like `TodoToolset.todos`."""
    toolset: str
    """The toolset or capability through which it was reached."""
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
        through = (
            '' if self.where.startswith(f'`{self.toolset.partition(" ")[0]}.') else f', reached from {self.toolset}'
        )
        return '\n    '.join(
            [f'{self.where}{through}', self.what, f'left by {self.left_by}{often}', reader, self.remedy]
        )


@dataclass
class Report:
    """What was found in all runs that were watched."""

    leaks: list[Finding] = field(default_factory=list[Finding])
    """State of one run that a later run can see."""
    cleared: list[Finding] = field(default_factory=list[Finding])
    """State that each next run cleared when it began, so that only runs at the same time can see it."""
    runs: int = 0
    """How many runs were watched."""
    failed: list[str] = field(default_factory=list[str])
    """The runs that failed, with their errors: what they would have done otherwise isn't known."""
    incomplete: bool = False
    """Whether something wasn't looked at since there was too much."""
    called: list[str] = field(default_factory=list[str])
    """The tools that `find_leaks()` called."""
    not_called: list[str] = field(default_factory=list[str])
    """Those that it didn't."""

    def __str__(self) -> str:
        if self.leaks:
            head = f'{_count(self.leaks, "leak")} found in {self.runs} runs:'
        else:
            head = f'No leak found in {self.runs} runs.'
        notes = [f'Cleared by the next run, so seen by runs at the same time only: {one.where}' for one in self.cleared]
        if self.failed:
            notes.append(
                f'{_count(self.failed, "run")} failed, so what it would have left behind is not known. {self.failed[0]}'
            )
        if self.incomplete:
            notes.append('There was too much to look at all of it; what was left out may hold state.')
        if self.not_called:
            notes.append(f'Not called: {", ".join(self.not_called)}.')
        return '\n\n'.join([head, *map(str, self.leaks), *notes])

    def table(self) -> list[str]:
        """Return the lines of a table of the leaks."""
        rows = [('state', 'reached from', 'first left by', 'runs')]
        rows += [(one.where, one.toolset, one.left_by, str(one.times)) for one in self.leaks]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return [
            '  '.join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=False)).rstrip()
            for row in rows
        ]


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
        name == pattern or fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f'{pattern}[[.]*')
        for pattern in patterns
    )


def remedy(place: Place, root: Any) -> str:
    """Say what to write instead of what holds the state at a place.

    Args:
        place: Where the state is.
        root: The toolset or capability through which it was reached.
    """
    own = type(root).__name__
    name = place.name.partition('[')[0]
    declare = f'If runs share it on purpose, declare it: `shared=[{name!r}]`'
    if 'closure cell' in place.frame:
        return (
            f'Write instead: make the function `{place.owner}` and what it keeps anew for each run, '
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
            f'Write instead: set it in `{holder}.__init__()`, since all instances share it, and make `{holder}` anew '
            f'for each run. {declare}.'
        )
    if holder != own:
        return f'Write instead: make the `{holder}` anew for each run, or keep it in `deps`. {declare}.'
    if not isinstance(root, AbstractToolset):
        return (
            f'Write instead: let `{own}.for_run()` return a new one for each run, with what is configured. {declare}.'
        )
    if hasattr(AbstractToolset, 'stateful'):
        author = f'`stateful = True` in `{own}`, and a `copy()` that begins without it'
    elif hasattr(AbstractToolset, 'for_run'):
        author = f"a `{own}.for_run()` that returns a new `{own}`, and passes on what's configured"
    else:
        author = f'nothing in `{own}` can help before `for_run()` of pydantic-ai 2'
    return (
        f'Write instead: {author}; or, where it is used, a factory{_factory(root)}. {declare}, or in the class: '
        f'`shared_attributes = frozenset({{{attribute!r}}})`.'
    )


def _factory(toolset: Any) -> str:
    """Return what a factory looks like on the installed line."""
    name = type(toolset).__name__
    made = f'{name}(...)' if 'FunctionToolset' not in name else 'make_toolset()'
    if hasattr(AbstractToolset, 'stateful'):
        return f': `toolsets=[lambda: {made}]`'
    return f', `@agent.toolset(per_run_step=False)`, that returns `{made}`, or `agent.run(..., toolsets=[{made}])`'


def _count(things: Sequence[Any], name: str) -> str:
    return f'{len(things)} {name}{"" if len(things) == 1 else "s"}'
