"""The package and the fork's `describe_lifecycle()` agree where both can know, and the ways out are ways out."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai import toolsets as module
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset

from toolset_leaks import Watch, find_leaks

from .conftest import Notes

describe_lifecycle: Any = getattr(module, 'describe_lifecycle', None)
on_fork = pytest.mark.skipif(describe_lifecycle is None, reason='the base has no `stateful`')


class Leaky(Notes):
    """Forgets to say that it has state."""


class Copied(Leaky):
    stateful = True

    def copy(self) -> Copied:
        return type(self)()


class SharingCopy(Copied):
    def copy(self) -> SharingCopy:
        new = type(self)()
        new.kept = self.kept
        return new


class DeclaredCopy(SharingCopy):
    shared_attributes = frozenset({'kept'})


class PerRun(Leaky):
    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return type(self)()


def leaks_of(*toolsets: Any) -> list[str]:
    return [leak.name for leak in find_leaks(Agent(TestModel(), toolsets=toolsets)).leaks]


@on_fork
@pytest.mark.parametrize(
    ('make', 'leaks'),
    [
        (lambda: Copied(), []),
        (lambda: Copied().prefixed('a'), []),
        (lambda: SharingCopy(), ['SharingCopy.kept']),
        (lambda: DeclaredCopy(), []),
        (lambda: Copied().shared(), []),  # which says that it's meant to be
        (lambda: Leaky, []),
        (lambda: lambda: Leaky(), []),
    ],
    ids=['copied', 'wrapped', 'copy shares', 'declared', 'shared()', 'class', 'factory'],
)
@pytest.mark.filterwarnings('ignore')  # the fork warns of what the copy shares
def test_describe_lifecycle_and_find_leaks_agree(make: Any, leaks: list[str]):
    toolset = make()
    description = describe_lifecycle(Agent(TestModel(), toolsets=[toolset]))

    assert leaks_of(toolset) == leaks
    assert bool(description.problems) == bool(leaks)
    assert all(leak.partition('.')[2] in str(description.problems) for leak in leaks)


@on_fork
@pytest.mark.anyio
async def test_what_a_scope_keeps_from_run_to_run_is_no_leak():
    notes = Copied()
    agent = Agent(TestModel(), toolsets=[notes])
    with Watch() as watch:
        async with module.ToolsetScope(notes) as scope:
            for prompt in ('alpha', 'beta'):
                await agent.run(prompt, toolsets=[scope])
            assert len(scope.instance_of(notes).kept) == 2

    assert not watch.report.leaks


def test_find_leaks_is_quiet_about_a_for_run_that_returns_a_new_one():
    assert leaks_of(PerRun()) == []
    assert leaks_of(Leaky()) == ['Leaky.kept']


def test_find_leaks_names_what_can_be_written_on_the_installed_line():
    [leak] = find_leaks(Agent(TestModel(), toolsets=[Leaky()])).leaks

    if describe_lifecycle:
        assert '`toolsets=[lambda: Leaky(...)]`' in leak.remedy
    else:
        assert 'a `Leaky.for_run()` that returns a new `Leaky`' in leak.remedy
