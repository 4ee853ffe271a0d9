from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from pydantic_ai import ToolCallPart, UnexpectedModelBehavior

from examples import coordinated
from examples.coordinated import UnitOfWork, make_agent, make_orchestrator
from examples.support import call, script, scripts

from .processes import Processes
from .watching import Watcher, watching

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures('chromium')]


class Site(BaseHTTPRequestHandler):
    """A site that writes down which of its pages were asked for."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.end_headers()
        # Without an icon, the browser would ask for one.
        self.wfile.write(f'<link rel="icon" href="data:,"><h1>Page {self.path}</h1>'.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """Start the site, and give its URL."""
    Site.paths.clear()
    with ThreadingHTTPServer(('127.0.0.1', 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f'http://127.0.0.1:{server.server_port}'
        server.shutdown()
        thread.join()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Give a URL that nobody answers at."""
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        yield f'http://127.0.0.1:{taken.getsockname()[1]}/'


@asynccontextmanager
async def table_of_findings(url: str) -> AsyncGenerator[Watcher]:
    """Make a table to write to, and see that no connection is left afterwards."""
    async with watching(url) as watcher:
        await watcher.connection.execute('CREATE TABLE findings (what TEXT)')
        yield watcher
        await watcher.wait_until_alone()


async def written(watcher: Watcher) -> list[str]:
    return await watcher.column('SELECT what FROM findings')


def insert(what: str) -> ToolCallPart:
    return call('execute', sql=f"INSERT INTO findings VALUES ('{what}')")


async def test_main_writes_down_what_could_be_read(
    database: str, capsys: pytest.CaptureFixture[str], processes: Processes
) -> None:
    await coordinated.main(coordinated.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        'Through deps, 1 pages read. Written: begun, read',
        'By an orchestrator. Written: begun, read',
        'Through deps, 0 pages read. Written: nothing',
        'The orchestrator has failed.',
        'By an orchestrator. Written: nothing',
    ]
    await processes.are_gone()


# Through deps


async def test_unit_of_work_whose_pages_can_be_read_commits(database: str, site: str) -> None:
    again = call('read', url=f'{site}/a')
    steps = [insert('begun'), [call('read', url=f'{site}/a'), call('read', url=f'{site}/b'), again], insert('read')]
    work = UnitOfWork()
    async with table_of_findings(database) as watcher:
        await make_agent(database, script(*steps)).run('go', deps=work)

        assert await written(watcher) == ['begun', 'read']
    assert work == UnitOfWork({f'{site}/a': 'Page /a', f'{site}/b': 'Page /b'})
    assert sorted(Site.paths) == ['/a', '/b']


async def test_unit_of_work_with_a_page_that_cannot_be_read_rolls_back(
    database: str, site: str, nowhere: str, processes: Processes
) -> None:
    steps = [insert('begun'), call('read', url=site), call('read', url=nowhere), insert('read'), 'All is well.']
    work = UnitOfWork()
    async with table_of_findings(database) as watcher:
        result = await make_agent(database, script(*steps)).run('go', deps=work)

        assert result.output == 'All is well.'
        assert await written(watcher) == []
    assert 'ERR_CONNECTION_REFUSED' in str(work.failure)
    assert work.pages == {site: 'Page /'}
    await processes.are_gone()


async def test_unit_of_work_of_a_run_that_fails_rolls_back(database: str, site: str) -> None:
    wrong = call('execute', sql='nonsense')
    async with table_of_findings(database) as watcher:
        agent = make_agent(database, script(call('read', url=site), insert('read'), wrong, wrong))
        with pytest.raises(UnexpectedModelBehavior):
            await agent.run('go', deps=UnitOfWork())

        assert await written(watcher) == []


async def test_units_of_work_at_once_do_not_affect_each_other(database: str, site: str, nowhere: str) -> None:
    agent = make_agent(
        database, scripts({url: [insert(url), call('read', url=url), 'done'] for url in (site, nowhere)})
    )
    async with table_of_findings(database) as watcher:
        await asyncio.gather(*(agent.run(url, deps=UnitOfWork()) for url in (site, nowhere)))

        assert await written(watcher) == [site]


# By an orchestrator


async def test_orchestrator_whose_page_can_be_read_commits(database: str, site: str, processes: Processes) -> None:
    search = call('search', query='look')
    model = scripts(
        {
            'go': [call('write', finding='begun'), search, call('write', finding='read')],
            'look': [call('navigate', url=site), call('text', selector='h1')],
            'begun': [insert('begun')],
            # It finds in the cache what the orchestrator has searched for.
            'read': [call('search', query='look'), insert('read')],
        }
    )
    async with table_of_findings(database) as watcher:
        await make_orchestrator(database, model).run('go')

        assert await written(watcher) == ['begun', 'read']
    assert Site.paths == ['/']
    await processes.are_gone()


async def test_orchestrator_whose_page_cannot_be_read_rolls_back(
    database: str, nowhere: str, processes: Processes
) -> None:
    look = call('navigate', url=nowhere)
    model = scripts(
        {
            'go': [call('write', finding='begun'), call('search', query='look'), call('write', finding='read')],
            'look': [look, look],
            'begun': [insert('begun')],
        }
    )
    async with table_of_findings(database) as watcher:
        with pytest.raises(UnexpectedModelBehavior, match='navigate'):
            await make_orchestrator(database, model).run('go')

        assert await written(watcher) == []
    await processes.are_gone()
