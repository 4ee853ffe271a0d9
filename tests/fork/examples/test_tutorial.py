"""Each step of the tutorial does what its page says, on a server of its own, for two users at once and in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, async_playwright

from examples.browser import find_chromium
from examples.tutorial.__main__ import STEPS

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


class User:
    """Talks to a server."""

    def __init__(self, client: httpx.AsyncClient, name: str) -> None:
        self.client = client
        self.name = name

    async def events(self, text: str) -> AsyncGenerator[dict[str, Any]]:
        """Say something, and give the events as they come."""
        async with self.client.stream('POST', '/messages', params={'user': self.name, 'text': text}) as stream:
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                yield json.loads(line)

    async def says(self, text: str, approved: bool | None = None) -> str:
        """Say something, answer each question alike, and return what the agent says."""
        said = ''
        async for event in self.events(text):
            if question := event.get('question'):
                assert approved is not None
                assert await self.answers(question, approved) == 204
            said += event.get('text', event.get('error', ''))
        return said.strip()

    async def answers(self, question: str, approved: bool) -> int:
        """Answer a question, and return the status."""
        params = {'user': self.name, 'call': question, 'approved': approved}
        return (await self.client.post('/approvals', params=params)).status_code

    async def orders(self) -> list[str]:
        """Return what the user has ordered."""
        return (await self.client.get('/orders', params={'user': self.name})).json()


class Server:
    """A step that is served by a process."""

    def __init__(self, process: Process, url: str, client: httpx.AsyncClient) -> None:
        self.process = process
        self.url = url
        self.ada, self.bob = User(client, 'ada'), User(client, 'bob')

    async def both(self, *texts: str) -> list[str]:
        """Have both users say something at once."""
        return await asyncio.gather(*(user.says(text) for user, text in zip((self.ada, self.bob), texts, strict=True)))


@asynccontextmanager
async def serving(step: int, folder: Path) -> AsyncGenerator[Server]:
    """Serve a step as `make tutorial` does, with its databases in a folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, '-m', 'examples.tutorial', str(step), '--port', '0'),
        cwd=folder,
        env=os.environ | {'PYTHONPATH': os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])},
        stdout=PIPE,
    )
    assert process.stdout
    try:
        found = re.search(r'Open (http://[\d.:]+)/', (await process.stdout.readline()).decode())
        assert found
        async with httpx.AsyncClient(base_url=found[1], timeout=60) as client:
            yield Server(process, found[1], client)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_step_1_leaks_from_user_to_user(tmp_path: Path) -> None:
    async with serving(1, tmp_path) as server:
        assert await server.ada.says('keep call the bank') == 'Notes: call the bank'
        assert await server.bob.says('keep buy milk') == 'Notes: call the bank, buy milk'


async def test_step_2_gives_each_run_its_own_notes(tmp_path: Path) -> None:
    async with serving(2, tmp_path) as server:
        assert await server.both('keep call the bank', 'keep buy milk') == ['Notes: call the bank', 'Notes: buy milk']
        assert await server.ada.says('keep buy tea') == 'Notes: buy tea'


@pytest.mark.parametrize('step', [3, 4, 5, 6])
async def test_steps_from_3_on_keep_the_notes_of_each_chat_and_stream_answers(step: int, tmp_path: Path) -> None:
    async with serving(step, tmp_path) as server:
        assert await server.both('keep call the bank', 'keep buy milk') == ['Notes: call the bank', 'Notes: buy milk']
        assert await server.both('keep buy tea', 'keep buy eggs') == [
            'Notes: call the bank, buy tea',
            'Notes: buy milk, buy eggs',
        ]
        words = [event['text'] async for event in server.ada.events('keep rest')]
        assert words == ['Notes: ', 'call ', 'the ', 'bank, ', 'buy ', 'tea, ', 'rest ']
        assert 'I know these words: ' in await server.bob.says('hello')


@pytest.mark.parametrize('step', [3, 6])
async def test_chat_goes_on_when_a_client_has_gone_and_when_a_message_is_sent_twice(step: int, tmp_path: Path) -> None:
    async with serving(step, tmp_path) as server:
        gone = server.ada.events('keep buy tea')
        await anext(gone)
        await gone.aclose()
        twice = await asyncio.gather(server.ada.says('keep rest'), server.ada.says('keep rest'))
        assert sorted(twice) == ['Notes: buy tea, rest', 'Notes: buy tea, rest, rest']


@pytest.mark.parametrize('step', [4, 5, 6])
async def test_steps_from_4_on_send_only_what_the_user_has_approved(step: int, tmp_path: Path) -> None:
    async with serving(step, tmp_path) as server:
        await server.both('keep call the bank', 'keep buy milk')
        asked: dict[str, Any] = {}
        said = ''
        async for event in server.ada.events('send mum'):
            said += event.get('text', '')
            if 'question' in event:
                asked = event
                # Bob's chat goes on meanwhile, and Ada's question is not his to answer.
                assert await server.bob.says('send dad', approved=True) == 'Sent to dad: buy milk'
                assert await server.bob.answers(event['question'], True) == 404
                assert await server.ada.answers(event['question'], True) == 204
        assert said.strip() == 'Sent to mum: call the bank'
        assert asked | {'question': ''} == {
            'question': '',
            'tool': 'send',
            'args': '{"to":"mum"}',
            'about': 'call the bank',
        }
        assert await server.ada.answers(asked['question'], True) == 404
        assert await server.ada.says('send mum', approved=False) == 'The tool call was denied.'


@pytest.mark.parametrize('step', [5, 6])
async def test_steps_from_5_on_order_all_or_nothing(step: int, tmp_path: Path) -> None:
    async with serving(step, tmp_path) as server:
        assert await server.both('order tea; ask_clerk milk', 'order coffee; ask_clerk desk') == [
            'Ordered: tea\nThe clerk says: Ordered: milk',
            'There is no desk in the warehouse.',
        ]
        assert [await server.ada.orders(), await server.bob.orders()] == [['tea', 'milk'], []]
        # The chat goes on, and a run that waits for an approval holds up no other.
        async for event in server.ada.events('order sugar; send mum'):
            if 'question' in event:
                assert await server.bob.says('keep buy milk') == 'Notes: buy milk'
                assert await server.ada.answers(event['question'], False) == 204
        assert await server.bob.says('order coffee') == 'Ordered: coffee'
        assert [await server.ada.orders(), await server.bob.orders()] == [['tea', 'milk', 'sugar'], ['coffee']]


async def test_step_6_loses_nothing_when_it_is_killed(tmp_path: Path) -> None:
    async with serving(6, tmp_path) as server:
        await server.both('keep call the bank', 'keep buy milk; order coffee')
        async for event in server.ada.events('keep half a note; order tea; send mum'):
            assert 'question' in event
            server.process.kill()
            break
        await server.process.wait()
    async with serving(6, tmp_path) as server:
        assert await server.both('keep buy tea', 'keep buy eggs') == [
            'Notes: call the bank, buy tea',
            'Notes: buy milk, buy eggs',
        ]
        assert [await server.ada.orders(), await server.bob.orders()] == [[], ['coffee']]


@asynccontextmanager
async def opened() -> AsyncGenerator[Browser]:
    """Start a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium())
        try:
            yield browser
        finally:
            await browser.close()


async def open_chat(browser: Browser, server: Server, user: str) -> Page:
    """Open the chat of a user on a phone, as somebody who uses the keyboard."""
    context = await browser.new_context(viewport={'width': 360, 'height': 640})
    page = await context.new_page()
    await page.goto(f'{server.url}/?user={user}')
    return page


async def type_in(page: Page, text: str) -> None:
    """Type a message, where the focus is, and send it with the Enter key."""
    await page.keyboard.type(text)
    await page.keyboard.press('Enter')


@pytest.mark.usefixtures('chromium')
@pytest.mark.parametrize('step', STEPS)
async def test_steps_in_a_browser_show_each_user_a_chat(step: int, tmp_path: Path) -> None:
    async with serving(step, tmp_path) as server, opened() as browser:
        ada, bob = [await open_chat(browser, server, user) for user in ('ada', 'bob')]
        for page, note in ((ada, 'call the bank'), (bob, 'buy milk')):
            await type_in(page, f'keep {note}')
            await page.wait_for_selector('[data-done]', state='attached')
        leaked = 'call the bank, ' if step == 1 else ''
        assert (await bob.inner_text('.answer')).strip() == f'Notes: {leaked}buy milk'
        if step >= 4:
            await type_in(ada, 'send mum')
            assert 'send({"to":"mum"})? It is about: call the bank' in await ada.inner_text('.question')
            await type_in(bob, 'keep buy eggs')
            await bob.wait_for_selector('text=Notes: buy milk, buy eggs')
            # The question has the focus, so that nobody approves by a key that was meant for the message.
            await ada.keyboard.press('Enter')
            assert await ada.locator('.question').count() == 1
            for key in ('Tab', 'Enter'):
                await ada.keyboard.press(key)
            await ada.wait_for_selector('text=Sent to mum: call the bank')
            assert await ada.locator('.question').count() == 0
            await type_in(ada, 'keep rest')
            await ada.wait_for_selector('text=Notes: call the bank, rest')
        assert await ada.evaluate('document.documentElement.scrollWidth') <= 360
