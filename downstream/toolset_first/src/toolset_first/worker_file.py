"""`.worker` files: a front matter in YAML, and below it what the model is told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from toolset_first.inputs import InputError, decoded
from toolset_first.modules import ProjectError
from toolset_first.texts import unknown

_FRONT = re.compile(r'---[ \t]*\n(.*?\n)?---[ \t]*(?:\n|$)(.*)', re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML takes the last."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Return an object, or say in which line there is none."""
        try:
            return cast(Any, super()).construct_object(node, deep=deep)
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping."""
        seen: list[Any] = []
        for key, _ in node.value:
            value: Any = cast(Any, self).construct_object(key, deep=True)
            if value in seen:
                raise yaml.MarkedYAMLError(problem=f'The key {value!r} is there twice', problem_mark=key.start_mark)
            seen.append(value)
        return super().construct_mapping(node, deep=deep)


class Header(BaseModel):
    """What may be in the front matter."""

    model_config = ConfigDict(extra='forbid', strict=True)

    name: str
    description: str | None = None
    model: str | None = None
    compatible_models: list[str] = []
    schema_in_ref: str | None = None
    entry: bool = False
    toolsets: list[str] | dict[str, dict[str, Any] | None] = []
    tools: list[str] | dict[str, Any] = []
    usage_limits: dict[str, int | float | bool | None] = {}
    total_usage_limits: dict[str, int | float | bool | None] = {}
    server_side_tools: list[str] | dict[str, dict[str, Any] | None] = []


@dataclass(frozen=True)
class WorkerFile:
    """A `.worker` file as it was read.

    Attributes:
        path: Where it is.
        header: Its front matter.
        instructions: What is below.
        lines: The line of each key of the front matter.
    """

    path: Path
    header: Header
    instructions: str
    lines: Mapping[str, int]

    def fault(self, key: str, text: str) -> str:
        """Return a fault of a key as a message with file and line."""
        return f'{self.path}:{self.lines.get(key, 1)}: {text}'


def read_worker_file(path: Path) -> WorkerFile:
    """Read a `.worker` file.

    Raises:
        ProjectError: It isn't one; all faults of its front matter are named.
    """
    if not path.is_file():
        raise ProjectError(f'{path}:1: This is no regular file.')
    try:
        content = decoded(path.read_bytes(), f'The file `{path}`')
    except InputError as error:
        raise ProjectError(f'{path}:1: {error}') from None
    match = _FRONT.match(content.replace('\r\n', '\n'))
    if match is None:
        raise ProjectError(f'{path}:1: A `.worker` file begins with a line `---`, a front matter, and another `---`.')
    text, instructions = match[1] or '', match[2]
    try:
        node: Any = cast(Any, yaml).compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ProjectError(f'{path}:{mark.line + 2 if mark else 1}: {error.problem or error}.') from None
    except yaml.YAMLError as error:
        raise ProjectError(f'{path}:1: {error}') from None
    except RecursionError:
        raise ProjectError(f'{path}:1: The front matter is nested too deeply.') from None
    if not isinstance(node, yaml.MappingNode):
        raise ProjectError(f'{path}:2: The front matter holds no keys. Write `name: …` at least.')
    # The first line of the file is the one before the front matter.
    lines = {str(key.value): key.start_mark.line + 2 for key, _ in cast('list[tuple[Any, Any]]', node.value)}
    try:
        header = Header.model_validate(data)
    except ValidationError as error:
        raise ProjectError(*(_fault(path, lines, one['loc'], one) for one in error.errors())) from None
    return WorkerFile(path, header, instructions.strip(), lines)


def _fault(path: Path, lines: Mapping[str, int], where: Sequence[int | str], error: Any) -> str:
    key = str(where[0])
    if error['type'] == 'extra_forbidden':
        text = unknown(key, Header.model_fields)
    elif error['type'] == 'missing':
        text = f'`{key}` is missing.'
    else:
        text = f'`{key}`: {error["msg"]}.'
    return f'{path}:{lines.get(key, 2)}: {text}'
