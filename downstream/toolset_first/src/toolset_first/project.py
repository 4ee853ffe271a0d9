"""Projects: a folder with Python files and `.worker` files, in which agents, toolsets and the entry are found by type."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from pydantic_ai import AbstractToolset
from pydantic_ai.models import Model

from toolset_first.approvals import check_rule
from toolset_first.compat import server_side_tools
from toolset_first.contracts import AgentSpec, EntrySpec, ToolsetFirstError, ToolsetSpec, WorkerArgs
from toolset_first.runtime import agent_as_toolset
from toolset_first.worker_file import ProjectError, WorkerFile, read_worker_file

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
    agents: dict[str, tuple[AgentSpec, str]] = field(default_factory=dict[str, Any])
    toolsets: dict[str, tuple[ToolsetSpec | AbstractToolset[Any], str]] = field(default_factory=dict[str, Any])
    entries: dict[int, tuple[EntrySpec, str]] = field(default_factory=dict[int, Any])
    faults: list[str] = field(default_factory=list[str])

    def add(self, variable: str, value: object, where: str) -> None:
        if isinstance(value, EntrySpec):
            self.entries.setdefault(id(value), (value, where))
        elif isinstance(value, AgentSpec):
            self._name(self.agents, value.name, value, where)
        elif isinstance(value, ToolsetSpec | AbstractToolset):
            self._name(self.toolsets, variable, cast(object, value), where)

    def _name(self, names: dict[str, tuple[Any, str]], name: str, value: object, where: str) -> None:
        if any(known is value for known, _ in names.values()):
            return
        for other in (self.agents, self.toolsets):
            if name in other:
                self.faults.append(f'{where}: The name {name!r} is taken by {other[name][1]}. Rename one of the two.')
                return
        names[name] = value, where


def load_project(folder: Path | str) -> Project:
    """Load what is in a folder.

    Its Python files are imported under the names by which they import each other, each once.

    Raises:
        ProjectError: It has faults, or not exactly one entry; all are named.
    """
    found = _Found(Path(folder))
    if not found.folder.is_dir():
        raise ProjectError(f'There is no folder `{folder}`. Make a project there with `toolset-first new {folder}`.')
    workers: list[WorkerFile] = []
    for path in _files(found.folder):
        try:
            if path.suffix == '.worker':
                workers.append(read_worker_file(path))
            else:
                for variable, value in list(vars(_imported(path, found.folder)).items()):
                    found.add(variable, value, f'{path}, `{variable}`')
        except ProjectError as error:
            found.faults.extend(error.faults)
    names = [*found.agents, *(worker.header.name for worker in workers)]
    for worker in workers:
        try:
            _add_worker(worker, found, names, workers)
        except ProjectError as error:
            found.faults.extend(error.faults)
    if found.faults:
        raise ProjectError(*found.faults)
    if len(found.entries) != 1:
        there = ''.join(f'\n- {entry.name!r} in {where}' for entry, where in found.entries.values()) or ' none.'
        raise ProjectError(
            f'A project has exactly one entry: an `EntrySpec` in a Python file, or a `.worker` file with `entry: true`. '
            f'In `{folder}` there {"are" if found.entries else "is"}{":" if found.entries else ""}{there}'
        )
    return Project(found.folder, next(iter(found.entries.values()))[0], [agent for agent, _ in found.agents.values()])


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != '.' and name not in _NOT_LOOKED_INTO)
        folders[:] = [name for name in folders if not Path(parent, name, 'pyvenv.cfg').exists()]
        for name in sorted(names):
            path = Path(parent, name)
            if name[0] != '.' and (path.suffix == '.worker' or (path.suffix == '.py' and name[:5] != 'test_')):
                yield path


def _imported(path: Path, folder: Path) -> ModuleType:
    """Import a file of the project, by the name that other files of it use."""
    parts = path.relative_to(folder).with_suffix('').parts
    name = '.'.join(parts[:-1] if parts[-1] == '__init__' else parts) or '__init__'
    root = str(folder.resolve())
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        module = import_module(name)
    except Exception as error:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(root)]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else 1
        where = error.filename if isinstance(error, SyntaxError) else frames[-1].filename if frames else path
        raise ProjectError(f'{where}:{line}: {type(error).__name__}: {error}') from error
    origin = getattr(module, '__file__', None)
    if origin is None or Path(origin).resolve() != path.resolve():
        raise ProjectError(f'{path}:1: A module `{name}` is there already, from `{origin}`. Rename this file.')
    return module


def _add_worker(worker: WorkerFile, found: _Found, names: Sequence[str], workers: Sequence[WorkerFile]) -> None:
    header = worker.header
    described = {one.header.name: one for one in workers}
    specs: list[ToolsetSpec] = []
    faults: list[str] = []
    for name, options in _items(header.toolsets):
        options = dict(options)
        rules: Any = options.pop('approval', None) or {}
        if known := found.toolsets.get(name):
            spec = known[0] if isinstance(known[0], ToolsetSpec) else ToolsetSpec(toolset=known[0])
        elif name in found.agents:
            spec = agent_as_toolset(found.agents[name][0], tool=name)
        elif name in described:
            schema = _schema(described[name], found.folder)
            spec = agent_as_toolset(name, tool=name, description=described[name].header.description, schema_in=schema)
        else:
            known_names = ', '.join(sorted({*found.toolsets, *names})) or 'none'
            faults.append(worker.fault('toolsets', f'There is no toolset or agent {name!r}. There are: {known_names}.'))
            continue
        try:
            if not isinstance(rules, dict):
                raise TypeError(f'`approval` has a rule for each tool, not {rules!r}.')
            for tool, rule in cast('dict[str, Any]', rules).items():
                check_rule(tool, rule)
            spec = replace(spec, options={**spec.options, **options}) if options else spec
            specs.append(replace(spec, approval_config={**spec.approval_config, **rules}) if rules else spec)
        except (TypeError, ToolsetFirstError) as error:
            faults.append(worker.fault('toolsets', f'{name!r}: {error}'))
    model = (
        _referred(worker, 'model', header.model, found.folder, Model) if _is_reference(header.model) else header.model
    )
    try:
        tools = [_server_side(worker, *item) for item in _items(header.server_side_tools)]
        spec = AgentSpec(
            header.name,
            worker.instructions,
            model,
            specs,
            description=header.description,
            schema_in=_schema(worker, found.folder),
            builtin_tools=tools,
            compatible_models=header.compatible_models,
        )
    except ProjectError as error:
        faults.extend(error.faults)
    else:
        found.add(header.name, spec, f'{worker.path}')
        if header.entry:
            entry = EntrySpec(agent_as_toolset(spec), header.name, header.description, spec.schema_in)
            found.add(header.name, entry, f'{worker.path}')
    if faults:
        raise ProjectError(*faults)


def _items(listed: Sequence[str] | Mapping[str, Mapping[str, Any] | None]) -> list[tuple[str, Mapping[str, Any]]]:
    if isinstance(listed, Mapping):
        return [(name, options or {}) for name, options in listed.items()]
    return [(name, {}) for name in listed]


def _server_side(worker: WorkerFile, name: str, options: Mapping[str, Any]) -> Any:
    known = server_side_tools()
    if name not in known:
        text = f'There is no server-side tool {name!r}. There are: {", ".join(known)}.'
        raise ProjectError(worker.fault('server_side_tools', text))
    try:
        return known[name](**options)
    except TypeError as error:
        raise ProjectError(worker.fault('server_side_tools', f'{name!r}: {error}.')) from None


def _schema(worker: WorkerFile, folder: Path) -> type[WorkerArgs] | None:
    reference = worker.header.schema_in_ref
    if reference is None:
        return None
    found = _referred(worker, 'schema_in_ref', reference, folder, type)
    if not issubclass(found, WorkerArgs):
        raise ProjectError(worker.fault('schema_in_ref', f'`{reference}` is no subclass of `WorkerArgs`.'))
    return found


def _is_reference(text: str | None) -> bool:
    return text is not None and '.py:' in text


def _referred(worker: WorkerFile, key: str, reference: str | None, folder: Path, kind: type[T]) -> T:
    """Return what `file.py:name` refers to. The file is looked for beside the `.worker` file."""
    file, _, name = (reference or '').partition(':')
    path = Path(os.path.normpath(worker.path.parent / file))
    if not name or not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
        text = f'`{reference}` refers to no file of this project. Write `file.py:name`.'
        raise ProjectError(worker.fault(key, text))
    value = getattr(_imported(path, folder), name, None)
    if not isinstance(value, kind):
        raise ProjectError(worker.fault(key, f'`{file}` has no {kind.__name__} `{name}`, but {value!r}.'))
    return value


__all__ = ['Project', 'ProjectError', 'ToolsetFirstError', 'load_project']
