"""Toolsets, factories and handlers that do what they must not.

Each does so in one run only, named 'hostile', while other runs of the same agent are under way. That run ends with an error
that says what is wrong, all that was entered is exited, and the agent goes on working.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

import pytest
from pydantic_ai import AbstractToolset, Agent, DeferredToolResults, FunctionToolset, RunContext, UserError
from pydantic_ai.toolsets import CombinedToolset
from typing_extensions import Self

from ..fork.approvals import OUTPUTS, Tools, answer_all, calling
from ..fork.delegation import Notes
from ..fork.factories import AT_EACH_STEP, FUNCTIONS
from ..fork.test_b12_what_is_no_factory import RESULTS, VALUES
from ..fork.test_b26_bad_results import RESULTS as BAD_RESULTS
from ..fork.toolsets import RUN, HandWritten, Journal, Server, Session, run_as, scripted

pytestmark = pytest.mark.anyio

Figures = Callable[[str], Counter[str]]
Does = Callable[[Any], Any]
"""What a method does when it is hostile, by the toolset that it is called on."""

Expected = tuple[type[BaseException] | tuple[type[BaseException], ...], list[str]] | None
"""What the hostile run raises, and parts of its message. It is to succeed if there is nothing."""


class Boom(Exception):
    """What the definitions raise."""


TOLD: Expected = Boom, ['as told']
TIMEOUT: Expected = (asyncio.TimeoutError, asyncio.CancelledError), []
RECURSION: Expected = RecursionError, ['recursion']


HANGS = ContextVar[asyncio.Event]('HANGS')
"""Is set when the hostile run hangs."""


def is_hostile() -> bool:
    return RUN.get() == 'hostile'


class Hostile(Notes):
    """A session of which some methods are hostile."""

    shared_attributes = frozenset({'fail', 'does'})

    def __init__(self, name: str, journal: Journal, does: dict[str, Does]):
        super().__init__(name, journal)
        self.does = does

    def hostile(self, method: str) -> Does | None:
        return self.does.get(method) if is_hostile() else None

    def copy(self) -> Self:
        does = self.hostile('copy')
        return does(self) if does else type(self)(self.name, self.journal, self.does)

    def for_sub_agent(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        does = self.hostile('for_sub_agent')
        return does(self) if does else self

    async def __aenter__(self) -> Self:
        if does := self.hostile('enter'):
            await does(self)
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        await super().__aexit__(*args)
        if does := self.hostile('exit'):
            await does(self)
        return None


# What can be done


def raises(_: Any) -> Any:
    raise Boom('as told')


async def raises_later(_: Any) -> Any:
    await asyncio.sleep(0)
    raise Boom('as told')


async def hangs(_: Any) -> Any:
    HANGS.get().set()
    await asyncio.Event().wait()


async def hangs_and_is_slow_to_end(_: Any) -> Any:
    try:
        await hangs(_)
    finally:
        await asyncio.sleep(0.05)


async def returns_a_coroutine(_: Any) -> Any: ...


def fresh(toolset: Hostile) -> Any:
    return Hostile(toolset.name, toolset.journal, toolset.does)


def slow(toolset: Hostile) -> Any:
    time.sleep(0.1)
    return fresh(toolset)


def bad_copy(problem: str, remedy: str = 'Return a toolset, or set') -> Expected:
    return UserError, [f"'faulty' is stateful, but its `copy()` returned {problem}. {remedy}"]


def bad_answer(problem: str, remedy: str = 'Return a toolset, or `self`') -> Expected:
    return UserError, [f"'faulty' returned {problem}. {remedy}", '`for_sub_agent()`']


COPIES: dict[str, tuple[Does, Expected]] = {
    'returns itself': (
        lambda toolset: toolset,
        bad_copy('the toolset itself', 'Return a new toolset with fresh state'),
    ),
    'returns nothing': (lambda toolset: None, bad_copy("an instance of 'NoneType'")),
    'returns a text': (lambda toolset: 'copy', bad_copy("an instance of 'str'")),
    'returns its class': (type, bad_copy("the class 'Hostile'", 'Return an instance, like `Hostile(...)`')),
    'returns a list of copies': (lambda toolset: [fresh(toolset)], bad_copy("an instance of 'list'")),
    'returns a factory': (lambda toolset: lambda: fresh(toolset), bad_copy("an instance of 'function'")),
    'returns a coroutine': (returns_a_coroutine, bad_copy('a coroutine', 'With `def` instead of `async def`')),
    'raises': (raises, TOLD),
    'recurses': (lambda toolset: toolset.copy(), RECURSION),
    'is slow': (slow, None),
}

ANSWERS: dict[str, tuple[Does, Expected]] = {
    'returns nothing': (lambda toolset: None, bad_answer("an instance of 'NoneType'")),
    'returns a text': (lambda toolset: 'copy', bad_answer("an instance of 'str'")),
    'returns its class': (type, bad_answer("the class 'Hostile'", 'Return an instance, like `Hostile(...)`')),
    'returns a list of toolsets': (lambda toolset: [fresh(toolset)], bad_answer("an instance of 'list'")),
    'returns a coroutine': (returns_a_coroutine, bad_answer('a coroutine', 'With `def` instead of `async def`')),
    'raises': (raises, TOLD),
    'recurses': (lambda toolset: toolset.for_sub_agent(None), RECURSION),
    'is slow': (slow, None),
}

ENTRIES_AND_EXITS: dict[str, tuple[dict[str, Does], Expected]] = {
    'entering raises': ({'enter': raises_later}, TOLD),
    'entering hangs': ({'enter': hangs}, TIMEOUT),
    'entering hangs and is slow to end': ({'enter': hangs_and_is_slow_to_end}, TIMEOUT),
    'exiting raises': ({'exit': raises_later}, TOLD),
    'exiting hangs': ({'exit': hangs}, TIMEOUT),
    'exiting hangs and is slow to end': ({'exit': hangs_and_is_slow_to_end}, TIMEOUT),
}

PLACES: dict[str, Callable[[Callable[[], AbstractToolset[Any]]], Any]] = {
    'alone': lambda make: make(),
    'in a combination': lambda make: CombinedToolset([make()]),
    'in wrappers': lambda make: HandWritten(make().filtered(lambda ctx, tool: True)),
    'made for each run': lambda make: lambda: make(),
    'made for each step': AT_EACH_STEP['function of the context'],
}
"""Where a toolset can stand whose entering and exiting is hostile."""

MADE: dict[str, tuple[Does, Expected]] = {
    'raises': (raises, TOLD),
    'is slow': (lambda make: time.sleep(0.1) or make(), None),
    **{
        f'returns {name}': (lambda make, result=result: result(), (UserError, [name]))
        for name, result in RESULTS.items()
    },
}
"""What a factory does, given what makes what it should return."""


def refused(named: str) -> Expected:
    return UserError, ['`deferred_tool_handler` returned invalid results', f'Tool call {named}']


NO_RESULTS: Expected = (
    UserError,
    ['`deferred_tool_handler` returned', 'Return `DeferredToolResults` of dicts or `None`'],
)
BAD_MAPPINGS: Any = DeferredToolResults(approvals=cast(Any, ['delete']), calls=cast(Any, 'send'))

HANDLERS: dict[str, tuple[Does, Expected]] = {
    **{
        f'returns {name}': (lambda _, results=results: results, refused(named))
        for name, (results, named) in BAD_RESULTS.items()
    },
    'returns yes': (lambda _: True, NO_RESULTS),
    'returns a dict': (lambda _: {'delete': True}, NO_RESULTS),
    'returns what it was asked': (lambda requests: requests, NO_RESULTS),
    'returns a coroutine of one': (lambda _: returns_a_coroutine, NO_RESULTS),
    'returns a list of approvals': (
        lambda _: BAD_MAPPINGS,
        (UserError, ["approvals=['delete']", 'of dicts']),
    ),
    'raises': (raises, TOLD),
    'raises later': (raises_later, TOLD),
    'hangs': (hangs, TIMEOUT),
    'hangs and is slow to end': (hangs_and_is_slow_to_end, TIMEOUT),
}
"""What a handler does with what it is asked."""


def cases(table: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(('does', 'expected'), table.values(), ids=table.keys())


async def attempt(hostile_run: Awaitable[Any], expected: Expected) -> BaseException | None:
    """Wait for a run, with a timeout from when it hangs if it is to hang, and return what it raised."""
    hanging = asyncio.Event()
    HANGS.set(hanging)
    task = asyncio.ensure_future(hostile_run)
    if expected is TIMEOUT:
        await asyncio.wait_for(hanging.wait(), 60)
    try:
        await asyncio.wait_for(task, 0.01 if expected is TIMEOUT else 60)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (it is what is checked)
        return error
    return None


async def check(
    row: Counter[str],
    journal: Journal,
    agent: Agent[Any, Any],
    expected: Expected,
    *,
    output: str = 'done',
    **options: Any,
) -> None:
    """Do the hostile run among others, and check what became of them all."""
    before = asyncio.all_tasks()
    others = asyncio.gather(run_as('one', agent), run_as('two', agent))
    error = await attempt(run_as('hostile', agent, **options), expected)
    assert await others == [output, output]
    assert await run_as('after', agent) == output
    for _ in range(30):
        await asyncio.sleep(0)

    entered, exited = (
        Counter((id(event.toolset), event.run) for event in journal.of(kind)) for kind in ('enter', 'exit')
    )
    left = asyncio.all_tasks() - before
    row.update(runs=4, faults=1, entered=entered.total(), exited=exited.total(), tasks=len(left))
    if expected is None:
        assert error is None
    else:
        assert isinstance(error, expected[0]), repr(error)
        for part in expected[1]:
            assert part in str(error)
    assert entered == exited
    assert {run for _, run in entered} >= {'one', 'two', 'after'}
    assert not left


@cases(COPIES)
async def test_hostile_copy_ends_its_run_only(does: Does, expected: Expected, figures: Figures) -> None:
    journal = Journal()
    toolsets = [Session('first', journal), Hostile('faulty', journal, {'copy': does}), Server('last', journal)]
    agent = Agent(scripted(['faulty']), toolsets=toolsets)

    await check(figures('Hostile `copy()`'), journal, agent, expected)

    assert expected is None or 'hostile' not in {event.run for event in journal.of('enter')}


@cases(ANSWERS)
async def test_hostile_for_sub_agent_ends_its_run_only(does: Does, expected: Expected, figures: Figures) -> None:
    async def delegate(value: str) -> str:
        return await run_as(value, child)

    journal = Journal()
    toolset = Hostile('faulty', journal, {'for_sub_agent': does})
    child = Agent(scripted(['faulty']), toolsets=[Session('first', journal), toolset])
    toolsets = [Session('second', journal), toolset, FunctionToolset([delegate]), Server('last', journal)]
    agent = Agent(scripted(['faulty'], ['delegate']), toolsets=toolsets)
    row = figures('Hostile `for_sub_agent()`')

    await check(row, journal, agent, expected)

    row['runs'] += 4  # of the sub-agent


@pytest.mark.parametrize('place', PLACES)
@cases(ENTRIES_AND_EXITS)
async def test_hostile_entry_or_exit_ends_its_run_only(
    does: dict[str, Does], expected: Expected, place: str, figures: Figures
) -> None:
    journal = Journal()
    toolset = PLACES[place](lambda: Hostile('faulty', journal, does))
    agent = Agent(
        scripted(['faulty'], ['last']), toolsets=[Session('first', journal), toolset, Server('last', journal)]
    )

    await check(figures('Hostile `__aenter__()` and `__aexit__()`'), journal, agent, expected)


@pytest.mark.parametrize('kind', ['lambda', 'async function', 'per run', 'function of the context'])
@cases(MADE)
async def test_hostile_factory_ends_its_run_only(does: Does, expected: Expected, kind: str, figures: Figures) -> None:
    def make() -> Any:
        return does(new) if is_hostile() else new()

    def new() -> Session:
        return Session('made', journal)

    journal = Journal()
    toolsets = [Session('first', journal), FUNCTIONS[kind](make), Server('last', journal)]
    agent = Agent(scripted(['made']), toolsets=toolsets)

    await check(figures('Hostile factories'), journal, agent, expected)


@pytest.mark.parametrize('item', VALUES)
async def test_what_is_no_factory_is_refused_and_the_agent_works_on(item: str, figures: Figures) -> None:
    bad, parts = VALUES[item](), [f"'{item}'"]
    journal = Journal()
    agent = Agent(scripted(['first']), toolsets=[Session('first', journal), Server('last', journal)])
    expected = UserError, ['toolsets[1]', *parts]

    await check(figures('What is no factory'), journal, agent, expected, toolsets=[Session('second', journal), bad])


@cases(HANDLERS)
async def test_hostile_handler_ends_its_run_only(does: Does, expected: Expected, figures: Figures) -> None:
    def handler(ctx: RunContext[Any], requests: Any) -> Any:
        return does(requests) if is_hostile() else answer_all(requests)

    journal = Journal()
    tools = Tools()
    agent = Agent(
        calling(['look', 'delete', 'write', 'send']),
        toolsets=[Session('first', journal), tools.toolset, Server('last', journal)],
        output_type=OUTPUTS,
        deferred_tool_handler=handler,
    )

    await check(figures('Hostile handlers'), journal, agent, expected, output='all done')

    assert Counter(tools.done) == {'look': 4, 'delete': 3, 'write': 3}
