"""Factories of every kind that `toolsets=` takes, the places to give them, and checks of what they made.

>>> make = Made(Journal(), Server)
>>> with given_to('override', [FACTORIES['partial'](make)], scripted(['t'])) as run:
...     asyncio.run(run('one'))
'done'
>>> check_one_per_run(make.journal, ['one'])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, cast

from pydantic_ai import AbstractToolset, Agent, RunContext, WrapperToolset
from pydantic_ai.models import Model
from pydantic_ai.toolsets import DynamicToolset

from .toolsets import METHODS, Journal, Server, run_as

Make = Callable[[], Any]
"""What a factory does when it's called, whatever it looks like from outside."""


class Makes:
    """Things that can be called, with and without the run context. `make` is what they do."""

    def __init__(self, make: Make):
        self.make = make

    def method(self) -> Any:
        return self.make()

    async def async_method(self) -> Any:
        return self.make()

    def method_of_context(self, ctx: RunContext[Any]) -> Any:
        assert isinstance(ctx, RunContext)
        return self.make()

    async def async_method_of_context(self, ctx: RunContext[Any], /) -> Any:
        assert isinstance(ctx, RunContext)
        return self.make()

    def with_defaults(self, ctx: Any = None, *, other: Any = None) -> Any:
        assert isinstance(ctx, RunContext)
        return self.make()

    def with_options(self, *, option: Any = None) -> Any:
        return self.make()

    def with_more(self, more: str, ctx: RunContext[Any], *, option: str, unused: None = None) -> Any:
        assert (more, option) == ('more', 'option')
        assert isinstance(ctx, RunContext)
        return self.make()


class Callable0(Makes):
    def __call__(self) -> Any:
        return self.make()


class AsyncCallable0(Makes):
    async def __call__(self) -> Any:
        return self.make()


class Callable1(Makes):
    def __call__(self, run_context: RunContext[Any], optional: str = '') -> Any:
        assert isinstance(run_context, RunContext)
        return self.make()


def class_that_makes(make: Make) -> type[AbstractToolset[Any]]:
    """Make a toolset class whose instances are made by a function: it wraps what that returns."""

    class Made(WrapperToolset[Any]):
        def __init__(self, wrapped: AbstractToolset[Any] | None = None):
            super().__init__(wrapped or make())

    return Made


WITHOUT_CONTEXT: dict[str, Callable[[Make], Any]] = {
    'lambda': lambda make: lambda: make(),
    'async function': lambda make: Makes(make).async_method,
    'bound method': lambda make: Makes(make).method,
    'callable with options': lambda make: Makes(make).with_options,
    'callable instance': Callable0,
    'async callable instance': AsyncCallable0,
    'partial': lambda make: partial(Makes.method, Makes(make)),
    'partial of an async function': lambda make: partial(Makes.async_method, Makes(make)),
}
"""How to make each kind of factory that can't take the context."""

CLASSES: dict[str, Callable[[Make], Any]] = {
    'class': class_that_makes,
    'partial of a class': lambda make: partial(class_that_makes(make), None),
}
"""Those that are toolset classes. They can't make anything but toolsets."""

PER_RUN: dict[str, Callable[[Make], Any]] = {
    'per run': lambda make: DynamicToolset(Makes(make).method_of_context, per_run_step=False),
    'per run, of an async function': lambda make: DynamicToolset(
        Makes(make).async_method_of_context, per_run_step=False
    ),
}
"""Those that are toolsets, and call a function of the context once per run."""

AT_EACH_STEP: dict[str, Callable[[Make], Any]] = {
    'function of the context': lambda make: Makes(make).method_of_context,
    'async function of the context': lambda make: Makes(make).async_method_of_context,
    'callable with defaults': lambda make: Makes(make).with_defaults,
    'callable instance of the context': Callable1,
    'partial that leaves the context': lambda make: partial(Makes(make).with_more, 'more', option='option'),
}
"""Those that get the context, at each step."""

ONCE_PER_RUN = {**WITHOUT_CONTEXT, **CLASSES, **PER_RUN}
FUNCTIONS = {**WITHOUT_CONTEXT, **PER_RUN, **AT_EACH_STEP}
FACTORIES = {**ONCE_PER_RUN, **AT_EACH_STEP}


def as_toolset(factory: Any) -> AbstractToolset[Any]:
    """Make a toolset of a factory that isn't one already, so that it can stand in wrappers and combinations."""
    is_one = isinstance(factory, AbstractToolset)
    return cast(AbstractToolset[Any], factory) if is_one else DynamicToolset(factory, per_run_step=False)


class Runs(Protocol):
    """Does a run under a name with the toolsets that were given."""

    def __call__(self, name: str, method: str = ..., **options: Any) -> Awaitable[Any]: ...


@contextmanager
def given_to(place: str, toolsets: Sequence[Any], model: Model) -> Generator[Runs, None, None]:
    """Give toolsets and factories to an agent, at one of `PLACES`."""
    if place == 'constructor':
        agent = Agent(model, toolsets=toolsets)
        yield lambda name, method='run', **options: run_as(name, agent, method, **options)
    elif place == 'run':
        agent = Agent(model)
        yield lambda name, method='run', **options: run_as(name, agent, method, toolsets=toolsets, **options)
    else:
        agent = Agent(model, toolsets=[Server('overridden', Journal(), fail={'enter': AssertionError('not in use')})])
        with agent.override(toolsets=toolsets):
            yield lambda name, method='run', **options: run_as(name, agent, method, **options)


PLACES = ['constructor', 'run', 'override']
"""Where toolsets can be given."""

WAYS = [('constructor', 'run'), ('override', 'run'), *(('run', method) for method in METHODS)]
"""Each place, and each way to run an agent that is given toolsets."""

FACTORIES_BY_METHOD = [
    *((factory, 'run') for factory in FACTORIES),
    *((factory, method) for factory in ('lambda', 'function of the context') for method in METHODS if method != 'run'),
]
"""Each kind of factory, and each way to run an agent with a factory of either sort."""


class Made:
    """Makes toolsets, and keeps them by the run that they were made in."""

    def __init__(self, journal: Journal, kind: Callable[[str, Journal], Any], name: str = 't'):
        self.journal = journal
        self.kind = kind
        self.name = name

    def __call__(self) -> Any:
        toolset = self.kind(self.name, self.journal)
        self.journal.note('make', toolset)
        return toolset


def check_one_per_run(journal: Journal, runs: Sequence[str]) -> None:
    """Check that each run has made one toolset, worked with that alone, and entered and exited it once."""
    made = {event.run: event.toolset for event in journal.of('make')}
    assert sorted(event.run for event in journal.of('make')) == sorted(runs)
    assert len({id(toolset) for toolset in made.values()}) == len(runs)
    assert journal.of('copy') == []
    for run in runs:
        events = [event for event in journal.events if event.run == run]
        assert all(event.toolset is made[run] for event in events)
        kinds = [event.kind for event in events]
        assert kinds[:2] == ['make', 'enter']
        assert kinds[-1] == 'exit'
        assert kinds.count('enter') == kinds.count('exit') == 1
        assert made[run].values == [run] * kinds.count('call') != []
