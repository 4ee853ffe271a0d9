"""Input: a text or a dict, from a user or a model, made into what an entry or an agent takes."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from mimetypes import guess_type
from os.path import relpath
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, ValidationError
from pydantic_ai import BinaryContent
from pydantic_ai.messages import UserContent

from toolset_first.contracts import WorkerArgs
from toolset_first.errors import ToolsetFirstError
from toolset_first.texts import quoted


class InputError(ToolsetFirstError):
    """An input that doesn't fit."""


class DefaultArgs(WorkerArgs):
    """The input where there is no schema: a text, and the names of files."""

    input: str
    attachments: list[str] = Field(default_factory=list[str])


def normalize_input(schema_in: type[WorkerArgs] | None, input_data: object) -> dict[str, Any]:
    """Return the arguments that an input stands for.

    Args:
        schema_in: What it must fit. Without one it is a text, or a dict with `input` and maybe `attachments`.
        input_data: A text, which is the field `input`; a dict; or a `WorkerArgs`.

    Raises:
        InputError: It doesn't fit; all faults are named.
    """
    return read_input(schema_in, input_data).model_dump(exclude_unset=schema_in is None)


def read_input(schema_in: type[WorkerArgs] | None, input_data: object) -> WorkerArgs:
    """Return an input as its schema has it."""
    if isinstance(input_data, schema_in or WorkerArgs):
        return input_data
    if isinstance(input_data, str):
        try:
            input_data.encode()
        except UnicodeEncodeError as error:
            raise InputError(f'The input is no text in UTF-8 (character {error.start + 1}).') from None
        input_data = {'input': input_data}
    if not isinstance(input_data, Mapping):
        raise InputError(f'An input is a text or a dict, not {input_data!r}.')
    try:
        read = (schema_in or DefaultArgs).model_validate(input_data)
    except ValidationError as error:
        known = ', '.join(f'`{name}`' for name in (schema_in or DefaultArgs).model_fields)
        raise InputError(f'The input does not fit: {faults(error)}. It takes {known}.') from None
    if isinstance(read, DefaultArgs) and not read.input.strip() and not read.attachments:
        raise InputError('The input is empty. Say what is to be done.')
    return read


def faults(error: ValidationError) -> str:
    """Return what is wrong with each field."""
    return '; '.join(f'`{".".join(map(str, one["loc"]))}`: {one["msg"]}' for one in error.errors())


def render_input(arguments: WorkerArgs, folder: Path, *, hidden: bool = False) -> str | list[UserContent]:
    """Return the prompt that a model reads: the text, and the content of the attachments.

    Args:
        arguments: The input.
        folder: The project's folder, which attachments are relative to and may not be outside of.
        hidden: Whether files that begin with a dot, or are in a folder that does, may be attached.

    Raises:
        InputError: Attachments are missing, outside, hidden or not readable; all are named.
    """
    names: list[str] = getattr(arguments, 'attachments', None) or []
    if not names:
        return arguments.prompt()
    root = folder.resolve()
    found: list[UserContent] = []
    wrong: list[str] = []
    for name in names:
        try:
            found.append(_attachment(name, attached(name, root, hidden=hidden)))
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        raise InputError('\n'.join(wrong))
    return [arguments.prompt(), *found]


def attached(name: str | PurePath, root: Path, *, hidden: bool, missing: bool = False) -> Path:
    """Return the file of a folder that a user or a model has named.

    Args:
        name: The name, relative to the folder.
        root: The folder, resolved.
        hidden: Whether it may be a file that begins with a dot, or is in a folder that does.
        missing: Whether it may be missing, since it is about to be written.

    Raises:
        InputError: It is missing, outside, hidden, or no regular file.
    """
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise InputError(f'The file {quoted(name)} is outside of the project. Copy it to `{root}`.')
        # As it is named, too: a link has another name than what it leads to.
        if not hidden and (_is_hidden(path.relative_to(root)) or _is_hidden(PurePath(relpath(root / name, root)))):
            raise InputError(
                f'The file {quoted(name)} is hidden, since its name or that of a folder begins with a dot. '
                'Name a copy of it, or allow hidden files.'
            )
        if not path.exists():
            if missing:
                return path
            raise InputError(f'The file {quoted(name)} is not in `{root}`.')
        if not path.is_file():
            raise InputError(f'{quoted(name)} is no regular file.')
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a name that is too long, links in a circle
        reason = getattr(error, 'strerror', None) or error
        raise InputError(f'{quoted(name)} is no name of a file: {reason}.') from None
    return path


def _is_hidden(path: PurePath) -> bool:
    return any(part.startswith('.') and part != '..' for part in path.parts)


def _attachment(name: str, path: Path) -> UserContent:
    kind = guess_type(path.name)[0] or 'application/octet-stream'
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f'The file {quoted(name)} cannot be read: {error.strerror}.') from None
    if kind.startswith('text/') or kind == 'application/json':
        return f'{name}:\n{decoded(data, f"The file {quoted(name)}")}'
    return BinaryContent(data, media_type=kind)


def decoded(data: bytes, what: str) -> str:
    """Return the text that is in UTF-8, with or without a byte order mark.

    Args:
        data: The bytes.
        what: What they are, such as `The file "a.txt"`.

    Raises:
        InputError: It is in another encoding, or no text.
    """
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    try:
        text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        how = 'is in UTF-16' if data.startswith(marks) else f'is not in UTF-8 (byte {error.start + 1})'
    else:
        if '\0' not in text:
            return text
        how = f'is no text in UTF-8, since there are NUL characters in it (byte {data.index(0) + 1})'
    raise InputError(f'{what} {how}. Save it as UTF-8.')
