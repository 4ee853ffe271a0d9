from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from playwright.async_api import Error
from pydantic_ai import Agent, ModelRequest, RetryPromptPart, ToolReturnPart
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.toolsets import ToolsetScope

from examples import browser
from examples.browser import BrowserToolset, find_chromium
from examples.support import Step, call, script

from .processes import Processes

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures('chromium')]


class Boom(Exception):
    """What the tests raise."""


class Site(BaseHTTPRequestHandler):
    """A site that counts the visits of a browser in a cookie, and has pages that come once or never."""

    stopping = threading.Event()
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        first = self.path not in self.paths
        self.paths.append(self.path)
        if self.path == '/never':
            self.stopping.wait()
        if self.path == '/never' or (self.path == '/once' and not first):
            return  # closes the connection
        cookie = SimpleCookie(self.headers.get('Cookie'))
        visit = int(cookie['visits'].value) + 1 if 'visits' in cookie else 1
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.send_header('Set-Cookie', f'visits={visit}')
        self.end_headers()
        # Without an icon, the browser would ask for one.
        page = f'<link rel="icon" href="data:,"><title>Page {self.path}</title><h1>Visit {visit}</h1><a href="/next">Next</a>'
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """Start the site, and give its URL."""
    Site.stopping.clear()
    Site.paths.clear()
    with ThreadingHTTPServer(('127.0.0.1', 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f'http://127.0.0.1:{server.server_port}'
        Site.stopping.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Give the folder where the browser keeps its temporary files. Its sockets need a short path."""
    folder = Path(tempfile.mkdtemp(prefix='browser-'))
    monkeypatch.setenv('TMPDIR', str(folder))
    yield folder
    shutil.rmtree(folder)


class CountingToolset(BrowserToolset):
    """Also has a tool that counts the pages of the browser."""

    def __init__(self, executable_path: str | None = None, *, page_timeout: float = 10) -> None:
        super().__init__(executable_path, page_timeout=page_timeout)
        self.add_function(self.pages)

    async def pages(self) -> int:
        return len(self.page.context.pages)


def family(*child_steps: Step, toolset: BrowserToolset | None = None) -> Agent[None, str]:
    """Make an agent that delegates to another one with the same toolset, and puts up with its failure."""
    toolset = toolset or CountingToolset()
    child = Agent(script(*child_steps), toolsets=[toolset])
    agent = Agent(toolsets=[toolset])

    @child.tool_plain
    async def fail() -> str:
        raise Boom

    @agent.tool_plain
    async def delegate() -> str:
        try:
            return (await child.run('go')).output
        except (Boom, Error) as error:
            return type(error).__name__

    return agent


async def requested(path: str) -> None:
    """Wait until a page of the site is asked for."""
    while path not in Site.paths:
        await asyncio.sleep(0.01)


async def results(agent: Agent[Any, str], *steps: Step, scope: ToolsetScope | None = None) -> list[str]:
    """Run an agent on a script, and return the first line of what the model was told of each tool call."""
    run = await agent.run('go', model=script(*steps), toolsets=[scope] if scope else None)
    parts = [part for message in run.all_messages() if isinstance(message, ModelRequest) for part in message.parts]
    answers = [part for part in parts if isinstance(part, (ToolReturnPart, RetryPromptPart))]
    return [str(part.content).partition('\n')[0] for part in answers]


async def test_main_prints_what_each_agent_reads_on_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    await browser.main(browser.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        'The reader answers: Whatever you buy can be returned for 30 days.',
        'On its own page, the agent reads: The shop',
        'In the next run, the agent reads: Terms',
    ]


async def test_runs_one_after_another_and_at_once_have_fresh_browsers(site: str) -> None:
    agent = Agent(script(call('navigate', url=site), call('text', selector='h1')), toolsets=[BrowserToolset()])

    outputs = [(await agent.run('go')).output]
    outputs += [run.output for run in await asyncio.gather(agent.run('go'), agent.run('go'))]

    assert outputs == ['Visit 1'] * 3


async def test_runs_in_a_scope_go_on_with_the_page_and_the_cookies_and_the_end_closes_the_browser(
    site: str, processes: Processes
) -> None:
    browser = CountingToolset()
    agent = family([call('text', selector='h1'), call('pages')], toolset=browser)
    async with ToolsetScope(browser) as scope:
        await results(agent, call('navigate', url=f'{site}/start'), scope=scope)
        with pytest.raises(UnexpectedModelBehavior):
            await results(agent, call('no such tool'), call('no such tool'), scope=scope)

        assert await results(agent, call('text', selector='h1'), call('delegate'), call('pages'), scope=scope) == [
            'Visit 1',
            'Visit 2, 2',
            '1',
        ]
        assert await results(agent, call('click', selector='a'), call('text', selector='h1'), scope=scope) == [
            f'{site}/next',
            'Visit 3',
        ]
        assert processes.running()
    await processes.are_gone()


async def test_browser_that_has_died_fails_each_run_in_its_scope_and_a_new_scope_has_a_fresh_one(
    site: str, processes: Processes
) -> None:
    toolset = BrowserToolset()
    agent = Agent(toolsets=[toolset])
    visit = call('navigate', url=site), call('text', selector='h1')
    async with ToolsetScope(toolset) as scope:
        await results(agent, *visit, scope=scope)
        for pid, command in processes.running().items():
            if '--remote-debugging' in command:
                os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(Error, match='has been closed'):
                await results(agent, *visit, scope=scope)
    async with ToolsetScope(toolset) as scope:
        assert await results(agent, *visit, scope=scope) == ['Page /', 'Visit 1']
    await processes.are_gone()


async def test_sub_agent_starts_at_the_url_with_the_cookies_and_leaves_the_page_unmoved(site: str) -> None:
    agent = family([call('text', selector='h1'), call('click', selector='a'), call('pages')])

    assert await results(
        agent, call('navigate', url=f'{site}/start'), call('delegate'), call('text', selector='h1'), call('pages')
    ) == ['Page /start', f'Visit 2, {site}/next, 2', 'Visit 1', '1']


@pytest.mark.parametrize('path', ['/start', '/once'], ids=['in a tool', 'while it starts'])
async def test_sub_agent_fails_and_its_page_is_closed(site: str, path: str) -> None:
    agent = family(call('fail'))
    raised = {'/start': 'Boom', '/once': 'Error'}[path]

    steps = call('navigate', url=site + path), call('delegate'), call('pages'), call('text', selector='h1')
    assert await results(agent, *steps) == [f'Page {path}', raised, '1', 'Visit 1']


async def test_sub_agents_at_once_have_a_page_each(site: str) -> None:
    agent = family(call('click', selector='a'), call('text', selector='h1'))

    steps = call('navigate', url=site), [call('delegate'), call('delegate')], call('pages')
    opened, *visits, pages = await results(agent, *steps)

    assert (opened, pages) == ('Page /', '1')
    assert all(visit.startswith('Visit') for visit in visits)


async def test_sub_agent_of_a_page_that_opened_nothing_starts_with_nothing(site: str) -> None:
    agent = family(call('navigate', url=site))

    unreachable = call('navigate', url='http://127.0.0.1:1/')
    first, _, second = await results(agent, call('delegate'), unreachable, call('delegate'))
    assert (first, second) == ('Page /', 'Page /')


async def test_calls_at_once_on_one_page_take_turns(site: str) -> None:
    agent = Agent(toolsets=[BrowserToolset()])
    paths = '/a', '/b', '/c'

    calls = [call('navigate', url=site + path) for path in paths]
    assert sorted(await results(agent, calls)) == [f'Page {path}' for path in paths]


async def test_calls_that_fail_tell_the_model_why_and_the_next_ones_succeed(site: str) -> None:
    agent = Agent(toolsets=[BrowserToolset(page_timeout=10)])
    unreachable, missing = call('navigate', url='http://127.0.0.1:1/'), call('text', selector='h6')

    steps = unreachable, call('navigate', url=site), missing, call('text', selector='h1')
    assert await results(agent, *steps) == [
        'Page.goto: net::ERR_UNSAFE_PORT at http://127.0.0.1:1/',
        'Page /',
        'Locator.inner_text: Timeout 10000ms exceeded.',
        'Visit 1',
    ]


async def succeed(agent: Agent[None, str], site: str) -> None:
    await agent.run('go', model=script(call('navigate', url=site)))


async def fail(agent: Agent[None, str], site: str) -> None:
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run('go', model=script(call('navigate', url=site), call('no such tool'), call('no such tool')))


async def be_cancelled(agent: Agent[None, str], site: str) -> None:
    run = asyncio.ensure_future(agent.run('go', model=script(call('navigate', url=f'{site}/never'))))
    await requested('/never')
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def be_in_a_cancelled_scope(agent: Agent[None, str], site: str) -> None:
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await agent.run('go', model=script(call('navigate', url=f'{site}/never')))

        group.start_soon(run)
        await requested('/never')
        group.cancel_scope.cancel()


@pytest.mark.parametrize('end', [succeed, fail, be_cancelled, be_in_a_cancelled_scope])
async def test_run_ends_and_neither_process_nor_file_is_left(
    end: Callable[[Agent[None, str], str], Awaitable[None]], site: str, processes: Processes, temporary: Path
) -> None:
    await end(Agent(toolsets=[BrowserToolset()]), site)

    await processes.are_gone()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize('started', [1, 2], ids=['Playwright', 'Chromium'])
async def test_run_is_cancelled_while_the_browser_starts_and_no_process_is_left(
    started: int, processes: Processes
) -> None:
    run = asyncio.ensure_future(Agent(script('done'), toolsets=[BrowserToolset()]).run('go'))
    while len(processes.running()) < started:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # asyncio itself ends a process that it's still starting
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    await processes.are_gone()


async def test_browser_that_dies_fails_the_run(site: str, processes: Processes) -> None:
    agent = Agent(toolsets=[BrowserToolset()])

    @agent.tool_plain
    async def kill() -> None:
        for pid, command in processes.running().items():
            if '--remote-debugging' in command:
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(Error, match='has been closed'):
        await agent.run('go', model=script(call('navigate', url=site), call('kill'), call('text', selector='h1')))
    await processes.are_gone()


async def test_chromium_that_is_not_there_is_refused_with_what_to_install(processes: Processes) -> None:
    agent = Agent(script('done'), toolsets=[BrowserToolset('/no/such/chromium')])

    with pytest.raises(RuntimeError, match="executable doesn't exist at /no/such/chromium") as raised:
        await agent.run('go')
    assert 'Install it, on Debian with `apt-get install chromium`' in str(raised.value)
    await processes.are_gone()


async def test_page_of_a_toolset_that_is_not_entered_is_refused() -> None:
    with pytest.raises(RuntimeError, match='BrowserToolset has no page yet: enter it with `async with`'):
        _ = BrowserToolset().page


def test_find_chromium_on_the_path_is_taken_unless_playwrights_own_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / 'chromium'
    program.touch(mode=0o755)
    monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.delenv('PLAYWRIGHT_BROWSERS_PATH', raising=False)

    assert find_chromium() == str(program)
    monkeypatch.setenv('PLAYWRIGHT_BROWSERS_PATH', str(tmp_path))
    assert find_chromium() is None
