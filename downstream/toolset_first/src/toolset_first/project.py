"""Projects: a folder with Python files and `.worker` files, in which agents, toolsets and the entry are found by type."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from pydantic_ai import AbstractToolset, native_tools
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageLimits

from toolset_first.agents import agent_as_toolset, check_spec, described_by, refuse_clashes
from toolset_first.contracts import AgentSpec, EntrySpec, ToolsetBuildContext, ToolsetSpec, WorkerArgs
from toolset_first.errors import ToolsetFirstError
from toolset_first.modules import Modules, ProjectError
from toolset_first.texts import unknown
from toolset_first.tools import BUILT_IN
from toolset_first.worker_file import WorkerFile, read_worker_file

T = TypeVar('T')
_NOT_LOOKED_INTO = {'__pycache__', 'node_modules', 'tests'}


@dataclass(frozen=True)
class Project:
    """What was found in a folder.

    Attributes:
        folder: The folder.
        entry: Where it begins.
        agents: All agents.
    """

    folder: Path
    entry: EntrySpec
    agents: Sequence[AgentSpec]


@dataclass
class _Found:
    """What is found by type, each with where it was found first; the same object found again is no other one."""

    folder: Path
    modules: Modules
    agents: dict[str, tuple[AgentSpec, str]] = field(default_factory=dict[str, Any])
    toolsets: dict[str, tuple[ToolsetSpec | AbstractToolset[Any], str]] = field(default_factory=dict[str, Any])
    functions: dict[str, tuple[Callable[..., Any], str]] = field(default_factory=dict[str, Any])
    entries: dict[int, tuple[EntrySpec, str]] = field(default_factory=dict[int, Any])
    faults: list[str] = field(default_factory=list[str])

    def add(self, variable: str, value: object, where: str) -> None:
        if variable.startswith('_'):  # a file's own business
            return
        if isinstance(value, EntrySpec):
            self.entries.setdefault(id(value), (value, where))
        elif isinstance(value, AgentSpec):
            self.name(self.agents, value.name, value, where)
        elif isinstance(value, ToolsetSpec | AbstractToolset):
            self.name(self.toolsets, variable, cast(object, value), where)
        elif isinstance(value, FunctionType) and value.__module__.startswith(f'{self.modules.name}.'):
            self.functions.setdefault(variable, (value, where))

    def name(self, names: dict[str, tuple[Any, str]], name: str, value: object, where: str) -> None:
        """Add an agent or a toolset under its name, unless it is there."""
        if any(known is value for known, _ in names.values()):
            return
        for other in (self.agents, self.toolsets):
            if name in other:
                self.faults.append(f'{where}: The name {name!r} is taken by {other[name][1]}. Rename one of the two.')
                return
        names[name] = value, where


def load_project(folder: Path | str, *files: Path | str) -> Project:
    """Load what is in a folder: its `.worker` files, and the Python files that are right in it.

    Python files in folders within are run only if they are named: here, by a `.worker` file, or by a file that imports them.
    Each is imported under the name by which files of the project import each other, once, and again each time that
    the project is loaded.

    Args:
        folder: The folder.
        files: Further Python files to look into, relative to the folder.

    Raises:
        ProjectError: It has faults, or not exactly one entry; all are named.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ProjectError(f'There is no folder `{folder}`. Make a project there with `toolset-first new {folder}`.')
    found = _Found(path, Modules(path))
    workers: list[WorkerFile] = []
    named = [found.folder / os.path.relpath(found.folder / file, found.folder) for file in files]
    for path in [*_files(found.folder), *named]:
        try:
            if os.pardir in path.relative_to(found.folder).parts:
                raise ProjectError(f'{path}:1: This file is outside of the project. Copy it to `{found.folder}`.')
            if path.suffix == '.worker':
                workers.append(read_worker_file(path))
            elif not path.is_file():
                raise ProjectError(f'{path}:1: This is no regular file.')
            else:
                for variable, value in list(vars(found.modules.load(path)).items()):
                    found.add(variable, value, f'{path}, `{variable}`')
        except ProjectError as error:
            found.faults.extend(error.faults)
    names = [*found.agents, *(worker.header.name for worker in workers)]
    for worker in workers:
        try:
            _add_worker(worker, found, names, workers)
        except ProjectError as error:
            found.faults.extend(error.faults)
    _check_python_specs(found)
    if found.faults:
        raise ProjectError(*dict.fromkeys(found.faults))  # a file that others import may fail for each of them
    if len(found.entries) != 1:
        there = ''.join(f'\n- {entry.name!r} in {where}' for entry, where in found.entries.values()) or ' none.'
        raise ProjectError(
            f'A project has exactly one entry: an `EntrySpec` in a Python file, or a `.worker` file with `entry: true`. '
            f'In `{folder}` there {"are" if found.entries else "is"}{":" if found.entries else ""}{there}'
        )
    return Project(found.folder, next(iter(found.entries.values()))[0], [agent for agent, _ in found.agents.values()])


def _check_python_specs(found: _Found) -> None:
    """Find the faults of agents and entries of Python files, which have no line."""
    described = {id(agent): where for agent, where in found.agents.values() if not where.endswith('.worker')}
    for agent, where in found.agents.values():
        if id(agent) in described:
            for one in agent.toolset_specs:
                _note_faults(found, where, lambda one=one, agent=agent: check_spec(one, _context(agent.name, found)))
            _note_faults(found, where, lambda agent=agent: refuse_clashes(agent))
    for entry, where in found.entries.values():
        _note_faults(found, where, lambda entry=entry: check_spec(entry.toolset_spec, _context(entry.name, found)))


def _context(name: str, found: _Found) -> ToolsetBuildContext:
    return ToolsetBuildContext(name, found.folder)


def _note_faults(found: _Found, where: str, check: Callable[[], None]) -> None:
    try:
        check()
    except ToolsetFirstError as error:
        found.faults.extend(f'{where}: {line}' for line in str(error).splitlines())


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != '.' and name not in _NOT_LOOKED_INTO)
        folders[:] = [name for name in folders if not Path(parent, name, 'pyvenv.cfg').exists()]
        for name in sorted(names):
            path = Path(parent, name)
            run = path.suffix == '.py' and path.parent == folder and not name.startswith(('test_', 'conftest.'))
            if name[0] != '.' and (path.suffix == '.worker' or run):
                yield path


def _add_worker(worker: WorkerFile, found: _Found, names: Sequence[str], workers: Sequence[WorkerFile]) -> None:
    header = worker.header
    described = {one.header.name: one for one in workers}
    specs: list[ToolsetSpec] = []
    faults: list[str] = []
    listed = _items(header.toolsets)
    for name in sorted({name for name, _ in listed if [one for one, _ in listed].count(name) > 1}):
        faults.append(worker.fault('toolsets', f'{name!r} is there twice. Leave one of the two out.'))
    for name, options in dict(listed).items():
        try:
            specs.append(_toolset(worker, name, options, found, names, described))
        except (TypeError, ValueError, ToolsetFirstError) as error:
            faults.extend(worker.fault('toolsets', f'{name!r}: {line}') for line in str(error).splitlines())
    try:
        if header.tools:
            specs.append(_functions(worker, found))
    except ProjectError as error:
        faults.extend(error.faults)
    try:
        spec = _agent(worker, specs, found)
        total = _limits(worker, 'total_usage_limits')
        if total and not header.entry:
            raise ProjectError(worker.fault('total_usage_limits', 'Only the entry has limits for all agents together.'))
    except ProjectError as error:
        faults.extend(error.faults)
    else:
        found.name(found.agents, header.name, spec, f'{worker.path}')
        if header.entry:
            entry = EntrySpec(agent_as_toolset(spec), header.name, header.description, spec.schema_in, total)
            found.entries.setdefault(id(entry), (entry, f'{worker.path}'))
    if faults:
        raise ProjectError(*faults)


def _toolset(
    worker: WorkerFile,
    name: str,
    given: Mapping[str, Any],
    found: _Found,
    names: Sequence[str],
    described: Mapping[str, WorkerFile],
) -> ToolsetSpec:
    """Return what a name in `toolsets` stands for, with its rules and options."""
    options = dict(given)
    rules: Any = options.pop('approval', None)
    if known := found.toolsets.get(name):
        spec = known[0] if isinstance(known[0], ToolsetSpec) else ToolsetSpec(toolset=known[0])
    elif name in found.agents:
        spec = agent_as_toolset(found.agents[name][0], tool=name)
    elif name in described:
        schema = _schema(described[name], found)
        about = described_by(described[name].header.description, described[name].instructions)
        spec = agent_as_toolset(name, tool=name, description=about, schema_in=schema)
    elif name in BUILT_IN:
        _refuse_unknown(options, signature(BUILT_IN[name]).parameters)
        spec, options = BUILT_IN[name](**options), {}
    else:
        known_names = ', '.join(sorted({*found.toolsets, *names, *BUILT_IN}))
        raise ToolsetFirstError(f'There is no toolset or agent of this name. There are: {known_names}.')
    if 'approval' in given:
        if not isinstance(rules, dict):
            raise TypeError(f'`approval` has a rule for each tool, not {rules!r}.')
        if judged := [tool for tool in cast('dict[str, Any]', rules) if callable(spec.rules.get(tool))]:
            remedy = 'Write `commands` and `default`' if name == 'shell' else 'Change that function'
            raise ToolsetFirstError(
                f'`approval` has rules for {", ".join(judged)}, which a function of the toolset judges. {remedy} instead.'
            )
        spec = replace(spec, approval_config={**spec.rules, **cast('dict[str, Any]', rules)})
    _refuse_unknown(options, spec.options)
    if options:
        spec = replace(spec, options={**spec.options, **options})
    check_spec(spec, _context(worker.header.name, found))
    return spec


def _refuse_unknown(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keys of an entry that nobody would read, such as rules under another name than `approval`."""
    if faults := [unknown(key, ['approval', *known]) for key in given if key not in known]:
        raise ToolsetFirstError('\n'.join(faults))


def _agent(worker: WorkerFile, specs: Sequence[ToolsetSpec], found: _Found) -> AgentSpec:
    header = worker.header
    model = header.model
    spec = AgentSpec(
        header.name,
        worker.instructions,
        _referred(worker, 'model', model, found, Model) if model is not None and _is_reference(model) else model,
        specs,
        description=header.description,
        schema_in=_schema(worker, found),
        builtin_tools=[_server_side(worker, *item) for item in _items(header.server_side_tools)],
        compatible_models=header.compatible_models,
        usage_limits=_limits(worker, 'usage_limits'),
    )
    try:
        refuse_clashes(spec)
    except ToolsetFirstError as error:
        raise ProjectError(worker.fault('toolsets', str(error))) from None
    return spec


def _functions(worker: WorkerFile, found: _Found) -> ToolsetSpec:
    """Return a toolset of the functions that are listed as `tools`, with their rules if these are given."""
    listed = worker.header.tools
    functions: list[Callable[..., Any]] = []
    rules: dict[str, Any] = {}
    faults: list[str] = []
    for name in listed:
        if _is_reference(name):
            function: Any = _referred(worker, 'tools', name, found, FunctionType)
        elif name in found.functions:
            function = found.functions[name][0]
        else:
            known = ', '.join(found.functions) or 'none'
            faults.append(worker.fault('tools', f'There is no function {name!r}. There are: {known}.'))
            continue
        if function in functions:
            faults.append(worker.fault('tools', f'{name!r} is there twice. Leave one of the two out.'))
        functions.append(function)
        if isinstance(listed, Mapping) and listed[name] is not None:
            rules[function.__name__] = listed[name]
    try:
        if not faults:
            spec = ToolsetSpec(functions=functions, approval_config=rules)
            check_spec(spec, _context(worker.header.name, found))
            return spec
    except Exception as error:  # noqa: BLE001 - what is wrong with a function shows when its schema is made
        faults.extend(worker.fault('tools', line) for line in str(error).splitlines())
    raise ProjectError(*faults)


def _limits(worker: WorkerFile, key: str) -> UsageLimits | None:
    limits: dict[str, Any] = getattr(worker.header, key)
    try:
        return usage_limits(limits) if limits else None
    except ToolsetFirstError as error:
        raise ProjectError(worker.fault(key, str(error))) from None


def usage_limits(limits: Mapping[str, Any]) -> UsageLimits:
    """Return limits by their names, those of `UsageLimits`.

    Raises:
        ToolsetFirstError: There is no limit of that name, or it is no number.
    """
    known = [one.name for one in fields(UsageLimits) if one.name.endswith('_limit')]
    if unknown := [name for name in limits if name not in known]:
        raise ToolsetFirstError(f'There is no limit {unknown[0]!r}. There are: {", ".join(known)}.')
    for name, value in limits.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            raise ToolsetFirstError(f'`{name}` is a number, not {value!r}.')
        if isinstance(value, float) and name != 'cost_limit':
            raise ToolsetFirstError(f'`{name}` is a whole number, not {value!r}.')
    cost: dict[str, Any] = (
        {'cost_limit': Decimal(str(limits['cost_limit']))} if limits.get('cost_limit') is not None else {}
    )
    given: dict[str, Any] = {**limits, **cost}
    return UsageLimits(**given)


def _items(listed: Sequence[str] | Mapping[str, Mapping[str, Any] | None]) -> list[tuple[str, Mapping[str, Any]]]:
    if isinstance(listed, Mapping):
        return [(name, options or {}) for name, options in listed.items()]
    return [(name, {}) for name in listed]


def _server_side(worker: WorkerFile, name: str, options: Mapping[str, Any]) -> Any:
    known = {kind: one for one in vars(native_tools).values() if isinstance(one, type) and (kind := _kind(one))}
    if name not in known:
        text = f'There is no server-side tool {name!r}. There are: {", ".join(known)}.'
        raise ProjectError(worker.fault('server_side_tools', text))
    try:
        return known[name](**options)
    except TypeError as error:
        raise ProjectError(worker.fault('server_side_tools', f'{name!r}: {error}.')) from None


def _kind(one: type) -> str:
    kind = str(vars(one).get('kind', ''))
    return '' if kind.startswith('unknown') else kind


def _schema(worker: WorkerFile, found: _Found) -> type[WorkerArgs] | None:
    reference = worker.header.schema_in_ref
    if reference is None:
        return None
    schema = _referred(worker, 'schema_in_ref', reference, found, type)
    if not issubclass(schema, WorkerArgs):
        raise ProjectError(worker.fault('schema_in_ref', f'`{reference}` is no subclass of `WorkerArgs`.'))
    return schema


def _is_reference(text: str) -> bool:
    return '.py:' in text


def _referred(worker: WorkerFile, key: str, reference: str | None, found: _Found, kind: type[T]) -> T:
    """Return what `file.py:name` refers to. The file is looked for beside the `.worker` file."""
    file, _, name = (reference or '').partition(':')
    path = Path(os.path.normpath(worker.path.parent / file))
    if not name or not path.is_file() or not path.resolve().is_relative_to(found.modules.root):
        text = f'`{reference}` refers to no file of this project. Write `file.py:name`.'
        raise ProjectError(worker.fault(key, text))
    value = getattr(found.modules.load(path), name, None)
    if not isinstance(value, kind):
        raise ProjectError(worker.fault(key, f'`{file}` has no {kind.__name__} `{name}`, but {value!r}.'))
    return value


__all__ = ['Project', 'ProjectError', 'ToolsetFirstError', 'load_project']
