"""Four toolsets that hold state, and what the users of one long-lived agent see of each other.

The toolsets are written to be copied. Each one says `stateful = True` and how to `copy()` itself; the fork then gives every
run a copy of its own. On the base nothing reads these two names, so all runs share one instance.

`python -m demo` runs this file in an environment with the base and in one with the fork. It prints one JSON object a line:
first one about the environment, then one for each scenario, as `demo/results.py` reads them.
"""

from __future__ import annotations

import ast
import asyncio
import json
import platform
import sqlite3
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic_ai import (
    AbstractToolset,
    Agent,
    FunctionToolset,
    ModelAPIError,
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UsageLimits,
    capture_run_messages,
    models,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from typing_extensions import Self

# ---- The toolsets. Their runs' dependencies (`ctx.deps`) are the name of the user.

BALANCES = {'Alice': '120 euros', 'Bob': '75 euros'}
STOCK = {'lamp', 'chair'}


class SearchToolset(FunctionToolset[str]):
    """Search the archive, and count the searches: a run may make so many, and no more."""

    stateful = True

    def __init__(self, limit: int) -> None:
        super().__init__([self.search])
        self.limit = limit
        self.count = 0

    def copy(self) -> Self:
        """Count from zero. The copy's tools are its own, because `__init__` binds them."""
        return type(self)(self.limit)

    async def search(self, query: str) -> str:
        """Search the archive."""
        if self.count == self.limit:
            return f'refused: {self.limit} of {self.limit} searches used'
        self.count += 1
        return f'search {self.count} of {self.limit}: found {query}'


class BankToolset(FunctionToolset[str]):
    """Ask the bank about the user, and remember the answers, since models like to ask again."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.account])
        self.cache: dict[str, str] = {}

    def copy(self) -> Self:
        """Remember nothing."""
        return type(self)()

    async def account(self, ctx: RunContext[str], what: Literal['balance', 'currency']) -> str:
        """Look up something about the account of the user."""
        if what not in self.cache:
            self.cache[what] = f'{ctx.deps} has {BALANCES[ctx.deps]}' if what == 'balance' else 'euros'
        return self.cache[what]


class PythonToolset(FunctionToolset[str]):
    """Run Python as a notebook does: variables are kept from call to call."""

    stateful = True
    # A model writes this code, and it runs on your machine: arithmetic will do here, anything more belongs in a sandbox.
    allowed = (ast.Module, ast.Assign, ast.Expr, ast.Name, ast.expr_context, ast.Constant, ast.BinOp, ast.Add, ast.Mult)

    def __init__(self) -> None:
        super().__init__([self.run_python])
        self.variables: dict[str, Any] = {}

    def copy(self) -> Self:
        """Know no variables."""
        return type(self)()

    async def run_python(self, code: str) -> str:
        """Run one line of Python and return its value."""
        try:
            if not all(isinstance(node, self.allowed) for node in ast.walk(ast.parse(code))):
                return 'refused: only names, numbers, + and *'
            try:
                return repr(eval(code, self.variables))
            except SyntaxError:
                exec(code, self.variables)  # noqa: S102 (a statement, such as an assignment; `allowed` keeps it harmless)
                return 'done'
        except Exception as error:  # noqa: BLE001 (the model is told, as the reader of a notebook would be)
            return f'{type(error).__name__}: {error}'


class OrderToolset(FunctionToolset[str]):
    """Write the order of a run in one transaction: all of it, or nothing if the run fails."""

    stateful = True
    connection: sqlite3.Connection

    def __init__(self, database: Path) -> None:
        super().__init__([self.add_item])
        self.database = database

    def copy(self) -> Self:
        """Take the path only: each copy opens a connection, and so a transaction, of its own."""
        return type(self)(self.database)

    async def __aenter__(self) -> Self:
        """Begin the transaction."""
        self.connection = sqlite3.connect(self.database, isolation_level=None)
        self.connection.execute('BEGIN IMMEDIATE')
        return self

    async def __aexit__(self, *args: object) -> None:
        """Commit when the run succeeded, roll back when it ended with an exception."""
        with closing(self.connection):
            self.connection.execute('COMMIT' if args[0] is None else 'ROLLBACK')

    async def add_item(self, ctx: RunContext[str], item: str) -> str:
        """Add an item to the order of the user."""
        if item not in STOCK:
            raise SoldOutError(f'no {item} left')
        self.connection.execute('INSERT INTO items VALUES (?, ?)', (ctx.deps, item))
        return f'{item} added'


class SoldOutError(Exception):
    """A bug or an outage: anything that a tool raises ends the run."""


# ---- The scenarios: what each user asks, and which calls that should lead to.


@dataclass(frozen=True)
class Run:
    """One run of a scenario's agent."""

    user: str
    did: str  # for the reader of the demonstration
    prompt: str  # for the model
    calls: Sequence[tuple[str, dict[str, Any]]]
    fails: Literal['tool', 'model'] | None = None  # what makes it fail, if it is meant to


@dataclass(frozen=True)
class Scenario:
    """One agent with one toolset, and the runs that use it one after the other."""

    key: str
    title: str
    toolset: Callable[[Path], AbstractToolset[str]]
    runs: Sequence[Run]
    orders: bool = False  # whether the runs write orders, so that what was committed is to be read


def order(user: str, did: str, item: str, *, fails: Literal['tool', 'model'] | None = None) -> Run:
    """Order a lamp and another item."""
    prompt = f'Call `add_item` with the item "lamp", then call it with the item "{item}".'
    return Run(user, did, prompt, [('add_item', {'item': 'lamp'}), ('add_item', {'item': item})], fails)


SCENARIOS = [
    Scenario(
        'count',
        'A toolset counts calls: each run may search twice.',
        lambda _: SearchToolset(limit=2),
        [
            Run(
                'Alice',
                'Alice searches twice.',
                'Call `search` with the query "cats", then call it with the query "dogs".',
                [('search', {'query': 'cats'}), ('search', {'query': 'dogs'})],
            ),
            Run('Bob', 'Bob searches once.', 'Call `search` with the query "fish".', [('search', {'query': 'fish'})]),
        ],
    ),
    Scenario(
        'cache',
        'A toolset caches what the bank says about the user.',
        lambda _: BankToolset(),
        [
            Run(
                user,
                f'{user} asks for {their} balance.',
                'Call `account` for my "balance".',
                [('account', {'what': 'balance'})],
            )
            for user, their in (('Alice', 'her'), ('Bob', 'his'))
        ],
    ),
    Scenario(
        'variables',
        'A toolset runs Python and keeps the variables from call to call.',
        lambda _: PythonToolset(),
        [
            Run(
                'Alice',
                'Alice sets `salary`, then uses it.',
                'Call `run_python` with the code `salary = 5200`, then call it with the code `salary * 12`.',
                [('run_python', {'code': 'salary = 5200'}), ('run_python', {'code': 'salary * 12'})],
            ),
            Run(
                'Bob',
                'Bob asks what `salary` is; he never set it.',
                'Call `run_python` with the code `salary`. An error is a fine answer, do not try to fix it.',
                [('run_python', {'code': 'salary'})],
            ),
        ],
    ),
    Scenario(
        'transaction',
        'A toolset writes orders in a SQLite transaction. A failed run must leave nothing of its order.',
        OrderToolset,
        [
            order('Alice', 'Alice orders a lamp and a desk. It is sold out: the tool raises.', 'desk', fails='tool'),
            order('Bob', 'Bob orders a lamp and a chair. The model fails halfway.', 'chair', fails='model'),
            order('Carol', 'Carol orders a lamp and a chair. Nothing fails.', 'chair'),
        ],
        orders=True,
    ),
]
INSTRUCTIONS = (
    'Make exactly the tool calls that the user names, in that order and with exactly these arguments. Make each of them '
    'once, one at a time, and the next only after you have the result of the one before. Accept every result, also a '
    'refusal or an error. Then answer "Done."'
)


# ---- The models: a script that makes the calls, or a real one.


def scripted(run: Run) -> FunctionModel:
    """Make a model that makes the run's calls one by one, then answers."""

    async def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        made = sum(isinstance(part, ToolCallPart) for message in messages for part in message.parts)
        return ModelResponse([ToolCallPart(*run.calls[made]) if made < len(run.calls) else TextPart('Done.')])

    return FunctionModel(respond)


class OverloadedModel(WrapperModel):
    """Answer the first request, and fail at the second as a provider does that has too much to do."""

    async def request(self, messages: list[ModelMessage], *args: Any, **kwargs: Any) -> ModelResponse:
        """Pass the request on, unless a tool has been called already."""
        if any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts):
            raise ModelAPIError(self.model_name, 'the model is overloaded')
        return await super().request(messages, *args, **kwargs)


# ---- The runs, and what they saw.


@dataclass
class Seen:
    """What happened in a run, taken from its messages."""

    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    saw: list[str] = field(default_factory=list[str])
    error: str | None = None


async def play(agent: Agent[str, str], run: Run, model: models.Model | None) -> Seen:
    """Run the agent, and collect which tools the model called, what they returned, and how the run failed if it did."""
    model = model or scripted(run)
    seen = Seen()
    with capture_run_messages() as messages:
        try:
            running = agent.run(
                run.prompt,
                deps=run.user,
                model=OverloadedModel(model) if run.fails == 'model' else model,
                usage_limits=UsageLimits(request_limit=10),
            )
            await asyncio.wait_for(running, timeout=120)
        except Exception as error:  # noqa: BLE001 (whatever ends the run is a part of what is shown)
            seen.error = f'{type(error).__name__}: {error}'
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolCallPart):
            seen.called.append((part.tool_name, arguments_of(part)))
        elif isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name):
            seen.saw.append(str(part.content))
    return seen


def arguments_of(call: ToolCallPart) -> dict[str, Any]:
    """Return the arguments of a call; a real model may write some that are no JSON object."""
    try:
        return call.args_as_dict()
    except (ValueError, AssertionError):
        return {'unreadable': call.args_as_json_str()}


async def perform(scenario: Scenario, model: models.Model | None, folder: Path) -> dict[str, Any]:
    """Run a scenario with one agent, and each run but the first also on its own, with a toolset that nobody has used."""
    database = folder / f'{scenario.key}.sqlite'
    make_tables(database)

    def make_agent() -> Agent[str, str]:
        return Agent(deps_type=str, toolsets=[scenario.toolset(database)], instructions=INSTRUCTIONS)

    agent = make_agent()
    runs: list[dict[str, Any]] = []
    for run in scenario.runs:
        seen = await play(agent, run, model)
        committed = read_items(database, run.user) if scenario.orders else None
        alone = await play(make_agent(), run, model) if runs and not scenario.orders else None
        intended = {'user': run.user, 'did': run.did, 'fails': run.fails, 'asked': run.calls}
        runs.append({**intended, **vars(seen), 'committed': committed, 'alone': alone and vars(alone)})
    return {'key': scenario.key, 'title': scenario.title, 'runs': runs}


def make_tables(database: Path) -> None:
    """Make the database of the orders."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute('CREATE TABLE items (customer TEXT, item TEXT)')


def read_items(database: Path, customer: str) -> list[str]:
    """Read through a connection of our own what was committed."""
    with closing(sqlite3.connect(database)) as connection:
        return [item for (item,) in connection.execute('SELECT item FROM items WHERE customer = ?', [customer])]


async def perform_all(name: str | None, say: Callable[[dict[str, Any]], None]) -> int:
    """Run all scenarios, and say what they showed."""
    try:
        model = models.infer_model(name) if name else None
    except Exception as error:  # noqa: BLE001 (each provider has its own error for a missing package or key)
        say({'unusable_model': str(error)})
        return 1
    say(
        {
            'version': version('pydantic-ai-slim'),
            'python': platform.python_version(),
            'model': name,
            'scenarios': len(SCENARIOS),
        }
    )
    with TemporaryDirectory() as folder:
        for scenario in SCENARIOS:
            say(await perform(scenario, model, Path(folder)))
    return 0


def main() -> int:
    """Run all scenarios, and print one line of JSON about the environment and one for each scenario."""
    parser = ArgumentParser(
        description='Run the scenarios in this environment, and print what they showed as JSON lines.'
    )
    parser.add_argument('--model', help='a real model, as pydantic-ai names it (default: a script, offline)')
    name = parser.parse_args().model
    models.ALLOW_MODEL_REQUESTS = name is not None
    out = sys.stdout
    # What a library prints goes to the standard error, so that there is only JSON on the standard output.
    with redirect_stdout(sys.stderr):
        return asyncio.run(perform_all(name, lambda facts: print(json.dumps(facts), file=out, flush=True)))


if __name__ == '__main__':
    sys.exit(main())
