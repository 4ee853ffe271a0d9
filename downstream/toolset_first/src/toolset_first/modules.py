"""The Python files of a project, imported under names of the project's own: two projects, or two loads of one, share none.

What its files import is looked for in the project first, as if its folder were the first one on `sys.path`. Instead, each of its modules has
an `__import__` of its own, so that this holds for imports in functions, too, which happen when the project has long been loaded.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from toolset_first.errors import ToolsetFirstError

_PREFIX = '_toolset_first_project_'
_NUMBERS = count(1)


class ProjectError(ToolsetFirstError):
    """A project with faults, each with its file, and its line where it has one."""

    def __init__(self, *faults: str) -> None:
        super().__init__('\n'.join(faults))
        self.faults = faults


class Modules:
    """The modules of one load of a project.

    Args:
        folder: The project's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder.resolve()
        self.name = f'{_PREFIX}{next(_NUMBERS)}'
        package = ModuleType(self.name)
        package.__path__ = [str(self.root)]
        sys.modules[self.name] = package
        self.builtins: dict[str, Any] = {**vars(builtins), '__import__': self._import}
        _FINDER.projects[self.name] = self
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)

    def load(self, path: Path) -> ModuleType:
        """Import a file of the project, or return it if that has been done.

        Raises:
            ProjectError: It raises something, `SystemExit` included, or has the name of a module of Python's own.
        """
        parts = path.relative_to(self.folder).with_suffix('').parts
        parts = parts[:-1] if parts[-1] == '__init__' else parts
        if parts and parts[0] in sys.stdlib_module_names:
            raise ProjectError(f'{path}:1: A module `{parts[0]}` is there already, in Python itself. Rename this file.')
        try:
            return import_module('.'.join((self.name, *parts)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ProjectError(self._fault(path, error)) from error

    def _fault(self, path: Path, error: BaseException) -> str:
        frames = [
            one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).is_relative_to(self.root)
        ]
        where, line = (frames[-1].filename, frames[-1].lineno) if frames else (str(path), 1)
        if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(self.root):
            where, line = error.filename, error.lineno
        text = str(error).replace(f'{self.name}.', '')
        what = f'{type(error).__name__}: {text}' if text else type(error).__name__
        return f'{where}:{line or 1}: {what}'

    def _has(self, name: str) -> bool:
        """Whether the project has a module of that name. A folder without `__init__.py` counts if nothing else has the name."""
        if name in sys.stdlib_module_names:
            return False
        folder = self.root / name
        if (self.root / f'{name}.py').is_file() or (folder / '__init__.py').is_file():
            return True
        return folder.is_dir() and find_spec(name) is None

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition('.')[0]
        if level or not self._has(top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = builtins.__import__(f'{self.name}.{name}', globals, locals, fromlist or (), 0)
        return found if fromlist else sys.modules[f'{self.name}.{top}']


class _Loader(SourceFileLoader):
    """Runs a file of a project as it is now, and with the project's `__import__`."""

    def __init__(self, name: str, path: str, modules: Modules) -> None:
        super().__init__(name, path)
        self.modules = modules

    def get_code(self, fullname: str) -> CodeType | None:
        """Compile the file, whatever was compiled before: a file that was edited within a second looks like the old one."""
        path = self.get_filename(fullname)
        return cast('CodeType', cast(Any, self).source_to_code(self.get_data(path), path))

    def exec_module(self, module: ModuleType) -> None:
        """Run the file."""
        module.__dict__['__builtins__'] = self.modules.builtins
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules of projects in their folders."""

    def __init__(self) -> None:
        self.projects: dict[str, Modules] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import a module of a project, and `None` for any other."""
        modules = self.projects.get(fullname.partition('.')[0])
        if modules is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, modules)
        return spec


_FINDER = _Finder()
