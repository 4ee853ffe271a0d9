"""What is shared on purpose, or tells nothing of a run, is quiet: one test for each kind."""

from __future__ import annotations

import asyncio
import functools
import logging
import queue
import random
import re
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import anyio
import httpx
import pytest
from pydantic import TypeAdapter
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from toolset_leaks import Watch, find_leaks


class Tools(FunctionToolset[Any]):
    """Has one tool, `use`, that a subclass writes."""

    def __init__(self) -> None:
        super().__init__([self.use])
        self.prepare()

    def prepare(self) -> None: ...

    def use(self, text: str) -> Any:
        raise NotImplementedError


class Basic: ...


class Resources(Tools):
    """Clients, connections, locks and the like: what runs are meant to share."""

    def prepare(self) -> None:
        self.free: list[sqlite3.Connection] = []
        self.connection = sqlite3.connect(':memory:', check_same_thread=False)
        self._client: httpx.AsyncClient | None = None
        self.clients: dict[str, httpx.AsyncClient] = {}
        self.lock = threading.Lock()
        self.limit = asyncio.Semaphore(3)
        self.anyio_lock = anyio.Lock()
        self.by_path: dict[str, asyncio.Lock] = {}
        self.logger = logging.getLogger('tools')
        self.random = random.Random(1)
        self.mock = Mock()
        self.by_run: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.tasks: set[asyncio.Task[None]] = set()
        self.futures: list[Any] = []
        self.executor = ThreadPoolExecutor(1)
        self.jobs: queue.Queue[str] = queue.Queue()

    async def use(self, text: str) -> str:
        self.free.append(self.free.pop() if self.free else sqlite3.connect(':memory:'))
        self.connection.close()
        self.connection = sqlite3.connect(':memory:', check_same_thread=False)  # another one in each run
        self._client = self._client or httpx.AsyncClient()
        self.clients[text] = httpx.AsyncClient()
        async with self.by_path.setdefault(text, asyncio.Lock()), self.limit:
            self.lock.acquire(blocking=False)
        self.logger.debug('used with %s', text)
        self.mock(text)
        self.random.random()
        self.by_run[Basic()] = text
        self.tasks.add(asyncio.create_task(asyncio.sleep(0)))
        self.futures.append(self.executor.submit(print, end=''))
        self.jobs.put(text)
        return self.jobs.get()


class Descriptions(Tools):
    """Schemas and tools that are made when they're first needed."""

    def prepare(self) -> None:
        self.adapters: dict[str, TypeAdapter[Any]] = {}
        self.patterns: dict[str, re.Pattern[str]] = {}
        self.cached: dict[str, ToolsetTool[Any]] | None = None
        self.own: dict[str, OwnTool] = {}
        self.by_name: dict[str, Tool[Any]] = {}
        self.made: list[Tool[Any]] = []
        self.groups: dict[str, list[Tool[Any]]] = {}
        self.add_function(_length, name='length')
        self.known: list[str] = []

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        self.cached = await super().get_tools(ctx)
        self.own = {name: own_tool(tool) for name, tool in self.cached.items()}
        return self.cached

    def use(self, text: str) -> None:
        self.adapters[text] = TypeAdapter(int)
        self.patterns[text] = re.compile(text)
        self.by_name[text] = Tool(_length, name=text, description=f'Measures {text}')
        self.made.append(self.by_name[text])
        self.groups[text] = [self.by_name[text]]
        self.known = self.known or list(self.tools)


class Loaded(Tools):
    """Reads what is the same for all runs when it's first needed, and counts retries, which start over with each success."""

    def prepare(self) -> None:
        self._rates: dict[str, float] | None = None
        self._names: list[str] = []
        self._loaded = False
        self.retries = 0

    @functools.cached_property
    def table(self) -> dict[str, int]:
        return {name: len(name) for name in ('a', 'bb')}

    def use(self, text: str) -> int:
        if not self._loaded:
            self._rates = {'EUR': 1.0, 'USD': 1.1}
            self._names.extend(self._rates)
            self._loaded = True
        if self.retries < 1:
            self.retries += 1
            raise ModelRetry('Once more')
        self.retries = 0
        return self.table['a'] + _length(text)


class OwnTool(ToolsetTool[Any]):
    """A tool as toolsets define it."""


def own_tool(tool: ToolsetTool[Any]) -> OwnTool:
    return OwnTool(toolset=tool.toolset, tool_def=tool.tool_def, max_retries=1, args_validator=tool.args_validator)


@functools.lru_cache
def _length(text: str) -> int:
    return len(text)


class ResetWhenEntered(Tools):
    """Counts calls, and starts over with each run."""

    def prepare(self) -> None:
        self.calls = 0
        self.seen: list[str] = []

    async def __aenter__(self) -> Any:
        self.calls = 0
        self.seen.clear()
        return await super().__aenter__()

    def use(self, text: str) -> None:
        self.calls += 1
        self.seen.insert(len(self.seen), text)


class RenewedWhenEntered(Tools):
    """Begins each run with a new list, which it also shows afterwards."""

    def prepare(self) -> None:
        self.seen: list[str] = []

    async def __aenter__(self) -> Any:
        self.seen = []
        return await super().__aenter__()

    def use(self, text: str) -> None:
        self.seen.append(text)


class ResetWhenExited(Tools):
    def prepare(self) -> None:
        self.seen: list[str] = []

    async def __aexit__(self, *args: object) -> None:
        self.seen.clear()

    def use(self, text: str) -> None:
        self.seen.append(text)


class Entered(Tools):
    """Counts how often it's entered, and opens a session for as long."""

    def prepare(self) -> None:
        self.running, self.stack, self._started = 0, None, False
        self._session: Any = None

    async def __aenter__(self) -> Any:
        self.running += 1
        self._started = True
        self.stack = AsyncExitStack()
        self._session = await self.stack.enter_async_context(httpx.AsyncClient())
        return self

    async def __aexit__(self, *args: object) -> None:
        self.running -= 1
        assert self.stack
        await self.stack.aclose()

    def use(self, text: str) -> None: ...


@dataclass
class Deps:
    notes: list[str]


@dataclass
class Loading:
    rates: dict[str, float] | None = None


HARMLESS: list[type[Tools]] = Tools.__subclasses__()


@pytest.mark.parametrize('make', HARMLESS)
@pytest.mark.filterwarnings('ignore:coroutine .* was never awaited')
def test_find_leaks_is_quiet_about_what_is_harmless(make: Callable[[], AbstractToolset[Any]]):
    report = find_leaks(Agent(TestModel(), toolsets=[make()]))

    assert not report.leaks, report
    assert not report.failed
    assert report.runs >= 5


def test_find_leaks_says_what_only_runs_at_the_same_time_can_see():
    report = find_leaks(Agent(TestModel(), toolsets=[ResetWhenEntered()]))

    assert [finding.where for finding in report.cleared] == ['`ResetWhenEntered.seen[0]`']
    assert 'Cleared by the next run, so seen by runs at the same time only: `ResetWhenEntered.seen[0]`' in str(report)


def test_find_leaks_is_quiet_about_toolsets_that_a_factory_makes():
    agent = Agent(TestModel())

    @agent.toolset(per_run_step=False)
    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        notes: list[str] = []

        def add(text: str) -> None:
            notes.append(text)

        return FunctionToolset([add])

    assert not find_leaks(agent).leaks


def noting() -> Agent[Deps, str]:
    agent = Agent(TestModel(), deps_type=Deps)

    @agent.tool
    def add(ctx: RunContext[Deps], text: str) -> None:
        ctx.deps.notes.append(text)

    return agent


def test_find_leaks_is_quiet_about_deps_that_each_run_has_for_itself():
    made: list[Deps] = []

    def make_deps() -> Deps:
        made.append(Deps([]))
        return made[-1]

    assert not find_leaks(noting(), make_deps=make_deps).leaks
    assert sum(len(deps.notes) for deps in made) == 3


def test_watch_is_quiet_about_deps_of_one_conversation():
    agent, deps = noting(), Deps([])
    with Watch() as watch:
        first = agent.run_sync('One', deps=deps)
        agent.run_sync('Two', deps=deps, message_history=first.all_messages())
    assert deps.notes
    assert not watch.report.leaks


def test_watch_is_quiet_about_deps_that_a_sub_agent_is_handed():
    child = noting()
    agent = Agent(TestModel(), deps_type=Deps)

    @agent.tool
    async def delegate(ctx: RunContext[Deps], text: str) -> None:
        await child.run('First', deps=ctx.deps)
        await child.run('Second', deps=Deps(ctx.deps.notes))

    deps = Deps([])
    with Watch() as watch:
        agent.run_sync('One', deps=deps)
    assert len(deps.notes) == 2
    assert not watch.report.leaks


def test_watch_is_quiet_about_what_deps_load_once():
    agent = Agent(TestModel(), deps_type=Loading)

    @agent.tool
    def rate(ctx: RunContext[Loading], text: str) -> float:
        ctx.deps.rates = ctx.deps.rates or {'EUR': 1.0}
        return ctx.deps.rates['EUR']

    assert not find_leaks(agent, deps=Loading()).leaks


def test_watch_is_quiet_about_what_happens_between_runs():
    class Notes(Tools):
        def prepare(self) -> None:
            self.kept: list[str] = []

        def use(self, text: str) -> list[str]:
            return self.kept

    notes = Notes()
    agent = Agent(TestModel(), toolsets=[notes])
    with Watch() as watch:
        agent.run_sync('One')
        notes.kept.append('by the application')
        agent.run_sync('Two')

    assert not watch.report.leaks


def test_find_leaks_looks_into_no_mcp_session():
    """A toolset of the framework's own, which counts how often it's entered, and caches what the server said."""

    class Server(FunctionToolset[Any]):
        __module__ = 'pydantic_ai.mcp'

        def __init__(self) -> None:
            super().__init__([self.echo])
            self._cached_tools: list[str] = []

        def echo(self, text: str) -> str:
            self._cached_tools.append(text)
            return text

    class MyServer(Server):
        __module__ = __name__

    assert not find_leaks(Agent(TestModel(), toolsets=[Server(), MyServer().prefixed('my')])).leaks
