"""Ask a person: a server streams each run to a page, which shows its questions and sends the answers back."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import anyio
import httpx
import uvicorn
from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, StrictBool
from pydantic_ai import (
    AbstractToolset,
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolResultEvent,
    FunctionToolset,
    ModelMessage,
    ModelRetry,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolDenied,
    toolsets,
)
from pydantic_ai.models import Model
from typing_extensions import Self

from examples.support import call, run_main, scripts

PAGES = Path(__file__).parent / 'pages'


# --8<-- [start:person]
About: TypeAlias = Callable[[RunContext[Any], ToolCallPart], str]


def readable(args: dict[str, Any] | str) -> str:
    """Return the arguments of a call as a person is to read them, with what can't be seen escaped, or turns text around."""
    text = json.dumps(args, ensure_ascii=False)
    return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


class Person:
    """Whoever looks at the page of a run. Questions are events of its stream; answers come in requests of their own."""

    def __init__(
        self, questions: dict[str, asyncio.Future[bool]], *, time_limit: float, about: About | None = None
    ) -> None:
        """Make a person who has just opened the stream.

        Args:
            questions: Where the server finds the questions that wait, by an id that nobody can guess.
            time_limit: The seconds after which a question that nobody answers is a denial.
            about: Says what a call is about, where its arguments don't.
        """
        self.events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.gone = False
        self._questions = questions
        self._mine: set[str] = set()
        self._time_limit = time_limit
        self._about = about

    def tell(self, kind: str, **data: Any) -> None:
        """Send an event to the page."""
        self.events.put_nowait((kind, data))

    async def ask(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Ask for each call of a response that needs an approval, all at once. This is the `deferred_tool_handler`."""
        asking = [asyncio.create_task(self._decide(ctx, call)) for call in requests.approvals]
        try:
            answers = await asyncio.gather(*asking)
        finally:
            # If one fails, the others are taken back at once.
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return DeferredToolResults(
            approvals={call.tool_call_id: answer for call, answer in zip(requests.approvals, answers, strict=True)}
        )

    async def _decide(self, ctx: RunContext[Any], call: ToolCallPart) -> bool | ToolDenied:
        if self.gone:
            return ToolDenied('Nobody is there to approve this.')
        args = readable(call.args_as_dict())
        about = readable(self._about(ctx, call)) if self._about else ''
        id_ = secrets.token_urlsafe()
        self._questions[id_] = answer = asyncio.get_running_loop().create_future()
        self._mine.add(id_)
        agent = (ctx.agent and ctx.agent.name) or 'the agent'
        self.tell('question', id=id_, agent=agent, tool=call.tool_name, args=args, about=about)
        try:
            return await asyncio.wait_for(answer, self._time_limit)
        except asyncio.TimeoutError:
            return ToolDenied('Nobody has answered in time.')
        finally:
            self._mine.discard(id_)
            del self._questions[id_]
            self.tell('answered', id=id_)

    def leave(self) -> None:
        """Deny what waits for an answer, and all that comes."""
        self.gone = True
        for id_ in self._mine:
            if not self._questions[id_].done():
                self._questions[id_].set_result(False)

    async def note(self, ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        """Pass a run's events on. This is the `event_stream_handler`."""
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                self.tell('text', text=event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                self.tell('text', text=event.delta.content_delta)
            elif isinstance(event, FunctionToolResultEvent):
                part = event.part
                self.tell('result', tool=part.tool_name, content=str(part.content))


# --8<-- [end:person]


# --8<-- [start:server]
class Answer(BaseModel):
    """What a person says to a question."""

    id: str
    approved: StrictBool


class Desk:
    """Serves the page, the stream of each run, and the answers."""

    def __init__(
        self, agent: Agent[None, str], *, time_limit: float = 300, patience: float = 10, about: About | None = None
    ) -> None:
        """Make a server.

        Args:
            agent: Who works.
            time_limit: The seconds that a question waits.
            patience: The seconds that a run has to end once its page is closed.
            about: Says what a call is about, where its arguments don't.
        """
        self.agent = agent
        self.questions: dict[str, asyncio.Future[bool]] = {}
        self.time_limit = time_limit
        self.patience = patience
        self.about = about
        self.app = FastAPI()
        self.app.get('/')(self.page)
        self.app.get('/style.css')(self.style)
        self.app.get('/run')(self.run)
        self.app.post('/answers', status_code=204)(self.answer)
        self.app.exception_handler(RequestValidationError)(self.refuse)

    async def page(self) -> FileResponse:
        """Show the page."""
        return FileResponse(PAGES / 'approvals.html')

    async def style(self) -> FileResponse:
        """Show how the page looks."""
        return FileResponse(PAGES / 'style.css')

    async def run(self, prompt: str, sec_fetch_site: Annotated[str, Header()] = 'same-origin') -> StreamingResponse:
        """Run the agent, and stream what happens, unless the page of another site asks for it."""
        if sec_fetch_site not in ('same-origin', 'none'):
            raise HTTPException(403, 'Only the page of this server can start a run.')
        return StreamingResponse(self._stream(prompt), media_type='text/event-stream')

    async def answer(self, answer: Answer) -> None:
        """Take an answer, unless the question was answered, is too old or was never asked."""
        question = self.questions.get(answer.id)
        if question is None or question.done():
            raise HTTPException(404, 'This question no longer waits for an answer.')
        question.set_result(answer.approved)

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Refuse a request that isn't valid, without its content: that may be what JSON can't say."""
        return Response('The request is not valid.', 422, media_type='text/plain')

    async def _stream(self, prompt: str) -> AsyncGenerator[str]:
        person = Person(self.questions, time_limit=self.time_limit, about=self.about)
        task = asyncio.create_task(self._work(prompt, person))
        try:
            kind = ''
            while kind != 'end':
                kind, data = await person.events.get()
                yield f'event: {kind}\ndata: {json.dumps(data)}\n\n'
        finally:
            # When the page is closed, this is cancelled. The run is told "no", and may end as it would.
            person.leave()
            with anyio.CancelScope(shield=True):
                try:
                    await asyncio.wait([task], timeout=self.patience)
                finally:
                    task.cancel()
                    await asyncio.wait([task])

    async def _work(self, prompt: str, person: Person) -> None:
        error = None
        try:
            await self.agent.run(prompt, deferred_tool_handler=person.ask, event_stream_handler=person.note)
        except Exception as exception:  # noqa: BLE001 (the page is told of any)
            error = str(exception)
        finally:
            person.tell('end', error=error)


# --8<-- [end:server]


# --8<-- [start:agents]
class Mailbox(FunctionToolset[Any]):
    """Drafts that live as long as the run, however long it waits for a person. Sending one needs an approval."""

    stateful = True

    def __init__(self, post: Callable[[str], Any] = print) -> None:
        """Make a mailbox without drafts.

        Args:
            post: What sends a text.
        """
        super().__init__([self.draft])
        self.add_function(self.send, requires_approval=True)
        self.post = post
        self.drafts: list[str] = []

    def copy(self) -> Self:
        """Make a mailbox for a run."""
        return type(self)(self.post)

    def for_sub_agent(self, ctx: RunContext[Any]) -> Self:
        """Share the drafts: the sub-agent sends what its parent wrote."""
        return self

    async def __aexit__(self, *args: object) -> None:
        """Throw the drafts away."""
        self.drafts.clear()

    async def draft(self, text: str) -> str:
        """Write a draft, and return its number."""
        self.drafts.append(text)
        return f'draft {len(self.drafts)}'

    async def send(self, number: int) -> str:
        """Send a draft."""
        if not 1 <= number <= len(self.drafts):
            raise ModelRetry(f'There is no draft {number}.')
        self.post(f'Sent: {self.drafts[number - 1]}')
        return f'draft {number} was sent'


mailbox = Mailbox()


def draft_of(ctx: RunContext[Any], call: ToolCallPart) -> str:
    """Return the text that a call would send: the number of a draft says nothing to a person."""
    number: int = call.args_as_dict()['number']
    drafts: list[str] = ctx.instance_of(mailbox).drafts
    return drafts[number - 1] if 1 <= number <= len(drafts) else 'There is no such draft.'


clerk = Agent('openai:gpt-5-mini', name='clerk', toolsets=[mailbox], defer_model_check=True)
desk = Agent('openai:gpt-5-mini', name='desk', toolsets=[mailbox], defer_model_check=True)


@desk.tool
async def ask_clerk(ctx: RunContext[Any], task: str) -> str:
    """Have the clerk do something with the mail. It asks the same person."""
    result = await clerk.run(task, deferred_tool_handler=ctx.deferred_tool_handler, usage=ctx.usage)
    return str(result.output)


# --8<-- [end:agents]


# --8<-- [start:two_requests]
class Letters:
    """Asks in two requests: a run ends with its questions, and another one goes on from there. A scope keeps the drafts of each user."""

    def __init__(
        self, agent: Agent[None, str], *kept: AbstractToolset[None], limit: int = 100, idle_timeout: float = 3600
    ) -> None:
        """Begin without users.

        Args:
            agent: Who works.
            kept: The toolsets of the agent that stay open while a question waits.
            limit: How many users may have toolsets at a time.
            idle_timeout: The seconds after which toolsets that no run uses are lost, those of a question that waits among them.
        """
        self.agent = agent
        self.scopes = toolsets.ToolsetScopePool(*kept, limit=limit, idle_timeout=idle_timeout)
        self.waiting: dict[str, tuple[list[ModelMessage], DeferredToolRequests]] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def say(self, user: str, prompt: str) -> str | DeferredToolRequests:
        """Run the agent, and return what it says or what waits for an approval.

        Raises:
            ValueError: The user has to decide on what waits first.
        """
        # One request of a user at a time: the others wait here.
        async with self._turns[user], self.scopes(user) as scope:
            if user in self.waiting:
                raise ValueError('Decide on what waits for your approval first.')
            return await self._run(user, scope, prompt)

    async def decide(self, user: str, approved: dict[str, bool]) -> str | DeferredToolRequests:
        """Go on with what waits, once each call is approved or denied.

        Raises:
            ValueError: These are not the calls that wait, for instance because they were decided on before.
        """
        async with self._turns[user], self.scopes(user) as scope:
            messages, requests = self.waiting.get(user, ([], DeferredToolRequests()))
            asked = {call.tool_call_id for call in requests.approvals}
            if not asked or approved.keys() != asked:
                raise ValueError(f'These calls wait for your approval: {sorted(asked)}.')
            # Taken off before anything runs, so that nothing runs twice if this fails.
            del self.waiting[user]
            results = DeferredToolResults(approvals={**approved})
            return await self._run(user, scope, message_history=messages, deferred_tool_results=results)

    async def _run(
        self, user: str, scope: AbstractToolset[None], prompt: str | None = None, **options: Any
    ) -> str | DeferredToolRequests:
        result = await self.agent.run(prompt, toolsets=[scope], output_type=[str, DeferredToolRequests], **options)
        if isinstance(result.output, DeferredToolRequests):
            self.waiting[user] = result.all_messages(), result.output
        return result.output


# --8<-- [end:two_requests]

WRITE = 'Tell Ada that the shop is closed on Monday.'
DELEGATE = 'Write to Bob that we miss him, and let the clerk send it.'
SEND = 'Send draft 1.'
SCRIPT = scripts(
    {
        WRITE: [call('draft', text='Dear Ada, we are closed on Monday.'), call('send', number=1)],
        DELEGATE: [call('draft', text='Dear Bob, we miss you.'), call('ask_clerk', task=SEND)],
        SEND: [call('send', number=1)],
    }
)


@asynccontextmanager
async def serve(app: FastAPI, port: int = 0) -> AsyncGenerator[str]:
    """Serve an application on this machine, and give its URL."""
    with socket.socket() as listening:
        listening.bind(('127.0.0.1', port))
        server = uvicorn.Server(uvicorn.Config(app, log_level='warning', timeout_graceful_shutdown=5))
        task = asyncio.create_task(server.serve([listening]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield f'http://127.0.0.1:{listening.getsockname()[1]}'
        finally:
            server.should_exit = True
            await task


async def visit(url: str, prompt: str, *, approved: bool) -> None:
    """Do what the page does: say something, show what happens, and answer each question."""
    print(f'> {prompt}')
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as page,
        page.stream('GET', '/run', params={'prompt': prompt}) as stream,
    ):
        kind, text = '', ''
        async for line in stream.aiter_lines():
            name, _, value = line.partition(': ')
            if name == 'event':
                kind = value
            elif name == 'data':
                data = json.loads(value)
                text += data.get('text', '')
                if data.get('error'):
                    text += f'It failed: {data["error"]}'
                if kind == 'question':
                    what = f'{data["tool"]}({data["args"]}), about {data["about"]}'
                    print(f'May {data["agent"]} call {what}? {"Yes" if approved else "No"}.')
                    answer = {'id': data['id'], 'approved': approved}
                    (await page.post('/answers', json=answer)).raise_for_status()
    print(text.strip())


async def correspond(user: str, prompt: str, *, approved: bool) -> None:
    """Say something in one request, and answer the questions in another."""
    print(f'> {prompt}')
    letters = Letters(desk, mailbox)
    try:
        said = await letters.say(user, prompt)
        while isinstance(said, DeferredToolRequests):
            for asked in said.approvals:
                print(
                    f'May desk call {asked.tool_name}({readable(asked.args_as_dict())})? {"Yes" if approved else "No"}, later.'
                )
            said = await letters.decide(user, {asked.tool_call_id: approved for asked in said.approvals})
        print(said)
    except Exception as error:  # noqa: BLE001 (as the page is told)
        print(f'It failed: {error}')
    finally:
        await letters.scopes.aclose()


async def main(model: Model | str) -> None:
    """Have the desk and its clerk ask a person who says yes, one who says no, and one who answers in a request of its own."""
    with desk.override(model=model), clerk.override(model=model):
        async with serve(Desk(desk, about=draft_of).app, int(os.environ.get('PORT', '0'))) as url:
            if 'PORT' in os.environ:
                print(f'Open {url} and say, for instance: {DELEGATE}', flush=True)
                await asyncio.Event().wait()
            await visit(url, WRITE, approved=True)
            await visit(url, DELEGATE, approved=True)
            await visit(url, WRITE, approved=False)
        await correspond('Ada', WRITE, approved=True)


if __name__ == '__main__':
    run_main(main, SCRIPT)
