"""B18: what `ctx.for_sub_agent()` returned can be used for another run if the one that it was for failed to start."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import FunctionToolset, RunContext, UserError

from .delegation import Notes, called, calling, entries_and_exits, forked, fresh
from .toolsets import METHODS, Journal, Session, WithoutCopy, run_as

pytestmark = pytest.mark.anyio

FAILURES: dict[str, tuple[Any, type[Exception]]] = {
    'what is wired is refused': (lambda: WithoutCopy('u', Journal()), UserError),
    'a copy is refused': (lambda: CopiesItself('u', Journal()), UserError),
    'a factory raises': (lambda: lambda: 1 / 0, ZeroDivisionError),
}


class CopiesItself(Session):
    """A toolset whose copy is refused when the run starts."""

    def copy(self) -> Any:
        return self


@pytest.mark.parametrize(('wrong', 'error'), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize('answer', [None, fresh, forked])
@pytest.mark.parametrize('method', [method for method in METHODS if method != 'run_sync'])
async def test_b18_toolsets_handed_to_a_run_that_failed_to_start_can_be_used_again(
    wrong: Any, error: type[Exception], answer: Any, method: str
):
    journal = Journal()
    notes = Notes('t', journal, answer=answer)
    child = calling(['t'], name='child')
    tools = FunctionToolset[Any](max_retries=0)

    async def delegate(ctx: RunContext[Any], value: str) -> None:
        handed = ctx.for_sub_agent(notes)
        with pytest.raises(error):
            await run_as('child', child, method, toolsets=[*handed, wrong()])
        await run_as('child', child, method, toolsets=handed)

    tools.add_function(delegate)
    await run_as('parent', calling(['t'], ['delegate'], ['t'], toolsets=[notes, tools], name='parent'))
    live, of_child = called(journal, 'parent'), called(journal, 'child')
    assert (of_child is live) is (answer is None)
    owner = 'parent' if answer is None else 'child'
    assert entries_and_exits(journal, of_child) == [('enter', owner), ('exit', owner)]
    assert len(journal.of('ask')) == 1
