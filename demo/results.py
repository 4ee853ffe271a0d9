"""Read what `demo/scenarios.py` prints: a line of JSON about the environment, then one for each scenario."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast


class NotResultsError(ValueError):
    """A line that `demo/scenarios.py` doesn't print."""


class ModelRefusedError(ValueError):
    """A first line that says that the model can't be used in this environment, and why."""


@dataclass(frozen=True)
class Call:
    """A call of a tool: its name and its arguments."""

    tool: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        shown = ', '.join(f'{name}={value!r}' for name, value in self.arguments.items())
        return f'{self.tool}({shown})'

    def is_like(self, other: Call) -> bool:
        """Tell whether it is the same call, but for capitals and white space, in which real models are free."""
        return self._plain() == other._plain()

    def _plain(self) -> tuple[str, list[tuple[str, str]]]:
        return self.tool, sorted(
            (name, ''.join(str(value).split()).casefold()) for name, value in self.arguments.items()
        )


@dataclass(frozen=True)
class Seen:
    """What happened in a run.

    Args:
        called: The calls that the model made.
        saw: What the tools returned to the model, in that order.
        error: The exception that ended the run, or `None` when it succeeded.
    """

    called: tuple[Call, ...]
    saw: tuple[str, ...]
    error: str | None


@dataclass(frozen=True)
class Run:
    """One run of a scenario's agent.

    Args:
        user: Who ran it.
        did: What the user did, in a sentence.
        fails: What is meant to make the run fail (`tool` or `model`), or `None`.
        asked: The calls that the model was asked to make.
        seen: What happened.
        committed: What of the user's order was in the database after the run; `None` when there is no database.
        alone: What happens in the same run on its own, with a toolset that nobody has used; `None` for a first run.
    """

    user: str
    did: str
    fails: str | None
    asked: tuple[Call, ...]
    seen: Seen
    committed: tuple[str, ...] | None
    alone: Seen | None


@dataclass(frozen=True)
class Scenario:
    """One agent with one toolset, and the runs that used it one after the other."""

    key: str
    title: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Environment:
    """What a script said about the environment it ran in.

    Args:
        version: The version of `pydantic-ai-slim`.
        python: The version of Python.
        model: The real model's name, or `None` for the script.
        scenarios: How many scenarios follow.
    """

    version: str
    python: str
    model: str | None
    scenarios: int


@dataclass(frozen=True)
class Results:
    """All that one environment showed."""

    environment: Environment
    scenarios: tuple[Scenario, ...]


def read_environment(line: str) -> Environment:
    """Read the first line.

    Raises:
        ModelRefusedError: The line says that the model can't be used in this environment.
        NotResultsError: The line is something else.
    """
    if not line:
        raise NotResultsError('It printed nothing.')
    facts = _read(line)
    if 'unusable_model' in facts:
        raise ModelRefusedError(facts['unusable_model'])
    try:
        return Environment(**facts)
    except TypeError as error:
        raise NotResultsError(f'Its first line is {line!r}.') from error


def read_scenario(line: str) -> Scenario:
    """Read one of the lines after the first.

    Raises:
        NotResultsError: The line is something else.
    """
    facts = _read(line)
    try:
        return Scenario(facts['key'], facts['title'], tuple(_read_run(run) for run in facts['runs']))
    except (KeyError, TypeError, ValueError) as error:
        raise NotResultsError(f'A line of it is {line!r}.') from error


def _read(line: str) -> dict[str, Any]:
    try:
        facts = json.loads(line)
    except ValueError as error:
        raise NotResultsError(f'A line of it is {line!r}, which is not JSON.') from error
    if not isinstance(facts, dict):
        raise NotResultsError(f'A line of it is {line!r}, which is not a JSON object.')
    return cast(dict[str, Any], facts)


def _read_run(facts: dict[str, Any]) -> Run:
    return Run(
        user=facts['user'],
        did=facts['did'],
        fails=facts['fails'],
        asked=_read_calls(facts['asked']),
        seen=_read_seen(facts),
        committed=None if facts['committed'] is None else tuple(facts['committed']),
        alone=None if facts['alone'] is None else _read_seen(facts['alone']),
    )


def _read_seen(facts: dict[str, Any]) -> Seen:
    return Seen(_read_calls(facts['called']), tuple(facts['saw']), facts['error'])


def _read_calls(calls: list[tuple[str, dict[str, Any]]]) -> tuple[Call, ...]:
    return tuple(Call(tool, arguments) for tool, arguments in calls)
