from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry, ToolCallPart, UsageLimitExceeded, UsageLimits
from typing_extensions import Self

from examples import audit
from examples.audit import AuditLog, AuditToolset, BasketToolset
from examples.support import Step, call, scripts

pytestmark = pytest.mark.anyio


def outcomes(log: AuditLog) -> list[tuple[str, str]]:
    return [(entry.tool, entry.outcome) for entry in log.calls]


def agent_with(toolset: AuditToolset, *steps: Step, sub: tuple[Step, ...] = ()) -> Agent[object, str]:
    """Make an agent with a sub-agent, both of which have the toolset."""
    model = scripts({'go': steps, 'go on': sub})
    child = Agent(model, deps_type=object, toolsets=[toolset])
    agent = Agent(model, deps_type=object, toolsets=[toolset])

    @agent.tool_plain
    async def delegate() -> str:
        return (await child.run('go on')).output

    @agent.tool_plain
    async def delegate_safely() -> str:
        try:
            return await delegate()
        except PermissionError as error:
            return str(error)

    return agent


PUT = ('put', "['tea']")


def put() -> ToolCallPart:
    return call('put', item='tea')


def pay(amount: float) -> ToolCallPart:
    return call('pay', amount=amount)


TOO_MUCH = "PermissionError('500.0 is more than may be paid.')"


async def test_main_logs_the_assistant_with_its_parent_the_agent_and_the_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await audit.main(audit.SCRIPT)

    said = capsys.readouterr().out.splitlines()
    logs = [json.loads(line.partition(' ')[2]) for line in said if line.startswith(('INFO', 'ERROR'))]
    assert [line.partition(' ')[0] for line in said] == ['Buy', 'INFO', 'INFO', 'Buy', 'ERROR', 'The']
    assistant, agent, failed = logs
    assert [(entry['tool'], entry['outcome']) for entry in assistant['calls']] == [('put', "['coffee', 'milk']")]
    assert assistant['parent'].partition('/')[0] == agent['calls'][0]['id'].partition('/')[0]
    assert [(entry['arguments'], entry['outcome']) for entry in agent['calls']] == [
        ({'item': 'coffee'}, "['coffee']"),
        ({'amount': 5}, 'paid'),
    ]
    assert [log['error'] for log in logs] == [None, None, TOO_MUCH]
    assert failed['parent'] is None


async def test_runs_at_once_have_a_log_and_a_basket_each() -> None:
    logs: list[AuditLog] = []
    toolset = AuditToolset(BasketToolset(), sink=logs.append)
    agent = agent_with(toolset, put(), pay(5))
    await asyncio.gather(*(agent.run('go') for _ in range(5)))

    assert [outcomes(log) for log in logs] == [[PUT, ('pay', 'paid')]] * 5
    assert len({entry.id.partition('/')[0] for log in logs for entry in log.calls}) == 5
    assert toolset.log == AuditLog()


def test_copy_begins_a_log_and_copies_the_inside() -> None:
    toolset = AuditToolset(BasketToolset(), sink=audit.to_logger, log=AuditLog(error='an earlier one'))
    copy = toolset.copy()

    assert (copy.sink, copy.log) == (audit.to_logger, AuditLog())
    assert copy.wrapped is not toolset.wrapped


async def test_log_has_a_parent_that_names_the_call_that_delegated() -> None:
    logs: list[AuditLog] = []
    result = await agent_with(
        AuditToolset(BasketToolset(), sink=logs.append), [put(), delegating := call('delegate')], sub=(put(),)
    ).run('go')
    child, parent = logs

    assert child.parent == f'{result.run_id}/{delegating.tool_call_id}'
    assert parent.parent is None
    assert [entry.id.partition('/')[0] for entry in parent.calls] == [result.run_id]
    assert len(child.calls) == 1


async def test_sub_agent_that_fails_has_the_error_in_its_own_log_only_if_it_is_caught() -> None:
    logs: list[AuditLog] = []
    toolset = AuditToolset(BasketToolset(), sink=logs.append)
    await agent_with(toolset, put(), call('delegate_safely'), sub=(pay(500),)).run('go')
    with pytest.raises(PermissionError):
        await agent_with(toolset, put(), call('delegate'), sub=(pay(500),)).run('go')

    assert [log.error for log in logs] == [TOO_MUCH, None, TOO_MUCH, TOO_MUCH]


async def test_call_that_the_model_may_repeat_is_in_the_log() -> None:
    async def ask(again: bool) -> str:
        if again:
            raise ModelRetry('Once more.')
        return 'x' * 1000

    logs: list[AuditLog] = []
    toolset = AuditToolset(FunctionToolset([ask]), sink=logs.append)
    await agent_with(toolset, call('ask', again=True), call('ask', again=False)).run('go')

    assert [outcomes(log) for log in logs] == [[('ask', "ModelRetry('Once more.')"), ('ask', 'x' * 200)]]
    assert logs[0].error is None


async def test_cancelled_run_has_its_open_call_and_the_cancellation_in_the_log() -> None:
    called = asyncio.Event()

    async def wait() -> None:
        called.set()
        await asyncio.Event().wait()

    logs: list[AuditLog] = []
    run = asyncio.create_task(
        agent_with(AuditToolset(FunctionToolset([wait]), sink=logs.append), call('wait')).run('go')
    )
    await called.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    (log,) = logs
    assert log.error
    assert log.error.startswith('CancelledError')
    assert [outcome.startswith('CancelledError') for _, outcome in outcomes(log)] == [True]


async def test_usage_limit_is_in_the_log() -> None:
    logs: list[AuditLog] = []
    agent = agent_with(AuditToolset(BasketToolset(), sink=logs.append), put(), put())
    with pytest.raises(UsageLimitExceeded):
        await agent.run('go', usage_limits=UsageLimits(request_limit=1))

    assert [outcomes(log) for log in logs] == [[PUT]]
    assert str(logs[0].error).startswith('UsageLimitExceeded')


class FailingBasket(BasketToolset):
    """A basket that can't be entered, or exited."""

    def __init__(self, *, at: str = '__aexit__') -> None:
        super().__init__()
        self.at = at

    def copy(self) -> Self:
        return type(self)(at=self.at)

    async def __aenter__(self) -> Self:
        if self.at == '__aenter__':
            raise ConnectionError('no connection')
        return self

    async def __aexit__(self, *args: object) -> None:
        raise ConnectionError('not committed')


async def test_exit_that_fails_inside_is_in_the_log() -> None:
    logs: list[AuditLog] = []
    with pytest.raises(ConnectionError, match='not committed'):
        await agent_with(AuditToolset(FailingBasket(), sink=logs.append), put()).run('go')

    assert [(outcomes(log), log.error) for log in logs] == [([PUT], "ConnectionError('not committed')")]


async def test_run_that_cannot_be_entered_leaves_no_log() -> None:
    logs: list[AuditLog] = []
    with pytest.raises(ConnectionError, match='no connection'):
        await agent_with(AuditToolset(FailingBasket(at='__aenter__'), sink=logs.append), put()).run('go')

    assert logs == []


async def test_sink_that_raises_fails_the_run_and_the_others_are_exited() -> None:
    def full(log: AuditLog) -> None:
        raise OSError('The disk is full.')

    logs: list[AuditLog] = []
    others = AuditToolset(FunctionToolset[Any](), sink=logs.append)
    agent = agent_with(AuditToolset(BasketToolset(), sink=full), put())
    with pytest.raises(OSError, match='disk is full'):
        await agent.run('go', toolsets=[others])

    assert len(logs) == 1


async def test_file_has_a_line_for_each_run(tmp_path: Path) -> None:
    path = tmp_path / 'audit.jsonl'
    agent = agent_with(AuditToolset(BasketToolset(), sink=audit.to_file(path)), put(), pay(5))
    await asyncio.gather(*(agent.run('go') for _ in range(3)))

    logs = [json.loads(line) for line in path.read_text('utf-8').splitlines()]
    assert [[entry['tool'] for entry in log['calls']] for log in logs] == [['put', 'pay']] * 3


def test_logger_gets_what_json_does_not_know_as_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, 'audit'):
        audit.to_logger(AuditLog(calls=[audit.Call('run/call', 'open', {'path': Path('x')})]))

    (record,) = caplog.records
    assert json.loads(record.getMessage())['calls'][0]['arguments'] == {'path': 'x'}
    assert record.levelname == 'INFO'
