"""The kinds of state that a toolset can have, each as somebody would write it, in an agent that is a long-lived global."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, Agent, ModelMessage, ModelResponse, RunContext, ToolsetTool
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from typing_extensions import Self

from .toolsets import tool_of

pytestmark = pytest.mark.anyio

Call = tuple[str, dict[str, Any]]


class Tools(AbstractToolset[Any]):
    """What each toolset needs besides what its category is about: the list of its tools."""

    tools: Sequence[str] = ()

    @property
    def id(self) -> str | None:
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: tool_of(self, name) for name in self.tools}


def agent_of(*calls: Call, **options: Any) -> Agent[Any, Any]:
    """Make an agent that makes these tool calls one after another, and returns what all of them returned."""
    return Agent(model_of(*calls), output_type=str, **options)


def model_of(*calls: Call) -> FunctionModel:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if len(done) < len(calls):
            return ModelResponse(parts=[ToolCallPart(*calls[len(done)])])
        return ModelResponse(parts=[TextPart('done')])

    return FunctionModel(respond)


async def returned(agent: Agent[Any, Any], **options: Any) -> list[Any]:
    """Run an agent, and return what its tools returned."""
    result = await agent.run('go', **options)
    parts = [part for message in result.all_messages() for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


def delegate_to(child: Agent[Any, Any], **options: Any) -> Callable[..., Any]:
    async def delegate(ctx: RunContext[Any]) -> list[Any]:
        return await returned(child, **options)

    return delegate


DELEGATE: Call = ('delegate', {})


# 1: pure functions


@dataclass
class HashToolset(Tools):
    tools = ('sha256', 'md5')

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if name == 'sha256':
            return hashlib.sha256(tool_args['text'].encode()).hexdigest()
        return hashlib.md5(tool_args['text'].encode()).hexdigest()


async def test_pure_functions_need_nothing():
    toolset = HashToolset()
    assert toolset.stateful is False
    assert toolset.copy() is toolset
    agent = agent_of(('sha256', {'text': 'x'}), ('md5', {'text': 'x'}), toolsets=[toolset])
    expected = [hashlib.sha256(b'x').hexdigest(), hashlib.md5(b'x').hexdigest()]
    assert await asyncio.gather(*(returned(agent) for _ in range(3))) == [expected] * 3


# 2: side effects


@dataclass
class NotificationToolset(Tools):
    webhook_url: str
    post: Callable[..., None]
    tools = ('send_slack',)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.post(self.webhook_url, json={'text': tool_args['message']})
        return 'sent'


async def test_side_effects_need_nothing():
    def post(url: str, json: dict[str, str]) -> None:
        sent.append((url, json['text']))

    sent: list[tuple[str, str]] = []
    toolset = NotificationToolset('https://hooks.invalid/x', post)
    child = agent_of(('send_slack', {'message': 'from the child'}), toolsets=[toolset])
    agent = agent_of(('send_slack', {'message': 'hello'}), DELEGATE, toolsets=[toolset], tools=[delegate_to(child)])
    assert await returned(agent) == ['sent', ['sent']]
    assert sent == [('https://hooks.invalid/x', 'hello'), ('https://hooks.invalid/x', 'from the child')]


# 4: state that a run accumulates


@dataclass
class CachingSearchToolset(Tools):
    web_search: Callable[[str], str]
    cache: dict[str, str] = field(default_factory=dict[str, str])
    call_count: int = 0
    stateful = True
    tools = ('search',)

    def copy(self) -> CachingSearchToolset:
        return CachingSearchToolset(self.web_search)  # fresh per run

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self  # share cache warmth with sub-agents

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.call_count += 1
        query = tool_args['query']
        if query not in self.cache:
            self.cache[query] = self.web_search(query)
        return self.cache[query], self.call_count


async def test_cache_is_warm_for_sub_agents_and_cold_for_the_next_run():
    def web_search(query: str) -> str:
        searched.append(query)
        return f'about {query}'

    searched: list[str] = []
    toolset = CachingSearchToolset(web_search)
    call: Call = ('search', {'query': 'cats'})
    child = agent_of(call, toolsets=[toolset])
    agent = agent_of(call, DELEGATE, call, toolsets=[toolset], tools=[delegate_to(child)])
    for number in (1, 2):
        assert await returned(agent) == [('about cats', 1), [('about cats', 2)], ('about cats', 3)]
        assert searched == ['cats'] * number
    assert (toolset.cache, toolset.call_count) == ({}, 0)


@dataclass
class RateLimitedToolset(Tools):
    max_calls: int = 10
    _calls_this_run: int = field(default=0, init=False)
    _timestamps: list[float] = field(default_factory=list[float], init=False)
    stateful = True
    tools = ('fetch',)

    def copy(self) -> RateLimitedToolset:
        return type(self)(max_calls=self.max_calls)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self._calls_this_run += 1
        if self._calls_this_run > self.max_calls:
            return f'Rate limit exceeded: {self.max_calls} calls per run'
        self._timestamps.append(time.time())
        return 'fetched'


class OwnQuotaToolset(RateLimitedToolset):
    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)(max_calls=self.max_calls)


@pytest.mark.parametrize(
    'toolset, of_child',
    [
        (RateLimitedToolset(max_calls=2), ['fetched', 'Rate limit exceeded']),
        (OwnQuotaToolset(max_calls=2), ['fetched', 'fetched']),
    ],
    ids=['global quota', 'own quota'],
)
async def test_rate_limit_is_per_run_and_shared_with_sub_agents_or_not(
    toolset: RateLimitedToolset, of_child: list[str]
):
    def short(result: str) -> str:
        return result.split(':')[0]

    fetch: Call = ('fetch', {})
    child = agent_of(fetch, fetch, toolsets=[toolset])
    agent = agent_of(fetch, DELEGATE, fetch, toolsets=[toolset], tools=[delegate_to(child)])
    for _ in range(2):
        last = 'Rate limit exceeded' if of_child[1] == 'Rate limit exceeded' else 'fetched'
        before, in_child, after = await returned(agent)
        assert (short(before), [short(each) for each in in_child], short(after)) == ('fetched', of_child, last)


@dataclass
class AuditToolset(AbstractToolset[Any]):
    """Wraps another toolset and logs all calls, written straight on `AbstractToolset`."""

    inner: AbstractToolset[Any]
    log: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stateful = True

    @property
    def id(self) -> str | None:
        return None

    def copy(self) -> AuditToolset:
        inner_copy = self.inner.copy() if self.inner.stateful else self.inner
        return AuditToolset(inner=inner_copy, log=[])

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        inner_sub = self.inner.for_sub_agent(ctx)
        return AuditToolset(inner=inner_sub, log=[])  # sub-agent gets own audit log

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        AUDITED.append([entry['tool'] for entry in self.log])
        return await self.inner.__aexit__(*args)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return await self.inner.get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        result = await self.inner.call_tool(name, tool_args, ctx, tool)
        self.log.append({'tool': name, 'args': tool_args, 'result': str(result)[:200]})
        return result


AUDITED: list[list[str]] = []
"""The logs, in the order in which their runs ended."""


async def test_audit_wrapper_has_a_log_per_run_and_the_inside_decides_for_itself():
    AUDITED.clear()
    toolset = AuditToolset(CachingSearchToolset(lambda query: query))
    call: Call = ('search', {'query': 'cats'})
    child = agent_of(call, toolsets=[toolset])
    agent = agent_of(call, call, DELEGATE, toolsets=[toolset], tools=[delegate_to(child)])
    for _ in range(2):
        assert await returned(agent) == [('cats', 1), ('cats', 2), [('cats', 3)]]
    assert AUDITED == [['search'], ['search', 'search']] * 2
    assert toolset.log == []


# 5: sessions


class Page:
    """A page of a browser that isn't one."""

    def __init__(self) -> None:
        self.url = 'about:blank'
        self.is_open = True

    async def goto(self, url: str) -> None:
        assert self.is_open
        self.url = url

    async def text_content(self) -> str:
        assert self.is_open
        return f'text of {self.url}'

    async def close(self) -> None:
        assert self.is_open
        self.is_open = False


PAGES: list[Page] = []


@dataclass
class BrowserToolset(Tools):
    _page: Page | None = field(default=None, init=False)
    _start_url: str | None = field(default=None, init=False)
    stateful = True
    tools = ('navigate', 'get_text')

    def copy(self) -> BrowserToolset:
        return BrowserToolset()  # fresh per run

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        # Snapshot: sub-agent starts at parent's URL but gets own tab
        new = BrowserToolset()
        new._start_url = self._page.url if self._page else None
        return new

    async def __aenter__(self) -> Self:
        assert self._page is None
        self._page = Page()
        PAGES.append(self._page)
        if self._start_url:
            await self._page.goto(self._start_url)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        assert self._page is not None
        await self._page.close()
        return None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        assert self._page is not None
        if name == 'navigate':
            await self._page.goto(tool_args['url'])
            return f'Navigated to {tool_args["url"]}'
        return await self._page.text_content()


GET_TEXT: Call = ('get_text', {})
TO_A, TO_B = (('navigate', {'url': url}) for url in 'ab')


async def test_browser_of_a_sub_agent_starts_at_the_parents_page_in_a_tab_of_its_own():
    PAGES.clear()
    browser_toolset = BrowserToolset()
    child = agent_of(GET_TEXT, TO_B, GET_TEXT, toolsets=[browser_toolset])
    agent = agent_of(GET_TEXT, TO_A, DELEGATE, GET_TEXT, toolsets=[browser_toolset], tools=[delegate_to(child)])
    for _ in range(2):
        assert await returned(agent) == [
            'text of about:blank',
            'Navigated to a',
            ['text of a', 'Navigated to b', 'text of b'],
            'text of a',
        ]
    assert (await returned(child))[0] == 'text of about:blank'
    assert len(PAGES) == 5
    assert not any(page.is_open for page in PAGES)


async def test_browser_of_a_sub_agent_is_fresh_when_the_wiring_says_so():
    browser_toolset = BrowserToolset()
    for fresh in (lambda ctx: BrowserToolset(), lambda: BrowserToolset(), BrowserToolset):  # pyright: ignore
        PAGES.clear()
        child = agent_of(GET_TEXT, toolsets=[fresh])
        agent = agent_of(TO_A, DELEGATE, toolsets=[browser_toolset], tools=[delegate_to(child)])
        assert await returned(agent) == ['Navigated to a', ['text of about:blank']]
        assert not any(page.is_open for page in PAGES)


async def test_browser_of_a_sub_agent_is_the_parents_when_the_wiring_says_so():
    PAGES.clear()
    browser_toolset = BrowserToolset()
    child = agent_of(GET_TEXT, TO_B, toolsets=[browser_toolset.shared()])
    agent = agent_of(TO_A, DELEGATE, GET_TEXT, toolsets=[browser_toolset], tools=[delegate_to(child)])
    assert await returned(agent) == ['Navigated to a', ['text of a', 'Navigated to b'], 'text of b']
    assert len(PAGES) == 1


async def test_browser_factory_in_toolsets():
    PAGES.clear()
    agent: Agent[Any, Any] = Agent(model_of(TO_A), toolsets=[lambda ctx: BrowserToolset()])
    await returned(agent)
    assert len(PAGES) == 2  # one for each step
    assert not any(page.is_open for page in PAGES)


@dataclass
class REPLToolset(Tools):
    env: dict[str, Any] = field(default_factory=dict[str, Any])
    history: list[str] = field(default_factory=list[str])
    stateful = True
    tools = ('exec',)

    def copy(self) -> REPLToolset:
        return REPLToolset()

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return REPLToolset(env=dict(self.env), history=list(self.history))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        code = tool_args['code']
        self.history.append(code)
        exec(code, self.env)  # noqa: S102 (it's what a REPL does)
        return self.env.get('_result', 'executed')


async def test_repl_of_a_sub_agent_has_a_snapshot():
    def execute(code: str) -> Call:
        return 'exec', {'code': code}

    toolset = REPLToolset()
    child = agent_of(execute('_result = x'), execute('x = 0'), execute('_result = x'), toolsets=[toolset])
    agent = agent_of(
        execute('x = 42'), DELEGATE, execute('_result = x'), toolsets=[toolset], tools=[delegate_to(child)]
    )
    for _ in range(2):
        assert await returned(agent) == ['executed', [42, 42, 0], 42]
    assert (toolset.env, toolset.history) == ({}, [])
    with pytest.raises(NameError):
        await returned(child)


# 6: transactions


@dataclass
class TransactionalToolset(Tools):
    """As for a pool: neither stateful nor copied, and entered once at a time."""

    pool: Path
    _conn: sqlite3.Connection | None = field(default=None, init=False)
    tools = ('execute',)

    async def __aenter__(self) -> Self:
        assert self._conn is None, 'entered twice'
        self._conn = sqlite3.connect(self.pool, isolation_level=None, timeout=0)
        self._conn.execute('BEGIN')
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None = None, *args: object) -> bool | None:
        assert self._conn is not None
        self._conn.execute('ROLLBACK' if exc_type else 'COMMIT')
        self._conn.close()
        self._conn = None
        return None

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self  # default: share the transaction

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        assert self._conn is not None
        return self._conn.execute(tool_args['sql']).fetchall()


class IsolatedTransactionalToolset(TransactionalToolset):
    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return TransactionalToolset(pool=self.pool)  # own connection


class StatefulTransactionalToolset(TransactionalToolset):
    stateful = True

    def copy(self) -> StatefulTransactionalToolset:
        return type(self)(self.pool)


class StatefulIsolatedTransactionalToolset(IsolatedTransactionalToolset):
    stateful = True

    def copy(self) -> StatefulIsolatedTransactionalToolset:
        return type(self)(self.pool)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / 'x.db'
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE t (x TEXT)')
    return path


def rows(pool: Path) -> list[str]:
    with closing(sqlite3.connect(pool)) as connection:
        return [x for (x,) in connection.execute('SELECT x FROM t')]


def insert(value: str) -> Call:
    return 'execute', {'sql': f"INSERT INTO t VALUES ('{value}')"}


SELECT: Call = ('execute', {'sql': 'SELECT x FROM t'})


@pytest.mark.parametrize('cls', [TransactionalToolset, StatefulTransactionalToolset])
async def test_transaction_is_shared(pool: Path, cls: type[TransactionalToolset]):
    toolset = cls(pool)
    child = agent_of(SELECT, insert('child'), toolsets=[toolset])
    agent = agent_of(insert('parent'), DELEGATE, SELECT, toolsets=[toolset], tools=[delegate_to(child)])
    assert await returned(agent) == [[], [[('parent',)], []], [('parent',), ('child',)]]
    assert rows(pool) == ['parent', 'child']


@pytest.mark.parametrize('cls', [TransactionalToolset, StatefulTransactionalToolset])
async def test_shared_transaction_is_rolled_back_as_a_whole(pool: Path, cls: type[TransactionalToolset]):
    toolset = cls(pool)
    child = agent_of(insert('child'), ('execute', {'sql': 'nonsense'}), toolsets=[toolset])
    agent = agent_of(insert('parent'), DELEGATE, toolsets=[toolset], tools=[delegate_to(child)])
    with pytest.raises(sqlite3.OperationalError, match='nonsense'):
        await returned(agent)
    assert rows(pool) == []


@pytest.mark.parametrize('cls', [IsolatedTransactionalToolset, StatefulIsolatedTransactionalToolset])
async def test_isolated_transaction_is_committed_on_its_own(pool: Path, cls: type[TransactionalToolset]):
    toolset = cls(pool)
    child = agent_of(SELECT, insert('child'), toolsets=[toolset])
    agent = agent_of(
        DELEGATE, insert('parent'), ('execute', {'sql': 'nonsense'}), toolsets=[toolset], tools=[delegate_to(child)]
    )
    with pytest.raises(sqlite3.OperationalError, match='nonsense'):
        await returned(agent)
    assert rows(pool) == ['child']


# 7: several resources


@dataclass
class WorkflowState:
    """Shared state passed as deps."""

    conn: sqlite3.Connection
    browser_page: Page


class DepsDBToolset(Tools):
    tools = ('execute',)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return ctx.deps.conn.execute(tool_args['sql']).fetchall()


class DepsBrowserToolset(Tools):
    tools = ('navigate',)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if tool_args['url'] == 'broken':
            raise RuntimeError('navigation failed')
        await ctx.deps.browser_page.goto(tool_args['url'])
        return 'navigated'


@pytest.mark.parametrize('url', ['a', 'broken'])
async def test_several_resources_are_coordinated_through_deps(pool: Path, url: str):
    agent = agent_of(
        insert('row'),
        ('navigate', {'url': url}),
        toolsets=[DepsDBToolset(), DepsBrowserToolset()],
        deps_type=WorkflowState,
    )
    with closing(sqlite3.connect(pool)) as conn:
        state = WorkflowState(conn, Page())
        try:
            with conn:
                await returned(agent, deps=state)
        except RuntimeError:
            assert url == 'broken'
    assert rows(pool) == (['row'] if url == 'a' else [])
    assert state.browser_page.url == ('a' if url == 'a' else 'about:blank')


@dataclass
class DBToolset(Tools):
    conn: sqlite3.Connection
    tools = ('execute',)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return self.conn.execute(tool_args['sql']).fetchall()


@pytest.mark.parametrize('succeeds', [True, False])
async def test_several_resources_are_coordinated_by_an_orchestrator(pool: Path, succeeds: bool):
    PAGES.clear()
    last = GET_TEXT if succeeds else ('execute', {'sql': 'nonsense'})
    worker = agent_of(insert('row'), TO_A, last)
    with closing(sqlite3.connect(pool, isolation_level=None)) as conn:
        conn.execute('BEGIN')
        try:
            await worker.run('go', toolsets=[DBToolset(conn=conn), BrowserToolset()])
            conn.execute('COMMIT')
        except sqlite3.OperationalError:
            conn.execute('ROLLBACK')
    assert rows(pool) == (['row'] if succeeds else [])
    assert [page.is_open for page in PAGES] == [False]


async def test_agent_with_browser_database_and_cache(pool: Path):
    agent = agent_of(
        TO_A,
        insert('row'),
        ('search', {'query': 'cats'}),
        toolsets=[BrowserToolset(), StatefulTransactionalToolset(pool), CachingSearchToolset(lambda query: query)],
    )
    for number in (1, 2):
        assert await returned(agent) == ['Navigated to a', [], ('cats', 1)]
        assert rows(pool) == ['row'] * number


# Agents that run within their own runs


async def test_agent_that_calls_itself_and_through_another_has_fresh_copies():
    search: Call = ('search', {'query': 'cats'})
    audited = AuditToolset(CachingSearchToolset(lambda query: query))
    a: Agent[Any, Any] = Agent(toolsets=[HashToolset(), audited, BrowserToolset()], name='a')
    b: Agent[Any, Any] = Agent(name='b')

    @a.tool
    async def call_a(ctx: RunContext[Any]) -> list[Any]:
        depth = ctx.deps - 1
        calls: list[Call] = [search, TO_B, *([('call_a', {})] if depth else []), search]
        return await returned(a, model=model_of(*calls), deps=depth)

    @a.tool
    async def call_b(ctx: RunContext[Any]) -> list[Any]:
        return await returned(b, model=model_of(('back', {})))

    @b.tool
    async def back(ctx: RunContext[Any]) -> list[Any]:
        return await returned(a, model=model_of(search, GET_TEXT))

    outer = model_of(search, TO_A, ('call_a', {}), ('call_b', {}), search, GET_TEXT)
    innermost = [('cats', 1), 'Navigated to b', ('cats', 2)]
    inner = [('cats', 1), 'Navigated to b', innermost, ('cats', 2)]
    through_b = [[('cats', 1), 'text of about:blank']]
    for _ in range(2):
        PAGES.clear()
        assert await returned(a, model=outer, deps=2) == [
            ('cats', 1),
            'Navigated to a',
            inner,
            through_b,
            ('cats', 2),
            'text of a',
        ]
        assert len(PAGES) == 4
        assert not any(page.is_open for page in PAGES)
