"""A sub-agent orders in the transaction of its parent's run."""

import asyncio
import json
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, Self

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolRequestsEvent,
    DeferredToolResults,
    FunctionToolset,
    ModelMessage,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
)
from pydantic_ai.messages import TextPart, TextPartDelta
from pydantic_ai.toolsets import ToolsetScopePool

from examples.tutorial.model import DATA, MODEL


class Notes(FunctionToolset[str]):
    """Keeps notes."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.keep])
        self.add_function(self.send, requires_approval=True)
        self.kept: list[str] = []

    def copy(self) -> 'Notes':
        """Make the toolset that a run works with."""
        return Notes()

    def keep(self, note: str) -> str:
        """Keep a note, and return all of them."""
        self.kept.append(note)
        return f'Notes: {", ".join(self.kept)}'

    def send(self, to: str) -> str:
        """Send all notes to somebody."""
        return f'Sent to {to}: {", ".join(self.kept)}'


class Orders(FunctionToolset[str]):
    """Orders things: all that a run has ordered, or nothing."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.order])

    def copy(self) -> 'Orders':
        """Make the toolset that a run works with."""
        return Orders()

    async def __aenter__(self) -> Self:
        self.connection = sqlite3.connect(DATA / 'orders.sqlite', timeout=0, isolation_level=None)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None = None, *args: object) -> None:
        with closing(self.connection):
            if self.connection.in_transaction:
                self.connection.execute('COMMIT' if exc_type is None else 'ROLLBACK')

    async def order(self, ctx: RunContext[str], item: str) -> str:
        """Order something."""
        while not self.connection.in_transaction:
            try:
                self.connection.execute('BEGIN IMMEDIATE')
            except sqlite3.OperationalError as error:
                if 'locked' not in str(error):
                    raise
                await asyncio.sleep(0.01)  # the run of another user is ordering
        if item == 'desk':
            raise RuntimeError('There is no desk in the warehouse.')
        self.connection.execute('INSERT INTO orders VALUES (?, ?)', [ctx.deps, item])
        return f'Ordered: {item}'


questions: dict[tuple[str, str], asyncio.Future[bool]] = {}


def find_question(user: str, call: str) -> asyncio.Future[bool]:
    """Return the question about a call. The page and the run look for it, in any order."""
    return questions.setdefault((user, call), asyncio.get_running_loop().create_future())


async def ask(ctx: RunContext[str], requests: DeferredToolRequests) -> DeferredToolResults:
    """Wait for the user's answers. This is the `deferred_tool_handler`."""
    calls = [call.tool_call_id for call in requests.approvals]
    try:
        return DeferredToolResults(approvals={call: await find_question(ctx.deps, call) for call in calls})
    finally:
        for call in calls:
            questions.pop((ctx.deps, call), None)


notes = Notes()
orders = Orders()
clerk = Agent(MODEL, deps_type=str, name='clerk', toolsets=[orders])
agent = Agent(MODEL, deps_type=str, toolsets=[notes, orders], deferred_tool_handler=ask)  # one for all users


@agent.tool
async def ask_clerk(ctx: RunContext[str], item: str) -> str:
    """Have the clerk order something."""
    result = await clerk.run(f'order {item}', deps=ctx.deps, usage=ctx.usage)
    return f'The clerk says: {result.output}'


chats = ToolsetScopePool(notes, limit=100, idle_timeout=600)
histories: dict[str, list[ModelMessage]] = {}
locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the table, and end all chats when the server stops."""
    with closing(sqlite3.connect(DATA / 'orders.sqlite')) as connection:
        connection.execute('CREATE TABLE IF NOT EXISTS orders (user, item)')
    async with chats:
        yield


app = FastAPI(lifespan=lifespan)


@app.post('/messages')
async def messages(user: str, text: str) -> StreamingResponse:
    """Answer a message. A real server takes the user from the login."""
    return StreamingResponse(lines(user, answer(user, text)), media_type='application/x-ndjson')


@app.post('/approvals', status_code=204)
async def approvals(user: str, call: str, approved: bool) -> None:
    """Answer a question of the user's own chat."""
    question = questions.get((user, call))
    if question is None or question.done():
        raise HTTPException(404, 'This question no longer waits for an answer.')
    question.set_result(approved)


@app.get('/orders')
async def list_orders(user: str) -> list[str]:
    """Return what is in the database."""
    with closing(sqlite3.connect(DATA / 'orders.sqlite')) as connection:
        return [item for [item] in connection.execute('SELECT item FROM orders WHERE user = ?', [user])]


async def answer(user: str, text: str) -> AsyncGenerator[dict[str, Any]]:
    """Run the agent in the user's chat."""
    async with chats(user) as chat:
        history = histories.get(user)
        async with agent.run_stream_events(text, deps=user, toolsets=[chat], message_history=history) as events:
            async for event in events:
                match event:
                    case PartStartEvent(part=TextPart(content=words)):
                        yield {'text': words}
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=words)):
                        yield {'text': words}
                    case DeferredToolRequestsEvent(requests=requests):
                        for call in requests.approvals:
                            find_question(user, call.tool_call_id)
                            about = ', '.join(chat.instance_of(notes).kept)
                            args = call.args_as_json_str()
                            yield {'question': call.tool_call_id, 'tool': call.tool_name, 'args': args, 'about': about}
                    case AgentRunResultEvent(result=result):
                        histories[user] = result.all_messages()
                    case _:
                        pass


async def lines(user: str, events: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[str]:
    """Write each event as a line of JSON, and an error as the last one. A second message waits for the first."""
    async with locks[user]:
        try:
            async for event in events:
                yield json.dumps(event) + '\n'
        except Exception as error:  # noqa: BLE001 (the page is told of any)
            yield json.dumps({'error': str(error)}) + '\n'
