"""A FastAPI app in miniature: each planted leak is found, and each harmless thing isn't."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability

from toolset_leaks import Watch

from .conftest import MakeAgent, Notes

pytestmark = pytest.mark.anyio


@dataclass
class User:
    """The deps of a run."""

    name: str
    seen: list[str] = field(default_factory=list[str])


def answer(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, headers={'set-cookie': f'sid={len(str(request.url))}; Path=/'}, text='ok')


class Shop(FunctionToolset[Any]):
    """Logs in with a client that all runs share."""

    def __init__(self) -> None:
        super().__init__([self.log_in])
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(answer))

    async def log_in(self, text: str) -> str:
        return (await self.client.get('https://shop.example/login')).text


class Portal(FunctionToolset[Any]):
    """Has a client that all runs share act for the user."""

    def __init__(self) -> None:
        super().__init__([self.act])
        self.client = httpx.Client(transport=httpx.MockTransport(answer))

    def act(self, ctx: RunContext[User], text: str) -> str:
        self.client.headers.setdefault('x-user', ctx.deps.name)
        return 'done'


@functools.lru_cache
def basket() -> list[str]:
    return []


def put(text: str) -> str:
    basket().append(text)
    return 'done'


class Store:
    def __init__(self) -> None:
        self.orders: list[str] = []


@functools.lru_cache
def store() -> Store:
    return Store()


def order(text: str) -> str:
    store().orders.append(text)
    return store().orders[-1]


def closing() -> Callable[[str], str]:
    last = ''

    def keep(text: str) -> str:
        nonlocal last
        last, before = text, last
        return before

    return keep


class Accounts(FunctionToolset[Any]):
    """Caches what belongs to a user, under the user's name."""

    def __init__(self) -> None:
        super().__init__([self.orders])
        self.cache: dict[str, list[str]] = {}

    def orders(self, ctx: RunContext[User], text: str) -> list[str]:
        return self.cache.setdefault(ctx.deps.name, [f'order of {ctx.deps.name}'])


class Profile(FunctionToolset[Any]):
    """Tells all what it read of the first, whom its text names otherwise than the deps do."""

    def __init__(self) -> None:
        super().__init__([self.read])
        self.profile: str | None = None

    def read(self, ctx: RunContext[User], text: str) -> str:
        self.profile = self.profile or f'born to be {ctx.deps.name.upper()}'
        return self.profile


class Account(FunctionToolset[Any]):
    """The same, and nothing shows whose it is."""

    def __init__(self) -> None:
        super().__init__([self.number])
        self.account: dict[str, str] = {}

    def number(self, ctx: RunContext[User], text: str) -> str:
        return self.account.setdefault('iban', f'DE{hash(ctx.deps.name)}')


def cart() -> Callable[[str], str]:
    """Looks like a cache, until the second is told what the first has put there."""
    items: dict[str, str] = {}

    def fill(text: str) -> str:
        items[text] = 'in the cart'
        return str(items)

    return fill


class Remembering(AbstractCapability[Any]):
    """A capability that keeps the last prompt."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def before_tool_execute(self, ctx: RunContext[Any], *, args: Any, **more: Any) -> Any:
        self.prompts.insert(len(self.prompts), str(ctx.prompt))
        return args


LEAKS: dict[str, Callable[[], dict[str, Any]]] = {
    'Notes.kept': lambda: {'toolsets': [Notes()]},
    'Shop.client': lambda: {'toolsets': [Shop()]},
    'Portal.client.headers': lambda: {'toolsets': [Portal()]},
    'basket': lambda: {'toolsets': [FunctionToolset[Any]([put])]},
    'store.orders': lambda: {'toolsets': [FunctionToolset[Any]([order])]},
    'keep.last': lambda: {'toolsets': [FunctionToolset[Any]([closing()])]},
    'Profile.profile': lambda: {'toolsets': [Profile()]},
    'fill.items': lambda: {'toolsets': [FunctionToolset[Any]([cart()])]},
    'Remembering.prompts': lambda: {'capabilities': [Remembering()], 'toolsets': [FunctionToolset[Any]([echo])]},
}


def echo(text: str) -> str:
    return 'done'


class Counting(FunctionToolset[Any]):
    """Counts and times its calls, for whoever looks after it."""

    def __init__(self) -> None:
        super().__init__([self.work])
        self.calls = 0
        self.by_tool: dict[str, int] = {}
        self.left = 100.0
        self.last_used: datetime | None = None
        self.clock: float | None = None
        self.window: list[float] = []

    def work(self, text: str) -> str:
        self.calls += 1
        self.left -= 1
        self.by_tool['work'] = self.by_tool.get('work', 0) + 1
        self.last_used = datetime.now(UTC)
        self.clock = time.monotonic()
        self.window = [*self.window[-9:], self.clock]
        return 'done'


class Capitals(FunctionToolset[Any]):
    """Caches public facts, under what was asked for."""

    def __init__(self) -> None:
        super().__init__([self.capital])
        self.known: dict[str, str] = {}

    def capital(self, text: str) -> str:
        return self.known.setdefault(text, f'The capital of {text} is number {len(text)}')


class Derived(Capitals):
    """The same under names of its own, with what nobody is told, and with no more than one."""

    def capital(self, text: str) -> str:
        url = f'https://capitals.example?of={text}'
        if url not in self.known:
            self.known.clear()
            self.known[url] = f'tag {len(text)}'
        return 'done'


class Recorder(FunctionToolset[Any]):
    """Writes down for a test, or for a log, what no tool reads."""

    def __init__(self) -> None:
        super().__init__([self.pay])
        self.paid: list[tuple[str, str]] = []
        self.last = {'to': ''}

    def pay(self, ctx: RunContext[User], text: str) -> str:
        self.paid.append((ctx.deps.name, text))
        self.last['to'] = text
        return 'done'


class Lazy(FunctionToolset[Any]):
    """Has a client, a lock and settings, which are made when they are first needed."""

    def __init__(self) -> None:
        super().__init__([self.fetch])
        self.client: httpx.AsyncClient | None = None
        self.lock: asyncio.Lock | None = None
        self.settings: dict[str, str] = {}

    def fetch(self, text: str) -> str:
        self.client = self.client or httpx.AsyncClient()
        self.lock = self.lock or asyncio.Lock()
        self.settings = self.settings or {'url': 'https://api.example'}
        return 'done'


@functools.lru_cache
def read_settings() -> dict[str, str]:
    return {'currency': 'EUR'}


def fresh_notes(ctx: RunContext[Any]) -> Notes:
    return Notes()


def price(text: str) -> str:
    return read_settings()['currency']


HARMLESS: dict[str, Callable[[], dict[str, Any]]] = {
    'counts and times': lambda: {'toolsets': [Counting()]},
    'a cache of public facts': lambda: {'toolsets': [Capitals()]},
    'a client, a lock and settings': lambda: {'toolsets': [Lazy()]},
    'a cache under names of its own': lambda: {'toolsets': [Derived()]},
    'what no tool reads': lambda: {'toolsets': [Recorder()]},
    'what may be for all': lambda: {'toolsets': [Account()]},
    "a cache under the user's name": lambda: {'toolsets': [Accounts()]},
    'settings in a cache': lambda: {'toolsets': [FunctionToolset[Any]([price])]},
    'a tool that keeps nothing': lambda: {'toolsets': [FunctionToolset[Any]([echo])]},
    'a factory': lambda: {'toolsets': [fresh_notes]},
}


async def use(agent: Agent[Any, str]) -> Watch:
    """Have the app answer three users."""
    with Watch() as watch:
        for name, prompt in (('Ada', 'milk'), ('Grace', 'bread'), ('Mary', 'tea')):
            await agent.run(prompt, deps=User(name))
    return watch


@pytest.mark.parametrize('name', LEAKS)
async def test_planted_leak_is_found(name: str, make_agent: MakeAgent):
    for cached in (basket, store):
        cached.cache_clear()
    watch = await use(make_agent(**LEAKS[name](), deps_type=User))
    assert [leak.name.rpartition(f'{__name__}.')[2] for leak in watch.report.leaks] == [name]


@pytest.mark.parametrize('name', HARMLESS)
async def test_harmless_thing_is_no_leak(name: str, make_agent: MakeAgent):
    read_settings.cache_clear()
    watch = await use(make_agent(**HARMLESS[name](), deps_type=User))
    assert watch.report.leaks == []
    assert set(watch.report.noted) == {
        'counts and times': {
            'Counting.calls',
            'Counting.left',
            'Counting.by_tool',
            'Counting.last_used',
            'Counting.clock',
            'Counting.window',
        },
        'a cache of public facts': {'Capitals.known'},
        'a cache under names of its own': {'Derived.known'},
        'what no tool reads': {'Recorder.paid', 'Recorder.last'},
        'what may be for all': {'Account.account'},
        "a cache under the user's name": {'Accounts.cache'},
    }.get(name, set())


async def test_double_of_a_test_is_no_leak_unless_a_second_run_is_given_it(make_agent: MakeAgent):
    agent, double = make_agent(Notes(), deps_type=User), Notes()
    with Watch() as watch:
        for _ in range(2):
            with agent.override(toolsets=[Notes()]):
                await agent.run('milk', deps=User('Ada'))
        assert watch.report.leaks == []
        for _ in range(2):
            with agent.override(toolsets=[double]):
                await agent.run('milk', deps=User('Ada'))
    assert [leak.read_by for leak in watch.report.leaks] == ["run 4 of agent 'support' ('milk')"]


async def test_what_others_asked_for_is_no_cache_of_what_a_tool_returned(make_agent: MakeAgent):
    asked: dict[str, int] = {}

    def search(text: str) -> list[str]:
        asked[text] = len(asked)
        return [text]

    watch = await use(make_agent(FunctionToolset[Any]([search]), deps_type=User))
    assert [leak.name for leak in watch.report.leaks] == ['search.asked']


async def test_capability_is_told_to_copy_where_it_can_be_stateful(make_agent: MakeAgent):
    watch = await use(make_agent(**LEAKS['Remembering.prompts'](), deps_type=User))
    [leak] = watch.report.leaks
    stateful = hasattr(AbstractCapability, 'stateful')
    assert ('`stateful = True` in `Remembering`, and a `copy()`' in leak.remedy) == stateful
    assert ('`Remembering.for_run()`' in leak.remedy) != stateful
