from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from playwright.async_api import Page, Route, async_playwright
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, RunContext, ToolCallPart

from examples import approvals
from examples.approvals import DELEGATE, SCRIPT, WRITE, Desk, Letters, Mailbox, serve
from examples.browser import find_chromium
from examples.support import call, scripts

pytestmark = pytest.mark.anyio


class Watched(Mailbox):
    """Says when it's closed."""

    async def __aexit__(self, *args: object) -> None:
        self.post(f'closed with {len(self.drafts)} draft')
        await super().__aexit__(*args)


@asynccontextmanager
async def desk_of(log: list[str], **options: Any) -> AsyncGenerator[tuple[Desk, str]]:
    """Serve a desk that notes what happens, on the scripted model."""
    watched = [Watched(log.append)]
    server = Desk(approvals.desk, **options)
    with (
        approvals.desk.override(model=SCRIPT, toolsets=watched),
        approvals.clerk.override(model=SCRIPT, toolsets=watched),
    ):
        async with serve(server.app) as url:
            yield server, url


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    while not condition():
        await asyncio.sleep(0.01)


async def events(page: httpx.AsyncClient, prompt: str) -> AsyncGenerator[tuple[str, Any]]:
    """Give the events of a run as they come."""
    async with page.stream('GET', '/run', params={'prompt': prompt}) as stream:
        kind = ''
        async for line in stream.aiter_lines():
            name, _, value = line.partition(': ')
            if name == 'event':
                kind = value
            elif name == 'data':
                yield kind, json.loads(value)


def runs() -> list[str]:
    """Return the tasks in which the server works."""
    return [str(task.get_coro()) for task in asyncio.all_tasks() if 'Desk._work' in str(task.get_coro())]


async def test_main_prints_questions_and_what_was_sent(capsys: pytest.CaptureFixture[str]) -> None:
    await approvals.main(SCRIPT)

    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith('Sent')] == [
        'Sent: Dear Ada, we are closed on Monday.',
        'Sent: Dear Bob, we miss you.',
        'Sent: Dear Ada, we are closed on Monday.',
    ]
    assert sum(line.startswith('May ') for line in out) == 4
    # The person sees the text, not just its number.
    assert 'May clerk call send({"number": 1}), about "Dear Bob, we miss you."? Yes.' in out
    assert 'The tool call was denied.' in out
    assert out[-4:-2] == [f'> {WRITE}', 'May desk call send({"number": 1})? Yes, later.']


async def test_the_toolset_stays_as_it_is_while_a_person_thinks() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        async for kind, data in events(page, WRITE):
            if kind == 'question':
                await asyncio.sleep(0.1)
                assert log == []
                answer = {'id': data['id'], 'approved': True}
                assert (await page.post('/answers', json=answer)).status_code == 204
            elif kind == 'answered':
                # Too late to change one's mind
                assert (await page.post('/answers', json={'id': data['id'], 'approved': False})).status_code == 404
        assert log == ['Sent: Dear Ada, we are closed on Monday.', 'closed with 1 draft']
        assert (await page.post('/answers', json={'id': 'guessed', 'approved': True})).status_code == 404
        assert (server.questions, runs()) == ({}, [])


async def test_nobody_answers_in_time() -> None:
    log: list[str] = []
    async with desk_of(log, time_limit=0.05) as (server, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        told = [(kind, data) async for kind, data in events(page, DELEGATE)]
        assert ('result', {'tool': 'ask_clerk', 'content': 'Nobody has answered in time.'}) in told
        assert told[-1] == ('end', {'error': None})
        # The clerk borrowed the mailbox, so it's closed once.
        assert log == ['closed with 1 draft']
        assert (server.questions, runs()) == ({}, [])


@pytest.mark.parametrize('prompt', [WRITE, DELEGATE])
async def test_who_closes_the_page_says_no_and_leaves_no_task(prompt: str) -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as page:
            told = events(page, prompt)
            async for kind, _ in told:
                if kind == 'question':
                    break
            await told.aclose()
        await until(lambda: not runs())
        assert log == ['closed with 1 draft']
        assert server.questions == {}


async def test_a_run_that_does_not_end_by_itself_is_cancelled_once_its_page_is_closed() -> None:
    log: list[str] = []
    started = asyncio.Event()

    async def forever(ctx: RunContext[Any], requests: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    async with desk_of(log, patience=0.05) as (server, _):
        with approvals.desk.override(deferred_tool_handler=forever):
            async with serve(server.app) as url, httpx.AsyncClient(base_url=url, timeout=60) as page:
                told = events(page, WRITE)
                async for kind, _ in told:
                    assert kind == 'result'
                    await started.wait()
                    break
                await told.aclose()
                await until(lambda: not runs())
    assert log == ['closed with 1 draft']


async def test_arguments_are_shown_as_they_are() -> None:
    # What turns text around, or can't be seen, is escaped.
    args = {'path': 'a\u202etxt.exe', 'to': 'Zoë\u200b', 'literal': '\\u202e'}
    model = scripts({'go': [call('pay', **args)]})

    async def pay(path: str, to: str, literal: str) -> str:
        return 'paid'

    till = FunctionToolset[Any]()
    till.add_function(pay, requires_approval=True)
    agent = Agent[Any, str](model, name='cashier', toolsets=[till])
    async with serve(Desk(agent).app) as url, httpx.AsyncClient(base_url=url, timeout=60) as page:
        async for kind, data in events(page, 'go'):
            if kind == 'question':
                assert data['args'] == (r'{"path": "a\u202etxt.exe", "to": "Zoë\u200b", "literal": "\\u202e"}')
                await page.post('/answers', json={'id': data['id'], 'approved': True})
        assert (kind, data) == ('end', {'error': None})  # pyright: ignore[reportPossiblyUnboundVariable]


def test_arguments_that_json_has_no_word_for_are_shown() -> None:
    assert approvals.readable({'amount': float('nan'), 'half': '\ud800'}) == r'{"amount": NaN, "half": "\ud800"}'


async def test_when_a_question_fails_the_others_are_taken_back() -> None:
    questions: dict[str, asyncio.Future[bool]] = {}
    person = approvals.Person(questions, time_limit=3600)
    broken = ToolCallPart('send', {'number': object()})
    requests = DeferredToolRequests(approvals=[ToolCallPart('send', {'number': 1}), broken])
    with pytest.raises(TypeError, match='not JSON serializable'):
        await person.ask(cast(Any, SimpleNamespace(agent=None)), requests)
    assert questions == {}
    told = [person.events.get_nowait()[0] for _ in range(person.events.qsize())]
    assert told == ['question', 'answered']


async def test_each_page_gets_its_own_questions_and_answers_count_once() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        first, second = events(page, WRITE), events(page, WRITE)
        ids: list[str] = []
        for told in (first, second):
            async for kind, data in told:
                if kind == 'question':
                    ids.append(data['id'])
                    break
        assert set(ids) == {*server.questions}
        assert len(ids) == 2
        codes = [(await page.post('/answers', json={'id': ids[0], 'approved': no})).status_code for no in (False, True)]
        assert codes == [204, 404]
        rest = [(kind, data) async for kind, data in first]
        assert not [data for _, data in rest if data.get('id') == ids[1]]
        assert [*server.questions] == [ids[1]]
        await second.aclose()
        await until(lambda: not runs())
        assert (await page.post('/answers', json={'id': ids[1], 'approved': True})).status_code == 404
    assert log == ['closed with 1 draft'] * 2


@pytest.mark.parametrize(
    'body',
    [
        '',
        '{',
        'null',
        '[]',
        '{"id": 1, "approved": true}',
        '{"id": NaN, "approved": true}',
        r'{"id": "\ud800"}',
        '{"id": "ID", "approved": "yes"}',
        '{"id": "ID", "approved": NaN}',
    ],
)
async def test_answers_that_are_not_valid_are_refused_and_the_question_waits(body: str) -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        async for kind, data in events(page, WRITE):
            if kind == 'question':
                headers = {'Content-Type': 'application/json'}
                content = body.replace('ID', data['id'])
                assert (await page.post('/answers', content=content, headers=headers)).status_code == 422
                # The page of another site can't send JSON without being asked for it first.
                plain = json.dumps({'id': data['id'], 'approved': True})
                reply = await page.post('/answers', content=plain, headers={'Content-Type': 'text/plain'})
                assert reply.status_code == 422
                assert not server.questions[data['id']].done()
                await page.post('/answers', json={'id': data['id'], 'approved': False})
    assert log == ['closed with 1 draft']


async def test_another_site_cannot_start_a_run() -> None:
    log: list[str] = []
    async with desk_of(log) as (_, url), httpx.AsyncClient(base_url=url, timeout=60) as page:
        for site, code in {'cross-site': 403, 'same-site': 403, 'same-origin': 200}.items():
            reply = await page.get('/run', params={'prompt': 'Hello'}, headers={'Sec-Fetch-Site': site})
            assert reply.status_code == code


@asynccontextmanager
async def letters_of(log: list[str], **options: Any) -> AsyncGenerator[Letters]:
    """Give what asks in two requests, on the scripted model, and end its scopes."""
    watched = Watched(log.append)
    with approvals.desk.override(model=SCRIPT, toolsets=[watched]):
        letters = Letters(approvals.desk, watched, **options)
        try:
            yield letters
        finally:
            await letters.scopes.aclose()


def ids_of(said: object) -> list[str]:
    """Return the ids of the calls that wait for an approval."""
    assert isinstance(said, DeferredToolRequests)
    return [call.tool_call_id for call in said.approvals]


@pytest.mark.parametrize('approved', [True, False])
async def test_in_two_requests_the_drafts_stay_while_a_question_waits(approved: bool) -> None:
    log: list[str] = []
    async with letters_of(log) as letters:
        (id_,) = ids_of(await letters.say('Ada', WRITE))
        # Another user's drafts are others.
        (other,) = ids_of(await letters.say('Bob', WRITE))
        assert log == []
        said = await letters.decide('Ada', {id_: approved})
        assert said == ('draft 1 was sent' if approved else 'The tool call was denied.')
        sent = ['Sent: Dear Ada, we are closed on Monday.'] if approved else []
        assert log == sent
        assert [*letters.waiting] == ['Bob']
        assert await letters.decide('Bob', {other: False}) == 'The tool call was denied.'
    assert log == [*sent, 'closed with 1 draft', 'closed with 1 draft']


async def test_in_two_requests_an_answer_counts_once_and_for_its_own_question_only() -> None:
    log: list[str] = []
    async with letters_of(log) as letters:
        (id_,) = ids_of(await letters.say('Ada', WRITE))
        with pytest.raises(ValueError, match='Decide on what waits'):
            await letters.say('Ada', WRITE)
        for user, wrong in (
            ('Ada', {}),
            ('Ada', {'other': True}),
            ('Ada', {id_: True, 'other': True}),
            ('Bob', {id_: True}),
        ):
            with pytest.raises(ValueError, match='These calls wait for your approval'):
                await letters.decide(user, wrong)
        decisions = [letters.decide('Ada', {id_: True}) for _ in range(3)]
        said = await asyncio.gather(*decisions, return_exceptions=True)
        assert sum(isinstance(each, ValueError) for each in said) == 2
        assert 'draft 1 was sent' in said
        assert log == ['Sent: Dear Ada, we are closed on Monday.']


async def test_in_two_requests_what_a_user_says_at_once_is_done_in_turns() -> None:
    async with letters_of([]) as letters:
        first, second = await asyncio.gather(
            letters.say('Ada', WRITE), letters.say('Ada', WRITE), return_exceptions=True
        )
        (id_,) = ids_of(first)
        assert 'Decide on what waits' in str(second)
        assert await letters.decide('Ada', {id_: True}) == 'draft 1 was sent'


async def test_in_two_requests_nothing_is_sent_when_the_drafts_are_lost() -> None:
    log: list[str] = []
    async with letters_of(log, idle_timeout=0.05) as letters:
        (id_,) = ids_of(await letters.say('Ada', WRITE))
        await until(lambda: log)
        assert await letters.decide('Ada', {id_: True}) != 'draft 1 was sent'
        await until(lambda: len(log) == 2)
    assert log == ['closed with 1 draft', 'closed with 0 draft']


async def test_in_two_requests_a_run_that_fails_is_not_gone_on_with() -> None:
    log: list[str] = []

    def fail(text: str) -> None:
        log.append(text)
        raise ConnectionError(text)

    mailbox = Mailbox(fail)
    with approvals.desk.override(model=SCRIPT, toolsets=[mailbox]):
        letters = Letters(approvals.desk, mailbox)
        (id_,) = ids_of(await letters.say('Ada', WRITE))
        with pytest.raises(ConnectionError):
            await letters.decide('Ada', {id_: True})
        with pytest.raises(ValueError, match='These calls wait for your approval'):
            await letters.decide('Ada', {id_: True})
        await letters.scopes.aclose()
    assert len(log) == 1


@pytest.mark.parametrize('number', [0, -1, 2])
async def test_only_a_draft_that_is_there_is_sent(number: int) -> None:
    log: list[str] = []
    model = scripts({'go': [call('draft', text='Dear Ada'), call('send', number=number)]})
    with approvals.desk.override(model=model, toolsets=[Watched(log.append)]):
        async with serve(Desk(approvals.desk).app) as url, httpx.AsyncClient(base_url=url, timeout=60) as page:
            async for kind, data in events(page, 'go'):
                if kind == 'question':
                    await page.post('/answers', json={'id': data['id'], 'approved': True})
    assert log == ['closed with 1 draft']


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Page]:
    """Open the page in a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium())
        try:
            page = await (await browser.new_context()).new_page()
            await page.goto(url)
            yield page
        finally:
            await browser.close()


async def say(page: Page, prompt: str) -> str:
    """Say something in the page, wait for a question, and return it."""
    await page.fill('input', prompt)
    await page.click('form button')
    await page.wait_for_selector('#questions button')
    return await page.inner_text('#questions p')


@pytest.mark.usefixtures('chromium')
@pytest.mark.parametrize('approved', [True, False])
async def test_a_person_answers_in_a_browser(approved: bool) -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), opened(url) as page:
        question = await say(page, DELEGATE)
        assert 'call send({"number": 1})?' in question
        assert log == []
        await page.click('text=Approve' if approved else 'text=Deny')
        await page.wait_for_selector('text=Done.')
        assert await page.locator('#questions p').count() == 0
        assert log == [*(['Sent: Dear Bob, we miss you.'] if approved else []), 'closed with 1 draft']
        assert (server.questions, runs()) == ({}, [])


@pytest.mark.usefixtures('chromium')
async def test_a_browser_that_is_closed_says_no() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url):
        async with opened(url) as page:
            await say(page, WRITE)
        await until(lambda: not runs())
        assert log == ['closed with 1 draft']
        assert server.questions == {}


@pytest.mark.usefixtures('chromium')
async def test_two_tabs_of_a_browser_each_ask_their_own_question() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), opened(url) as first:
        second = await first.context.new_page()
        await second.goto(url)
        await say(first, WRITE)
        await say(second, DELEGATE)
        assert [await page.locator('#questions p').count() for page in (first, second)] == [1, 1]
        await second.click('text=Approve')
        await second.wait_for_selector('text=Done.')
        # What the first one asks is still there, and its draft as well.
        assert log == ['Sent: Dear Bob, we miss you.', 'closed with 1 draft']
        assert await first.locator('#questions p').count() == 1
        await first.click('text=Approve')
        await first.wait_for_selector('text=Done.')
        assert log[2:] == ['Sent: Dear Ada, we are closed on Monday.', 'closed with 1 draft']
        assert (server.questions, runs()) == ({}, [])


@pytest.mark.usefixtures('chromium')
async def test_a_question_in_a_browser_goes_when_its_time_is_up() -> None:
    log: list[str] = []
    async with desk_of(log, time_limit=0.5) as (server, url), opened(url) as page:
        await say(page, WRITE)
        await page.wait_for_selector('text=Done.')
        assert await page.locator('#questions p').count() == 0
        assert 'Nobody has answered in time.' in await page.inner_text('#told')
        assert log == ['closed with 1 draft']
        assert (server.questions, runs()) == ({}, [])


@pytest.mark.usefixtures('chromium')
async def test_saying_something_else_in_a_browser_says_no_to_what_was_asked_before() -> None:
    log: list[str] = []
    async with desk_of(log) as (server, url), opened(url) as page:
        await say(page, WRITE)
        (before,) = server.questions
        await page.fill('input', DELEGATE)
        await page.click('form button')
        await until(lambda: server.questions and before not in server.questions)
        await page.click('text=Approve')
        await page.wait_for_selector('text=Done.')
        await until(lambda: not runs())
        assert sorted(log) == ['Sent: Dear Bob, we miss you.', 'closed with 1 draft', 'closed with 1 draft']


@pytest.mark.usefixtures('chromium')
async def test_arguments_in_a_browser_are_text() -> None:
    text = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'
    model = scripts({'go': [call('draft', text=text), call('pay', text=text)]})

    async def pay(text: str) -> str:
        return text

    till = FunctionToolset[Any]()
    till.add_function(pay, requires_approval=True)
    log: list[str] = []
    agent = Agent[Any, str](model, name=text, toolsets=[till, Watched(log.append)])
    async with serve(Desk(agent).app) as url, opened(url) as page:
        assert json.dumps({'text': text}) in await say(page, 'go')
        await page.click('text=Approve')
        await page.wait_for_selector('text=Done.')
        assert text in await page.inner_text('#told')
        assert await page.locator('img, #told script').count() == 0
        assert await page.title() == 'Ask a person'


@pytest.mark.usefixtures('chromium')
async def test_a_browser_that_loses_its_stream_does_not_run_again() -> None:
    asked: list[str] = []

    async def lose(route: Route) -> None:
        asked.append(route.request.url)
        body = 'retry: 10\n\nevent: text\ndata: {"text": "Hello"}\n\n'
        await route.fulfill(content_type='text/event-stream', body=body)

    async with serve(Desk(approvals.desk).app) as url, opened(url) as page:
        await page.route('**/run?*', lose)
        await page.fill('input', WRITE)
        await page.click('form button')
        await page.wait_for_selector('text=The connection was lost.')
        await asyncio.sleep(0.5)
        assert len(asked) == 1
