"""Several resources: a browser, a transaction and a cache that succeed or fail as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from pydantic_ai import Agent, AgentRunError, RunContext, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.toolsets import DynamicToolset
from typing_extensions import Self

from examples.browser import BrowserToolset
from examples.cache import CachedSearchToolset
from examples.support import call, database, run_main, scripts
from examples.transaction import TransactionToolset


# --8<-- [start:deps]
@dataclass
class UnitOfWork:
    """What must succeed or fail as one, as the `deps` of a run."""

    pages: dict[str, str] = field(default_factory=dict[str, str])
    """The texts of the pages that were read, by URL."""
    failure: Exception | None = None
    """Why nothing of it counts."""


class ReadingToolset(BrowserToolset):
    """A browser that reads each page once. The unit of work fails with a page that can't be read."""

    def __init__(self, executable_path: str | None = None, *, page_timeout: float = 10) -> None:
        """Make a toolset whose browser isn't started yet, as `BrowserToolset` does, which has the same arguments."""
        super().__init__(executable_path, page_timeout=page_timeout)
        self.add_function(self.read)

    async def read(self, ctx: RunContext[UnitOfWork], url: str) -> str:
        """Return the text of a page."""
        work = ctx.deps
        try:
            async with self._drive() as page:
                if url not in work.pages:
                    await page.goto(url)
                    work.pages[url] = await page.locator('body').inner_text()
        except Exception as error:
            work.failure = error
            raise
        return work.pages[url]


class UnitTransactionToolset(TransactionToolset):
    """A transaction that is committed only if the run succeeds and nothing in the unit of work has failed."""

    def __init__(self, dsn: str, work: UnitOfWork, *, lock_timeout: str = '10s') -> None:
        """Make a toolset that connects when it's entered.

        Args:
            dsn: The URL of the database.
            work: What decides whether to commit.
            lock_timeout: How long a statement waits for a row that another transaction has locked, with a unit.
        """
        super().__init__(dsn, lock_timeout=lock_timeout)
        self.work = work

    def copy(self) -> Self:
        """Make a toolset with a connection of its own, for the same unit of work."""
        return type(self)(self.dsn, self.work, lock_timeout=self.lock_timeout)

    async def __aexit__(self, *args: Any) -> None:  # noqa: PYI036 (typed as in the base)
        """Commit the transaction if nothing has failed, and roll it back otherwise."""
        failure = self.work.failure
        if failure and args[0] is None:
            args = type(failure), failure, failure.__traceback__
        await super().__aexit__(*args)


def make_agent(dsn: str, model: Model | str) -> Agent[UnitOfWork, str]:
    """Make an agent that writes down what it reads."""
    return Agent(
        model,
        deps_type=UnitOfWork,
        instructions='Insert what you find into the table `findings (what)`.',
        toolsets=[
            DynamicToolset(lambda ctx: UnitTransactionToolset(dsn, ctx.deps), per_run_step=False),
            # The other tools of the browser know nothing of the unit of work.
            ReadingToolset().filtered(lambda ctx, tool: tool.name == 'read'),
        ],
    )


# --8<-- [end:deps]


# --8<-- [start:orchestrator]
def make_orchestrator(dsn: str, model: Model | str) -> Agent[None, str]:
    """Make an agent whose run owns the transaction and the cache, and leaves the browsing and the writing to others."""
    browsing = Agent(model, name='browsing', toolsets=[BrowserToolset()])

    async def browse(query: str) -> str:
        return (await browsing.run(query)).output

    transaction, cache = TransactionToolset(dsn), CachedSearchToolset(browse)
    writing = Agent(
        model,
        name='writing',
        instructions='Insert what you are told into the table `findings (what)`.',
        toolsets=[transaction, cache],
    )
    # It begins and ends the transaction, but leaves the statements to the writing agent.
    without_tools = transaction.filtered(lambda ctx, tool: False)
    orchestrator = Agent(model, name='orchestrator', toolsets=[without_tools, cache])

    @orchestrator.tool
    async def write(ctx: RunContext, finding: str) -> str:
        """Have a finding written down."""
        return (await writing.run(finding, usage=ctx.usage)).output

    return orchestrator


# --8<-- [end:orchestrator]

SITE = Path(__file__).parent / 'site'
PAGES = [(SITE / name).as_uri() for name in ('index.html', 'missing.html')]


def insert(what: str) -> ToolCallPart:
    """Make a call that writes something down."""
    return call('execute', sql=f"INSERT INTO findings VALUES ('{what}')")


def steps_of(url: str) -> dict[str, list[ToolCallPart]]:
    """Make the steps of each run for a page: something is written down before it is read, and something afterwards."""
    look = call('navigate', url=url)
    return {
        f'Read {url} and write down its heading.': [insert('begun'), call('read', url=url), insert('read')],
        f'Find the heading of {url} and write it down.': [
            call('write', finding='begun'),
            call('search', query=f'The heading of {url}'),
            call('write', finding='read'),
        ],
        # A page that can't be opened fails the run when it's tried again.
        f'The heading of {url}': [look, call('text', selector='h1') if url == PAGES[0] else look],
    }


SCRIPT = scripts(
    {
        **steps_of(PAGES[0]),
        **steps_of(PAGES[1]),
        'begun': [insert('begun')],
        'read': [insert('read')],
    }
)


async def main(model: Model | str) -> None:
    """Read a page that is there and one that isn't, with both kinds of coordination."""
    with database() as dsn:
        connection = await asyncpg.connect(dsn)
        await connection.execute('CREATE TABLE findings (what TEXT)')
        try:
            agent = make_agent(dsn, model)
            orchestrator = make_orchestrator(dsn, model)
            for url in PAGES:
                work = UnitOfWork()
                await agent.run(f'Read {url} and write down its heading.', deps=work)
                print(f'Through deps, {len(work.pages)} pages read. Written: {await take_findings(connection)}')
                try:
                    await orchestrator.run(f'Find the heading of {url} and write it down.')
                except AgentRunError:
                    print('The orchestrator has failed.')
                print(f'By an orchestrator. Written: {await take_findings(connection)}')
        finally:
            await connection.execute('DROP TABLE findings')
            await connection.close()


async def take_findings(connection: asyncpg.Connection[asyncpg.Record]) -> str:
    """Remove what was written down, and return it."""
    rows = await connection.fetch('DELETE FROM findings RETURNING what')
    return ', '.join(row['what'] for row in rows) or 'nothing'


if __name__ == '__main__':
    run_main(main, SCRIPT)
