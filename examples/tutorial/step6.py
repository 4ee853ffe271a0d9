"""Chats survive the process."""

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
from pydantic_ai.messages import ModelMessagesTypeAdapter, TextPart, TextPartDelta
from pydantic_ai.toolsets import ToolsetScopePool

from examples.tutorial.model import DATA, MODEL


class Notes(FunctionToolset[str]):
    """Keeps notes."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.keep], id='notes')
        self.add_function(self.send, requires_approval=True)
        self.kept: list[str] = []

    def copy(self) -> 'Notes':
        """Make the toolset that a run works with."""
        return Notes()

    async def export_state(self) -> list[str]:
        """Return what a later process needs, as JSON."""
        return self.kept

    async def restore_state(self, state: list[str]) -> None:
        """Go on with the notes of an earlier process."""
        self.kept = state

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
locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the tables, and end all chats when the server stops."""
    with closing(sqlite3.connect(DATA / 'orders.sqlite')) as connection:
        connection.execute('CREATE TABLE IF NOT EXISTS orders (user, item)')
    with closing(sqlite3.connect(DATA / 'chats.sqlite')) as connection:
        connection.execute('CREATE TABLE IF NOT EXISTS chats (user PRIMARY KEY, messages, state)')
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


def load(user: str) -> tuple[list[ModelMessage], dict[str, Any] | None]:
    """Return the messages of a chat, and the state of its toolsets."""
    with closing(sqlite3.connect(DATA / 'chats.sqlite')) as connection:
        row = connection.execute('SELECT messages, state FROM chats WHERE user = ?', [user]).fetchone()
    return (ModelMessagesTypeAdapter.validate_json(row[0]), json.loads(row[1])) if row else ([], None)


def save(user: str, messages: list[ModelMessage], state: dict[str, Any]) -> None:
    """Store both in one transaction."""
    with closing(sqlite3.connect(DATA / 'chats.sqlite')) as connection, connection:
        connection.execute(
            'REPLACE INTO chats VALUES (?, ?, ?)',
            [user, ModelMessagesTypeAdapter.dump_json(messages), json.dumps(state)],
        )


async def answer(user: str, text: str) -> AsyncGenerator[dict[str, Any]]:
    """Run the agent in the user's chat."""
    history, state = load(user)
    async with chats(user, state=state) as chat:
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
                        history = result.all_messages()
                    case _:
                        pass
        save(user, history, await chat.export())


async def lines(user: str, events: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[str]:
    """Write each event as a line of JSON, and an error as the last one. A second message waits for the first."""
    async with locks[user]:
        try:
            async for event in events:
                yield json.dumps(event) + '\n'
        except Exception as error:  # noqa: BLE001 (the page is told of any)
            yield json.dumps({'error': str(error)}) + '\n'
