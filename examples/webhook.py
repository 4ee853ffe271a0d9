"""A webhook: messages that leave the process, each of them once."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.models import Model

from examples.support import call, run_main, script


# --8<-- [start:toolset]
class WebhookToolset(FunctionToolset[Any]):
    """Posts messages to a webhook. It holds nothing but its configuration, so there is nothing to declare."""

    def __init__(self, url: str, *, attempts: int = 3, timeout: float = 10) -> None:
        """Make a toolset that posts to a URL.

        Args:
            url: The address of the webhook.
            attempts: How often a message is sent at most, while no response comes.
            timeout: How many seconds to wait for the server each time.
        """
        super().__init__([self.post_message])
        self.url = url
        self.attempts = attempts
        self.timeout = timeout

    async def post_message(self, ctx: RunContext[Any], text: str) -> str:
        """Post a message to the team's channel."""
        # The same each time that this call is sent, and different for each other call: some models count from one in each run.
        key = f'{ctx.run_id}/{ctx.tool_call_id}'
        response = await self._send({'text': text}, headers={'Idempotency-Key': key})
        if response.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            # Another message may do.
            raise ModelRetry(f'The webhook refused the message: {response.text}')
        # The model can't do anything about other errors, so they end the run.
        response.raise_for_status()
        return 'posted'

    async def _send(self, message: dict[str, str], headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient(timeout=self.timeout) as client:
            for _ in range(self.attempts - 1):
                try:
                    return await client.post(self.url, json=message, headers=headers)
                except httpx.TransportError:
                    # The message may have arrived, and only the response was lost. The key tells the server.
                    continue
            return await client.post(self.url, json=message, headers=headers)


# --8<-- [end:toolset]


# --8<-- [start:server]
class Channel(ThreadingHTTPServer):
    """A server on this machine that keeps each message once, whatever comes twice."""

    def __init__(self, lost_responses: int = 0) -> None:
        """Make a server on a free port.

        Args:
            lost_responses: How many of the first responses don't reach the client.
        """
        super().__init__(('127.0.0.1', 0), ChannelHandler)
        self.url = f'http://127.0.0.1:{self.server_port}/channel'
        self.lost_responses = lost_responses
        self.requests = 0
        self.messages: dict[str, str] = {}


class ChannelHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_POST(self) -> None:
        """Keep a message unless its key is known."""
        channel = self.server
        assert isinstance(channel, Channel)
        channel.requests += 1
        text = json.loads(self.rfile.read(int(self.headers['Content-Length'])))['text']
        if self.path != '/channel':
            self.respond(HTTPStatus.NOT_FOUND, 'There is no such channel.')
        elif not text:
            self.respond(HTTPStatus.UNPROCESSABLE_ENTITY, 'The text is empty.')
        else:
            channel.messages.setdefault(self.headers['Idempotency-Key'], text)
            if channel.requests > channel.lost_responses:
                self.respond(HTTPStatus.OK, 'ok')

    def respond(self, status: HTTPStatus, text: str) -> None:
        """Send a response."""
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


# --8<-- [end:server]


@contextmanager
def run_channel(lost_responses: int = 0) -> Generator[Channel]:
    """Run a server until the end of the block."""
    with Channel(lost_responses) as channel:
        thread = Thread(target=channel.serve_forever, kwargs={'poll_interval': 0.05})
        thread.start()
        try:
            yield channel
        finally:
            channel.shutdown()
            thread.join()


SCRIPT = script(call('post_message', text='The report is ready.'))


async def post(url: str, model: Model | str) -> None:
    """Let an agent post a message, and print what it says."""
    agent = Agent(toolsets=[WebhookToolset(url)])
    result = await agent.run('Tell the team that the report is ready.', model=model)
    print(result.output)


async def main(model: Model | str) -> None:
    """Post to the webhook that `WEBHOOK_URL` names, or to a server on this machine that loses its first response."""
    if url := os.environ.get('WEBHOOK_URL'):
        await post(url, model)
        return
    with run_channel(lost_responses=1) as channel:
        await post(channel.url, model)
        print(f'{channel.requests} requests, messages: {list(channel.messages.values())}')


if __name__ == '__main__':
    run_main(main, SCRIPT)
