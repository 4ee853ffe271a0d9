"""A chat server on uvicorn and starlette, with one agent for all users and a pool of scopes.

>>> async with serving(routes(chats)) as url, httpx.AsyncClient(base_url=url) as client:
...     ...
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from pydantic_ai.toolsets import ToolsetScopePool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..delegation import calling
from ..line import stream_events
from ..toolsets import RUN, Journal, Session, run_as


async def until(condition: Any) -> None:
    """Wait until something is so, however slow the machine is."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError('It never was')


@asynccontextmanager
async def serving(routes: Sequence[BaseRoute]) -> AsyncGenerator[str, None]:
    """Run a server in this event loop, and give its address."""
    listening = socket.socket()
    listening.bind(('127.0.0.1', 0))
    config = uvicorn.Config(Starlette(routes=routes), log_level='error', lifespan='off', timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    task = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await until(lambda: server.started)
        yield f'127.0.0.1:{listening.getsockname()[1]}'
    finally:
        server.should_exit = True
        await task
        listening.close()


class Chats:
    """One agent for all users, whose toolset is kept for each chat."""

    def __init__(self, toolset: Session | None = None):
        self.toolset = toolset or Session('t', Journal())
        self.journal = self.toolset.journal
        self.go = asyncio.Event()
        self.waiting = 0
        self.agent = calling(['t'], ['wait'], ['t'], toolsets=[self.toolset], tools=[self.wait], name='agent')
        self.quick = calling(['t'], toolsets=[self.toolset], name='quick')
        self.pool = ToolsetScopePool(self.toolset)
        self.routes = [
            Route('/chat/{user}', self.chat),
            Route('/pinged/{user}', self.pinged),
            WebSocketRoute('/socket', self.socket),
        ]

    async def wait(self, value: str) -> None:
        """Hold the stream up until the test lets it go on."""
        self.waiting += 1
        await self.go.wait()

    async def answer(self, user: str, *, quick: bool = False) -> AsyncGenerator[str, None]:
        """Answer a message in chunks, the last of which says what the chat's toolset holds."""
        async with self.pool(user) as chat:
            RUN.set(user)
            async with stream_events(self.quick if quick else self.agent, 'go', toolsets=[chat]) as events:
                async for _ in events:
                    yield 'chunk\n'
                    RUN.set(user)
            yield ','.join(chat.instance_of(self.toolset).values) + '\n'

    async def chat(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self.answer(request.path_params['user'], quick='quick' in request.query_params))

    async def pinged(self, request: Request) -> StreamingResponse:
        """Send a line now and then while the next chunk is awaited, in a task of its own."""

        async def body() -> AsyncGenerator[str, None]:
            chunks = self.answer(request.path_params['user'])
            while True:
                chunk = asyncio.ensure_future(anext(chunks, None))
                while not (await asyncio.wait([chunk], timeout=0.01))[0]:
                    yield 'ping\n'
                text = chunk.result()
                if text is None:
                    return
                yield text

        return StreamingResponse(body())

    async def socket(self, websocket: WebSocket) -> None:
        """Serve all chats of one connection in one task, chunk by chunk, in turns."""
        await websocket.accept()
        streams: dict[str, AsyncGenerator[str, None]] = {}
        try:
            for user in (await websocket.receive_text()).split(','):
                streams[user] = self.answer(user, quick=True)
            while streams:
                for user, stream in list(streams.items()):
                    try:
                        chunk = await anext(stream)
                    except StopAsyncIteration:
                        del streams[user]
                    else:
                        await websocket.send_text(f'{user}: {chunk.strip()}')
                    await self.elsewhere()
            await websocket.close()
        except WebSocketDisconnect:
            pass

    async def elsewhere(self) -> None:
        """Run the agent for nobody's chat, and check that it works with nobody's state."""
        await run_as('elsewhere', self.quick)

    def check(self, *users: str) -> None:
        """Check that nothing has crossed, and that all was exited that was entered."""
        for event in self.journal.of('call'):
            values = set(event.toolset.values)
            assert len(values) == 1, f'{values} in one toolset'
            assert values <= {*users, 'elsewhere'}
        assert len(self.journal.of('enter')) == len(self.journal.of('exit'))
