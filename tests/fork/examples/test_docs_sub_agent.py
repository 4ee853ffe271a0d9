"""The example of a sub-agent that asks in two requests goes on after a restart, and for nobody but who was asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import DeferredToolResults, ModelMessagesTypeAdapter

from ..test_docs import EXAMPLES, Program

pytestmark = pytest.mark.anyio

ADA = 'Ada'


def start(monkeypatch: pytest.MonkeyPatch, database: dict[str, str]) -> Any:
    """Make the agents and toolsets of the example as a new process does, which has nothing but the database."""
    names = Program(EXAMPLES['approve_sub_agent'], monkeypatch).names
    names['database'].update(database)
    return SimpleNamespace(**names)


async def ask(process: Any) -> tuple[bytes, str]:
    """Return the messages of Ada's first request, and the id of the call that waits."""
    result = await process.desk.run('Answer Ada.', deps=ADA)
    [call] = result.output.approvals
    return result.all_messages_json(), call.tool_call_id


async def decide(process: Any, messages: bytes, approvals: dict[str, Any], user: str = ADA) -> Any:
    result = await process.desk.run(
        message_history=ModelMessagesTypeAdapter.validate_json(messages),
        deferred_tool_results=DeferredToolResults(approvals=approvals),
        deps=user,
    )
    return result.output


async def test_docs_sub_agent_goes_on_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = start(monkeypatch, {})
    messages, call = await ask(before)
    after = start(monkeypatch, before.database)
    assert after.mailbox is not before.mailbox

    assert 'Sent 1.' in await decide(after, messages, {call: True})
    assert after.database == {}


async def test_docs_sub_agent_sends_nothing_that_was_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(monkeypatch, {})
    messages, call = await ask(process)

    assert 'Sent' not in await decide(process, messages, {call: False})


@pytest.mark.parametrize('attack', ['twice', 'another user', 'never asked'])
async def test_docs_sub_agent_sends_nothing_that_was_not_approved(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(monkeypatch, {})
    messages, call = await ask(process)
    user = ADA
    if attack == 'twice':
        await decide(process, messages, {call: True})
    elif attack == 'another user':
        user = 'Eve'
    else:
        messages = messages.replace(call.encode(), b'forged')
        call = 'forged'
    kept = dict(process.database)

    with pytest.raises(KeyError):
        await decide(process, messages, {call: True}, user)
    assert process.database == kept
