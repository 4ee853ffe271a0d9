"""Three agents that keep books: one calls itself, two share a transaction, and a person approves what is posted."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai.models import infer_model
from toolset_first import Answer, ApprovalDenied, Approvals, Question, Runtime, load_project
from toolset_first.cli import show

FOLDER = Path(__file__).parent / 'bookkeeping'


async def main(database: Path, model: str | None) -> None:
    """Close a month twice: once somebody denies what is posted, and once they approve it."""
    project = load_project(FOLDER)
    for approved in (False, True):

        def answer(question: Question, approved: bool = approved) -> Answer:
            print(f'{question.agent} may call {question.tool} {question.arguments}: {"yes" if approved else "no"}')
            return Answer(approved)

        runtime = Runtime(
            project.agents,
            folder=FOLDER,
            model=model,
            approvals=Approvals(ask=answer, on_denial='stop'),
            on_event=show,
        )
        try:
            print(f'revenue in March: {await runtime.run_entry(project.entry, "Close March.")}')
        except ApprovalDenied as error:
            print(f'denied: {error}')
        print(f'posted for good: {posted(database)}\n')


def posted(database: Path) -> list[tuple[str, int]]:
    """Return what was committed."""
    with sqlite3.connect(database) as db:
        there = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'entries'").fetchone()[0]
        found = db.execute('SELECT account, amount FROM entries').fetchall() if there else []
    db.close()
    return found


if __name__ == '__main__':
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--model', help='a real model, such as openai:gpt-5-mini (default: scripted)')
    options = parser.parse_args()
    if options.model:
        try:
            infer_model(options.model)
        except Exception as error:  # noqa: BLE001 (whatever the client of the provider raises)
            parser.exit(1, f'error: The model `{options.model}` cannot be used: {error}\n')
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'ledger.db'
        os.environ['LEDGER'] = str(path)  # the toolset is made with it when the project is loaded
        asyncio.run(main(path, options.model))
