"""A project that pins the fork, and someone who types what `docs/pinning.md` says."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from series.environments import built_wheel
from series.line import Line, find_line
from tests.pinning import page
from tests.pinning.index import Index

PROBE = Path(__file__).with_name('probe.py')
ANOTHER = 'pydantic-ai-todo'
"""A package of someone else with a toolset. The index has releases of it for each line."""

newest_line = pytest.mark.parametrize('line', [find_line(Path(__file__).parents[2]).name], indirect=True)
"""For what takes long and doesn't depend on the line: that each line's wheel can be pinned is tried with pip and uv."""

# What the user's own configuration may hold that belongs to another project
FOREIGN = ('HATCH_', 'POETRY_', 'VIRTUAL_ENV', 'PYTHON', 'UV_PROJECT', 'UV_PYTHON', 'CONDA_')


@dataclass(frozen=True)
class Downstream:
    """A folder of a project, the tools on its path, and the index that stands beside the user's own."""

    folder: Path
    line: Line
    python: Path
    """The interpreter that environments are made of."""
    managers: Path
    """The folder of the tools: hatch, Poetry and uv."""
    index: Index
    companions: Mapping[str, str]
    """Requirements of the packages that are released together with the base, by name; no more than there are."""
    words: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> Path:
        """The project's environment, where each of the tools puts it or is told to."""
        return self.folder / '.venv'

    @property
    def wheel(self) -> Path:
        """The built fork."""
        return built_wheel(self.line)

    @property
    def evals(self) -> Mapping[str, str]:
        """Return what requires `pydantic-evals` of the line, where that exists."""
        return {name: requirement for name, requirement in self.companions.items() if name == 'pydantic-evals'}

    def text(self, heading: str, number: int) -> str:
        """Return a block of the page."""
        missing = {'pydantic-ai', 'pydantic-evals'} - self.companions.keys()
        return page.block(heading, number, self.line, {'INDEX': self.index.url, **self.words}, missing)

    def follow(self, heading: str, number: int, *further: str) -> subprocess.CompletedProcess[str]:
        """Type the commands of a block of the page, with further arguments behind the last."""
        commands = [shlex.split(command) for command in self.text(heading, number).splitlines()]
        commands[-1] += further
        return [self.run(*command) for command in commands][-1]

    def write(self, *parts: str, require: list[str] | None = None) -> None:
        """Write the `pyproject.toml`, of blocks of the page and whatever else, with further dependencies."""
        text = '\n'.join(parts)
        if '\ndependencies = [' not in text:
            text = text.replace('[project]\n', '[project]\ndependencies = []\n')
        for requirement in require or ():
            text = text.replace('dependencies = [', f'dependencies = ["{requirement}", ', 1)
        lowest = self.line.python[0]
        about = f'[project]\nname = "downstream"\nversion = "1"\nrequires-python = ">={lowest},<4"\n'
        (self.folder / 'pyproject.toml').write_text(text.replace('[project]\n', about, 1))
        package = self.folder / 'src' / 'downstream'
        package.mkdir(parents=True, exist_ok=True)
        (package / '__init__.py').touch()

    def variables(self) -> dict[str, str]:
        """Return the environment variables: the user's own, with which pip and uv find the user's index."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        private = self.folder.parent
        return kept | {
            'PATH': os.pathsep.join([str(self.environment / 'bin'), str(self.managers), os.environ['PATH']]),
            'VIRTUAL_ENV': str(self.environment),
            'NO_PROXY': f'127.0.0.1,{os.environ.get("NO_PROXY", "")}'.rstrip(','),
            'NO_COLOR': '1',
            'PIP_NO_COMPILE': '1',
            'PIP_DISABLE_PIP_VERSION_CHECK': '1',
            'UV_PYTHON_DOWNLOADS': 'never',
            'HATCH_PYTHON': str(self.python),
            'HATCH_ENV_TYPE_VIRTUAL_PATH': str(self.environment),
            'HATCH_UV': str(self.managers / 'uv'),
            'HATCH_DATA_DIR': str(private / 'hatch-data'),
            'HATCH_CACHE_DIR': str(private / 'hatch-cache'),
            'POETRY_VIRTUALENVS_IN_PROJECT': 'true',
            'POETRY_NO_INTERACTION': '1',
            # Not the user's: Poetry remembers the files of a release by its version, but here they change.
            'POETRY_CACHE_DIR': str(private / 'poetry-cache'),
            'POETRY_CONFIG_DIR': str(private / 'poetry-config'),
            'POETRY_DATA_DIR': str(private / 'poetry-data'),
        }

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project and return what came of it."""
        variables = self.variables()
        program = shutil.which(command[0], path=variables['PATH'])
        assert program is not None, f'there is no {command[0]}'
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project; it must succeed."""
        done = self.attempt(*command)
        assert done.returncode == 0, f'{shlex.join(command)}\n{done.stdout}{done.stderr}'
        return done

    def make_environment(self, *packages: str) -> None:
        """Make the project's environment again, with pip in it as `python -m venv` does it, and with further packages."""
        self.run('uv', 'venv', '--quiet', '--clear', '--no-project', '--seed', '--python', str(self.python), '.venv')
        if packages:
            self.run('uv', 'pip', 'install', '--quiet', *packages)

    def make_poetry_environment(self) -> None:
        """Let Poetry make the project's environment, in place of one that is there."""
        shutil.rmtree(self.environment, ignore_errors=True)
        self.run('poetry', 'env', 'use', str(self.python))

    def own_source(self) -> str:
        """Return Poetry's setting for the user's own index: it doesn't read the one of pip."""
        code = 'import pip._internal.models.index as m; print(m.PyPI.simple_url)'
        url = self.attempt('pip', 'config', 'get', 'global.index-url').stdout.strip()
        url = os.environ.get('PIP_INDEX_URL') or url or self.run(str(self.python), '-c', code).stdout.strip()
        return f'[[tool.poetry.source]]\nname = "own"\nurl = "{url}"\npriority = "primary"\n'

    def tool(self, name: str) -> str:
        """Return the requirement of one of the tools as it is locked."""
        locks = [page.ROOT / 'requirements' / f'{lock}.txt' for lock in ('tool', 'more')]
        locked = [line for lock in locks for line in lock.read_text('utf-8').splitlines()]
        return next(line.split()[0] for line in locked if line.startswith(f'{name}=='))

    def look(self) -> dict[str, Any]:
        """Look into the environment."""
        done = self.run('python', '-I', str(PROBE))
        return json.loads(done.stdout)

    def installed(self, name: str) -> str | None:
        """Return the version of a package in the environment, which need not be importable."""
        found = json.loads(self.run('uv', 'pip', 'list', '--format', 'json').stdout)
        return next((one['version'] for one in found if one['name'] == name), None)

    def has_fork(self, *packages: str) -> dict[str, str]:
        """Check that the environment holds the fork, all of it and nothing else, and that it works.

        Args:
            packages: What else must be there, with the fork beneath it.

        Returns:
            All that is installed.
        """
        return self._has(self.line.version, ['{"count":1}', '{"count":1}'], packages)

    def has_base(self, *packages: str) -> dict[str, str]:
        """Check that the environment holds the base, all of it and nothing else."""
        return self._has(self.line.base, ['{"count":1}', '{"count":2}'], packages)

    def _has(self, version: str, counted: list[str], packages: tuple[str, ...]) -> dict[str, str]:
        seen = self.look()
        installed: dict[str, str] = seen['installed']
        assert seen['versions'] == [version]
        assert (seen['damaged'], seen['left over']) == ([], [])
        assert seen['counted'] == counted
        assert set(packages) <= installed.keys()
        for name in self.companions.keys() & installed.keys():
            assert installed[name] == self.line.base
        if ANOTHER in packages:
            assert 'read_todos' in seen['tools of another']
        self.run('uv', 'pip', 'check')
        return installed

    def locks_fork(self, lock: str) -> str:
        """Check that a lock file records the fork with its hash, and not the base; return its text."""
        text = (self.folder / lock).read_text('utf-8')
        assert self.index.files()[self.wheel.name] in text
        assert self.line.version in text
        assert f'pydantic_ai_slim-{self.line.base}-' not in text
        return text
