from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, async_playwright
from pydantic_ai import RunContext

from examples import approvals
from examples.approvals import DELEGATE, SCRIPT, WRITE, Desk, Mailbox, serve
from examples.browser import find_chromium

pytestmark = pytest.mark.anyio


class Watched(Mailbox):
    """Says when it's closed."""

    async def __aexit__(self, *args: object) -> None:
        self.post(f'closed with {len(self.drafts)} draft')
        await super().__aexit__(*args)


@asynccontextmanager
async def desk_of(log: list[str], **options: Any) -> AsyncGenerator[tuple[Desk, str]]:
    """Serve a desk that notes what happens, on the scripted model."""
    watched = [Watched(log.append)]
    server = Desk(approvals.desk, **options)
    with (
        approvals.desk.override(model=SCRIPT, toolsets=watched),
        approvals.clerk.override(model=SCRIPT, toolsets=watched),
    ):
        async with serve(server.app) as url:
            yield server, url


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    while not condition():
        await asyncio.sleep(0.01)


async def events(page: httpx.AsyncClient, prompt: str) -> AsyncGenerator[tuple[str, Any]]:
    """Give the events of a run as they come."""
    async with page.stream('GET', '/run', params={'prompt': prompt}) as stream:
        kind = ''
        async for line in stream.aiter_lines():
            name, _, value = line.partition(': ')
            if name == 'event':
                kind = value
            elif name == 'data':
                yield kind, json.loads(value)


def runs() -> list[str]:
    """Return the tasks in which the server works."""
    return [str(task.get_coro()) for task in asyncio.all_tasks() if 'Desk._work' in str(task.get_coro())]


async def test_main_prints_questions_and_what_was_sent(capsys: pytest.CaptureFixture[str]) -> None:
    await approvals.main(SCRIPT)

    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith('Sent')] == [
        'Sent: Dear Ada, we are closed on Monday.',
        'Sent: Dear Bob, we miss you.',
    ]
    assert sum(line.startswith('May ') for line in out) == 3
    assert out[-1] == 'The tool call was denied.'


async def test_the_toolset_stays_as_it_is_while_a_person_thinks() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        async for kind, data in events(page, WRITE):
            if kind == 'question':
                await asyncio.sleep(0.1)
                assert log == []
                answer = {'id': data['id'], 'approved': True}
                assert (await page.post('/answers', json=answer)).status_code == 204
            elif kind == 'answered':
                # Too late to change one's mind
                assert (await page.post('/answers', json={'id': data['id'], 'approved': False})).status_code == 404
        assert log == ['Sent: Dear Ada, we are closed on Monday.', 'closed with 1 draft']
        assert (await page.post('/answers', json={'id': 'guessed', 'approved': True})).status_code == 404
        assert (server.questions, runs()) == ({}, [])


async def test_nobody_answers_in_time() -> None:
    log: list[str] = []
    async with desk_of(log, time_limit=0.05) as (server, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        told = [(kind, data) async for kind, data in events(page, DELEGATE)]
        assert ('result', {'tool': 'ask_clerk', 'content': 'Nobody has answered in time.'}) in told
        assert told[-1] == ('end', {'error': None})
        # The clerk borrowed the mailbox, so it's closed once.
        assert log == ['closed with 1 draft']
        assert (server.questions, runs()) == ({}, [])


@pytest.mark.parametrize('prompt', [WRITE, DELEGATE])
async def test_who_closes_the_page_says_no_and_leaves_no_task(prompt: str) -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as page:
            told = events(page, prompt)
            async for kind, _ in told:
                if kind == 'question':
                    break
            await told.aclose()
        await until(lambda: not runs())
        assert log == ['closed with 1 draft']
        assert server.questions == {}


async def test_a_run_that_does_not_end_by_itself_is_cancelled_once_its_page_is_closed() -> None:
    log: list[str] = []
    started = asyncio.Event()

    async def forever(ctx: RunContext[Any], requests: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    async with desk_of(log, patience=0.05) as (server, _):
        with approvals.desk.override(deferred_tool_handler=forever):
            async with serve(server.app) as url, httpx.AsyncClient(base_url=url, timeout=60) as page:
                told = events(page, WRITE)
                async for kind, _ in told:
                    assert kind == 'result'
                    await started.wait()
                    break
                await told.aclose()
                await until(lambda: not runs())
    assert log == ['closed with 1 draft']


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Page]:
    """Open the page in a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium())
        try:
            page = await browser.new_page()
            await page.goto(url)
            yield page
        finally:
            await browser.close()


@pytest.mark.usefixtures('chromium')
@pytest.mark.parametrize('approved', [True, False])
async def test_a_person_answers_in_a_browser(approved: bool) -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), opened(url) as page:
        await page.fill('input', DELEGATE)
        await page.click('text=Send')
        await page.wait_for_selector('#questions button')
        question = await page.inner_text('#questions p')
        assert 'call send({"number":1})?' in question
        assert log == []
        await page.click('text=Approve' if approved else 'text=Deny')
        await page.wait_for_selector('text=Done.')
        assert await page.locator('#questions p').count() == 0
        assert log == [*(['Sent: Dear Bob, we miss you.'] if approved else []), 'closed with 1 draft']
        assert (server.questions, runs()) == ({}, [])


@pytest.mark.usefixtures('chromium')
async def test_a_browser_that_is_closed_says_no() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url):
        async with opened(url) as page:
            await page.fill('input', WRITE)
            await page.click('text=Send')
            await page.wait_for_selector('#questions button')
        await until(lambda: not runs())
        assert log == ['closed with 1 draft']
        assert server.questions == {}
