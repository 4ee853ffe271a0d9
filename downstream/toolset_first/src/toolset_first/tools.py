"""Toolsets that are ready to use: files of a folder, and commands, each with limits."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, Any, cast

from pydantic_ai import FunctionToolset
from typing_extensions import ParamSpec

from toolset_first.contracts import ToolsetBuildContext, ToolsetSpec
from toolset_first.errors import ToolsetFirstError
from toolset_first.inputs import InputError, attached, decoded
from toolset_first.rules import VERDICTS, Verdict, strictest
from toolset_first.texts import quoted

_NOT_PLAIN = ('|', '>', '<', ';', '&', '`', '$', '\n', '\r', '\0')
_PASSED_ON = ('PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TERM', 'TZ', 'TMPDIR', 'USER', 'SYSTEMROOT')


_P = ParamSpec('_P')


def _told(function: Callable[_P, str]) -> Callable[_P, str]:
    """Tell the model what is wrong, as a result: a model that looks for a file may be wrong more often than tools may be retried."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> str:
        try:
            return function(*args, **kwargs)
        except (InputError, OSError, UnicodeError) as error:
            return f'error: {error}'

    return call


class _Files:
    """The files of a folder, as tools read and write them."""

    def __init__(self, root: Path, *, hidden: bool, max_bytes: int, max_files: int) -> None:
        self.root = root.resolve()
        self.hidden, self.max_bytes, self.max_files = hidden, max_bytes, max_files

    def _text(self, path: Path) -> str:
        file = attached(path, self.root, hidden=self.hidden)
        self._check_size(path, file.stat().st_size)
        return decoded(file.read_bytes(), f'The file {quoted(path)}')

    def _check_size(self, path: Path, size: int) -> None:
        if size > self.max_bytes:
            raise InputError(f'{quoted(path)} has {size:,} bytes, and {self.max_bytes:,} is the limit.')

    @_told
    def list_files(self, pattern: str = '**/*') -> str:
        """List the files whose names match a pattern, such as `docs/*.md`; `**` stands for any folders."""
        try:
            paths = sorted(path for path in self.root.glob(pattern) if path.is_file())
        except (ValueError, IndexError, NotImplementedError) as error:
            raise InputError(f'{quoted(pattern)} is no pattern: {error}.') from error
        names: list[str] = []
        for path in paths:
            with suppress(InputError, ValueError):
                name = path.relative_to(self.root)
                attached(name, self.root, hidden=self.hidden)
                names.append(name.as_posix())
        more = len(names) - self.max_files
        rest = [f'… and {more:,} more: name a narrower pattern.'] if more > 0 else []
        return '\n'.join([*names[: self.max_files], *rest]) or 'no files'

    @_told
    def read_file(self, path: Path, offset: int = 0, max_chars: int = 20_000) -> str:
        """Read a text file, from a character on."""
        text = self._text(path)
        begin = max(0, offset)
        end = begin + min(max(1, max_chars), 20_000)
        more = f'\n… {len(text) - end:,} more characters: go on with offset={end}.' if len(text) > end else ''
        return text[begin:end] + more

    @_told
    def write_file(self, path: Path, content: str) -> str:
        """Write a text file, in place of what it held."""
        return self._write(path, content)

    def _write(self, path: Path, content: str) -> str:
        data = content.encode()
        self._check_size(path, len(data))
        file = attached(path, self.root, hidden=self.hidden, missing=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return f'Wrote {len(content):,} characters to {quoted(path)}.'

    @_told
    def edit_file(self, path: Path, old: str, new: str) -> str:
        """Replace a piece of a text file, which must be there exactly once."""
        text = self._text(path)
        if (found := text.count(old) if old else 0) != 1:
            raise InputError(f'`old` is in {quoted(path)} {found} times. Name a piece that is there exactly once.')
        return self._write(path, text.replace(old, new))


def files(
    *, root: str = '.', write: bool = False, hidden: bool = False, max_bytes: int = 1_000_000, max_files: int = 1_000
) -> ToolsetSpec:
    """Make a toolset for the text files of a folder. Writing is asked about, unless a rule says otherwise.

    Args:
        root: The folder, relative to the project's. Nothing outside is read or written, nor what links lead to there.
        write: Whether there are tools that write.
        hidden: Whether to use files that begin with a dot, or are in a folder that does.
        max_bytes: How large a file may be.
        max_files: How many names are listed at once.
    """
    _check('files', {'root': (root, str), 'write': (write, bool), 'hidden': (hidden, bool)})
    _check('files', {'max_bytes': (max_bytes, int), 'max_files': (max_files, int)})

    def build(context: ToolsetBuildContext) -> FunctionToolset[Any]:
        tools = _Files(context.folder / root, hidden=hidden, max_bytes=max_bytes, max_files=max_files)
        writing = [tools.write_file, tools.edit_file] if write else []
        return FunctionToolset[Any]([tools.list_files, tools.read_file, *writing])

    return ToolsetSpec(build, approval_config={'write_file': 'ask', 'edit_file': 'ask'} if write else None)


def shell(
    *,
    commands: Mapping[str, Verdict] = MappingProxyType({}),
    default: Verdict = 'ask',
    folder: str = '.',
    timeout: float = 30,
    max_chars: int = 20_000,
    environment: Sequence[str] = (),
) -> ToolsetSpec:
    """Make a toolset that runs commands, without a shell: no pipes, no redirections, no variables.

    Args:
        commands: What is said of commands. One that is allowed has exactly these words, as `{'ls -l docs': 'allow'}`: a
            further argument may write or run something. One that is denied or asked about begins with them. The one with the
            most words counts.
        default: What is said of all others: `ask` or `deny`.
        folder: Where they run, relative to the project's folder.
        timeout: After how many seconds a command is ended, with all that it has started.
        max_chars: How much of its output is returned.
        environment: Which variables a command sees besides `PATH` and the like. Keys of models' providers are not among them.
    """
    _check('shell', {'commands': (commands, Mapping), 'folder': (folder, str), 'max_chars': (max_chars, int)})
    _check('shell', {'timeout': (timeout, (int, float)), 'environment': (environment, (list, tuple))})
    if default not in ('ask', 'deny'):
        raise ToolsetFirstError(
            f'`default` of `shell` cannot be {default!r}. Write `ask` or `deny`, and name in `commands` what is allowed.'
        )
    known: list[tuple[list[str], Verdict]] = []
    for words, verdict in commands.items():
        if not isinstance(words, str) or verdict not in VERDICTS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolsetFirstError(f'{words!r}: {verdict!r} is no rule for a command. Write `allow`, `ask` or `deny`.')
        known.append((begin := _begin(words), verdict))
        if '*' in begin[0] or '*' in begin:
            raise ToolsetFirstError(
                f'{words!r} in `commands` of `shell` has a `*`, which stands for itself: nothing puts in the names of files. '
                'Leave it out; what is denied or asked about begins with the words of its rule. `default` is for all others.'
            )

    def judge_command(arguments: dict[str, Any]) -> Verdict:
        try:
            words = _words(arguments['command'])
        except InputError:
            return 'allow'  # refused without being run
        found: dict[int, list[Verdict]] = {0: [default]}
        for expected, verdict in known:
            if words == expected or (verdict != 'allow' and words[: len(expected)] == expected):
                found.setdefault(len(expected), []).append(verdict)
        return strictest(found[max(found)])

    def build(context: ToolsetBuildContext) -> FunctionToolset[Any]:
        async def run(command: str) -> str:
            """Run a command, such as `git log -3`. There is no shell: no pipes, redirections, or variables."""
            passed = {name: os.environ[name] for name in (*_PASSED_ON, *environment) if name in os.environ}
            # Not what the agent may have written into its folder
            kept = filter(os.path.isabs, passed.get('PATH', '').split(os.pathsep))
            passed['PATH'] = os.pathsep.join(kept) or os.defpath
            try:
                status, output = await _run(_words(command), context.folder / folder, passed, timeout, max_chars)
            except InputError as error:
                return f'error: {error}'
            return f'{output}\n(exit status {status})' if output else f'(exit status {status})'

        return FunctionToolset[Any]([run])

    return ToolsetSpec(build, approval_config={'run': judge_command})


def _begin(words: str) -> list[str]:
    """Return the words that a rule is for."""
    try:
        return _words(words)
    except InputError as error:
        raise ToolsetFirstError(f'{words!r} in `commands` of `shell` names no command. {error}') from error


def _words(command: str) -> list[str]:
    """Return the words of a command.

    Raises:
        InputError: It has none, or needs a shell.
    """
    if found := [one for one in _NOT_PLAIN if one in command]:
        raise InputError(f'There is no shell, and the command has {quoted(found[0])}. Run one plain command.')
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f'The command cannot be read: {error}.') from error
    if not words:
        raise InputError('The command is empty.')
    return words


async def _run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float, max_chars: int
) -> tuple[str, str]:
    """Run a command in a process group of its own, and return its exit status and what it printed."""
    if not folder.is_dir():
        raise InputError(f'There is no folder {quoted(str(folder))}.')
    # A file, since whoever holds a pipe, as a daemon does, keeps it from ending
    with TemporaryFile() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise InputError(f'There is no command {quoted(words[0])}.') from None
        except (OSError, ValueError) as error:
            raise InputError(f'{quoted(words[0])} cannot be run: {error}.') from error
        ended = asyncio.ensure_future(process.wait())
        try:
            why = await _why_ended(ended, output, timeout)
        finally:
            with suppress(ProcessLookupError, PermissionError):  # what it has started, too
                os.killpg(process.pid, signal.SIGKILL)
            await ended
        size = output.seek(0, os.SEEK_END)
        output.seek(0)
        text = output.read(4 * max_chars).decode(errors='replace')
    is_cut = size > 4 * max_chars or len(text) > max_chars
    cut = f'\n… cut: the command printed {size:,} bytes.' if is_cut else ''
    return why or str(process.returncode), text[:max_chars].rstrip() + cut


async def _why_ended(ended: asyncio.Future[int], output: IO[bytes], timeout: float) -> str:
    """Wait for a command, and say why it has to be ended, if it has to."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not ended.done():
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return f'none: ended after {timeout:g} seconds'
        if os.fstat(output.fileno()).st_size > _MOST:
            return f'none: ended since it printed more than {_MOST:,} bytes'
        await asyncio.wait([ended], timeout=min(left, 0.1))
    return ''


_MOST = 50_000_000
"""How many bytes a command may print."""


def _check(name: str, options: Mapping[str, tuple[object, Any]]) -> None:
    for option, (value, kind) in options.items():
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        wrong = wrong or (isinstance(value, int | float) and kind is not bool and not value > 0)
        if wrong or (isinstance(value, list | tuple) and not all(isinstance(one, str) for one in cast('Any', value))):
            raise ToolsetFirstError(f'`{option}` of `{name}` cannot be {value!r}.')


BUILT_IN: Mapping[str, Callable[..., ToolsetSpec]] = MappingProxyType({'files': files, 'shell': shell})
"""What a `.worker` file can name besides the project's own toolsets, with these options."""
