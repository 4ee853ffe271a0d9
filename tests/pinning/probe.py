"""What a user sees of an environment, as JSON. It is run by the environment's own interpreter."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = 'pydantic-ai-slim'


def damaged(found: Distribution) -> Iterator[str]:
    """Name the files that aren't as the package that owns them was packed."""
    for file in found.files or ():
        path = Path(str(file.locate()))
        if '__pycache__' in path.parts:
            continue  # of another interpreter's making, or of none
        if not path.exists():
            yield f'{file} is missing'
        elif file.hash is not None:
            digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b'=').decode() != file.hash.value:
                yield f'{file} is another'


def left_over(found: Distribution) -> Iterator[str]:
    """Name what lies about there that belongs to nobody."""
    owned = {Path(str(file.locate())) for file in found.files or ()}
    site = Path(str(found.locate_file('')))
    for path in sorted([*site.glob('pydantic_ai/**/*'), *site.glob('pydantic_ai_slim-*/**/*')]):
        if path.is_file() and path not in owned and '__pycache__' not in path.parts:
            yield str(path.relative_to(site))


def count_in_two_runs() -> list[str]:
    """Count, in two runs of an agent, with a toolset that says it holds state. On the base, nobody listens to it."""
    from pydantic_ai import Agent, FunctionToolset
    from pydantic_ai.models.test import TestModel

    class Counter(FunctionToolset):
        stateful = True

        def __init__(self) -> None:
            super().__init__([self.count])
            self.calls = 0

        def copy(self) -> Counter:
            return Counter()

        def count(self) -> int:
            """Count the calls."""
            self.calls += 1
            return self.calls

    agent = Agent(TestModel(), toolsets=[Counter()])
    return [agent.run_sync('count').output for _ in range(2)]


def call_tools_of_another() -> list[str]:
    """Run an agent with a toolset that someone else published, and name the tools that were called."""
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    todo: Any = import_module('pydantic_ai_todo')
    agent: Any = Agent(TestModel(), toolsets=[todo.create_todo_toolset()])
    messages = agent.run_sync('plan').all_messages()
    return sorted(part.tool_name for message in messages for part in message.parts if part.part_kind == 'tool-return')


def main() -> None:
    """Print it all."""
    found = distribution(NAME)
    # The fork, and what it replaces in an environment that held the base
    replaced = [one for one in distributions() if one.metadata['Name'].startswith(('griffe', 'genai', 'opentelemetry'))]
    installed = {one.metadata['Name'].lower().replace('_', '-'): one.version for one in distributions()}
    seen = {
        'versions': [one.version for one in distributions(name=NAME)],
        'damaged': [fault for one in (found, *replaced) for fault in damaged(one)],
        'left over': list(left_over(found)),
        'counted': count_in_two_runs(),
        'tools of another': call_tools_of_another() if find_spec('pydantic_ai_todo') else [],
        'installed': installed,
    }
    json.dump(seen, sys.stdout)


if __name__ == '__main__':
    main()
