"""Each chat has notes of its own, and answers are streamed."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic_ai import Agent, AgentRunResultEvent, FunctionToolset, ModelMessage, PartDeltaEvent, PartStartEvent
from pydantic_ai.messages import TextPart, TextPartDelta
from pydantic_ai.toolsets import ToolsetScopePool

from examples.tutorial.model import MODEL


class Notes(FunctionToolset[str]):
    """Keeps notes."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.keep])
        self.kept: list[str] = []

    def copy(self) -> 'Notes':
        """Make the toolset that a run works with."""
        return Notes()

    def keep(self, note: str) -> str:
        """Keep a note, and return all of them."""
        self.kept.append(note)
        return f'Notes: {", ".join(self.kept)}'


notes = Notes()
agent = Agent(MODEL, deps_type=str, toolsets=[notes])  # one for all users
chats = ToolsetScopePool(notes, limit=100, idle_timeout=600)
histories: dict[str, list[ModelMessage]] = {}
locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """End all chats when the server stops."""
    async with chats:
        yield


app = FastAPI(lifespan=lifespan)


@app.post('/messages')
async def messages(user: str, text: str) -> StreamingResponse:
    """Answer a message. A real server takes the user from the login."""
    return StreamingResponse(lines(user, answer(user, text)), media_type='application/x-ndjson')


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
