"""Make the environments of `matrix` with hatch, whose installer is uv."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from series import network
from series.environments import EnvironmentFailedError, find_uv
from series.git import words


@dataclass(frozen=True)
class HatchEnvironment:
    """What an environment is made of."""

    python: Path
    """The interpreter. hatch is given its path, since it would download one that it doesn't find by itself."""
    requirements: Sequence[str]
    """All that is in it, each in one exact version or from a file."""


class HatchProject:
    """A folder with a `pyproject.toml` that hatch makes environments from, and the environments.

    Args:
        folder: The folder.
        environments: The environments by name; those that are there under other names stay.
        overrides: A file with what takes the place of what packages require, if there is one.
    """

    def __init__(
        self, folder: Path, environments: Mapping[str, HatchEnvironment], overrides: Path | None = None
    ) -> None:
        self.folder = folder
        self.overrides = overrides
        self.environments = environments
        folder.mkdir(parents=True, exist_ok=True)
        tables = [self._table(name, environment) for name, environment in environments.items()]
        (folder / 'pyproject.toml').write_text(
            "# Written by `make matrix`. `hatch env show` lists the environments.\n[project]\nname = 'matrix'\nversion = '0'\n\n"
            + '\n'.join(tables),
            'utf-8',
        )

    def make(self, name: str) -> Path:
        """Make an environment, or find it made of the same, and return its interpreter.

        Raises:
            EnvironmentFailedError: hatch could not make it.
        """
        environment = self.environments[name]
        made_of = self._table(name, environment)
        folder = self._path(name)
        # hatch keeps one whose requirements read the same. It is ours to see that it is whole, and no other one.
        ready = folder.with_name(f'{name}.toml')
        if not (ready.exists() and ready.read_text('utf-8') == made_of):
            self.remove(name)
            done = subprocess.run(
                [sys.executable, '-m', 'hatch', 'env', 'create', name],
                cwd=self.folder,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            if done.returncode:
                raise EnvironmentFailedError(
                    f'The environment `{folder}` could not be made: `hatch env create {name}` failed in `{self.folder}` '
                    f'with exit status {done.returncode}.',
                    "These are hatch's words and uv's; check the connection and the configuration of uv and its package "
                    'index, then run the same command again.',
                    words(done),
                )
            ready.write_text(made_of, 'utf-8')
        return folder / ('Scripts/python.exe' if os.name == 'nt' else 'bin/python')

    def remove(self, name: str) -> None:
        """Remove an environment, if it is there."""
        self._path(name).with_name(f'{name}.toml').unlink(missing_ok=True)
        if self._path(name).exists():
            shutil.rmtree(self._path(name))

    def _path(self, name: str) -> Path:
        return self.folder / 'envs' / name

    def _table(self, name: str, environment: HatchEnvironment) -> str:
        # A string, or a list of strings, is the same in JSON and in TOML.
        values = {
            'installer': 'uv',
            'path': str(self._path(name)),
            'python': str(environment.python),
            'python-sources': ['external'],
            'dependencies': list(environment.requirements),
        }
        listed = [f'{key} = {json.dumps(value)}\n' for key, value in values.items()]
        return f'[tool.hatch.envs.{json.dumps(name)}]\nskip-install = true\n{"".join(listed)}'

    def _variables(self) -> dict[str, str]:
        """Return the variables that hatch runs with: nothing of the user's own hatch, and the tool's uv."""
        kept = {name: value for name, value in network.environment().items() if not name.startswith('HATCH_')}
        kept.pop('VIRTUAL_ENV', None)
        own = self.folder / 'hatch'
        own.mkdir(exist_ok=True)
        (own / 'config.toml').touch()
        if self.overrides:
            kept['UV_OVERRIDE'] = str(self.overrides)
        return kept | {
            'HATCH_CONFIG': str(own / 'config.toml'),
            'HATCH_DATA_DIR': str(own / 'data'),
            'HATCH_CACHE_DIR': str(own / 'cache'),
            'HATCH_ENV_TYPE_VIRTUAL_UV_PATH': find_uv(),
            'UV_PYTHON_DOWNLOADS': 'never',
            'NO_COLOR': '1',
        }
