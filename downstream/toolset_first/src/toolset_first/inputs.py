"""Input: a text or a dict, from a user or a model, made into what an entry or an agent takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_ai import BinaryContent
from pydantic_ai.messages import UserContent

from toolset_first.contracts import ToolsetFirstError, WorkerArgs


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
        input_data = {'input': input_data}
    if not isinstance(input_data, Mapping):
        raise InputError(f'An input is a text or a dict, not {input_data!r}.')
    try:
        return (schema_in or DefaultArgs).model_validate(input_data)
    except ValidationError as error:
        known = ', '.join(f'`{name}`' for name in (schema_in or DefaultArgs).model_fields)
        raise InputError(f'The input does not fit: {faults(error)}. It takes {known}.') from None


def faults(error: ValidationError) -> str:
    """Return what is wrong with each field."""
    return '; '.join(f'`{".".join(map(str, one["loc"]))}`: {one["msg"]}' for one in error.errors())


def render_input(arguments: WorkerArgs, folder: Path) -> str | list[UserContent]:
    """Return the prompt that a model reads: the text, and the content of the attachments.

    Args:
        arguments: The input.
        folder: The project's folder, which attachments are relative to and may not be outside of.

    Raises:
        InputError: Attachments are missing or outside; all are named.
    """
    names: list[str] = getattr(arguments, 'attachments', None) or []
    if not names:
        return arguments.prompt()
    root = folder.resolve()
    paths = [(root / name).resolve() for name in names]
    if outside := [name for name, path in zip(names, paths, strict=True) if not path.is_relative_to(root)]:
        raise InputError(f'These attachments are outside of the project: {json.dumps(outside)}. Copy them to `{root}`.')
    if missing := [name for name, path in zip(names, paths, strict=True) if not path.is_file()]:
        raise InputError(f'These attachments are not in `{root}`: {json.dumps(missing)}.')
    return [arguments.prompt(), *map(_attachment, names, paths)]


def _attachment(name: str, path: Path) -> UserContent:
    kind = guess_type(path.name)[0] or 'application/octet-stream'
    data = path.read_bytes()
    if kind.startswith('text/') or kind == 'application/json':
        return f'{name}:\n{data.decode(errors="replace")}'
    return BinaryContent(data, media_type=kind)
