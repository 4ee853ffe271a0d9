"""Make folders and put them into their places, so that a verb can be killed at any instant and others can run beside it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from series.errors import SeriesError

_PLACES = ('build', 'build/cache', 'patches', 'dist')
"""Where verbs work in folders that they throw away, since what they make is renamed from there."""

_SCRATCH = re.compile(r'\.(apply|base|build|carry|extract|locks|rebase|release|review|status|verify)-.+')

_RESTORE = 'restore'
"""The file in such a folder with the place that the folder `old` beside it is from, while nothing is there."""

_FOLDERS = 'folders'
"""The lock of those who make such folders or remove them."""

_held: list[int] = []


def inheritable_fds() -> tuple[int, ...]:
    """Return the locks of this process, for what it starts: a child that outlives it holds them on."""
    return tuple(_held)


@contextmanager
def lock(root: Path, what: str, verb: str, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Keep everybody else from writing something.

    Args:
        what: What is written, such as the name of a line.
        verb: The command that writes it, for others to be told.
        wait: Is told who is waited for. Without it, nobody is.
    """
    path = root / 'build' / '.locks' / what
    with ExitStack() as opened:
        while not _acquire(path, opened.enter_context(_open(path, os.O_RDWR | os.O_CREAT)), what, verb, wait):
            opened.pop_all().close()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # somebody else's lock is in there
                path.parent.rmdir()


def _acquire(path: Path, handle: int, what: str, verb: str, wait: Callable[[str], None] | None) -> bool:
    """Lock an open file, or say that it isn't the one with that path any more, since those who end remove it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Empty while the other one writes its name there.
        other = os.pread(handle, 1000, 0).decode() or 'Another command'
        if wait is None:
            raise SeriesError(
                f'{other} is at work on `{what}`.', 'Wait until it has ended, then run the same command again.'
            ) from None
        wait(f'Waiting for {other}')
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        if not os.path.samestat(os.fstat(handle), path.stat()):
            return False
    except FileNotFoundError:
        return False
    os.truncate(handle, 0)
    os.pwrite(handle, f'`{verb}` (process {os.getpid()})'.encode(), 0)
    return True


@contextmanager
def _open(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open what is to be locked, which it is until this process and its children have closed it or have ended."""
    while True:
        try:
            handle = os.open(path, flags)
            break
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
    _held.append(handle)
    try:
        yield handle
    finally:
        _held.remove(handle)
        os.close(handle)


@contextmanager
def scratch(root: Path, place: Path, verb: str) -> Iterator[Path]:
    """Make a folder to work in, and remove it in the end, with all that killed verbs have left in the checkout.

    Args:
        place: Where to make it: on the file system that things are to be renamed to.
        verb: What it is for, to be seen in its name.
    """
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        with lock(root, _FOLDERS, verb, lambda _: None):
            _sweep(root)
            folder = Path(tempfile.mkdtemp(prefix=f'.{verb}-', dir=place))
            fcntl.flock(opened.enter_context(_open(folder)), fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove what killed verbs have left in a checkout."""
    with lock(root, _FOLDERS, 'make clean', lambda _: None):
        _sweep(root)


def _sweep(root: Path) -> None:
    """Remove folders and locks that nobody holds, while nobody makes folders."""
    for path in sorted((root / 'build' / '.locks').iterdir()):
        with suppress(BlockingIOError, FileNotFoundError), _open(path, os.O_RDWR) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    places = [root / place for place in _PLACES]
    for folder in [folder for place in places if place.is_dir() for folder in place.iterdir()]:
        if not _SCRATCH.fullmatch(folder.name) or not folder.is_dir():
            continue
        with suppress(BlockingIOError, FileNotFoundError), _open(folder) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            restore = folder / _RESTORE
            if restore.exists() and not (target := Path(restore.read_text('utf-8'))).exists():
                (folder / 'old').rename(target)
            shutil.rmtree(folder, ignore_errors=True)


def write(path: Path, text: str) -> None:
    """Write a file, so that it is never there in part."""
    new = path.with_name(f'.{path.name}.new')
    new.write_text(text, 'utf-8')
    new.replace(path)


def replace_dir(new: Path, target: Path) -> None:
    """Put a folder into the place of another one, which `new` then is, or of nothing.

    Where the system can exchange two folders, either the one or the other is there at every instant. Elsewhere there is
    none between two renames, and what was there comes back when the second fails, or with the next `scratch()` when the
    process was killed.

    Args:
        new: The folder, right in a `scratch()` one.
        target: Its place, on the same file system.
    """
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        old = new.with_name('old')
        new.with_name(_RESTORE).write_text(str(target.resolve()), 'utf-8')
        try:
            target.rename(old)
            new.rename(target)
        except BaseException:
            if not target.exists():
                old.rename(target)
            raise
        old.rename(new)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, or say that this isn't possible here."""
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    here, swap = -100, 2  # AT_FDCWD on Linux; RENAME_EXCHANGE there, and RENAME_SWAP on macOS
    if sys.platform == 'darwin':
        failed = libc.renamex_np(first, second, swap)
    elif hasattr(libc, 'renameat2'):
        failed = libc.renameat2(here, first, here, second, swap)
    else:
        return False
    if failed and (number := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(number, os.strerror(number), str(one), None, str(other))
    return not failed
