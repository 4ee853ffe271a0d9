"""Hooks: what runs before and after a tool."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any, Generic, TypeVar, cast

from pydantic_ai import RunContext
from typing_extensions import TypeAliasType

DepsT = TypeVar('DepsT')
T = TypeVar('T')

Maybe = TypeAliasType('Maybe', Awaitable[T] | T, type_params=(T,))
"""A value, or one to be awaited: all hooks and methods of tools may be sync or async."""

PreHookFunc = Callable[[RunContext[DepsT], dict[str, Any]], Maybe[dict[str, Any]]]
"""Gets the arguments of a call and returns those that the tool is called with."""
PostHookFunc = Callable[[RunContext[DepsT], Any], Maybe[Any]]
"""Gets the result of a call, or the exception that it failed with, and returns what takes its place."""
GlobalPreHookFunc = Callable[[RunContext[DepsT], str, dict[str, Any]], Maybe[dict[str, Any]]]
"""As `PreHookFunc`, for all tools: it gets the tool's name as well."""
GlobalPostHookFunc = Callable[[RunContext[DepsT], str, Any], Maybe[Any]]
"""As `PostHookFunc`, for all tools: it gets the tool's name as well."""

CallMetadata = dict[str, Any]
"""What the hooks around one call of a tool share: each of them may have one more parameter, `metadata`, and gets this."""

PreHook = PreHookFunc[DepsT] | Callable[[RunContext[DepsT], dict[str, Any], CallMetadata], Maybe[dict[str, Any]]]
PostHook = PostHookFunc[DepsT] | Callable[[RunContext[DepsT], Any, CallMetadata], Maybe[Any]]
GlobalPreHook = (
    GlobalPreHookFunc[DepsT] | Callable[[RunContext[DepsT], str, dict[str, Any], CallMetadata], Maybe[dict[str, Any]]]
)
GlobalPostHook = GlobalPostHookFunc[DepsT] | Callable[[RunContext[DepsT], str, Any, CallMetadata], Maybe[Any]]


@dataclass(frozen=True)
class GlobalHooks(Generic[DepsT]):
    """The hooks that run around every tool of a toolset."""

    pre: GlobalPreHook[DepsT] | None = None
    post: GlobalPostHook[DepsT] | None = None


class ExitError(RuntimeError):
    """What a tool or a hook has run ended the program, as `sys.exit()` does. It ends the call only, as other errors do."""


@contextmanager
def exit_as_error() -> Iterator[None]:
    """Raise an `ExitError` with file and line in place of a `SystemExit`, which would stop the event loop at once."""
    try:
        yield
    except SystemExit as error:
        raise ExitError(placed(error)) from error


def placed(error: BaseException) -> str:
    """Return what was raised, and by which line."""
    frames = [one for one in extract_tb(error.__traceback__) if '_sitebuiltins' not in one.filename]  # Of `exit()`.
    where = f'{frames[-1].filename}:{frames[-1].lineno}: ' if frames else ''
    return f'{where}{type(error).__name__}: {error}'


async def resolve(value: Maybe[T]) -> T:
    """Await what is to be awaited."""
    return await cast('Awaitable[T]', value) if inspect.isawaitable(value) else cast('T', value)


def shared(hook: Callable[..., Any], metadata: CallMetadata) -> dict[str, CallMetadata]:
    """Return the keyword arguments that give a hook what the hooks of a call share, if it has a parameter for that."""
    try:
        return {'metadata': metadata} if 'metadata' in inspect.signature(hook).parameters else {}
    except (TypeError, ValueError):  # Some functions written in C don't tell their parameters.
        return {}


def misfits(where: str, hook: Callable[..., Any], *parameters: str) -> list[str]:
    """Say what is wrong with a hook that isn't a function of these parameters, or of these and `metadata`."""
    try:
        inspect.signature(hook).bind(*parameters, **shared(hook, {}))
    except TypeError as error:
        call = f'`({", ".join(parameters)})`'
        return [
            f"{where} can't be called with {call}: {error}. Give a function of these parameters, or also `metadata`."
        ]
    except ValueError:
        pass  # Some functions written in C don't tell their parameters.
    return []
