"""The user approves what is sent."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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

from examples.tutorial.model import MODEL


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
agent = Agent(MODEL, deps_type=str, toolsets=[notes], deferred_tool_handler=ask)  # one for all users
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


@app.post('/approvals', status_code=204)
async def approvals(user: str, call: str, approved: bool) -> None:
    """Answer a question of the user's own chat."""
    question = questions.get((user, call))
    if question is None or question.done():
        raise HTTPException(404, 'This question no longer waits for an answer.')
    question.set_result(approved)


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
