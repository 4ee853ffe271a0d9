"""Point 9: approvals, without a wrapper around any toolset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, RunContext
from support import Asked, Log, StatefulKeeper, call, calling, no, script, scripts, yes
from toolset_first import (
    AgentSpec,
    Answer,
    ApprovalDenied,
    ApprovalError,
    Approvals,
    CallRuntime,
    Question,
    Runtime,
    ToolsetSpec,
    agent_as_toolset,
)

PAID: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def pay(account: str, amount: int, purpose: str = '') -> str:
    """Pay something."""
    PAID.append((account, amount))
    return f'paid {amount}'


def balance(account: str) -> str:
    """Look how much is there."""
    return f'{account}: 5'


def bank(**rules: Any) -> ToolsetSpec:
    return ToolsetSpec(toolset=FunctionToolset[Any]([pay, balance]), approval_config=rules)


PAY = call('pay', account='travel', amount=3)


async def run(spec: ToolsetSpec, approvals: Approvals | None, *steps: Any) -> str:
    agent = AgentSpec('clerk', model=script(*(steps or [PAY])), toolset_specs=[spec])
    return await Runtime([agent], approvals=approvals).run_entry(calling('clerk'), 'Go')


async def test_p09_tool_without_a_rule_is_called_without_asking() -> None:
    someone = no()
    assert await run(bank(), Approvals(ask=someone)) == 'paid 3'
    assert await run(bank(), None) == 'paid 3'
    assert someone.questions == []


async def test_p09_approved_call_is_made_within_the_run_and_others_are_not_asked_about() -> None:
    someone = yes()
    both = [PAY, call('balance', account='travel')]
    said = await run(bank(pay='ask'), Approvals(ask=someone), both)
    assert sorted(said.split(', ')) == ['paid 3', 'travel: 5']
    assert someone.questions == [Question('clerk', 'pay', {'account': 'travel', 'amount': 3, 'purpose': ''})]
    assert PAID == [('travel', 3)]


async def test_p09_denial_reaches_the_model_and_nothing_is_called() -> None:
    assert await run(bank(pay='ask'), Approvals(ask=no())) == 'Not today.'
    assert PAID == []


@pytest.mark.parametrize(
    ('approvals', 'error', 'message'),
    [
        (Approvals(ask=no(), on_denial='stop'), ApprovalDenied, r"`pay` of 'clerk' was denied: Not today\."),
        (None, ApprovalError, "'clerk' called `pay`, which somebody has to approve"),
    ],
)
async def test_p09_denial_if_so_configured_and_want_of_a_handler_end_the_run_and_exits_see_it(
    approvals: Approvals | None, error: type[Exception], message: str
) -> None:
    log = Log()
    specs = [bank(pay='ask'), ToolsetSpec(toolset=StatefulKeeper(log))]
    runtime = Runtime([AgentSpec('clerk', model=script(PAY), toolset_specs=specs)], approvals=approvals)
    with pytest.raises(error, match=message):
        await runtime.run_entry(calling('clerk'), 'Go')
    assert log.events == ['enter', f'exit {error.__name__}']
    assert PAID == []


def _below(limit: int) -> Callable[[dict[str, Any]], str]:
    return lambda arguments: 'allow' if arguments['amount'] < limit else 'deny'


@pytest.mark.parametrize(
    ('rule', 'asked', 'paid'),
    [
        ('allow', 0, True),
        ('ask', 1, True),
        ('deny', 0, False),
        ({'account': {'travel*': 'allow'}}, 0, True),
        ({'account': {'trav?l': 'deny', '*': 'allow'}}, 0, False),  # the narrowest that matches
        ({'account': {'*': 'allow', 'trav?l': 'deny'}}, 0, False),
        ({'account': {'*': 'deny', 'trav*': 'allow'}}, 0, True),
        ({'account': {'trav*': 'deny', '*': 'allow', 'travel': 'allow'}}, 0, True),
        ({'account': {'trav*': 'allow', '*vel': 'deny'}}, 0, False),  # the strictest, since none is within the other
        ({'account': {'*vel': 'ask', 'trav*': 'allow'}}, 1, True),
        ({'account': {'trave?': 'allow', '?ravel': 'deny'}}, 0, False),
        ({'account': {'t?*': 'allow', 't*': 'deny'}}, 0, True),
        ({'account': {'[t]*': 'allow'}}, 1, True),  # no set of characters
        ({'account': {'food': 'allow'}}, 1, True),  # none matches
        ({'account': {'*': 'allow'}, 'purpose': {'': 'deny'}}, 0, False),  # the strictest, of what is left out too
        ({'account': {'*': 'allow'}, 'purpose': {'fun': 'allow'}}, 1, True),
        (_below(5), 0, True),
        (_below(2), 0, False),
    ],
)
async def test_p09_rule_decides_by_tool_and_argument(rule: Any, asked: int, paid: bool) -> None:
    someone = yes()
    said = await run(bank(pay=rule), Approvals(ask=someone))
    assert len(someone.questions) == asked
    assert ([('travel', 3)] if paid else []) == PAID
    assert said == ('paid 3' if paid else 'The rules of this project do not allow this call.')


@pytest.mark.parametrize(
    ('mode', 'rule', 'said'),
    [
        ('approve-all', 'ask', 'paid 3'),
        ('approve-all', 'deny', 'The rules of this project do not allow this call.'),
        ('reject-all', 'ask', 'All calls that need approval are rejected.'),
        ('reject-all', 'allow', 'paid 3'),
    ],
)
async def test_p09_modes_answer_for_everybody(mode: Literal['approve-all', 'reject-all'], rule: Any, said: str) -> None:
    someone = yes()
    assert await run(bank(pay=rule), Approvals(mode, ask=someone)) == said
    assert someone.questions == []


def test_p09_prompt_without_anybody_to_ask_is_refused() -> None:
    with pytest.raises(ApprovalError, match="'prompt' needs someone to `ask`"):
        Approvals()


@pytest.mark.parametrize('answer', [yes, no])
async def test_p09_answer_is_remembered_by_tool_and_arguments(answer: Callable[[bool], Asked]) -> None:
    someone = answer(True)
    other = call('pay', account='travel', amount=4)
    await run(bank(pay='ask'), Approvals(ask=someone), PAY, PAY, other)
    assert [question.arguments['amount'] for question in someone.questions] == [3, 4]

    forgetful = answer(False)
    await run(bank(pay='ask'), Approvals(ask=forgetful), PAY, PAY)
    assert len(forgetful.questions) == 2


async def test_p09_answer_is_remembered_for_the_session_and_not_beyond() -> None:
    someone = yes(remember=True)
    agent = AgentSpec('clerk', model=script(PAY), toolset_specs=[bank(pay='ask')])
    approvals = Approvals(ask=someone)
    runtime = Runtime([agent], approvals=approvals)
    for _ in range(3):
        await runtime.run_entry(calling('clerk'), 'Go')
    assert len(someone.questions) == 1
    await Runtime([agent], approvals=Approvals(ask=someone)).run_entry(calling('clerk'), 'Go')
    assert len(someone.questions) == 2


@pytest.mark.parametrize('names', ['ab', 'aa'])
async def test_p09_answer_for_one_agent_does_not_count_for_another_whatever_it_is_called(names: str) -> None:
    someone = yes(remember=True)
    runtime = Runtime(approvals=Approvals(ask=someone))
    for name in names:
        agent = AgentSpec(name, model=script(PAY), toolset_specs=[bank(pay='ask')])
        await runtime.run_entry(calling(agent), 'Go')
    assert [question.agent for question in someone.questions] == [*names]


async def test_p09_handler_is_passed_on_to_agents_that_are_called() -> None:
    someone = yes()
    clerk = AgentSpec('clerk', model=script(PAY), toolset_specs=[bank(pay='ask')])
    boss = AgentSpec(
        'boss', model=script(call('clerk', input='Pay')), toolset_specs=[agent_as_toolset(clerk, tool='clerk')]
    )
    assert await Runtime(approvals=Approvals(ask=someone)).run_entry(calling(boss), 'Go') == 'paid 3'
    assert [question.agent for question in someone.questions] == ['clerk']


async def run_by_hand(approvals: Approvals, *given: str, times: int = 1) -> list[Any]:
    """Have a tool run agents by itself, which it gives these of its context, and return what they put out."""
    outputs: list[Any] = []

    async def delegate(ctx: RunContext[CallRuntime]) -> None:
        for _ in range(times):
            child = Agent[Any, Any](script(PAY), output_type=[str, DeferredToolRequests])
            child.tool_plain(requires_approval=True)(pay)
            outputs.append((await child.run('Pay', **{name: getattr(ctx, name) for name in given})).output)

    toolset = ToolsetSpec(toolset=FunctionToolset[CallRuntime]([delegate]), shared=True)
    boss = AgentSpec('boss', model=script(call('delegate')), toolset_specs=[toolset])
    await Runtime(approvals=approvals).run_entry(calling(boss), 'Go')
    return outputs


async def test_p09_child_that_is_run_by_hand_without_a_handler_approves_nothing() -> None:
    (output,) = await run_by_hand(Approvals('approve-all'))
    assert isinstance(output, DeferredToolRequests)
    assert PAID == []


async def test_p09_answer_for_a_child_that_is_run_by_hand_counts_for_no_other() -> None:
    someone = yes(remember=True)
    await run_by_hand(Approvals(ask=someone), 'deps', 'deferred_tool_handler', times=2)
    assert len(someone.questions) == 2


@pytest.mark.parametrize('someone', [yes(), no()])
async def test_p09_child_that_is_run_by_hand_is_asked_about_if_it_is_given_the_handler(someone: Asked) -> None:
    await run_by_hand(Approvals(ask=someone), 'deferred_tool_handler')
    assert [(question.agent, question.tool) for question in someone.questions] == [('child', 'pay')]
    assert bool(PAID) == someone.answer(someone.questions[0]).approved


@pytest.mark.parametrize(
    ('answer', 'said'),
    [
        (True, 'paid 3'),
        (False, 'The user denied this call.'),
        (None, 'Nobody could be asked: the answer was None.'),
        ('yes', "Nobody could be asked: the answer was 'yes'."),
        (1, 'Nobody could be asked: the answer was 1.'),
    ],
)
async def test_p09_question_without_an_answer_denies(answer: Any, said: str) -> None:
    assert await run(bank(pay='ask'), Approvals(ask=lambda question: answer)) == said
    assert bool(PAID) == (answer is True)


async def test_p09_default_asks_about_all_tools_without_a_rule() -> None:
    someone = no()
    await run(bank(balance='allow'), Approvals(ask=someone, default='ask'), [PAY, call('balance', account='travel')])
    assert [question.tool for question in someone.questions] == ['pay']
    assert PAID == []


async def test_p09_questions_of_agents_that_run_at_once_come_one_after_another() -> None:
    open_questions = 0

    async def answer(question: Question) -> Answer:
        nonlocal open_questions
        open_questions += 1
        assert open_questions == 1
        await asyncio.sleep(0)
        open_questions -= 1
        return Answer(True)

    agent = AgentSpec('clerk', model=script(PAY), toolset_specs=[bank(pay='ask')])
    runtime = Runtime([agent], approvals=Approvals(ask=answer))
    await asyncio.gather(*(runtime.run_entry(calling('clerk'), 'Go') for _ in range(5)))
    assert len(PAID) == 5


async def test_p09_state_is_kept_while_someone_is_asked() -> None:
    log = Log()
    model = scripts({'Go': [call('keep', what='before'), PAY, call('keep', what='after')]})
    agent = AgentSpec('clerk', model=model, toolset_specs=[bank(pay='ask'), ToolsetSpec(toolset=StatefulKeeper(log))])
    assert (
        await Runtime([agent], approvals=Approvals(ask=yes())).run_entry(calling('clerk'), 'Go') == '["before","after"]'
    )
    assert log.events == ['enter', 'exit None']


@pytest.mark.parametrize('rule', ['maybe', 3, {}, {'account': 'allow'}, {'account': {'*': 'perhaps'}}])
def test_p09_what_is_no_rule_is_refused(rule: Any) -> None:
    with pytest.raises(ApprovalError, match='Write `allow`, `ask` or `deny`'):
        Runtime([AgentSpec('clerk', model='test', toolset_specs=[bank(pay=rule)])])


async def _later(arguments: dict[str, Any]) -> str:
    return 'allow'


def test_p09_async_rule_is_refused() -> None:
    rule: Any = _later
    with pytest.raises(ApprovalError, match='The rule for `pay` is an async function'):
        bank(pay=rule)
