"""B37: in a real server that streams, no chat crosses into another, whatever the clients do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import websockets
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
)
from pydantic_ai.toolsets import ToolsetScopePool
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from ..toolsets import RUN, Journal, Session, scripted
from .serving import Chats, serving, until

pytestmark = [
    pytest.mark.anyio,
    # What the packages of the server warn of is not our concern
    pytest.mark.filterwarnings('ignore::DeprecationWarning'),
]


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f'http://{url}', timeout=60, trust_env=False)


async def test_b37_client_that_disconnects_leaves_its_chat_to_be_continued_and_others_alone():
    chats = Chats()
    before = asyncio.all_tasks()
    async with serving(chats.routes) as url, client(url) as http:
        for number in range(3):
            async with http.stream('GET', '/chat/Ada') as response:
                # The tool has begun to wait, and the reader goes
                waiting = number
                async for _ in response.aiter_lines():
                    if chats.waiting > waiting:
                        break
            await until(lambda: chats.waiting > waiting)  # noqa: B023
            assert (await http.get('/chat/Bob?quick')).text.splitlines()[-1] == ','.join(['Bob'] * (number + 1))
        chats.go.set()
        # The run of a reader who has gone is over, sooner or later
        for _ in range(600):
            try:
                last = (await http.get('/chat/Ada?quick')).text.splitlines()[-1]
            except httpx.RemoteProtocolError:
                await asyncio.sleep(0.05)
            else:
                break
        assert set(last.split(',')) == {'Ada'}  # pyright: ignore[reportPossiblyUnboundVariable]
        assert len(last.split(',')) >= 4  # pyright: ignore[reportPossiblyUnboundVariable]
        await chats.elsewhere()
        await chats.pool.aclose()
    chats.check('Ada', 'Bob')
    await until(lambda: asyncio.all_tasks() <= before)


async def test_b37_pings_while_a_chunk_is_awaited_keep_the_chat():
    chats = Chats()
    async with serving(chats.routes) as url, client(url) as http:
        for number in range(2):
            chats.go.clear()
            lines: list[str] = []
            async with http.stream('GET', '/pinged/Ada') as response:
                async for line in response.aiter_lines():
                    lines.append(line)
                    if line == 'ping' and chats.waiting > number:
                        chats.go.set()
            assert 'ping' in lines
            assert lines[-1] == ','.join(['Ada'] * 2 * (number + 1))
            await chats.elsewhere()
        await chats.pool.aclose()
    chats.check('Ada')


@pytest.mark.parametrize('leaves', [False, True])
async def test_b37_websocket_with_two_chats_keeps_them_apart(leaves: bool):
    chats = Chats()
    async with serving(chats.routes) as url:
        async with websockets.connect(f'ws://{url}/socket', proxy=None) as socket:
            await socket.send('Ada,Bob')
            received: list[str] = []
            async for message in socket:
                received.append(str(message))
                if leaves and len(received) == 5:
                    break
        if not leaves:
            last = {message.split(': ')[0]: message.split(': ')[1] for message in received}
            assert last == {'Ada': 'Ada', 'Bob': 'Bob'}
        # Whoever is served next has a chat of his own
        async with client(url) as http:
            assert (await http.get('/chat/Eve?quick')).text.splitlines()[-1] == 'Eve'
        await chats.elsewhere()
    await chats.pool.aclose()
    chats.check('Ada', 'Bob', 'Eve')


async def test_b37_many_clients_at_once_of_whom_some_disconnect_keep_their_own():
    chats = Chats()
    chats.go.set()

    async def talk(user: str, leaves: bool) -> None:
        for number in range(3):
            async with http.stream('GET', f'/chat/{user}') as response:
                async for line in response.aiter_lines():
                    if leaves and number == 1:
                        break
                    if line != 'chunk':
                        assert set(line.split(',')) == {user}
            if leaves and number == 1:
                return

    async with serving(chats.routes) as url, client(url) as http:
        await asyncio.gather(*(talk(f'user{number}', number % 3 == 0) for number in range(15)))
        await chats.elsewhere()
        await chats.pool.aclose()
    chats.check(*(f'user{number}' for number in range(15)))


# AG-UI


async def test_b37_ag_ui_keeps_a_thread_in_a_pool():
    journal = Journal()
    session = Session('t', journal)
    agent = Agent(scripted(['t']), toolsets=[session])
    chats = ToolsetScopePool(session)

    async def run(request: Request) -> StreamingResponse:
        adapter = await AGUIAdapter[Any, Any].from_request(request, agent=agent)
        thread = adapter.run_input.thread_id

        async def body() -> AsyncGenerator[str, None]:
            async with chats(thread) as chat:
                RUN.set(thread)
                async for event in adapter.encode_stream(adapter.run_stream(toolsets=[chat])):
                    yield event

        return StreamingResponse(body(), media_type='text/event-stream')

    def asked(thread: str, number: int) -> dict[str, Any]:
        message = {'id': f'm{number}', 'role': 'user', 'content': 'go'}
        return {
            'threadId': thread,
            'runId': f'r{number}',
            'messages': [message],
            'state': {},
            'tools': [],
            'context': [],
            'forwardedProps': {},
        }

    async with serving([Route('/', run, methods=['POST'])]) as url, client(url) as http:
        for number in range(3):
            for thread in ('Ada', 'Bob'):
                events = [
                    json.loads(line.removeprefix('data: '))
                    for line in (await http.post('/', json=asked(thread, number))).text.splitlines()
                    if line
                ]
                assert events[-1]['type'] == 'RUN_FINISHED'
                (result,) = (event for event in events if event['type'] == 'TOOL_CALL_RESULT')
                assert json.loads(result['content']) == [thread] * (number + 1)
        await chats.aclose()
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']


# Approvals


class Desk(Session):
    """Keeps what the agents of a chat have collected, and what waits for an approval."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.pending: dict[str, tuple[list[Any], list[str]]] = {}


def approving(desk: Desk, child: Agent[Any, Any], name: str) -> FunctionToolset[Any]:
    """Make a tool that runs another agent, and asks for the approvals that this one asks for."""

    async def delegate(ctx: RunContext[Any], value: str) -> str:
        kept = ctx.instance_of(desk)
        if name in kept.pending:
            messages, calls = kept.pending.pop(name)
            results = DeferredToolResults(approvals=dict.fromkeys(calls, True))
            result = await child.run(message_history=messages, deferred_tool_results=results)
        else:
            result = await child.run('go')
        if isinstance(result.output, DeferredToolRequests):
            kept.pending[name] = result.all_messages(), [call.tool_call_id for call in result.output.approvals]
            raise ApprovalRequired
        return result.output

    return FunctionToolset[Any]([delegate], max_retries=0)


async def test_b37_approval_three_levels_deep_is_answered_in_a_second_request():
    journal = Journal()
    paid: list[str] = []
    desk = Desk('t', journal)

    async def pay(value: str) -> str:
        paid.append(value)
        return 'paid'

    paying = FunctionToolset[Any](max_retries=0)
    paying.add_function(pay, requires_approval=True)
    output: Any = [str, DeferredToolRequests]
    worker = Agent(scripted(['t'], ['pay'], ['t']), toolsets=[desk, paying], output_type=output, name='worker')
    manager = Agent(
        scripted(['delegate'], ['t']), toolsets=[desk, approving(desk, worker, 'worker')], output_type=output
    )
    boss = Agent(
        scripted(['t'], ['delegate']), toolsets=[desk, approving(desk, manager, 'manager')], output_type=output
    )
    chats = ToolsetScopePool(desk)
    waiting: dict[str, tuple[list[Any], list[str]]] = {}

    async def ask(request: Request) -> JSONResponse:
        user = request.path_params['user']
        RUN.set(user)
        async with chats(user) as chat:
            result = await boss.run('go', toolsets=[chat])
            waiting[user] = result.all_messages(), [call.tool_call_id for call in result.output.approvals]
            return JSONResponse(chat.instance_of(desk).values)

    async def approve(request: Request) -> JSONResponse:
        user = request.path_params['user']
        RUN.set(user)
        messages, calls = waiting.pop(user)
        async with chats(user) as chat:
            results = DeferredToolResults(approvals=dict.fromkeys(calls, True))
            result = await boss.run(message_history=messages, deferred_tool_results=results, toolsets=[chat])
            return JSONResponse([result.output, chat.instance_of(desk).values])

    routes = [Route('/ask/{user}', ask), Route('/approve/{user}', approve)]
    async with serving(routes) as url, client(url) as http:
        users = ['Ada', 'Bob']
        for user in users:
            # The boss's and the worker's
            assert (await http.get(f'/ask/{user}')).json() == [user] * 2
        assert paid == []
        for user in users:
            # And those of the worker and the manager after the approval
            assert (await http.get(f'/approve/{user}')).json() == ['done', [user] * 4]
        assert paid == users
        await chats.aclose()
    assert journal.lifecycle == ['+t', '+t', '-t', '-t']
    assert desk.values == []
