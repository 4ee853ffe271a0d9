"""Read what can be reached from some objects, and compare it with what is there later."""

from __future__ import annotations

import array
import ast
import asyncio
import collections
import contextvars
import functools
import gc
import inspect
import io
import itertools
import operator
import queue
import re
import reprlib
import textwrap
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import rules
from .rules import MISSING

GroupKind = str
"""What a value is to the object that holds it: `'attribute'`, `'item'`, `'closure'` and the like."""
Group = tuple[GroupKind, Sequence[Any], Sequence[Any]]
"""Values that an object holds: what they are to it, under which names or indices, and the values."""


@dataclass(frozen=True)
class Place:
    """Where something was found, named in words that a reader can look up in the code."""

    expression: str
    """How it would be written, like `TodoToolset.todos` or `storage`."""
    frame: str = '`{}`'
    """The words around it, like ``closure cell `{}` of `add_todo` ``."""
    owner: str = ''
    """The function or module that `expression` starts in, if it isn't a toolset or a class."""
    holder: str = ''
    """The toolset or capability through which it was reached."""
    shared: bool = False
    """Whether it is shared even if the toolset belongs to one run only, as a global is."""

    def __str__(self) -> str:
        return self.frame.format(self.expression)

    @property
    def name(self) -> str:
        """A name to declare it by, like `TodoToolset.todos`, `add_todo.storage` or `tools.STORE`, the same for all entries."""
        name = f'{self.owner}.{self.expression}' if self.owner else self.expression
        return re.sub(r'\[.*?\](?=[.\[]|$)', '[*]', name)

    def inside(self, group: GroupKind, key: Any, holder: Any, value: Any) -> Place:
        """Return the place of a value that the object at this place holds."""
        if rules.is_toolset(value):
            name = type(value).__name__
            return Place(name, holder=label(value), shared=self.shared and group not in ('attribute', 'item'))
        if group == 'attribute':
            return self._with(f'{self.expression}.{key}')
        if group == 'item':
            return self._with(f'{self.expression}[{_short(key)}]')
        if group in ('inner', 'member', 'kept'):
            return self
        if group == 'bound':
            return self._with(type(value).__name__ if not isinstance(value, type) else value.__name__, '`{}`', '')
        if group == 'class':
            return self._with(value.__name__, 'class attribute `{}`', '', shared=True)
        if group == 'variable':
            return self._with(holder.name, 'context variable `{}`', '', shared=True)
        function = _function_name(holder)
        if group == 'closure':
            return self._with(key, f'closure cell `{{}}` of `{function}`', function)
        if group == 'default':
            return self._with(key, f'default `{{}}` of `{function}`', function)
        if group == 'function attribute':
            return self._with(f'{function}.{key}', 'attribute `{}` of a function', '')
        assert group == 'global', group
        module, _, name = key.rpartition(':')
        if isinstance(value, (types.FunctionType, type)):
            return self._with(name, 'class attribute `{}`', '', shared=True)
        return self._with(name, f'global `{{}}` of `{module}`', module, shared=True)

    def _with(self, expression: str, frame: str = '', owner: str | None = None, shared: bool = False) -> Place:
        owner = self.owner if owner is None else owner
        return Place(expression, frame or self.frame, owner, self.holder, self.shared or shared)


def label(value: Any) -> str:
    """Return the name of a toolset or a capability for people."""
    name = type(value).__name__
    if name == '_AgentFunctionToolset':
        return "the agent's own tools"
    given = getattr(value, 'id', None)
    return f'{name} {given!r}' if isinstance(given, str) else name


@dataclass
class Change:
    """Something that an object at a place holds, and held otherwise before."""

    node: Node
    group: GroupKind
    key: Any
    """The name or index of what changed first."""
    old: Any
    new: Any
    text: str
    """What changed, in words."""
    old_group: Group

    @property
    def place(self) -> Place:
        """Where what changed first is."""
        return self.node.place.inside(self.group, self.key, self.node.value, None)

    @property
    def slot(self) -> Place:
        """What changed: an attribute, a cell or the like, or a container as a whole."""
        return self.node.place if self.group in ('item', 'member', 'inner') else self.place

    def is_undone(self) -> bool:
        """Whether everything is as it was before the change, or isn't held any longer by what held it."""
        if self.node.is_detached():
            return True
        [now] = _aligned([self.old_group], read(self.node.value))
        return not list(_differences(self.old_group, now, self.key))


class Node:
    """An object that was reached.

    Args:
        value: The object.
        origin: Its place, or the node that holds it.
        group: What it is to that.
        key: Under which name or index.
    """

    __slots__ = ('_origin', 'group', 'holder', 'key', 'value')

    def __init__(self, value: Any, origin: Place | Node, group: GroupKind = '', key: Any = None):
        self.value = value
        self._origin = origin
        self.holder = origin if isinstance(origin, Node) else None
        self.group = group
        self.key = key

    @property
    def place(self) -> Place:
        """Where it was found."""
        if isinstance(self._origin, Node):
            self._origin = self._origin.place.inside(self.group, self.key, self._origin.value, self.value)
        return self._origin

    def path(self) -> list[Node]:
        """Return it, after what holds it, and what holds that, and so on."""
        return [*(self.holder.path() if self.holder else ()), self]

    def is_detached(self) -> bool:
        """Whether what held it has something else in its place now, as a toolset that begins each run with a new list."""
        node = self
        while (holder := node.holder) is not None:
            groups = read(holder.value)
            whole = node.group == 'class' or any(group == 'inner' for group, _, _ in groups)
            if not whole and not any(value is node.value for _, _, values in groups for value in values):
                return True
            node = holder
        return False


class Snapshot:
    """What can be reached from some objects when a run begins, what is near first.

    Args:
        roots: The objects, each with its place.
        max_objects: How many objects are looked into at most.
        max_seconds: How long that takes at most.
    """

    def __init__(self, roots: Sequence[tuple[Any, Place]], *, max_objects: int = 50_000, max_seconds: float = 2):
        self.complete = True
        self._max_objects = max_objects
        self._max_seconds = max_seconds
        self._nodes: dict[int, Node] = {}
        self._before: dict[int, list[Group]] = {}
        self._held: dict[int, list[Group]] = {}
        self._enters = False
        self._owners: Sequence[Snapshot] = ()
        self._walk([Node(value, place) for value, place in roots])

    def add(self, value: Any, place: Place, owners: Sequence[Snapshot]) -> None:
        """Read what can be reached from one more object, but for what is in other snapshots, whose runs it belongs to."""
        self._owners = owners
        self._walk([Node(value, place)])

    def __contains__(self, value: object) -> bool:
        return id(value) in self._nodes

    def __iter__(self) -> Iterator[Any]:
        return (node.value for node in self._nodes.values())

    def is_read(self, change: Change) -> bool:
        """Whether code that can be reached reads what changed, and doesn't only write it, as a log is written."""
        node, names = change.node, {(change.group, change.key)}
        if change.group in _INSIDE:
            while node.holder and node.group in _INSIDE:
                node = node.holder
            groups = (group for held in self._held.values() for group in held if group[0] not in _INSIDE)
            names = {
                (group, key)
                for group, keys, values in groups
                for key, value in zip(keys, values, strict=False)
                if value is node.value
            }
            node = node.holder or node
        texts = {f'.{str(key).rpartition(":")[2]}' for _, key in names}
        texts |= {str(key).rpartition(':')[2] for group, key in names if 'attribute' not in group}
        owner = node.value if isinstance(node.value, type) else type(node.value)
        bases = (vars(base).values() for base in owner.__mro__ if rules.origin(base.__module__) != 'framework')
        held = (getattr(one, 'fget', one) for one in itertools.chain(self, *bases))
        codes = {one.__code__ for one in held if isinstance(one, types.FunctionType)}
        return not texts or any(not _names_read(code).isdisjoint(texts) for code in codes)

    def _walk(self, found: Iterable[Node]) -> None:
        """Read objects, and those that they hold, unless it's done already."""
        begun = time.perf_counter()
        left = collections.deque(found)
        while left:
            node = left.popleft()
            if node.value in self or (isinstance(node.value, type) and not _is_code(node.value)):
                continue
            if any(node.value in owner for owner in self._owners):
                continue
            if len(self._nodes) >= self._max_objects or time.perf_counter() - begun > self._max_seconds:
                self.complete = False
                return
            key = id(node.value)
            self._nodes[key] = node
            self._before[key] = self._held[key] = read(node.value)
            left.extend(self._inside(node))

    def _inside(self, node: Node) -> Iterator[Node]:
        """Yield what an object holds that may be looked into, and its class if that is watched."""
        for group, keys, values in self._held[id(node.value)]:
            for key, value in zip(keys, values, strict=False):
                if _walked[type(value)] and value not in self:
                    yield Node(value, node, group, key)
        cls = rules.class_of(node.value)
        self._enters = self._enters or rules.acts_when_entered(cls)
        if _is_code(cls) and cls not in self:
            yield Node(cls, node, 'class', 'class')

    def entered(self) -> None:
        """Look once more when the toolsets were entered: what they do then isn't what a run leaves behind."""
        for key, node in list(self._nodes.items()) if self._enters else ():
            now = read(node.value)
            if not _identical_groups(self._held[key], now):
                self._held[key] = now
                self._walk(self._inside(node))

    def changes(self) -> Iterator[Change]:
        """Yield what is otherwise now than before the run as well as when it had begun."""
        for key, node in self._nodes.items():
            before, was, now = self._before[key], self._held[key], read(node.value)
            if _identical_groups(was, now):
                continue
            for old, first, new in zip(was, _aligned(was, before), _aligned(was, now), strict=False):
                unlike = {repr(name) for name, *_ in _differences(first, new)}
                for name, lost, gained, text in _differences(old, new):
                    if (old[0] == 'item' and unlike) or repr(name) in unlike:
                        yield Change(node, old[0], name, lost, gained, text, old)


class _Walked(dict[type[Any], bool]):
    """Says whether objects of a class may be looked into."""

    def __missing__(self, cls: type[Any]) -> bool:
        self[cls] = walked = rules.kind(cls) == 'walked' or issubclass(cls, type) or rules.is_client(cls)
        return walked


_walked = _Walked()


def _aligned(groups: list[Group], others: list[Group]) -> list[Group]:
    """Return other groups of the same object in the order of the first; those that aren't there are empty."""
    by_kind = {group[0]: group for group in others}
    return [by_kind.get(group[0], (group[0], (), ())) for group in groups]


def _identical_groups(old: list[Group], new: list[Group]) -> bool:
    return len(old) == len(new) and all(
        a[0] == b[0] and _identical(a[2], b[2]) and (isinstance(a[1], range) or _identical(a[1], b[1]))
        for a, b in zip(old, new, strict=True)
    )


def _identical(old: Sequence[Any], new: Sequence[Any]) -> bool:
    return len(old) == len(new) and (old is new or all(map(operator.is_, old, new)))


def _is_code(value: Any) -> bool:
    """Whether it's a class whose attributes are watched."""
    return isinstance(value, type) and rules.origin(str(value.__module__)) == 'watched'


def _differences(old: Group, new: Group, only: Any = MISSING) -> Iterator[tuple[Any, Any, Any, str]]:
    """Yield the first key, the old and the new value, and words, for each slot that changed, or for a container as a whole."""
    group, old_keys, old_values = old
    _, new_keys, new_values = new
    if group == 'kept':
        return
    if group == 'member':
        added, removed = set(new_values) - set(old_values), set(old_values) - set(new_values)
        if added or removed:
            texts = [f'{"gained" if these is added else "lost"} {_some(these)}' for these in (added, removed) if these]
            yield None, frozenset(removed), frozenset(added), 'a set that ' + ' and '.join(texts)
    elif group == 'item':
        yield from _container_differences(old, new)
    else:
        before, after = dict(zip(old_keys, old_values, strict=False)), dict(zip(new_keys, new_values, strict=False))
        for key in before | after if only is MISSING else [only]:
            was, now = before.get(key, MISSING), after.get(key, MISSING)
            if not alike(was, now):
                yield key, was, now, f'{key} ' * (group == 'inner') + f'was {_short(was)}, is {_short(now)}'


def _container_differences(old: Group, new: Group) -> Iterator[tuple[Any, Any, Any, str]]:
    before, after = dict(zip(old[1], old[2], strict=False)), dict(zip(new[1], new[2], strict=False))
    changed = [key for key in before if key in after and not alike(before[key], after[key])]
    added, removed = [key for key in after if key not in before], [key for key in before if key not in after]
    keys = added + changed + removed
    if not keys:
        return
    words = [f'{len(added)} added'] * bool(added) + [f'{len(changed)} changed'] * bool(changed)
    words += [f'{len(removed)} removed'] * bool(removed)
    first = keys[0]
    text = f'had {_entries(before)}, has {len(after)}: {", ".join(words)}, first '
    text += f'{_short(after[first])}' if first in after else f'{_short(before[first])} removed'
    pick = {key: before[key] for key in keys if key in before}, {key: after[key] for key in keys if key in after}
    yield first, *pick, text


def _entries(values: Any) -> str:
    return f'{len(values)} {"entry" if len(values) == 1 else "entries"}'


def alike(old: Any, new: Any, depth: int = 50, compared: set[tuple[int, int]] | None = None) -> bool:
    """Whether a value stands for the same as another one: it's equal, it's a resource too, or all that it holds is alike."""
    if old is new:
        return True
    if type(old) is not type(new) or not depth:
        return False
    kind = rules.kind(rules.class_of(old))
    if kind == 'resource':
        return True
    if kind == 'value':
        try:
            return bool(old == new)
        except Exception:  # noqa: BLE001 - whatever a user's `__eq__` raises
            return False
    if isinstance(old, types.FunctionType) and old.__code__ is not new.__code__:
        return False
    # What refers to itself is alike if all else is. Only what others hold is noted: IDs of what is made here come again.
    compared = set() if compared is None else compared
    if (id(old), id(new)) in compared:
        return True
    compared.add((id(old), id(new)))
    groups = read(old), read(new)
    return len(groups[0]) == len(groups[1]) and all(
        a[0] == b[0]
        and (set(a[2]) == set(b[2]) if a[0] == 'member' else list(a[1]) == list(b[1]))
        and (a[0] == 'member' or all(alike(x, y, depth - 1, compared) for x, y in zip(a[2], b[2], strict=False)))
        for a, b in zip(*groups, strict=False)
    )


def read(value: Any) -> list[Group]:
    """Return all that an object holds that can be state."""
    return _reader(value if isinstance(value, type) else type(value), isinstance(value, type))(value)


@functools.cache
def _reader(cls: type, is_class: bool) -> Callable[[Any], list[Group]]:
    """Choose how objects of a class are read."""
    if is_class:
        return _read_class
    if rules.is_client(cls):
        return _read_client
    reader = next((reader for base, reader in _READERS.items() if issubclass(cls, base)), None)
    if reader is None:
        return _read_object
    if cls in _READERS or rules.origin(str(cls.__module__)) != 'watched':
        return reader
    # A class of the user's own that derives from a container has attributes, too.
    return lambda value: [*reader(value), *_read_object(value)]


def _mapping(value: dict[Any, Any]) -> list[Group]:
    return _large(value) or [_mapping_items(value)]


def _mapping_items(value: Any) -> Group:
    # Not what a subclass makes of `keys()` and `values()`, which may be code of a user's.
    return 'item', tuple(dict[Any, Any].keys(value)), tuple(dict[Any, Any].values(value))


def _sequence(value: Any) -> list[Group]:
    return _large(value) or [_items(value)]


def _items(value: Any) -> Group:
    values = tuple(value)
    return 'item', range(len(values)), values


def _large(value: Any) -> list[Group] | None:
    """Return the length of a container with very many entries, which isn't looked into."""
    return [('inner', ('length',), (len(value),))] if len(value) > rules.SIZE_LIMIT else None


def _set(value: Any) -> list[Group]:
    values = tuple(value) if len(value) <= rules.SIZE_LIMIT else (len(value),)
    return [('member', values, values)]


def _content(get: Callable[[Any], Any]) -> Callable[[Any], list[Group]]:
    return lambda value: [('inner', ('content',), (get(value),))]


def _read_object(value: Any) -> list[Group]:
    held = _attributes(value)
    return [('attribute', tuple(held), tuple(held.values()))]


def _attributes(value: Any) -> dict[str, Any]:
    cls = rules.class_of(value)
    held = rules.attributes(value)
    if skipped := _skipped(cls):
        held = {name: held[name] for name in held if name not in skipped}
    if _is_tool(cls):
        held = {name: held[name] for name in held if name in rules.TOOL_ATTRIBUTES}
    return held


@functools.cache
def _is_tool(cls: type) -> bool:
    return cls.__name__ == 'Tool' and rules.origin(cls.__module__) == 'framework'


_skipped = functools.cache(rules.attributes_to_skip)


def _read_class(cls: type) -> list[Group]:
    skipped = rules.shared_attributes(cls)
    held = {name: value for name, value in vars(cls).items() if name[:2] != '__' and name[:5] != '_abc_'}
    held = {name: value for name, value in held.items() if name not in skipped}
    # An `__init__` and its like can write to globals as well as other methods.
    held |= {name: value for name, value in vars(cls).items() if isinstance(value, types.FunctionType)}
    bases = tuple(base for base in cls.__bases__ if _is_code(base))
    return [('attribute', tuple(held), tuple(held.values())), ('class', bases, bases)]


def _read_function(function: types.FunctionType) -> list[Group]:
    groups: list[Group] = []
    code = function.__code__
    if function.__closure__:
        cells = tuple(_cell(cell) for cell in function.__closure__)
        groups.append(('closure', code.co_freevars, cells))
    if function.__defaults__ or function.__kwdefaults__:
        names = (
            code.co_varnames[: code.co_argcount][-len(function.__defaults__ or ()) :] if function.__defaults__ else ()
        )
        more = function.__kwdefaults__ or {}
        groups.append(('default', (*names, *more), (*(function.__defaults__ or ()), *more.values())))
    groups.append(('function attribute', tuple(function.__dict__), tuple(function.__dict__.values())))
    if rules.origin(_module(function)) == 'watched' and (names := _names(code)):
        found = list(_globals(function, names))
        groups.append(('global', tuple(name for name, _ in found), tuple(held for _, held in found)))
    return groups


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


@functools.cache
def _names(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes that a function's code has, with the functions inside of it."""
    inner = (_names(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return frozenset(code.co_names).union(*inner)


_INSIDE = frozenset({'item', 'member', 'inner', 'kept', 'variable', 'bound'})
"""What a value is to an object that it's read through."""

_WRITES = frozenset(
    {'append', 'appendleft', 'add', 'extend', 'insert', 'update', 'discard', 'clear', 'write', 'put_nowait'}
)
"""Methods that a log is written with."""


@functools.cache
def _names_read(code: types.CodeType) -> frozenset[str]:
    """Return the names in a function's code, attributes with a dot, but for those that it only writes to, as `log.append(x)`."""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))))
    except (OSError, SyntaxError):
        if code.co_filename == '<string>' and code.co_name[:2] == '__':  # what a dataclass makes
            return frozenset()
        names = {*_names(code), *code.co_freevars, *code.co_consts}
        return frozenset(f'{dot}{name}' for name in names for dot in ('', '.'))
    written: set[ast.AST] = set()
    for node in nodes:
        target = node.value if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) else None
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        ):
            target = node.value.func.value if node.value.func.attr in _WRITES else None
        while isinstance(target, ast.Subscript):
            target = target.value
        written |= {target} if target else set()
    loads = [node for node in nodes if isinstance(getattr(node, 'ctx', None), ast.Load) and node not in written]
    named = {node.id if isinstance(node, ast.Name) else f'.{getattr(node, "attr", "")}' for node in loads}
    # As in `getattr(self, 'log')`
    return frozenset(named | {f'.{node.value}' for node in nodes if isinstance(node, ast.Constant)})


def _module(function: types.FunctionType) -> str:
    """Return the module that a function was written in, which isn't that in `__module__` after `functools.wraps()`."""
    return str(function.__globals__.get('__name__', function.__module__))


def _globals(function: types.FunctionType, names: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function names, in its own module and, as `module.name`, in others that are watched."""
    space, module = function.__globals__, _module(function)
    for name in names:
        if name in space:
            value = space[name]
            yield f'{module}:{name}', value
            if isinstance(value, types.ModuleType) and rules.origin(value.__name__) == 'watched':
                for inner in names & vars(value).keys():
                    yield f'{value.__name__}:{inner}', vars(value)[inner]


def _read_cache(function: Any) -> list[Group]:
    """Return a function that keeps its results, and these: which ones depends on its arguments, but who has one can change it."""
    held: list[Any] = [one for one in gc.get_referents(function) if one is not function.__dict__]
    # A cache with a limit refers to a key, a result and the class of its links for each call; one without has a dict.
    links = [place for place, one in enumerate(held) if isinstance(one, type) and one.__name__ == '_lru_list_elem']
    cache: Any = next((one for one in reversed(held) if issubclass(type(one), dict)), dict[Any, Any]())
    found = [held[place - 1] for place in links[:-1]] or [*cache.values()]
    results = [one for one in found if _walked[type(one)]]
    return [('inner', ('func',), (function.__wrapped__,)), ('kept', range(len(results)), tuple(results))]


def _read_client(client: Any) -> list[Group]:
    """Return what the next user's requests send, too."""
    try:
        cookies = sorted(f'{one.domain} {one.name}={one.value}' for one in client.cookies.jar)
        own = sorted(f'{name}: {value}' for name, value in client.headers.items() if name not in _OF_HTTPX)
        sent = '; '.join(own), str(client.params), getattr(client.auth, '_auth_header', '')
    except AttributeError:  # a double, or one that isn't made to its end
        cookies, sent = list[str](), ('', '', '')
    return [('inner', ('cookies',), ('; '.join(cookies),)), ('attribute', ('headers', 'params', 'auth'), sent)]


_OF_HTTPX = {'accept', 'accept-encoding', 'connection', 'user-agent'}
"""The headers of each client."""


def _read_partial(value: Any) -> list[Group]:
    return [('inner', ('func', 'args', 'keywords'), (value.func, value.args, value.keywords))]


def _read_variable(variable: contextvars.ContextVar[Any]) -> list[Group]:
    try:
        return [('variable', ('value',), (variable.get(),))]
    except LookupError:
        return [('variable', ('value',), (MISSING,))]


_READERS: dict[type, Callable[[Any], list[Group]]] = {
    types.FunctionType: _read_function,
    types.MethodType: lambda method: [
        ('bound', ('self',), (method.__self__,)),
        ('inner', ('func',), (method.__func__,)),
    ],
    functools.partial: _read_partial,
    functools.partialmethod: _read_partial,
    staticmethod: lambda value: [('inner', ('func',), (value.__func__,))],
    classmethod: lambda value: [('inner', ('func',), (value.__func__,))],
    property: lambda value: [('inner', ('get', 'set'), (value.fget, value.fset))],
    functools.cached_property: lambda value: [('inner', ('func',), (value.func,))],
    type(functools.cache(lambda: None)): _read_cache,
    dict: _mapping,
    types.MappingProxyType: lambda value: _mapping(dict(value)),
    list: _sequence,
    tuple: _sequence,
    collections.deque: _sequence,
    set: _set,
    frozenset: _set,
    bytearray: _content(bytes),
    array.array: _content(lambda value: value.tobytes()),
    io.StringIO: _content(lambda value: '' if value.closed else value.getvalue()),
    io.BytesIO: _content(lambda value: b'' if value.closed else value.getvalue()),
    itertools.count: _content(repr),
    itertools.cycle: _content(lambda value: repr(value.__reduce__())),
    contextvars.ContextVar: _read_variable,
    queue.Queue: lambda value: _sequence(value.queue),
    queue.SimpleQueue: lambda value: [('inner', ('length',), (value.qsize(),))],
    asyncio.Queue: lambda value: _sequence(getattr(value, '_queue', ())),
}
"""How objects of types of Python's own are read; all others are read by their attributes."""


def _function_name(value: Any) -> str:
    return str(getattr(value, '__qualname__', None) or getattr(value, '__name__', '')).rpartition('<locals>.')[2]


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxlist = _repr.maxdict = _repr.maxset = _repr.maxtuple = _repr.maxdeque = 3


def _short(value: Any) -> str:
    """Return a short text for a value, in one line, that never fails."""
    try:
        return ' '.join(_repr.repr(value).split())
    except Exception:  # noqa: BLE001 - whatever a user's `__repr__` raises
        return f'a {type(value).__name__}'


def _some(values: Any) -> str:
    return ', '.join(sorted(map(_short, values))[:3]) + (f' and {len(values) - 3} more' if len(values) > 3 else '')
