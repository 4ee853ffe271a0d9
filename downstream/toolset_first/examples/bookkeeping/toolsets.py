"""The toolsets of the bookkeepers: a transaction that agents share, and a REPL of which each run has a copy."""

from __future__ import annotations

import ast
import os
import sqlite3
from copy import deepcopy
from typing import Any

from pydantic_ai import FunctionToolset, RunContext
from typing_extensions import Self


class Ledger(FunctionToolset[Any]):
    """A transaction in a SQLite database: committed when its run succeeds, and rolled back when it fails.

    An agent that is called takes part in the transaction of its caller, if both have the toolset: that is what
    `for_sub_agent()` does unless it says otherwise.
    """

    stateful = True

    def __init__(self, path: str) -> None:
        super().__init__([self.post, self.balance])
        self.path = path
        self.db: sqlite3.Connection | None = None

    def copy(self) -> Self:
        """Return one for another run."""
        return type(self)(self.path)

    async def __aenter__(self) -> Self:
        """Begin the transaction."""
        self.db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.db.execute('BEGIN')
        self.db.execute('CREATE TABLE IF NOT EXISTS entries (account TEXT, amount INTEGER)')
        return self

    async def __aexit__(self, *failure: object) -> None:
        """End it, as the run has ended: `failure` is what it failed with, or three `None`s."""
        assert self.db is not None
        self.db.execute('ROLLBACK' if any(failure) else 'COMMIT')
        self.db.close()

    async def post(self, account: str, amount: int) -> str:
        """Post an amount to an account."""
        assert self.db is not None
        self.db.execute('INSERT INTO entries VALUES (?, ?)', (account, amount))
        return f'posted {amount} to {account}'

    async def balance(self, account: str) -> int:
        """Return the balance of an account."""
        assert self.db is not None
        return self.db.execute('SELECT coalesce(sum(amount), 0) FROM entries WHERE account = ?', (account,)).fetchone()[
            0
        ]


class Python(FunctionToolset[Any]):
    """A REPL. It runs code in this process, so give it to no model that you would not let do so."""

    stateful = True

    def __init__(self, variables: dict[str, Any] | None = None) -> None:
        super().__init__([self.run])
        self.variables = variables or {}

    def copy(self) -> Self:
        """Return one for another run, without variables."""
        return type(self)()

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        """Return one with a snapshot of the variables for a run that is called by this one."""
        return type(self)(deepcopy({name: value for name, value in self.variables.items() if name != '__builtins__'}))

    async def run(self, code: str) -> str:
        """Run code, and return the value of its last line if that is an expression."""
        parsed = ast.parse(code)
        last = parsed.body[-1]
        if isinstance(last, ast.Expr):
            parsed.body.pop()
        exec(compile(parsed, '<repl>', 'exec'), self.variables)  # noqa: S102
        if not isinstance(last, ast.Expr):
            return f'variables: {", ".join(name for name in self.variables if name != "__builtins__")}'
        return repr(eval(compile(ast.Expression(last.value), '<repl>', 'eval'), self.variables))


ledger = Ledger(os.environ.get('LEDGER', 'ledger.db'))
python = Python()
