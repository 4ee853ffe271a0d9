"""Call the tools of somebody's agent in a process that keeps them from doing harm.

In that process what the tools ask of Python is refused if it would write outside of a temporary folder, reach the network,
or start another program. That keeps a tool with random arguments from doing harm by mistake. It's no prison for
code that wants to get out: for that, run it in a container.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from .report import Finding, Report

PERMISSIONS = ('files', 'network', 'programs')
"""What the process may be permitted: to write files anywhere, to reach other machines, and to start programs."""

_PROGRAMS = (
    *('subprocess.Popen', 'os.system', 'os.exec', 'os.fork', 'os.forkpty', 'os.posix_spawn', 'os.spawn', 'pty.spawn'),
    'os.kill',
)
_SPAWNING = ('multiprocessing.popen_spawn_posix', 'multiprocessing.popen_forkserver')
_NETWORK = ('socket.connect', 'socket.sendto', 'socket.getaddrinfo', 'socket.gethostbyname')
_ONTO = ('os.remove', 'os.rmdir', 'os.truncate', 'os.chmod', 'os.chown', 'os.utime', 'shutil.rmtree')
_NEW = ('os.mkdir', 'sqlite3.connect', 'tempfile.mkstemp', 'tempfile.mkdtemp')
_WRITES = {
    **dict.fromkeys((*_ONTO, *_NEW), (0,)),
    **dict.fromkeys(('os.rename', 'os.link', 'shutil.move'), (0, 1)),
    **dict.fromkeys(('os.symlink', 'shutil.copyfile', 'shutil.copytree'), (1,)),
}
"""Which arguments of an audited event are paths that are written to."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class NotPermittedError(PermissionError):
    """Something that a tool did is refused in the sandbox."""


class SandboxError(Exception):
    """The process ended without a report."""


def run_sandboxed(target: str, options: dict[str, Any], *, permit: Sequence[str] = (), seconds: float = 300) -> Report:
    """Find the leaks of an agent in another process.

    Args:
        target: The agent, as `MODULE:NAME`; what is there may also be a function that returns it.
        options: Those of `find_leaks()`; `deps` is `MODULE:NAME`, too.
        permit: Some of `PERMISSIONS`.
        seconds: How long it may take.

    Raises:
        SandboxError: The process failed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix='toolset-leaks-') as folder:
        answer = Path(folder) / '.report.json'
        work = Path(folder) / 'work'
        work.mkdir()
        order = {'target': target, 'options': options, 'permit': [*permit], 'folder': folder}
        order['path'] = [str(Path.cwd()), *sys.path]
        environment = {name: value for name, value in os.environ.items() if name in _ENVIRONMENT}
        # `-m` must find this package, which may be on the path of this process only.
        path = os.pathsep.join(path for path in sys.path if path)
        environment |= {'HOME': str(work), 'TMPDIR': str(work), 'PYTHONPATH': path}
        command = [sys.executable, '-m', 'toolset_leaks.sandbox', str(answer)]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(order),
                cwd=work,
                env=environment,
                timeout=seconds,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SandboxError(
                f'The tools of `{target}` took longer than {seconds:g} seconds. Give them more with `--seconds`, or '
                'leave the slow ones out with `--skip`.'
            ) from error
        if not answer.exists():
            raise SandboxError(
                f'The process that runs `{target}` failed:\n{done.stderr.strip() or done.stdout.strip()}'
            )
        report = json.loads(answer.read_text())
    for kind in ('leaks', 'cleared'):
        report[kind] = [Finding(**finding) for finding in report[kind]]
    return Report(**report)


_ENVIRONMENT = frozenset({'PATH', 'LANG', 'LC_ALL', 'SYSTEMROOT', 'VIRTUAL_ENV', 'PYTHONUTF8', 'TERM'})
"""The variables that the process gets: none that holds a key."""


def find(name: str) -> Any:
    """Find what `MODULE:NAME` stands for.

    Raises:
        LookupError: There is no such thing.
    """
    module, _, path = name.partition(':')
    try:
        value = importlib.import_module(module)
        for part in path.split('.'):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise LookupError(f'`{name}` cannot be found: {error}. Write it as `package.module:agent`.') from error
    except (Exception, SystemExit) as error:
        raise LookupError(f'`{name}` cannot be imported: {_placed(error)}') from error
    return value


def _placed(error: BaseException) -> str:
    """Return what was raised, and by which line of those that aren't a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith(('<', *sysconfig.get_paths().values()))]
    own = [one for one in own if one.filename != __file__] or frames
    return f'{own[-1].filename}:{own[-1].lineno}: {type(error).__name__}: {error}'


def _do_without_keys() -> None:
    """Take a model of no provider in place of one that can't be made here, where no keys are. A script answers for it."""
    from pydantic_ai import models
    from pydantic_ai.models.test import TestModel

    infer = models.infer_model

    def infer_or_replace(model: Any, *args: Any, **options: Any) -> Any:
        try:
            return infer(model, *args, **options)
        except Exception:  # noqa: BLE001 - a key, or a provider's package, may be missing
            return TestModel()

    models.infer_model = infer_or_replace


def _watch_what_is_done(permit: Sequence[str], folder: Path) -> None:
    """Refuse from now on what isn't permitted."""
    inside = (str(folder.resolve()), os.devnull)

    def check_path(event: str, path: Any) -> None:
        if isinstance(path, int):  # a descriptor
            return
        # SQLite takes URLs, too.
        name, _, query = os.fsdecode(path).removeprefix('file:').partition('?')
        if 'mode=ro' not in query and not os.path.realpath(name).startswith(inside):
            raise NotPermittedError(
                f'{event} of {os.fsdecode(path)!r} is outside of the sandbox; permit it with `--permit files`'
            )

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == 'open' and 'files' not in permit:
            path, mode, flags = arguments
            # A module that is imported may write its bytecode.
            writes = (flags or 0) & _WRITING and not str(path).endswith('.pyc') and '__pycache__' not in str(path)
            # Whoever has a descriptor of a folder can change what is in it with `dir_fd=`.
            if writes or (mode is None and Path(os.fsdecode(path)).is_dir()):
                check_path('open', path)
        elif event in _WRITES and 'files' not in permit:
            for index in _WRITES[event]:
                if '__pycache__' not in str(arguments[index]) and arguments[index] != ':memory:':
                    check_path(event, arguments[index])
        elif (event in _PROGRAMS or (event == 'import' and arguments[0] in _SPAWNING)) and 'programs' not in permit:
            raise NotPermittedError(f'{event} starts a program; permit it with `--permit programs`')
        elif event in _NETWORK and 'network' not in permit:
            raise NotPermittedError(f'{event} reaches the network; permit it with `--permit network`')

    sys.addaudithook(audit)


def main() -> None:
    """Carry out the order on the standard input, and write the report to the file that the argument names."""
    order = json.load(sys.stdin)
    sys.path[:] = order['path']
    # Imported first, since what they need is no concern of the sandbox.
    from pydantic_ai import Agent

    from .arguments import ArgumentsError
    from .drive import find_leaks

    _do_without_keys()
    _watch_what_is_done(order['permit'], Path(order['folder']))
    try:
        agent: Any = find(order['target'])
        kind = type(agent).__name__
        if callable(agent) and not isinstance(agent, Agent):
            try:
                agent = cast('Any', agent)()
            except (Exception, SystemExit) as error:
                raise LookupError(f'`{order["target"]}` makes no agent: {_placed(error)}') from error
        if not isinstance(agent, Agent):
            raise LookupError(  # noqa: TRY004
                f'`{order["target"]}` is no agent, nor a function that returns one, but a {kind}.'
            )
        options = order['options']
        if deps := options.pop('deps', None):
            deps = find(deps)
            options['make_deps' if callable(deps) else 'deps'] = deps
    except LookupError as error:
        sys.exit(str(error))
    try:
        report = find_leaks(cast('Agent[Any, Any]', agent), **options)
    except ArgumentsError as error:
        sys.exit(str(error))
    Path(sys.argv[1]).write_text(json.dumps(dataclasses.asdict(report)))
    sys.stdout.flush()
    os._exit(0)  # whatever threads the tools have left behind


if __name__ == '__main__':
    main()
