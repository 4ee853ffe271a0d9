"""A chat over HTTP: answers are streamed, and each user has a REPL that stays from message to message, and approves what leaves it."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from pydantic import BaseModel, ValidationError
from pydantic_ai import (
    AbstractToolset,
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelRequest,
    ModelRetry,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
    ToolReturnPart,
    toolsets,
)
from pydantic_ai.models import Model
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from typing_extensions import Self, TypeVar

from examples.repl import ReplToolset
from examples.support import call, run_main, scripts

BodyT = TypeVar('BodyT', bound=BaseModel)
logger = logging.getLogger(__name__)
Answer = str | DeferredToolRequests


# --8<-- [start:toolset]
class DeskToolset(ReplToolset):
    """A REPL whose variables can be sent to the team, once a person has approved it."""

    def __init__(self, post: Callable[[str], Any] = print, *, time_limit: float = 30, max_output: int = 10_000) -> None:
        """Make a toolset whose process is started by the first call.

        Args:
            post: What sends a text to the team.
            time_limit: As of `ReplToolset`.
            max_output: As of `ReplToolset`.
        """
        super().__init__(time_limit=time_limit, max_output=max_output)
        self.post = post
        self.add_function(self.send, requires_approval=True)

    def copy(self) -> Self:
        """Make a toolset that starts a process of its own, without variables."""
        return type(self)(self.post, time_limit=self.time_limit, max_output=self.max_output)

    async def send(self, variable: str) -> str:
        """Send the value of a variable to the team."""
        if not variable.isidentifier():
            raise ModelRetry('Pass the name of a variable.')
        value = await self.run_python(f'print("value:", {variable})')
        if not value.startswith('value: '):
            return f'Nothing was sent.\n{value}'
        self.post(f'The team gets: {variable} = {value[len("value: ") :]}')
        return 'It was sent.'


# --8<-- [end:toolset]


# --8<-- [start:server]
class Message(BaseModel):
    """What a user says."""

    text: str


class Approval(BaseModel):
    """What a user decides on each call that waits, by the call's id."""

    approved: dict[str, bool]


@dataclass
class Chat:
    """What the server keeps of a chat, besides its REPL."""

    messages: list[ModelMessage] = field(default_factory=list['ModelMessage'])
    waiting: DeferredToolRequests | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def settle(self) -> None:
        """Answer the calls of a run that has failed: nobody knows which of them were made, and none must be made twice."""
        if self.waiting:
            told = 'It is not known whether this was done.'
            parts = [ToolReturnPart(each.tool_name, told, each.tool_call_id) for each in self.waiting.approvals]
            self.messages = [*self.messages, ModelRequest(parts)]
            self.waiting = None


class Turn:
    """What the client is told of a run, as server-sent events. Nobody has to read them."""

    def __init__(self) -> None:
        """Begin without events."""
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def tell(self, **event: Any) -> None:
        """Send an event."""
        self.events.put_nowait(event)

    def end(self) -> None:
        """Send no more."""
        self.events.put_nowait(None)

    def ask(self, requests: DeferredToolRequests) -> None:
        """Ask for the approval of calls."""
        self.tell(
            approve=[
                {'id': each.tool_call_id, 'tool': each.tool_name, 'arguments': each.args_as_dict()}
                for each in requests.approvals
            ]
        )

    async def note(self, ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        """Pass on what the model says. This is the `event_stream_handler`."""
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                self.tell(text=event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                self.tell(text=event.delta.content_delta)

    async def stream(self) -> AsyncGenerator[str]:
        """Give the events as the body of a response."""
        while (event := await self.events.get()) is not None:
            yield f'data: {json.dumps(event)}\n\n'


class ChatServer:
    """Answers messages over HTTP. Each session is a chat, with toolsets of its own."""

    def __init__(
        self,
        agent: Agent[None, Answer],
        *kept: AbstractToolset[None],
        limit: int = 100,
        idle_timeout: float = 600,
    ) -> None:
        """Make a server.

        Args:
            agent: Who answers.
            kept: The toolsets of the agent that stay from message to message.
            limit: How many chats may have toolsets at a time.
            idle_timeout: The seconds after which a chat that nobody uses loses its toolsets.
        """
        self.agent = agent
        self.chats: dict[str, Chat] = {}
        self.running: set[asyncio.Task[None]] = set()
        self.scopes = toolsets.ToolsetScopePool(*kept, limit=limit, idle_timeout=idle_timeout)
        self.app = Starlette(
            routes=[
                Route('/messages', self.post_message, methods=['POST']),
                Route('/approvals', self.post_approval, methods=['POST']),
            ],
            lifespan=self.lifespan,
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        """Cancel all runs when the server stops, and end the toolsets of all chats."""
        try:
            yield
        finally:
            await self.scopes.aclose()

    async def post_message(self, request: Request) -> Response:
        """Answer a message."""
        message = await read(request, Message)
        key, chat = self.find_chat(request)
        # Two messages of one chat at once are answered one after the other.
        await chat.lock.acquire()
        if chat.waiting:
            chat.lock.release()
            raise HTTPException(409, 'Decide on what waits for your approval first.')
        return self.respond(key, chat, message.text)

    async def post_approval(self, request: Request) -> Response:
        """Go on with the calls that wait for an approval."""
        decided = (await read(request, Approval)).approved
        key, chat = self.find_chat(request)
        await chat.lock.acquire()
        asked = {each.tool_call_id for each in chat.waiting.approvals} if chat.waiting else set[str]()
        if not asked or decided.keys() != asked:
            chat.lock.release()
            raise HTTPException(409, f'These calls wait for your approval: {sorted(asked)}.')
        return self.respond(key, chat, results=DeferredToolResults(approvals={**decided}))

    def find_chat(self, request: Request) -> tuple[str, Chat]:
        """Find the chat of a session, or begin one."""
        key = request.cookies.get('session', '')
        if key not in self.chats:
            # Whoever knows the key has the REPL, so a client can't choose it.
            key = secrets.token_urlsafe()
            self.chats[key] = Chat()
        return key, self.chats[key]

    def respond(
        self, key: str, chat: Chat, text: str | None = None, results: DeferredToolResults | None = None
    ) -> Response:
        """Start a run, and stream what it says. The run has a task of its own, so it goes on if the client disconnects."""
        turn = Turn()
        task = asyncio.create_task(self.answer(key, chat, turn, text, results))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        response = StreamingResponse(turn.stream(), media_type='text/event-stream')
        response.set_cookie('session', key, httponly=True, samesite='strict')
        return response

    async def answer(
        self, key: str, chat: Chat, turn: Turn, text: str | None, results: DeferredToolResults | None
    ) -> None:
        """Run the agent with the toolsets of the chat, whose lock is held, and release that."""
        try:
            async with self.scopes(key) as scope:
                result = await self.agent.run(
                    text,
                    toolsets=[scope],
                    message_history=chat.messages,
                    deferred_tool_results=results,
                    event_stream_handler=turn.note,
                )
            chat.messages = result.all_messages()
            chat.waiting = result.output if isinstance(result.output, DeferredToolRequests) else None
            if chat.waiting:
                turn.ask(chat.waiting)
        except BaseException as error:
            chat.settle()
            turn.tell(error='The run has failed.')
            if not isinstance(error, Exception):
                raise
            logger.exception('A run has failed')
        finally:
            chat.lock.release()
            turn.end()


async def read(request: Request, body: type[BodyT]) -> BodyT:
    """Read what a request has in it.

    Raises:
        HTTPException: It is something else.
    """
    try:
        return body.model_validate_json(await request.body())
    except ValidationError as error:
        raise HTTPException(422, str(error)) from error


# --8<-- [end:server]


# --8<-- [start:serve]
@asynccontextmanager
async def serve(app: Starlette) -> AsyncGenerator[str]:
    """Serve an application on a free port of this machine until the end of the block, and give its URL."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        # When it stops, requests have two seconds to end by themselves.
        config = uvicorn.Config(app, log_level='warning', ws='none', lifespan='on', timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        try:
            yield f'http://127.0.0.1:{listener.getsockname()[1]}'
        finally:
            server.should_exit = True
            await serving


# --8<-- [end:serve]


class User:
    """Someone who talks to the server."""

    def __init__(self, name: str, client: httpx.AsyncClient) -> None:
        """Name a user, whose session is in the client's cookies."""
        self.name = name
        self.client = client

    async def say(self, text: str) -> list[dict[str, Any]]:
        """Send a message, print what comes back, and return the calls that wait for an approval."""
        print(f'{self.name}: {text}')
        return await self._post('/messages', text=text)

    async def decide(self, calls: list[dict[str, Any]], approved: bool) -> None:
        """Approve or deny calls, and print what comes back."""
        print(f'{self.name} {"approves" if approved else "denies"} it.')
        await self._post('/approvals', approved={each['id']: approved for each in calls})

    async def _post(self, path: str, **body: Any) -> list[dict[str, Any]]:
        said, calls = '', list[dict[str, Any]]()
        async with self.client.stream('POST', path, json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                event = json.loads(line.removeprefix('data: ') or '{}')
                said += event.get('text', '') or event.get('error', '')
                calls += event.get('approve', [])
        for each in calls:
            print(f'  May I do this? {each["tool"]} {json.dumps(each["arguments"])}')
        for line in said.rstrip().splitlines():
            print(f'  {line}')
        return calls


def make_server(model: Model | str, post: Callable[[str], Any] = print, **options: Any) -> ChatServer:
    """Make the server, with the agent that talks to all users."""
    desk = DeskToolset(post)
    agent = Agent(model, name='assistant', output_type=[str, DeferredToolRequests], toolsets=[desk])
    return ChatServer(agent, desk, **options)


TOTAL, SEND = 'What is the total?', 'Send the total to the team.'
OURS = 'We sold for 120, 80 and 100. Keep these in a variable.'
THEIRS = 'We sold for 5 and 2. Keep these in a variable.'


def _chat(sold: list[int]) -> list[Any]:
    """Return what the scripted model does in a chat that begins with what was sold."""
    return [
        call('run_python', code=f'sold = {sold}'),
        'I keep them.',
        call('run_python', code='total = sum(sold)\ntotal'),
        '{results}',
        call('send', variable='total'),
        '{results}',
    ]


SCRIPT = scripts({OURS: _chat([120, 80, 100]), THEIRS: _chat([5, 2])})


async def main(model: Model | str) -> None:
    """Serve two users, each of whom sends several messages and decides on what waits for an approval."""
    async with (
        serve(make_server(model).app) as url,
        httpx.AsyncClient(base_url=url, timeout=120) as ours,
        httpx.AsyncClient(base_url=url, timeout=120) as theirs,
    ):
        ada, bob = User('Ada', ours), User('Bob', theirs)
        await ada.say(OURS)
        await bob.say(THEIRS)
        await ada.say(TOTAL)
        await bob.say(TOTAL)
        for_ada, for_bob = await ada.say(SEND), await bob.say(SEND)
        # Each decides in a request of its own.
        if for_bob:
            await bob.decide(for_bob, approved=False)
        if for_ada:
            await ada.decide(for_ada, approved=True)


if __name__ == '__main__':
    run_main(main, SCRIPT)
