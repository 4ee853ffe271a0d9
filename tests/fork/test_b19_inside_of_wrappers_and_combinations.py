"""B19: wrappers, combinations and dynamic toolsets pass `for_sub_agent` on, and may mix what's borrowed and owned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic_ai import AbstractToolset, RunContext, WrapperToolset
from pydantic_ai.toolsets import DynamicToolset
from typing_extensions import Self

from .delegation import (
    Ledger,
    Notes,
    Options,
    called,
    calling,
    delegating,
    entries_and_exits,
    fresh,
)
from .toolsets import Journal, run_as

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize('kind', [Notes, Ledger], ids=['stateful', 'stateless'])
answers = pytest.mark.parametrize('answer', [None, fresh], ids=['borrowed', 'owned'])


@dataclass
class Audit(WrapperToolset[Any]):
    """A user's wrapper with state of its own, that says nothing about sub-agents."""

    stateful: bool = True
    log: list[str] = field(default_factory=list[str])
    entered: list[int] = field(default_factory=list[int])
    made: list[Any] = field(default_factory=list[Any])
    shared_attributes = frozenset({'made'})

    def copy(self) -> Self:
        copy = replace(self, wrapped=self.wrapped.copy(), log=[], entered=[])
        self.made.append(copy)
        return copy

    async def __aenter__(self) -> Self:
        self.entered.append(1)
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        self.entered.append(-1)
        return await super().__aexit__(*args)

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: Any) -> Any:
        self.log.append(f'{tool_args["value"]}: {name}')
        return await super().call_tool(name, tool_args, ctx, tool)


@pytest.mark.parametrize('per_step', [True, False])
@answers
@pytest.mark.parametrize('how', ['handed over', 'all handed over', 'shared', 'inside of a wrapper with state'])
@kinds
async def test_b19_dynamic_toolset_passes_it_on_to_what_it_has_made(
    kind: type[Notes], how: str, answer: Any, per_step: bool
):
    """The borrower neither makes another one nor ends its step."""
    made: list[Any] = []

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        made.append(kind('t', journal, answer=answer))
        return made[-1]

    journal = Journal()
    dynamic: AbstractToolset[Any] = DynamicToolset(make, per_run_step=per_step)
    if how.startswith('inside'):
        dynamic = Audit(dynamic)
    child = calling(
        ['t'], ['t'], toolsets={'shared': [dynamic.shared()]}.get(how, [dynamic] if 'inside' in how else [])
    )
    options: dict[str, Options] = {
        'handed over': lambda ctx: {'toolsets': ctx.for_sub_agent(dynamic)},
        'all handed over': lambda ctx: {'toolsets': [ctx.for_sub_agent()[0]]},
    }
    delegate = delegating(child, options=options.get(how))
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[dynamic, delegate]))
    of_delegating_step = made[1 if per_step else 0]
    used = called(journal, 'child')
    if how == 'shared' or answer is None:
        assert used is of_delegating_step
    else:
        assert used is journal.of('ask')[0].got[1]
        assert journal.of('ask')[0].toolset is of_delegating_step
        assert entries_and_exits(journal, used) == [('enter', 'child'), ('exit', 'child')]
    assert len(made) == (4 if per_step else 1)
    for toolset in made:
        assert entries_and_exits(journal, toolset) == [('enter', 'parent'), ('exit', 'parent')]
