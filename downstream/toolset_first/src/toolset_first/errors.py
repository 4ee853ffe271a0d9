"""The error that all others derive from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb


class ToolsetFirstError(Exception):
    """Something that the author or the user of a project can put right. The message says how."""


class ExitError(ToolsetFirstError):
    """What a project has written ended the program, as `sys.exit()` does. It ends the call only."""


@contextmanager
def exit_as_error() -> Iterator[None]:
    """Raise an `ExitError` with file and line in place of a `SystemExit`, which would stop the event loop at once."""
    try:
        yield
    except SystemExit as error:
        raise ExitError(placed(error)) from error


def placed(error: BaseException) -> str:
    """Return what was raised, and by which line."""
    frames = [one for one in extract_tb(error.__traceback__) if '_sitebuiltins' not in one.filename]  # of `exit()`
    where = f'{frames[-1].filename}:{frames[-1].lineno}: ' if frames else ''
    return f'{where}{type(error).__name__}: {error}'
