"""B29: what a sub-agent in the same workflow or flow gets, as elsewhere (B16 to B18)."""

from __future__ import annotations

from typing import Any

import pytest
from dbos import DBOS
from pydantic_ai import FunctionToolset, RunContext

from ..line import WAYS_TO_MAKE_DURABLE
from ..toolsets import Journal, scripted
from .agents import for_dbos, for_prefect, run_as
from .test_b29_prefect import Notes

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures('dbos', 'prefect'),
    pytest.mark.parametrize('way', WAYS_TO_MAKE_DURABLE),
]


class Forking(Notes):
    """Gives a sub-agent a new one."""

    def for_sub_agent(self, ctx: RunContext[Any]) -> Forking:
        return self.copy()


ONE = [['parent', 'child', 'parent']], ['+notes', '-notes']
TWO = [['parent', 'parent'], ['child']], ['+notes', '+notes', '-notes', '-notes']


@pytest.mark.parametrize('engine', ['dbos', 'prefect'])
@pytest.mark.parametrize(
    ('kind', 'shared', 'expected'), [(Notes, False, ONE), (Forking, False, TWO), (Forking, True, ONE)]
)
async def test_b29_sub_agent_gets_what_it_does_elsewhere(
    way: str, engine: str, kind: type[Notes], shared: bool, expected: object
):
    make = {'dbos': for_dbos, 'prefect': for_prefect}[engine]
    journal = Journal()
    notes = kind('notes', journal)
    child = make(way, scripted(['notes']), [notes.shared() if shared else notes], name='child')

    async def delegate(value: str) -> str:
        return await run_as('child', child, 'iter')

    toolsets = [notes, FunctionToolset[Any]([delegate], id='delegation')]
    parent = make(way, scripted(['notes'], ['delegate'], ['notes']), toolsets)
    if engine == 'dbos':
        DBOS.launch()

    await run_as('parent', parent)

    used = {id(event.toolset): event.toolset for event in journal.of('call')}.values()
    assert ([toolset.values for toolset in used], journal.lifecycle) == expected
    assert notes.values == []
