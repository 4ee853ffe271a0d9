"""Make the environments that the base and the built fork run in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from pydantic_ai_slim.fork.errors import ForkError
from pydantic_ai_slim.fork.names import DIST_NAME
from series import network
from series.errors import OfflineError, SeriesError
from series.git import words
from series.line import Line, find_line
from series.progress import waiting

ENGINES = '[dbos,prefect,temporal]'
"""The extras with the durable engines, to be put behind the fork's wheel."""


MODEL = '[openai]'
"""The extra for the real model that the README names, so that it can be tried with no further step."""


class NoWheelError(SeriesError):
    """A fork that isn't built."""


def find_python(version: str) -> Path | None:
    """Find an interpreter on this machine.

    It is looked for where uv looks: among the installations that uv manages, and on the `PATH`. The versions that pyenv
    has installed count too, since pyenv puts commands on the `PATH` that don't run unless their version is selected.
    Nothing is downloaded.

    Args:
        version: Such as `3.12`.

    Returns:
        The interpreter, or `None` when there is none.
    """
    done = uv('python', 'find', '--system', '--no-project', version)
    return None if done.returncode else Path(done.stdout.decode().strip())


def line_python(line: Line) -> Path:
    """Choose the interpreter for what is done with a line on one Python only.

    It is the running one if the line supports that, and otherwise the newest that the line supports and this machine has.
    When there is none, a running one that is newer than what the line was made for may do.
    """
    own = f'{sys.version_info.major}.{sys.version_info.minor}'
    found = [] if own in line.python else [python for version in line.python if (python := find_python(version))]
    if found:
        return found[-1]
    if Version(own) < min(map(Version, line.python)):
        *others, newest = line.python
        raise SeriesError(
            f'The line {line.name} needs Python {" or ".join([", ".join(others), newest] if others else [newest])}, and '
            f'this machine has none of them: the tool runs on {own}.',
            f'Install one, for example with `{find_uv()} python install {newest}`, then run the same command again.',
        )
    return Path(sys.executable)


def base_requirements(line: Line, extras: str = '') -> list[str | Path]:
    """Return what to install for the unmodified base, which doesn't work without the line's caps.

    The caps are constraints, since most of them are on what only an extra needs; they are written to a file in `build/envs`.
    """
    constraints = line.root / 'build' / 'envs' / f'caps-{line.name}.txt'
    constraints.parent.mkdir(parents=True, exist_ok=True)
    constraints.write_text(''.join(f'{name}{cap}\n' for name, cap in line.caps.items()))
    return [f'{DIST_NAME}{extras}==={line.base}', '--constraint', constraints]


def overrides(line: Line) -> list[str | Path]:
    """Return uv's options for what takes the place of what packages require, if the line says so."""
    path = line.folder / 'overrides.in'
    return ['--override', path] if path.exists() else []


def built_wheel(line: Line) -> Path:
    """Return the fork's wheel in `dist/`.

    Raises:
        NoWheelError: It isn't there.
    """
    wheel = line.root / 'dist' / f'{DIST_NAME.replace("-", "_")}-{line.version}-py3-none-any.whl'
    if not wheel.exists():
        raise NoWheelError(
            f'The fork {line.version} is not built: `{line.show(wheel)}` does not exist.',
            f'Build it with `{line.make("build")}`, then run the same command again.',
        )
    return wheel


def make_environments(line: Line, extras: str = '') -> list[Path]:
    """Make an environment with the base and one with the fork.

    Args:
        extras: Those that both are to have, such as `[openai]`.

    Returns:
        Their folders, `build/envs/base-LINE` and `build/envs/fork-LINE`.
    """
    requirements = {'base': base_requirements(line, extras), 'fork': [f'{built_wheel(line)}{extras}']}
    folders = {side: line.root / 'build' / 'envs' / f'{side}-{line.name}' for side in requirements}
    for side, folder in folders.items():
        make_environment(folder, line_python(line), requirements[side])
    return list(folders.values())


def make_environment(folder: Path, python: Path, requirements: Sequence[str | Path]) -> Path:
    """Make an environment, in place of one that is there.

    It is made from scratch each time, which takes a second or two: nothing of before is in it, not even the fork under
    the same version with other patches.

    Args:
        folder: Where the environment is, or will be.
        python: The interpreter it is made of.
        requirements: Requirements as pip spells them, and paths of wheels.

    Returns:
        The environment's interpreter.
    """
    inside = interpreter(folder)
    steps = [
        ['venv', '--quiet', '--no-project', '--clear', '--python', str(python), str(folder)],
        ['pip', 'install', '--quiet', '--python', str(inside)],
    ]
    steps[1] += map(str, requirements)
    for step in steps:
        done = uv(*step)
        if done.returncode and network.unreachable(words(done)):
            raise OfflineError(f'what the environment `{folder}` needs', words(done))
        if done.returncode:
            raise SeriesError(
                f'The environment `{folder}` could not be made: `uv {" ".join(step[:2])}` failed with exit status '
                f'{done.returncode}.',
                f'Delete `{folder}` and run the same command again; if that fails too, check the connection and the '
                f'configuration of uv and its package index.',
                words(done),
            )
    return inside


def keep_environment(folder: Path, python: Path, requirements: Sequence[str | Path]) -> tuple[Path, str]:
    """Make an environment, unless one made of the same is there, and return its interpreter and what it is made of.

    Args:
        folder: Where it is, or will be.
        python: The interpreter it is made of.
        requirements: As for `make_environment()`. The content of files counts, not their names.
    """
    read = [part.read_text('utf-8') if isinstance(part, Path) and part.exists() else str(part) for part in requirements]
    version = subprocess.run([python, '-VV'], capture_output=True, text=True, check=True).stdout
    made_of = '\n'.join([str(python), version, *read])
    ready = folder / '.ready'
    if not (ready.exists() and ready.read_text('utf-8') == made_of):
        make_environment(folder, python, requirements)
        ready.write_text(made_of, 'utf-8')
    return interpreter(folder), made_of


def interpreter(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / ('Scripts/python.exe' if os.name == 'nt' else 'bin/python')


def find_uv() -> str:
    """Return the tool environment's own uv."""
    return shutil.which('uv', path=str(Path(sys.executable).parent)) or 'uv'


def uv(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the tool environment's own uv, which finds what pyenv has installed and downloads no interpreter."""
    pyenv = Path(os.environ.get('PYENV_ROOT') or Path.home() / '.pyenv')
    path = [os.environ.get('PATH', os.defpath), *(str(folder) for folder in sorted(pyenv.glob('versions/3.*/bin')))]
    environment = network.environment() | {'PATH': os.pathsep.join(path), 'UV_PYTHON_DOWNLOADS': 'never'}
    environment.pop('VIRTUAL_ENV', None)
    return subprocess.run(
        [find_uv(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False
    )


def make_more() -> None:
    """Make `build/envs/more`, of the tool's Python with what `requirements/tool.txt` and `requirements/more.txt` lock."""
    folder = Path('build') / 'envs' / 'more'
    locks = [part for name in ('tool', 'more') for part in ('--requirement', Path('requirements') / f'{name}.txt')]
    make_environment(folder, Path(sys.executable), ['--require-hashes', *locks])
    # The last step, so that `make` begins one that was interrupted again.
    (folder / '.ready').touch()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments that the arguments name, by default those of the newest line, and return the exit code."""
    parser = ArgumentParser(
        prog='python -m series.environments', description='Make the environments with the base and with the built fork.'
    )
    parser.add_argument('line', metavar='LINE', nargs='?', help='an upstream release; the newest line if left out')
    parser.add_argument('--more', action='store_true', help='make that of `requirements/more.txt` instead')
    options = parser.parse_args(arguments)
    try:
        if options.more:
            with waiting('Making `build/envs/more`'):
                make_more()
            return 0
        line = find_line(Path.cwd(), options.line)
        with waiting(
            f'Installing the base and the fork of {line.name}, with what they need, in environments of their own'
        ):
            folders = make_environments(line, MODEL)
    except (SeriesError, ForkError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    print(' and '.join(f'`{line.show(folder)}`' for folder in folders) + ' are ready.')
    return 0


if __name__ == '__main__':
    sys.exit(main())
