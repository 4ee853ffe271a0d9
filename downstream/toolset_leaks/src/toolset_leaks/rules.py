"""What is watched, and what is harmless: all the judgements of this package, in one place.

A value is of one of these kinds:

- `'value'`: it can't change, or isn't looked into. A slot that holds another one than before has changed.
- `'resource'`: what runs are meant to share, as a client, a pool, a lock, a session, a schema or a class. It isn't looked
  into, and a slot that holds another resource than before hasn't changed.
- `'walked'`: it's looked into.

What is the state of a run and what isn't follows from the kinds, and from `harmless()`.
"""

from __future__ import annotations

import array
import asyncio
import collections
import contextlib
import contextvars
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib.metadata
import inspect
import io
import ipaddress
import itertools
import pathlib
import queue
import re
import sys
import types
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, cast

class_of: Callable[[Any], type[Any]] = type
"""Returns an object's class, for what type checkers otherwise take for a class of something unknown."""

Kind = Literal['value', 'resource', 'walked']


class _Missing:
    def __repr__(self) -> str:
        return 'nothing'


MISSING: Any = _Missing()
"""What a slot holds that isn't there."""

FRAMEWORK = frozenset({'pydantic_ai', 'pydantic_graph', 'pydantic_evals', 'toolset_leaks'})
"""The packages whose own state is their own concern. A toolset or capability of theirs is looked into all the same."""

VALUES = (
    *(int, float, complex, str, bytes, bool, type(None), range, type(Ellipsis), slice, enum.Enum, BaseException),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction),
    *(uuid.UUID, pathlib.PurePath, ipaddress.IPv4Address, ipaddress.IPv6Address),
)
"""Types, with their subclasses, of what can't change."""

WALKED = (
    *(dict, list, tuple, set, frozenset, collections.deque, bytearray, array.array, types.MappingProxyType),
    *(collections.ChainMap, collections.UserDict, collections.UserList, types.SimpleNamespace),
    *(io.StringIO, io.BytesIO, itertools.count, itertools.cycle, contextvars.ContextVar),
    *(queue.Queue, queue.SimpleQueue, asyncio.Queue),
    *(types.FunctionType, types.MethodType, functools.partial, functools.partialmethod),
    *(staticmethod, classmethod, property, functools.cached_property, type(functools.cache(lambda: None))),
)
"""Types of Python's own, with their subclasses, that are looked into. All others are resources: locks, files, sockets,
tasks, threads, connections of `sqlite3`, loggers, modules, weak references, compiled patterns, mocks."""

FRAMEWORK_RESOURCES = ('pydantic_ai.mcp', 'pydantic_ai.toolsets.fastmcp')
"""Modules of sessions: their toolsets, with subclasses, count how often they were entered, and cache what a server said."""

FRAMEWORK_SCHEMAS = frozenset(
    {'ToolDefinition', 'ToolsetTool', 'FunctionToolsetTool', 'FunctionSchema', 'StandIn', 'SharedToolset'}
)
"""Classes of the framework that describe tools, and what stands for toolsets that runs share on purpose, by `shared()` or a scope."""

TOOL_ATTRIBUTES = frozenset({'function', 'prepare', 'args_validator'})
"""What is looked at in a `pydantic_ai.Tool`; the rest of it describes the function."""

OPAQUE_LIBRARIES = frozenset(
    {'pydantic', 'pydantic_core', 'httpx', 'httpcore', 'mcp', 'fastmcp', 'opentelemetry', 'anyio'}
)
"""Other packages whose collections and dataclasses are resources, too."""

ONCE = re.compile(
    r'_*(is_?|has_?)?(initiali[sz]ed|setup_?done|set_?up|started|entered|opened|open|connected|loaded|ready|warm)'
)
"""Names of flags that say whether something was prepared that all runs use."""

REFUSED = re.compile(
    r'\W*(errors?|fail(ed|ure)|invalid|((access|permission) )?(denied|refused)|not (found|allowed|permitted)|no such|cannot|could not|unable to)\b',
    re.IGNORECASE,
)
"""How the result of a tool begins that has turned a call down without raising an error."""

DECIDED = re.compile(r'approv(ed|als?)|(auto|always)_approve|granted|consent(s|ed)?|confirmed|rejected|denied')
"""Names of what keeps a user's decisions, which is never taken for settings that were loaded."""

SIZE_LIMIT = 10_000
"""A container with more entries than this is watched by its length only."""


@functools.cache
def origin(module: str) -> Literal['framework', 'library', 'watched']:
    """Say whose code a module is.

    Watched is the user's own code, which isn't installed in `site-packages`, and each installed package that names
    pydantic-ai among its requirements: that is where toolsets keep state in ways of their own.
    """
    top = module.partition('.')[0]
    if top in FRAMEWORK:
        return 'framework'
    if top in sys.stdlib_module_names or top == '_pytest':
        return 'library'
    found = sys.modules.get(module) or sys.modules.get(top)
    file = getattr(found, '__file__', None) or ''
    if not {'site-packages', 'dist-packages'} & set(pathlib.PurePath(file).parts):
        return 'watched'
    return 'watched' if top in packages_on_pydantic_ai() else 'library'


@functools.cache
def packages_on_pydantic_ai() -> frozenset[str]:
    """Find the installed packages that name pydantic-ai among their requirements, for an extra or for all."""
    return frozenset(
        package
        for package, names in importlib.metadata.packages_distributions().items()
        for name in names
        if any(re.match(r'pydantic[-_.]ai\b', text, re.IGNORECASE) for text in importlib.metadata.requires(name) or ())
    )


@functools.cache
def is_client(cls: type[Any]) -> bool:
    """Whether it's a class of HTTP clients, whose cookies and headers are those of whoever was logged in."""
    return any(base.__module__.startswith('httpx') and base.__name__ == 'BaseClient' for base in cls.__mro__)


@functools.cache
def kind(cls: type[Any]) -> Kind:
    """Say which kind the instances of a class are of."""
    if issubclass(cls, VALUES):
        return 'value'
    module = str(cls.__module__)
    whose = origin(module)
    if any(base.__module__.startswith(FRAMEWORK_RESOURCES) for base in cls.__mro__):
        return 'resource'
    if whose == 'watched':
        return 'resource' if issubclass(cls, (type, types.ModuleType)) else 'walked'
    if whose == 'framework':
        return _kind_in_framework(cls)
    if module.partition('.')[0] in sys.stdlib_module_names:
        return 'walked' if issubclass(cls, WALKED) else 'resource'
    # A library's object is a resource, as a client, a pool or an engine is, unless it holds data.
    data = dataclasses.is_dataclass(cls) or issubclass(cls, Collection) or hasattr(cls, '__pydantic_fields__')
    return 'walked' if data and module.partition('.')[0] not in OPAQUE_LIBRARIES else 'resource'


def _kind_in_framework(cls: type) -> Kind:
    names = {base.__name__ for base in cls.__mro__}
    if names & FRAMEWORK_SCHEMAS:
        return 'resource'
    if names & {'AbstractToolset', 'AbstractCapability', 'Tool'}:
        return 'walked'
    # Messages, usages and contexts are data of a run; agents, models and providers have watches or clients of their own.
    return (
        'value'
        if dataclasses.is_dataclass(cls) and 'AbstractAgent' not in names and 'Model' not in names
        else 'resource'
    )


def is_toolset(value: object) -> bool:
    """Whether it's a toolset or a capability, at which a finding's name starts."""
    return is_toolset_class(class_of(value))


@functools.cache
def is_toolset_class(cls: type) -> bool:
    """Whether it's a class of toolsets or capabilities."""
    return not {'AbstractToolset', 'AbstractCapability'}.isdisjoint(base.__name__ for base in cls.__mro__)


@functools.cache
def is_tool_class(cls: type) -> bool:
    """Whether it's a class of the framework's that describes a tool, or is derived from one."""
    return any(
        base.__name__ in ('Tool', 'ToolDefinition', 'ToolsetTool') and origin(base.__module__) == 'framework'
        for base in cls.__mro__
    )


@functools.cache
def acts_when_entered(cls: type) -> bool:
    """Whether it's a toolset or a capability with code of its own that runs when a run begins."""
    methods = (getattr(cls, name, None) for name in ('__aenter__', 'for_run', 'copy', 'before_run'))
    return is_toolset_class(cls) and any(
        origin(str(getattr(it, '__module__', 'builtins'))) == 'watched' for it in methods
    )


@functools.cache
def shared_attributes(cls: type) -> frozenset[str]:
    """Return the names of the attributes that a class declares to be shared on purpose, as the fork reads them, too.

    What the framework's own classes declare is about copies, not about state, and doesn't count.
    """
    names: set[str] = set()
    for base in cls.__mro__:
        declared = vars(base).get('shared_attributes', ())
        if origin(base.__module__) != 'framework' and isinstance(declared, (set, frozenset, tuple, list)):
            names.update(cast('Collection[str]', declared))
    return frozenset(names)


def attributes_to_skip(cls: type) -> frozenset[str]:
    """Return the names of the attributes that aren't looked at: declared ones, and computed ones that are kept."""
    kept = {
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, functools.cached_property)
    }
    return shared_attributes(cls) | kept


def harmless(name: str, old: Any, new: Any, inputs: Inputs) -> bool:
    """Whether an attribute, a cell or the like that held `old` before the run, and holds `new` now, tells nothing of the run.

    Args:
        name: The name of the attribute, the cell, the global or the like.
        old: What it held, or `MISSING`.
        new: What it holds, or `MISSING`.
        inputs: What the run was given.
    """
    if isinstance(new, bool) and ONCE.fullmatch(name):
        return True
    if all(value is None or _is_for_all(value) for value in (old, new)):
        return True
    empty = old is MISSING or old is None or (isinstance(old, Collection) and not isinstance(old, str) and not old)
    return empty and looks_loaded(name, new, inputs)


def harmless_entry(old: Any, new: Any) -> bool:
    """Whether an entry of a container that was `old`, and is `new` now, tells nothing of the run: it's a resource or a tool."""
    return _is_for_all(old) and _is_for_all(new)


def _is_for_all(value: Any, depth: int = 3) -> bool:
    """Whether it's not there, or a resource or a tool, or holds nothing else."""
    cls = class_of(value)
    if value is MISSING or kind(cls) == 'resource' or is_tool_class(cls):
        return True
    if not depth or not value or cls not in (dict, list, tuple, set, frozenset):
        return False
    inside = cast('dict[Any, Any]', value).values() if cls is dict else cast('Collection[Any]', value)
    return all(_is_for_all(one, depth - 1) for one in inside)


def is_counted(old: Any, new: Any) -> bool:
    """Whether a number or a time has become another one, as a count or what is left of a limit does."""
    values: list[Any] = [one for value in (old, new) for one in (value if class_of(value) is list else [value])]
    held = [value for value in values if value is not None and value is not MISSING]
    counted = all(isinstance(value, (int, float, datetime.date)) and not isinstance(value, bool) for value in held)
    return counted and new is not None and new is not MISSING


def looks_loaded(name: str, new: Any, inputs: Inputs) -> bool:
    """Whether what was empty or not there was filled with what is the same for all runs, as settings from a file.

    It looks like that when nothing of what the run was given is in it. If a later run fills it once more, it isn't empty
    any longer, so that is found.
    """
    return new is not MISSING and not DECIDED.search(name) and not inputs.are_in(new)


def refused(part: Any) -> str:
    """Return why a tool turned a call down, as its result says, or nothing if it didn't.

    Args:
        part: A `ToolReturnPart`.
    """
    content = part.content
    if getattr(part, 'outcome', 'success') != 'success':
        return str(content)
    if isinstance(content, str):
        return content if REFUSED.match(content) else ''
    held = cast('dict[Any, Any]', content) if isinstance(content, dict) else attributes(content)
    refuses = held.get('error') or held.get('success') is False or held.get('ok') is False
    return str(part.content) if refuses or REFUSED.match(str(held.get('status'))) else ''


class Inputs:
    """What a run was given: its prompt, its deps and the tool calls, with their arguments.

    Args:
        values: The prompt, the deps and the arguments.
        called: The names of the tools that were called.
        offered: The names of all tools that there were. What names others, too, lists the tools, and was not left by a call.
    """

    def __init__(self, *values: Any, called: Iterable[str] = (), offered: Iterable[str] = ()):
        self._called = frozenset(called)
        self._others = frozenset(offered) - self._called
        self._atoms = set(atoms(values)) - {''}
        # The longest first: of two that begin alike, that one is meant.
        texts = sorted((atom for atom in self._atoms if isinstance(atom, str) and len(atom) > 2), key=len, reverse=True)
        words = '|'.join(map(re.escape, texts)) or '(?!)'
        self._texts = re.compile(f'(?<![^\\W_])(?:{words})(?![^\\W_])', re.IGNORECASE)
        self._numbers = {atom for atom in self._atoms if isinstance(atom, (int, float)) and abs(atom) > 1}

    def are_in(self, value: Any) -> bool:
        """Whether some of it can be found in a value."""
        return self.are_named_by(value) or bool(self.found_in(value))

    def found_in(self, value: Any) -> set[Any]:
        """Return what of it, but for the names of the tools, can be found in a value."""
        found: set[Any] = set()
        for atom in atoms([value]):
            if isinstance(atom, str):
                found.update(text.casefold() for text in self._texts.findall(atom))
                found.update({atom.casefold()} if atom in self._atoms else ())
            elif atom in self._numbers:
                found.add(atom)
        return found

    def are_kept_apart(self, entries: dict[Any, Any]) -> bool:
        """Whether no entry has more of it than its key has, as in a cache of what was asked for."""
        return all(
            not self.are_named_by([key, value]) and self.found_in(value) <= self.found_in(key)
            for key, value in entries.items()
        )

    def are_named_by(self, value: Any) -> bool:
        """Whether texts name tools that were called and no others, as what was approved for a session does."""
        # Not in a sentence, which a word may be in by chance.
        names = [atom for atom in atoms([value]) if isinstance(atom, str) and ' ' not in atom]
        words = {word for name in names for word in (name, *re.split(r'[^\w-]+', name))}
        return not self._called.isdisjoint(words) and self._others.isdisjoint(words)


def atoms(values: Iterable[Any], limit: int = 500) -> Iterable[str | int | float]:
    """Return the texts and numbers in values and in what they contain."""
    todo, seen = collections.deque[Any](values), set[int]()
    while todo and len(seen) < limit:
        value = todo.popleft()
        if isinstance(value, (str, int, float)):
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, dict):
                todo.extend(itertools.chain(cast('dict[Any, Any]', value), cast('dict[Any, Any]', value).values()))
            elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
                todo.extend(cast('Collection[Any]', value))
            elif isinstance(value, (uuid.UUID, pathlib.PurePath, bytes, BaseException)):
                todo.append(str(value))
            elif kind(class_of(value)) != 'resource' and not is_tool_class(class_of(value)):
                todo.extend(attributes(value).values())


def attributes(value: object) -> dict[str, Any]:
    """Return what an object holds in its attributes and slots. It isn't to be changed."""
    held: dict[str, Any] = getattr(value, '__dict__', {})
    if own := slots(class_of(value)):
        held = held.copy()
        for name, slot in own:
            with contextlib.suppress(AttributeError):
                held[name] = slot.__get__(value)
    return held


@functools.cache
def slots(cls: type) -> tuple[tuple[str, Any], ...]:
    """Find the slots of a class that hold state; those that pydantic uses for extra and private fields do."""
    return tuple(
        (name, slot)
        for base in cls.__mro__
        for name, slot in vars(base).items()
        if inspect.ismemberdescriptor(slot)
        and (name[:2] != '__' or name in ('__pydantic_extra__', '__pydantic_private__'))
    )
