"""A planted leak of each kind is found, and named as a reader would look for it."""

from __future__ import annotations

import collections
import contextvars
import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

from toolset_leaks import ArgumentsError, ToolsetLeakError, assert_no_leak, find_leaks
from toolset_leaks.snapshot import Place, Snapshot

TOTAL = 0
HISTORY: contextvars.ContextVar[list[str]] = contextvars.ContextVar('HISTORY', default=[])  # noqa: B039


class Attribute(FunctionToolset[Any]):
    def __init__(self) -> None:
        super().__init__([self.add])
        self.todos: list[str] = []

    def add(self, text: str) -> None:
        self.todos.insert(len(self.todos), text)


class Slot(FunctionToolset[Any]):
    __slots__ = ('kept',)

    def __init__(self) -> None:
        super().__init__([self.add])
        self.kept = ''

    def add(self, text: str) -> None:
        self.kept = text or self.kept


class Counter(FunctionToolset[Any]):
    def __init__(self) -> None:
        super().__init__([self.call])
        self.calls = 0

    def call(self) -> int:
        self.calls += 1
        return self.calls


class Renamed(FunctionToolset[Any]):
    """Sets an attribute of its class."""

    latest = 'nobody'

    def __init__(self) -> None:
        super().__init__([self.greet])

    def greet(self, person: str) -> None:
        type(self).latest = person or self.latest


class Taking(FunctionToolset[Any]):
    """Takes from what it began with."""

    def __init__(self) -> None:
        super().__init__([self.draw])
        self.cards = ['ace', 'king', 'queen', 'jack', 'ten', 'nine']

    def draw(self) -> str:
        return self.cards.pop() if self.cards else 'none'


class Basket:
    def __init__(self) -> None:
        self.items: collections.deque[str] = collections.deque()


class Settings(BaseModel):
    words: set[str] = set()
    _seen: list[str] = []


class InModel(FunctionToolset[Any]):
    def __init__(self) -> None:
        super().__init__([self.learn])
        self.settings = Settings()

    def learn(self, word: str) -> None:
        self.settings.words.update({word} - self.settings.words)


@dataclass
class Audit(WrapperToolset[Any]):
    log: list[Any] = field(default_factory=list[Any])

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        self.log.insert(len(self.log), (name, tool_args))
        return await super().call_tool(name, tool_args, ctx, tool)


class Ids(FunctionToolset[Any]):
    def __init__(self) -> None:
        super().__init__([self.next_id])
        self.ids = itertools.count()

    def next_id(self) -> int:
        return next(self.ids)


def closure() -> AbstractToolset[Any]:
    storage: list[str] = []

    def add_todo(text: str) -> None:
        storage.insert(len(storage), text)

    return FunctionToolset([add_todo])


def default() -> AbstractToolset[Any]:
    def collect(item: str, seen: list[str] = []) -> list[str]:  # noqa: B006
        seen.append(item)
        return seen

    def note(text: str) -> list[str]:
        return collect(text)

    return FunctionToolset([note])


def function_attribute() -> AbstractToolset[Any]:
    def ping(text: str) -> str:
        return vars(ping).setdefault('first', text)

    return FunctionToolset([ping])


def _count_up() -> int:
    global TOTAL
    TOTAL += 1  # pyright: ignore[reportConstantRedefinition]
    return TOTAL


def rebound_global() -> AbstractToolset[Any]:
    def total() -> int:
        return _count_up()

    return FunctionToolset([total])


def context_variable() -> AbstractToolset[Any]:
    def say(text: str) -> None:
        HISTORY.get().append(text)

    return FunctionToolset([say])


def factory_that_shares() -> Any:
    notes: list[str] = []

    def write(text: str) -> None:
        notes.insert(len(notes), text)

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return FunctionToolset([write])

    return make


PLANTED: list[tuple[Callable[[], Any], str, str]] = [
    (Attribute, '`Attribute.todos[0]`', 'factory'),
    (Slot, '`Slot.kept`', 'factory'),
    (Counter, '`Counter.calls`', 'factory'),
    (Renamed, 'class attribute `Renamed.latest`', 'set it in `Renamed.__init__()`'),
    (Taking, '`Taking.cards[5]`', 'factory'),
    (InModel, '`InModel.settings.words`', 'factory'),
    (lambda: Audit(FunctionToolset([print_nothing])), '`Audit.log[0]`', 'factory'),
    (lambda: Attribute().prefixed('a').filtered(lambda ctx, tool: True), '`Attribute.todos[0]`', 'factory'),
    (Ids, '`Ids.ids`', 'factory'),
    (closure, 'closure cell `storage[0]` of `add_todo`', 'make the function `add_todo` and what it keeps again'),
    (default, 'default `seen[0]` of `collect`', '`None` as the default'),
    (function_attribute, 'attribute `ping.first` of a function', 'in an attribute of a toolset'),
    (rebound_global, 'global `TOTAL` of `', 'in an attribute of a toolset'),
    (context_variable, 'context variable `HISTORY[', 'in an attribute of a toolset'),
    (factory_that_shares, 'closure cell `notes[0]` of `write`', 'make the function `write` and what it keeps again'),
]


def print_nothing(text: str) -> None:
    pass


@pytest.mark.parametrize(('make', 'where', 'remedy'), PLANTED, ids=[where for _, where, _ in PLANTED])
def test_find_leaks_finds_and_names_a_planted_leak(make: Callable[[], Any], where: str, remedy: str):
    made = make()
    agent = Agent(TestModel())
    if isinstance(made, AbstractToolset):
        agent = Agent(TestModel(), toolsets=[cast('AbstractToolset[Any]', made)])
    else:
        cast('Any', agent).toolset(made, per_run_step=False)

    [leak] = find_leaks(agent).leaks

    assert leak.where.startswith(where)
    assert remedy in leak.remedy
    assert leak.read_by
    assert not find_leaks(agent, shared=[leak.name]).leaks


def test_find_leaks_finds_what_a_module_keeps_for_a_toolset(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / 'shop_state.py').write_text('orders = []\n')
    (tmp_path / 'shop_tools.py').write_text(
        'import shop_state\n\ndef order(item: str) -> None:\n    shop_state.orders.insert(len(shop_state.orders), item)\n'
    )
    cast('Any', monkeypatch).syspath_prepend(tmp_path)
    import shop_tools  # pyright: ignore[reportMissingImports]

    [leak] = find_leaks(Agent(TestModel(), tools=[cast('Any', shop_tools).order])).leaks

    assert leak.where == 'global `orders[0]` of `shop_state`'
    assert leak.name == 'shop_state.orders'


def test_assert_no_leak_fails_with_what_was_found():
    with pytest.raises(ToolsetLeakError, match=r'1 leak found in 5 runs:\n\n`Attribute\.todos\[0\]`') as caught:
        assert_no_leak(Agent(TestModel(), toolsets=[Attribute()]))
    assert caught.value.report.leaks[0].name == 'Attribute.todos'


def test_assert_no_leak_passes_when_the_state_is_declared():
    class Declared(Attribute):
        shared_attributes = frozenset({'todos'})

    assert_no_leak(Agent(TestModel(), toolsets=[Declared()]))
    assert_no_leak(Agent(TestModel(), toolsets=[Attribute()]), shared=['*.todos'])


def test_assert_no_leak_fails_when_no_call_of_a_tool_succeeded():
    def fail() -> None:
        raise OSError('no disk')

    with pytest.raises(ToolsetLeakError, match=r'^Nothing is known: no call of a tool succeeded\..*OSError: no disk\.'):
        assert_no_leak(Agent(TestModel(), tools=[fail]))


def test_find_leaks_skip_leaves_tools_uncalled():
    def delete_all() -> None:
        raise AssertionError('must not be called')

    def count() -> int:
        return 1

    report = find_leaks(Agent(TestModel(), tools=[delete_all, count]), skip=['delete_*'])

    assert report.not_called == ['delete_all']
    assert not report.failed
    assert not report.incomplete
    assert str(report) == 'No leak found in 5 runs.\n\nNot called: delete_all.'


def test_find_leaks_calls_tools_with_the_arguments_that_are_given():
    seen: list[tuple[str, int]] = []

    def look(path: str, size: int, depth: int = 1) -> str:
        seen.append((path, depth))
        return path

    agent = Agent(TestModel(), tools=[look])
    find_leaks(agent, arguments={'look': [{'path': 'a', 'size': 1, 'depth': 2}, {'path': 'b'}]})
    assert seen == [('a', 2), ('b', 1), ('a', 2)]

    with pytest.raises(
        ArgumentsError, match=r'There are arguments for `book`, and the agent has no such tool\. It has `look`'
    ):
        find_leaks(agent, arguments={'book': {}})


class Approvals(FunctionToolset[Any]):
    """Asks once for each tool, and remembers what was approved for the session."""

    def __init__(self) -> None:
        super().__init__([self.delete])
        self.remember: Any = self.prepare()

    def prepare(self) -> Any:
        return set[str]()

    def delete(self, path: str) -> None: ...

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
        self.keep(name)
        return await super().call_tool(name, tool_args, ctx, tool)

    def keep(self, name: str) -> None:
        self.remember.update({name} - self.remember)


class ApprovedAll(Approvals):
    def prepare(self) -> Any:
        self.approved: bool | None = None

    def keep(self, name: str) -> None:
        self.approved = self.approved is None or self.approved


@pytest.mark.parametrize(
    ('make', 'name'),
    [
        (Approvals, 'Approvals.remember'),
        (ApprovedAll, 'ApprovedAll.approved'),
    ],
)
def test_find_leaks_finds_what_was_approved_for_a_session_with_one_tool(make: Callable[[], Any], name: str):
    assert [leak.name for leak in find_leaks(Agent(TestModel(), toolsets=[make()])).leaks] == [name]


@pytest.mark.parametrize('buffer', [bytearray, io.BytesIO])
def test_find_leaks_finds_the_first_fill_of_a_buffer(buffer: Callable[[], Any]):
    class Recorder(FunctionToolset[Any]):
        """Fills a buffer once, with nothing that a reader could find in the arguments."""

        def __init__(self) -> None:
            super().__init__([self.record])
            self.buffer = buffer()

        def record(self, number: int) -> None:
            if not bytes(getattr(self.buffer, 'getvalue', lambda: self.buffer)()):
                getattr(self.buffer, 'write' if buffer is io.BytesIO else 'extend')(number.to_bytes(2, 'big'))

    assert [leak.name for leak in find_leaks(Agent(TestModel(), toolsets=[Recorder()])).leaks] == ['Recorder.buffer']


@dataclass
class Deps:
    notes: list[str] = field(default_factory=list[str])
    stores: dict[str, list[str]] = field(default_factory=lambda: {'notes': list[str]()})


def note(ctx: RunContext[Any], text: str) -> None:
    ctx.deps.notes.append(text)


def note_in_dict(ctx: RunContext[Any], text: str) -> None:
    ctx.deps['notes'].append(text)


def note_in_store(ctx: RunContext[Any], text: str) -> None:
    ctx.deps.stores['notes'].append(text)


@pytest.mark.parametrize(
    ('tool', 'make', 'where', 'made'),
    [
        (note, Deps, '`deps.notes[0]`', 'Deps(...)'),
        (note_in_dict, lambda: {'notes': list[str]()}, "`deps['notes'][0]`", 'dict(...)'),
    ],
    ids=['dataclass', 'dict'],
)
def test_find_leaks_finds_state_in_deps_that_all_runs_share(tool: Any, make: Callable[[], Any], where: str, made: str):
    agent = Agent(TestModel(), name='support', deps_type=object, tools=[tool])
    [leak] = find_leaks(agent, deps=make()).leaks

    assert leak.where == where
    assert leak.read_by == "run 3 of agent 'support' ('Call tool')".replace('tool', tool.__name__)
    assert leak.remedy.startswith(f'Write instead: make the deps again for each run, `agent.run(..., deps={made})`')
    assert not find_leaks(agent, deps=make(), shared=[leak.name]).leaks
    assert not find_leaks(agent, make_deps=make).leaks


def test_find_leaks_finds_what_deps_of_different_runs_share():
    stores = {'notes': list[str]()}
    agent = Agent(TestModel(), deps_type=object, tools=[note_in_store])
    [leak] = find_leaks(agent, make_deps=lambda: Deps(stores=stores)).leaks

    assert leak.where == "`deps.stores['notes'][0]`"


class ReturnsItself(Attribute):
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return self


class SharesItsList(Attribute):
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        new = type(self)()
        new.todos = self.todos
        return new


@pytest.mark.parametrize(
    ('make', 'remedy'),
    [
        (
            ReturnsItself,
            'in `ReturnsItself.for_run()`, which returns the object itself, return a new `ReturnsItself`; or',
        ),
        (
            SharesItsList,
            'in `SharesItsList.for_run()`, whose result shares this, give the new `SharesItsList` one of its own',
        ),
    ],
)
def test_find_leaks_names_the_for_run_that_does_not_help(make: Callable[[], Any], remedy: str):
    [leak] = find_leaks(Agent(TestModel(), toolsets=[make().prefixed('a')])).leaks

    assert remedy in leak.remedy


def once() -> Any:
    seen: list[str] = []

    def allow(ctx: RunContext[Any], tool: Any) -> bool:
        seen.insert(len(seen), tool.name)
        return True

    return allow


class Configured(Attribute):
    def __init__(self, settings: Basket):
        super().__init__()
        self.settings = settings

    def add(self, text: str) -> None:
        self.settings.items.insert(len(self.settings.items), text)


@pytest.mark.parametrize(
    ('make', 'where', 'held'),
    [
        (
            lambda: FunctionToolset([print_nothing]).filtered(once()),
            'closure cell `seen[',
            'The callback `filter_func` of `FilteredToolset` holds it',
        ),
        (
            lambda: Configured(Basket()),
            '`Configured.settings.items[0]`',
            'The `Basket` in `settings` of `Configured` holds it',
        ),
    ],
    ids=['closure', 'configuration'],
)
def test_find_leaks_names_the_callback_or_the_configuration_that_holds_the_state(
    make: Callable[[], Any], where: str, held: str
):
    leak = next(
        leak for leak in find_leaks(Agent(TestModel(), toolsets=[make()])).leaks if leak.where.startswith(where)
    )

    assert f'{held}, so a new one is needed, too.' in leak.remedy


def test_find_leaks_calls_tools_that_need_approval():
    kept: list[str] = []

    def delete(path: str) -> None:
        kept.insert(len(kept), path)

    toolset = FunctionToolset[Any]()
    toolset.add_function(delete, requires_approval=True)

    assert [leak.name for leak in find_leaks(Agent(TestModel(), toolsets=[toolset])).leaks] == ['delete.kept']


def test_find_leaks_uses_ids_that_other_tools_returned():
    rows: dict[str, str] = {}
    found: list[str] = []

    def insert(text: str) -> str:
        rows[f'row-{len(rows) + 1000}'] = text
        return f'Inserted as {list(rows)[-1]}'

    def update(row_id: str) -> None:
        if row_id in rows:
            found.insert(len(found), row_id)

    names = [leak.name for leak in find_leaks(Agent(TestModel(), tools=[insert, update])).leaks]

    assert 'update.found' in names


@pytest.mark.anyio
async def test_find_leaks_works_inside_of_an_event_loop():
    assert len(find_leaks(Agent(TestModel(), toolsets=[Attribute()])).leaks) == 1


def test_find_leaks_survives_containers_that_are_too_large_to_compare():
    class Large(FunctionToolset[Any]):
        def __init__(self) -> None:
            super().__init__([self.add])
            self.rows = list(range(1_000_000))

        def add(self, row: int) -> None:
            self.rows.insert(len(self.rows), row)

    [leak] = find_leaks(Agent(TestModel(), toolsets=[Large()])).leaks

    assert (leak.where, leak.what) == ('`Large.rows`', 'length was 1000000, is 1000001')


class Plain:
    def __init__(self, number: int):
        self.number, self.marks = number, list[str]()


def test_watch_runs_no_code_of_the_entries_that_it_compares():
    class Entry:
        def __init__(self) -> None:
            self.title = 'a'

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise AssertionError('no code of its own is run')

        def __getstate__(self) -> Any:
            raise AssertionError('no code of its own is run')

        def __setstate__(self, state: Any) -> None:
            raise AssertionError('no code of its own is run')

    class Shelf(FunctionToolset[Any]):
        def __init__(self) -> None:
            super().__init__([self.rename])
            self.entries = [Entry() for _ in range(100)]

        def rename(self, title: str) -> None:
            self.entries[7].title = title or self.entries[7].title

    [leak] = find_leaks(Agent(TestModel(), toolsets=[Shelf()])).leaks

    assert leak.where == '`Shelf.entries[7].title`'


def test_snapshot_looks_into_no_more_than_so_many_objects():
    snapshot = Snapshot([([Plain(number) for number in range(5000)], Place('rows'))], max_objects=3000)
    assert (len(list(snapshot)), snapshot.complete) == (3000, False)
