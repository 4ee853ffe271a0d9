from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic_ai import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from examples import chat
from examples.chat import ChatServer, make_server, serve
from examples.support import call, streaming

from .processes import Processes

pytestmark = pytest.mark.anyio


class Boom(Exception):
    """What the tests raise."""


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Do what the user says: `send x`, `fail`, or else run it as code."""
    last = messages[-1].parts[-1]
    if not isinstance(last, UserPromptPart):
        said = str(getattr(last, 'content', ''))  # which part it is differs between lines
        return ModelResponse([TextPart(said.rpartition('\n')[2] or 'done')])
    text = str(last.content)
    if text == 'fail':
        raise Boom
    if text.startswith('send '):
        return ModelResponse([call('send', variable=text.removeprefix('send '))])
    return ModelResponse([call('run_python', code=text)])


class Server:
    """A server that is running, and what was sent to the team."""

    def __init__(self, chats: ChatServer, url: str, sent: list[str], clients: AsyncExitStack) -> None:
        self.chats = chats
        self.url = url
        self.sent = sent
        self._clients = clients

    async def user(self, **options: Any) -> User:
        client = httpx.AsyncClient(base_url=self.url, timeout=300, **options)
        return User(await self._clients.enter_async_context(client))


class User:
    """Someone who has a session."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def says(self, text: str, **options: Any) -> str:
        """Return the answer to a message."""
        return said_in(await self.client.post('/messages', json={'text': text}, **options))

    async def asks(self, text: str) -> str:
        """Send a message that is answered with a call that waits for an approval, and return the id of the call."""
        response = await self.client.post('/messages', json={'text': text})
        [asked] = events_of(response)[-1]['approve']
        return asked['id']

    async def decides(self, **approved: bool) -> httpx.Response:
        return await self.client.post('/approvals', json={'approved': approved})


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """Return what was streamed."""
    response.raise_for_status()
    return [json.loads(line.removeprefix('data: ')) for line in response.text.splitlines() if line]


def said_in(response: httpx.Response) -> str:
    """Return the text that was streamed, or the error."""
    return ''.join(text for event in events_of(response) for text in event.values()).strip()


@asynccontextmanager
async def serving(**options: Any) -> AsyncGenerator[Server]:
    """Serve chats in which the model does what the user says."""
    sent: list[str] = []

    def post(text: str) -> None:
        sent.append(text)
        if 'boom' in text:
            raise Boom

    chats = make_server(streaming(_respond), post=post, **options)
    async with AsyncExitStack() as clients, serve(chats.app) as url:
        yield Server(chats, url, sent, clients)


async def test_main_prints_what_each_user_sees(capsys: pytest.CaptureFixture[str]) -> None:
    await chat.main(chat.SCRIPT)

    assert capsys.readouterr().out.splitlines() == [
        f'Ada: {chat.OURS}',
        '  I keep them.',
        f'Bob: {chat.THEIRS}',
        '  I keep them.',
        'Ada: What is the total?',
        '  300',
        'Bob: What is the total?',
        '  7',
        'Ada: Send the total to the team.',
        '  May I do this? send {"variable": "total"}',
        'Bob: Send the total to the team.',
        '  May I do this? send {"variable": "total"}',
        'Bob denies it.',
        '  The tool call was denied.',
        'Ada approves it.',
        'The team gets: total = 300',
        '  It was sent.',
    ]


async def test_chat_keeps_its_variables_and_its_history_apart_from_others() -> None:
    async with serving() as server:
        ada, bob = await server.user(), await server.user()
        await ada.says('x = 42')
        await bob.says('y = 7')

        assert [await ada.says('x'), await ada.says('"y" in globals()')] == ['42', 'False']
        assert [await bob.says('y'), await bob.says('"x" in globals()')] == ['7', 'False']
        prompts = [
            [part.content for message in each.messages for part in message.parts if isinstance(part, UserPromptPart)]
            for each in server.chats.chats.values()
        ]
    assert prompts == [['x = 42', 'x', '"y" in globals()'], ['y = 7', 'y', '"x" in globals()']]


async def test_users_do_not_wait_for_each_other(tmp_path: Path) -> None:
    waiting = f'import os, time\nwhile not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.01)\n1'
    async with serving() as server:
        ada, bob = await server.user(), await server.user()
        slow = asyncio.ensure_future(ada.says(waiting))

        assert await bob.says('2') == '2'
        assert not slow.done()
        (tmp_path / 'go').touch()
        assert await slow == '1'


async def test_approval_in_a_later_request_finds_what_was_computed() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')
        asked = await user.asks('send x')
        assert server.sent == []

        assert said_in(await user.decides(**{asked: True})) == 'It was sent.'
        assert server.sent == ['The team gets: x = 42']
        assert await user.says('x + 1') == '43'


async def test_denied_approval_sends_nothing_and_the_chat_goes_on() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')
        asked = await user.asks('send x')

        assert said_in(await user.decides(**{asked: False})) == 'The tool call was denied.'
        assert await user.says('x') == '42'
    assert server.sent == []


async def test_message_before_the_decision_is_refused_and_changes_nothing() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')
        asked = await user.asks('send x')

        response = await user.client.post('/messages', json={'text': 'x = 43'})
        assert (response.status_code, response.text) == (409, 'Decide on what waits for your approval first.')
        await user.decides(**{asked: True})
    assert server.sent == ['The team gets: x = 42']


async def test_decision_on_something_else_or_of_someone_else_is_refused() -> None:
    async with serving() as server:
        ada, bob = await server.user(), await server.user()
        await ada.says('x = 42')
        asked = await ada.asks('send x')

        assert (await bob.decides(**{asked: True})).status_code == 409
        assert (await ada.decides()).status_code == 409
        assert (await ada.decides(**{asked: True, 'other': True})).status_code == 409
        assert server.sent == []
        assert (await ada.decides(**{asked: True})).status_code == 200


async def test_decision_that_comes_twice_at_once_counts_once() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')
        asked = await user.asks('send x')
        responses = await asyncio.gather(*(user.decides(**{asked: True}) for _ in range(2)))

    assert sorted(each.status_code for each in responses) == [200, 409]
    assert server.sent == ['The team gets: x = 42']


async def test_approved_call_that_fails_is_not_made_again_and_the_chat_goes_on() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('boom = 42')
        asked = await user.asks('send boom')

        assert events_of(await user.decides(**{asked: True})) == [{'error': 'The run has failed.'}]
        assert (await user.decides(**{asked: True})).status_code == 409
        assert server.sent == ['The team gets: boom = 42']
        assert await user.says('boom') == '42'
        [kept] = server.chats.chats.values()
    assert 'It is not known whether this was done.' in str(kept.messages)


async def test_request_that_is_not_a_message_is_refused() -> None:
    async with serving() as server:
        client = (await server.user()).client
        statuses = [
            (await client.post('/messages', content=b'{')).status_code,
            (await client.post('/messages', json={})).status_code,
            (await client.post('/approvals', json={'approved': {'a': 'perhaps'}})).status_code,
        ]

        assert statuses == [422] * 3
        assert server.chats.chats == {}


async def test_session_cannot_be_chosen_by_the_client() -> None:
    async with serving() as server:
        user = await server.user(cookies={'session': 'mine'})
        await user.says('x = 42')

        [key] = server.chats.chats
        assert key != 'mine'


async def test_two_messages_of_one_chat_at_once_are_answered_one_after_the_other(processes: Processes) -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 0')
        add = 'import time; before = x; time.sleep(0.2); x = before + 1'
        await asyncio.gather(*(user.says(add) for _ in range(3)))

        assert await user.says('x') == '3'
        assert len(processes.running()) == 1


async def test_answer_comes_word_by_word_while_the_run_goes_on() -> None:
    said = asyncio.Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'Just '
        await said.wait()
        yield 'a moment.'

    chats = make_server(FunctionModel(stream_function=stream))
    async with (
        serve(chats.app) as url,
        httpx.AsyncClient(base_url=url, timeout=300) as client,
        client.stream('POST', '/messages', json={'text': 'Hello'}) as response,
    ):
        assert response.headers['content-type'].startswith('text/event-stream')
        lines = (line async for line in response.aiter_lines() if line)
        assert await anext(lines) == 'data: {"text": "Just "}'
        said.set()
        assert [line async for line in lines] == ['data: {"text": "a moment."}']


async def test_client_that_disconnects_leaves_the_run_to_its_end_and_the_chat_usable(tmp_path: Path) -> None:
    begun, go = tmp_path / 'begun', tmp_path / 'go'
    waits = f'import os, time; open({str(begun)!r}, "w").close()\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nx += 1'
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')
        async with user.client.stream('POST', '/messages', json={'text': waits}):
            with anyio.fail_after(300):
                while not begun.exists():
                    await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(user.says('x'))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        go.touch()

        # The next message waits for the run, which is in the history.
        assert await waiting == '43'
        [kept] = server.chats.chats.values()
        assert len(kept.messages) == 3 * 4


async def test_run_that_fails_leaves_the_variables_and_the_history_of_before() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')

        assert await user.says('fail') == 'The run has failed.'
        assert await user.says('x') == '42'
        [kept] = server.chats.chats.values()
        assert len(kept.messages) == 2 * 4


async def test_chat_that_was_idle_for_too_long_begins_with_a_fresh_repl(processes: Processes) -> None:
    async with serving(idle_timeout=0.3) as server:
        user = await server.user()
        await user.says('x = 42')
        asked = await user.asks('send x')
        await processes.are_gone()

        assert said_in(await user.decides(**{asked: True})) == "NameError: name 'x' is not defined"
        assert server.sent == []
        assert await user.says('"x" in globals()') == 'False'


async def test_chats_beyond_the_limit_lose_their_repls(processes: Processes) -> None:
    async with serving(limit=2) as server:
        users = [await server.user() for _ in range(4)]
        for number, user in enumerate(users):
            await user.says(f'x = {number}')

        assert len(processes.running()) == 2
        assert [await user.says('globals().get("x")') for user in users[2:]] == ['2', '3']
        assert await users[0].says('"x" in globals()') == 'False'


async def test_server_that_stops_ends_all_repls_also_one_in_use(processes: Processes) -> None:
    async with serving() as server:
        for _ in range(2):
            await (await server.user()).says('x = 42')
        busy = await server.user()
        running = asyncio.ensure_future(
            busy.says('import subprocess; subprocess.run(["sleep", "600"])', timeout=httpx.Timeout(600))
        )
        with anyio.fail_after(300):
            while not any('sleep' in line for line in processes.running().values()):
                await asyncio.sleep(0.02)
        assert len(processes.running()) == 4

    with pytest.raises(httpx.HTTPError):
        await running
    await processes.are_gone()


async def test_only_a_variable_can_be_sent() -> None:
    async with serving() as server:
        user = await server.user()
        await user.says('x = 42')
        asked = await user.asks('send print(x)')

        assert said_in(await user.decides(**{asked: True})) == 'Pass the name of a variable.'
        assert server.sent == []
